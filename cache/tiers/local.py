"""C2: cached results in the process. Evicts the least recently used; removes what is too old to be stale."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Final

from cachetools import TLRUCache

from imem.cache.metrics import BYTES, ENTRIES, EVICTIONS, INVALIDATIONS
from imem.cache.tiers.cached_result import CacheEntry
from imem.journal.clock import Clock

MAX_ENTRIES: Final = 10_000
MAX_BYTES: Final = 64 * 1024 * 1024
"""Bounds of one process; the one that is reached first counts."""

_SPARE: Final = 100
"""Tags of removed entries that may remain, in addition to as many as there are entries."""

TIER: Final = "C2"

# Cached: looking a counter up takes longer than counting.
_ENTRIES: Final = ENTRIES.labels(TIER)
_BYTES: Final = BYTES.labels(TIER)
_EVICTIONS: Final = EVICTIONS.labels(TIER)
_INVALIDATIONS: Final = INVALIDATIONS.labels(TIER)


class LocalCache:
    """
    Entries of one process.

    Args:
        clock: by which entries age.
        most_entries, most_bytes: bounds.
    """

    def __init__(self, clock: Clock, *, most_entries: int = MAX_ENTRIES, most_bytes: int = MAX_BYTES) -> None:
        self._clock = clock
        self._most_entries = most_entries
        self._most_bytes = most_bytes
        self._entries: TLRUCache[bytes, CacheEntry, datetime] = TLRUCache(
            most_bytes, ttu=lambda _, entry, __: entry.stale_until, timer=clock.now, getsizeof=_size
        )
        # Kept apart: reading an entry would count as its use for LRU. Some of these entries may be gone already.
        self._tags: dict[bytes, tuple[str, ...]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: bytes) -> CacheEntry | None:
        """Return the entry, or None where there is none or it is too old even as a stale one."""
        found: CacheEntry | None = self._entries.get(key)
        return found

    def put(self, key: bytes, entry: CacheEntry) -> None:
        """Store an entry, evicting the least recently used. An entry above the bound is not stored."""
        if entry.size_bytes > self._most_bytes or self._clock.now() >= entry.stale_until:
            return
        # Counting removes expired entries, which is slow: done as seldom as possible.
        before = len(self._entries) + (key not in self._entries)
        self._entries[key] = entry
        while (count := len(self._entries)) > self._most_entries:
            self._entries.popitem()
        _EVICTIONS.inc(max(0, before - count))
        self._tags[key] = entry.tags
        if len(self._tags) > 2 * count + _SPARE:
            self._tags = {key: tags for key, tags in self._tags.items() if key in self._entries}
        self._show(count)

    def drop(self, key: bytes) -> None:
        """Drop one entry, if it exists."""
        self._tags.pop(key, None)
        if self._entries.pop(key, None) is not None:
            _INVALIDATIONS.inc()
            self._show(len(self._entries))

    def drop_tagged(self, tags: Collection[str]) -> int:
        """Drop the entries with one of *tags*; return how many."""
        wanted = frozenset(tags)
        bearing = [key for key, tags in self._tags.items() if not wanted.isdisjoint(tags)]
        gone = 0
        for key in bearing:
            del self._tags[key]
            gone += self._entries.pop(key, None) is not None
        _INVALIDATIONS.inc(gone)
        self._show(len(self._entries))
        return gone

    def clear(self) -> None:
        """Drop all entries."""
        _INVALIDATIONS.inc(len(self._entries))
        self._entries.clear()
        self._tags.clear()
        self._show(0)

    def _show(self, count: int) -> None:
        _ENTRIES.set(count)
        _BYTES.set(self._entries.currsize)


def _size(entry: CacheEntry) -> int:
    return entry.size_bytes
