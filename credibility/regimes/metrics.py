"""Metrics of regimes, under the specification's names."""

from __future__ import annotations

from typing import Final

from prometheus_client import Gauge, Histogram

UPDATE_S: Final = Histogram(
    "regime_update_duration_histogram",
    "Seconds from the opening of a run until its regime was detected, or all scores were published.",
    ("step",),
    buckets=(1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600),
)
STALENESS_S: Final = Gauge(
    "regime_staleness_p99_gauge",
    "Seconds from the opening of the newest run until 99 of 100 scores were published under its regime, or until now.",
    multiprocess_mode="mostrecent",
)
