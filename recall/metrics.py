"""Metrics of requests, under the specification's names."""

from __future__ import annotations

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

DEPTH: Final = Histogram(
    "query_fallback_depth_histogram",
    "How far a question had to fall back: 0 answered, 1 and 2 something stood in, 3 nothing did.",
    ("query",),
    buckets=(0, 1, 2, 3),
)
TIMEOUT_RATE: Final = Gauge(
    "query_timeout_rate", "Share of the questions of the last minute that were not answered in time.", ("query",)
)
OUTCOMES: Final = Counter("query_outcomes_total", "Questions by how they were answered.", ("query", "outcome"))
TIMEOUTS: Final = Counter("query_timeouts_total", "Questions that were not answered in time.", ("query",))
