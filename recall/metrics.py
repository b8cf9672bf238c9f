"""Metrics of requests, under the specification's names."""

from __future__ import annotations

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

DEPTH: Final = Histogram(
    "query_fallback_depth_histogram",
    "Fallbacks of a request: 0 none, 1 and 2 a fallback answered, 3 no answer.",
    ("query",),
    buckets=(0, 1, 2, 3),
)
TIMEOUT_RATE: Final = Gauge(
    "query_timeout_rate", "Share of the requests of the last minute that were not answered in time.", ("query",)
)
OUTCOMES: Final = Counter("query_outcomes_total", "Requests by how they were answered.", ("query", "outcome"))
TIMEOUTS: Final = Counter("query_timeouts_total", "Requests that were not answered in time.", ("query",))

SIGNAL_READS: Final = Counter(
    "agent_signal_reads_total", "Reads of agents' signals, by outcome: read, or the kind of the error.", ("outcome",)
)
SIGNAL_SECONDS: Final = Histogram(
    "agent_signal_read_seconds", "Time of a read of agents' signals, retries included.",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5, 5.0),
)  # fmt: skip
SIGNALS_SKIPPED: Final = Counter("agent_signals_skipped_total", "Rows that were skipped since they are no signals.")
SIGNAL_EVOLUTION: Final = Counter("agent_signal_evolution_total", "Changes of agents' views, by type.", ("type",))
SIGNAL_CONTEXT: Final = Histogram(
    "agent_signal_context_chars", "Characters of earlier signals that an agent was shown.",
    buckets=(0, 100, 250, 500, 750, 1000, 2000, 5000),
)  # fmt: skip
