"""Metrics of delivery to the graph and to agents."""

from __future__ import annotations

from typing import Final

from prometheus_client import Gauge

QUEUE_DEPTH: Final = Gauge(
    "sync_queue_depth_gauge",
    "Pending entries by queue and tier; 'delivery': events for the graph.",
    ("queue", "tier"),
    multiprocess_mode="mostrecent",
)
BACKPRESSURE_ACTIVE: Final = Gauge(
    "sync_backpressure_active_gauge",
    "1 while a queue is throttled; 'delivery': while urgent events keep bulk batches small.",
    ("queue",),
    multiprocess_mode="mostrecent",
)
# A counter, declared as a gauge: the library would export this name as sync_dropped_total_counter_total.
DROPPED: Final = Gauge(
    "sync_dropped_total_counter",
    "Dead entries by queue and tier; 'delivery': events that the graph refused for good.",
    ("queue", "tier"),
    multiprocess_mode="sum",
)

DELIVERY: Final = "delivery"
"""The queue of events that are pending for the graph."""
