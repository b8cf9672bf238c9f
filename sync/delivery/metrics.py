"""Metrics of notices, of this process."""

from __future__ import annotations

from typing import Final

from prometheus_client import Counter, Gauge

ROUTED: Final = Counter("sync_notices_routed_total", "Events whose recipients were found.")
REFUSED: Final = Counter("sync_notices_refused_total", "Notices that found no room in a queue; they are queued later.")
DISPLACED: Final = Counter("sync_notices_displaced_total", "Notices that made room for others; they are queued again.")
DEEPEST: Final = Gauge(
    "sync_notices_deepest_queue", "Notices that wait for the agent for whom most do.", multiprocess_mode="mostrecent"
)
