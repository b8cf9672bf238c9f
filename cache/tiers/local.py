"""C2: answers kept in the process, the least recently used going first, none beyond its time."""

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
"""What one process keeps at most; whichever bound is met first."""

_SPARE: Final = 100
"""Entries that are gone whose tags may stay, beside as many as there are entries."""

TIER: Final = "C2"

# Looked up once: that is dearer than to count.
_ENTRIES: Final = ENTRIES.labels(TIER)
_BYTES: Final = BYTES.labels(TIER)
_EVICTIONS: Final = EVICTIONS.labels(TIER)
_INVALIDATIONS: Final = INVALIDATIONS.labels(TIER)


class LocalCache:
    """
    Entries of one process.

    Args:
        clock: by which entries age.
        most_entries, most_bytes: its bounds.
    """

    def __init__(self, clock: Clock, *, most_entries: int = MAX_ENTRIES, most_bytes: int = MAX_BYTES) -> None:
        self._clock = clock
        self._most_entries = most_entries
        self._most_bytes = most_bytes
        self._entries: TLRUCache[bytes, CacheEntry, datetime] = TLRUCache(
            most_bytes, ttu=lambda _, entry, __: entry.stale_until, timer=clock.now, getsizeof=_size
        )
        # Beside the entries: to look at one would be to use it, and those used least are the first to go. Some of these
        # may be gone already.
        self._tags: dict[bytes, tuple[str, ...]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size_bytes(self) -> int:
        """What its entries take, about."""
        return int(self._entries.currsize)

    def get(self, key: bytes) -> CacheEntry | None:
        """Return the entry, or None where there is none or it is too old for anything."""
        found: CacheEntry | None = self._entries.get(key)
        return found

    def put(self, key: bytes, entry: CacheEntry) -> None:
        """Keep an entry; what was used least recently makes room for it. One larger than everything is not kept."""
        if entry.size_bytes > self._most_bytes or self._clock.now() >= entry.stale_until:
            return
        # To count them is to look for those that are too old: it is done as seldom as can be.
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
        """Drop one entry, if it is there."""
        self._tags.pop(key, None)
        if self._entries.pop(key, None) is not None:
            _INVALIDATIONS.inc()
            self._show(len(self._entries))

    def drop_tagged(self, tags: Collection[str]) -> int:
        """Drop what bears one of *tags*; return how many."""
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
        """Drop everything: something was missed."""
        _INVALIDATIONS.inc(len(self._entries))
        self._entries.clear()
        self._tags.clear()
        self._show(0)

    def _show(self, count: int) -> None:
        _ENTRIES.set(count)
        _BYTES.set(self._entries.currsize)


def _size(entry: CacheEntry) -> int:
    return entry.size_bytes
