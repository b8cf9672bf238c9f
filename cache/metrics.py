"""Metrics of the cache. Warming counts as loads, never as requests."""

from __future__ import annotations

from functools import cache
from typing import Final

from prometheus_client import Counter, Gauge

REQUESTS: Final = Counter(
    "cache_requests_total",
    "Requests by the tier that answered (C2 in the process, C1 shared, L3 loaded), and what the answer was.",
    ("tier", "query", "result"),
)
"""*result*: ``hit``, ``negative`` (a hit for a query without results), ``stale``, ``miss`` (loaded from L3)."""


@cache
def requests(tier: str, query: str, result: str) -> Counter:
    """Return the counter with these labels; cached, because the look-up is slow."""
    return REQUESTS.labels(tier, query, result)


LOADS: Final = Counter("cache_loads_total", "Loads from L3, asked for or warming.", ("query", "why"))
SHARED_LOADS: Final = Counter("cache_shared_loads_total", "Requests that waited for another caller's load.", ("query",))
EVICTIONS: Final = Counter("cache_evictions_total", "Entries that made room for others.", ("tier",))
INVALIDATIONS: Final = Counter("cache_invalidations_total", "Entries that were invalidated.", ("tier",))
ERRORS: Final = Counter("cache_errors_total", "Failed operations of a cache; each counts as a miss.", ("tier",))
ENTRIES: Final = Gauge("cache_entries", "Entries held in this process.", ("tier",))
BYTES: Final = Gauge("cache_bytes", "Bytes held in this process.", ("tier",))
UNREADABLE: Final = Counter(
    "cache_epochs_unreadable_total", "Reads for which the validity of cached results was unknown."
)
