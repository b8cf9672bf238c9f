"""
Read through the tiers: C2 in the process, C1 shared by processes, L3 (the stores) by one load for concurrent callers.

The gateway has authorised the caller; its scope is part of the key. A cached result is fresh if it is young enough and
none of its dependency tags has changed. If that cannot be checked, it is served only as a fallback, marked stale, where
L3 is late. A result that shows patterns must have their current epoch. A failed load is never cached.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, Generic, TypeVar

import orjson

from imem.cache import keys as names
from imem.cache.metrics import INVALIDATIONS, LOADS, SHARED_LOADS, requests
from imem.cache.tiers.cached_result import Bookmark, CacheEntry, Freshness
from imem.cache.tiers.local import LocalCache
from imem.cache.tiers.shared import SharedCache
from imem.cache.tiers.single_flight import SingleFlight
from imem.cache.tiers.tag_versions import TagVersionReader, TagVersions
from imem.journal.clock import Clock
from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError

T = TypeVar("T")

FRESH_S: Final = 3600.0
"""How long a result is fresh, in seconds; plus or minus a tenth, so that entries do not expire together."""

STALE_S: Final = 24 * 3600.0
"""How long it may be served as a stale fallback, in seconds."""

JITTER: Final = 0.1

CACHE_TIMEOUT_MS: Final = 30.0
"""Timeout of the caches, in milliseconds."""

EAGER_DECODE_BYTES: Final = 200_000
"""Bytes of C1 decoded while tag versions are read; about 6 ms of :data:`CACHE_TIMEOUT_MS`."""

AWAIT_SHARE: Final = 0.5
"""Share of a load's time spent waiting for another process's load; after it this process loads as well."""

CONCURRENT_WARMING: Final = 3


@dataclass(frozen=True, slots=True)
class Query(Generic[T]):
    """
    A query, and the encoding of its result.

    Attributes:
        kind: the type of the query.
        key: cache key; None where the result must not be cached.
        encode, decode: value ↔ bytes; a result that cannot be decoded is a miss. Callers share the value: it must not
            be changed.
        shows_patterns: whether it may show patterns: then it is valid only for the epoch of their status.
    """

    kind: str
    key: bytes | None
    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]
    shows_patterns: bool = False


def key_of(kind: str, schema: str, scope: str, arguments: Mapping[str, Any]) -> bytes:
    """Return the key of a query: equal for equal arguments, different for every scope and schema."""
    return names.answer(kind, schema, scope, orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS))


@dataclass(frozen=True, slots=True)
class Loaded(Generic[T]):
    """
    A result loaded from L3.

    Attributes:
        value: the result.
        moment: the moment as of which it is valid.
        tags: dependency tags.
        keep: whether it is complete; a partial result is not cached.
        negative: whether the query had no results.
        epoch: of the patterns, read before they were.
    """

    value: T
    moment: datetime
    tags: frozenset[str] = frozenset()
    keep: bool = True
    negative: bool = False
    epoch: int | None = None


Load = Callable[[Deadline, float], Awaitable[Loaded[T]]]
"""
Loads from L3 until a deadline, as of a moment of the monotonic clock or later.

Tag versions were read at that moment. A read of L3 from before it may lack a change that the cached result would claim
to include.
"""

ANY_TIME: Final = float("-inf")
"""The moment of a load whose result is not cached."""


@dataclass(frozen=True, slots=True)
class CacheLookup:
    """
    The cached result for one query.

    Attributes:
        entry: the entry, if it may be served at all.
        state: fresh, or stale only.
        tier: the tier that holds it.
        tag_versions: as of the look-up; None where they could not be read.
    """

    entry: CacheEntry | None = None
    state: Freshness = Freshness.ABSENT
    tier: str = ""
    tag_versions: TagVersions | None = None


@dataclass(frozen=True, slots=True)
class QueryResult(Generic[T]):
    """
    A result, with its origin.

    Attributes:
        value: the result.
        moment: the moment as of which it is valid.
        tier: ``C2``, ``C1`` or ``L3``.
        age_s: in seconds, where it is stale; None otherwise.
    """

    value: T
    moment: datetime
    tier: str
    age_s: float | None = None


@dataclass(frozen=True, slots=True)
class _LoadResult(Generic[T]):
    """
    The result of one load.

    Attributes:
        loaded: the result.
        seen: the newest change before the load began; None where that is unknown.
    """

    loaded: Loaded[T]
    seen: Bookmark | None


@dataclass(slots=True)
class TieredCache:
    """
    The tiers, for one process and one event loop.

    Attributes:
        local: C2.
        shared: C1; None where there is none.
        changes: reads tag versions.
        clock: by which entries age.
        random: for jitter, 0 to 1.
        cache_timeout_ms: timeout of the caches, in milliseconds.
        listen: background task, started by the first look-up and cancelled by :meth:`close`.
    """

    local: LocalCache
    shared: SharedCache | None
    changes: TagVersionReader
    clock: Clock
    random: Callable[[], float] = random.random
    cache_timeout_ms: float = CACHE_TIMEOUT_MS
    listen: Callable[[], Coroutine[Any, Any, None]] | None = None
    _flights: SingleFlight[_LoadResult[Any]] = field(default_factory=SingleFlight)
    _warming: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONCURRENT_WARMING))
    _background: set[asyncio.Task[Any]] = field(default_factory=set)
    _ending: set[asyncio.Task[Any]] = field(default_factory=set)

    # Look-up

    async def lookup(self, queries: Iterable[Query[Any]], *, deadline: Deadline) -> dict[bytes, CacheLookup]:
        """
        Return what C2 and C1 hold for each query with a key; what cannot be read in time is a miss.

        L3 is not read, and epochs of patterns are not compared yet.
        """
        if self.listen is not None:
            listen, self.listen = self.listen, None
            self._later(listen())
        wanted = {query.key: query for query in queries if query.key is not None}
        entries: dict[bytes, tuple[CacheEntry, str]] = {}
        for key in wanted:
            entry = self.local.get(key)
            if entry is not None:
                entries[key] = (entry, "C2")
        missing = [key for key in wanted if key not in entries]
        if missing and self.shared is not None:
            for key, entry in zip(missing, await self.shared.get(missing, deadline=deadline), strict=True):
                if entry is not None:
                    entries[key] = (entry, "C1")
        tags = {tag for entry, _ in entries.values() for tag in entry.tags}
        asked = asyncio.create_task(self.changes.tag_versions(tags, deadline=deadline.within_ms(self.cache_timeout_ms)))
        try:
            # While tag versions are read, entries of C1 are decoded: nearly all of them are valid.
            await asyncio.sleep(0)
            left = EAGER_DECODE_BYTES
            for key, (entry, tier) in entries.items():
                if entry.decoded_value is None and len(entry.value) <= left:
                    left -= len(entry.value)
                    entries[key] = (self._decode_eagerly(wanted[key], key, entry), tier)
            tag_versions = await asked
        finally:
            asked.cancel()
        now = self.clock.now()
        return {key: self._found(key, entries.get(key), tag_versions, now) for key in wanted}

    def _decode_eagerly(self, query: Query[Any], key: bytes, entry: CacheEntry) -> CacheEntry:
        """Return *entry* decoded, if it can be."""
        try:
            return self._with_decoded_value(query, key, entry)
        except ValueError:
            # The caller that serves it finds the same error, and drops it.
            return entry

    async def recheck(self, found: Mapping[bytes, CacheLookup], *, deadline: Deadline) -> dict[bytes, CacheLookup]:
        """Return *found*, checked against the current tag versions."""
        tags = {tag for one in found.values() if one.entry is not None for tag in one.entry.tags}
        tag_versions = await self.changes.tag_versions(tags, deadline=deadline.within_ms(self.cache_timeout_ms))
        now = self.clock.now()
        return {
            key: self._found(key, (one.entry, one.tier) if one.entry is not None else None, tag_versions, now)
            for key, one in found.items()
        }

    def _found(
        self, key: bytes, kept: tuple[CacheEntry, str] | None, tag_versions: TagVersions | None, now: datetime
    ) -> CacheLookup:
        if kept is None:
            return CacheLookup(tag_versions=tag_versions)
        entry, tier = kept
        state = entry.state(now)
        if tag_versions is None:
            # Validity is unknown: only a stale fallback.
            return CacheLookup(entry, Freshness.STALE, tier) if state is not Freshness.ABSENT else CacheLookup()
        if not tag_versions.holds(entry):
            self.local.drop(key)
            INVALIDATIONS.labels(tier).inc()
            return CacheLookup(tag_versions=tag_versions)
        if state is Freshness.ABSENT:
            return CacheLookup(tag_versions=tag_versions)
        return CacheLookup(entry, state, tier, tag_versions)

    # Reading

    def fresh(self, query: Query[T], found: CacheLookup, epoch: int | None) -> QueryResult[T] | None:
        """Return the cached result if it is fresh."""
        if found.entry is None or found.state is not Freshness.FRESH or not _shows(query, found.entry, epoch):
            return None
        answer = self._decoded(query, found)
        if answer is not None:
            requests(found.tier, query.kind, "negative" if found.entry.negative else "hit").inc()
        return answer

    def stale(self, query: Query[T], found: CacheLookup, epoch: int | None) -> QueryResult[T] | None:
        """Return the cached result as a fallback, with its age."""
        if found.entry is None or found.state is Freshness.ABSENT or not _shows(query, found.entry, epoch):
            return None
        answer = self._decoded(query, found)
        if answer is None:
            return None
        requests(found.tier, query.kind, "stale").inc()
        return replace(answer, age_s=found.entry.age_s(self.clock.now()))

    def _decoded(self, query: Query[T], found: CacheLookup) -> QueryResult[T] | None:
        if found.entry is None or query.key is None:
            return None
        try:
            value: T = self._with_decoded_value(query, query.key, found.entry).decoded_value
        except ValueError:
            # Written by a program with another encoding.
            self.local.drop(query.key)
            return None
        return QueryResult(value, found.entry.moment, found.tier)

    def _with_decoded_value(self, query: Query[Any], key: bytes, entry: CacheEntry) -> CacheEntry:
        """
        Return *entry* with its value, decoded once in this process and stored in C2.

        Raises:
            ValueError: it cannot be decoded.
        """
        if entry.decoded_value is None:
            entry = replace(entry, decoded_value=query.decode(entry.value))
            self.local.put(key, entry)
        return entry

    async def load(
        self,
        query: Query[T],
        found: CacheLookup,
        load: Load[T],
        *,
        deadline: Deadline,
        epoch: int | None = None,
        why: str = "asked",
    ) -> QueryResult[T]:
        """
        Load from L3, once for concurrent callers, and cache the result.

        A caller that joins a running load takes its result only if none of its tags has changed since that load began:
        the caller may have been notified of a write meanwhile.

        Raises:
            ImemError: *load* failed; BudgetExceeded where it was late.
        """
        if why == "asked":
            requests("L3", query.kind, "miss").inc()
        if query.key is None:
            loaded = await load(deadline, ANY_TIME)
            LOADS.labels(query.kind, why).inc()
            return QueryResult(loaded.value, loaded.moment, "L3")
        key, tag_versions = query.key, found.tag_versions
        while True:
            entry = self.local.get(key)
            if entry is not None and entry is not found.entry and await self._is_usable(query, entry, epoch, deadline):
                # Loaded since this caller's look-up.
                value: T = self._with_decoded_value(query, key, entry).decoded_value
                return QueryResult(value, entry.moment, "C2")
            one_load = partial(
                self._one_load, query, key, load, tag_versions=tag_versions, epoch=epoch, deadline=deadline, why=why
            )
            landed, joined = await self._flights.join(key, one_load, deadline=deadline)
            if not joined:
                break
            SHARED_LOADS.labels(query.kind).inc()
            older = query.shows_patterns and (epoch is None or (landed.loaded.epoch or 0) < epoch)
            if not older and (landed.seen is None or await self._unchanged(landed.seen, landed.loaded.tags, deadline)):
                break
            tag_versions = await self.changes.tag_versions(deadline=deadline.within_ms(self.cache_timeout_ms))
        return QueryResult(landed.loaded.value, landed.loaded.moment, "L3")

    async def _one_load(
        self,
        query: Query[T],
        key: bytes,
        load: Load[T],
        *,
        tag_versions: TagVersions | None,
        epoch: int | None,
        deadline: Deadline,
        why: str,
    ) -> _LoadResult[T]:
        """Load, unless another process does, and cache a complete result."""
        token: bytes | None = None
        if self.shared is not None and tag_versions is not None:
            token, entry = await self._await_other_load(self.shared, query, key, epoch, deadline)
            answer = self._decoded(query, CacheLookup(entry, Freshness.FRESH, "C1"))
            if entry is not None and answer is not None:
                SHARED_LOADS.labels(query.kind).inc()
                loaded = Loaded(answer.value, entry.moment, frozenset(entry.tags), epoch=entry.epoch)
                return _LoadResult(loaded, entry.bookmark)
        bookmark = tag_versions.bookmark if tag_versions is not None else None
        kept: CacheEntry | None = None
        try:
            loaded = await load(deadline, tag_versions.read_at_s if tag_versions is not None else ANY_TIME)
            LOADS.labels(query.kind, why).inc()
            kept = self._entry(query, loaded, bookmark)
            if kept is not None:
                self.local.put(key, replace(kept, decoded_value=loaded.value))
        finally:
            if self.shared is not None and token is not None:
                self._later(self.shared.end(key, token, kept, now=self.clock.now()), brief=True)
        return _LoadResult(loaded, bookmark)

    async def _await_other_load(
        self, shared: SharedCache, query: Query[T], key: bytes, epoch: int | None, deadline: Deadline
    ) -> tuple[bytes | None, CacheEntry | None]:
        """Return the token under which to load, or what another process has loaded; neither after the timeout."""

        async def good(entry: CacheEntry) -> bool:
            return await self._is_usable(query, entry, epoch, deadline)

        token, entry = await shared.begin(key, deadline=deadline)
        if entry is not None and await good(entry):
            if token is not None:
                self._later(shared.end(key, token, None, now=self.clock.now()), brief=True)
            return None, entry
        if token is not None:
            return token, None
        return None, await shared.wait_for_entry(
            key, good, deadline=deadline.within_ms(deadline.left_ms() * AWAIT_SHARE)
        )

    async def _is_usable(self, query: Query[Any], entry: CacheEntry, epoch: int | None, deadline: Deadline) -> bool:
        if entry.state(self.clock.now()) is not Freshness.FRESH or not _shows(query, entry, epoch):
            return False
        return await self._unchanged(entry.bookmark, entry.tags, deadline)

    async def _unchanged(self, seen: Bookmark, tags: Collection[str], deadline: Deadline) -> bool:
        tag_versions = await self.changes.tag_versions(tags, deadline=deadline.within_ms(self.cache_timeout_ms))
        return tag_versions is not None and tag_versions.unchanged(seen, tags)

    def _entry(self, query: Query[T], loaded: Loaded[T], bookmark: Bookmark | None) -> CacheEntry | None:
        if not loaded.keep or bookmark is None or (query.shows_patterns and loaded.epoch is None):
            return None
        now = self.clock.now()
        fresh_s = FRESH_S * (1 + JITTER * (2 * self.random() - 1))
        return CacheEntry(
            value=query.encode(loaded.value),
            moment=loaded.moment,
            created_at=now,
            fresh_until=now + timedelta(seconds=fresh_s),
            stale_until=now + timedelta(seconds=STALE_S),
            bookmark=bookmark,
            tags=tuple(sorted(loaded.tags)),
            epoch=loaded.epoch if query.shows_patterns else None,
            negative=loaded.negative,
        )

    # Keeping, dropping, warming

    def put_local(self, query: Query[T], loaded: Loaded[T], bookmark: Bookmark) -> None:
        """Cache a result in this process alone; *bookmark* as of before it was loaded."""
        entry = self._entry(query, loaded, bookmark)
        if entry is not None and query.key is not None:
            self.local.put(query.key, entry)

    async def warm(self, works: Sequence[tuple[Query[Any], Load[Any]]], *, budget_ms: float) -> int:
        """
        Load what is not cached, three at a time, each within *budget_ms*; return how many were loaded.

        Errors are ignored: the next caller loads it then.
        """
        found = await self.lookup([query for query, _ in works], deadline=Deadline.after_ms(self.cache_timeout_ms))

        async def one(query: Query[Any], load: Load[Any]) -> int:
            held = found.get(query.key, CacheLookup()) if query.key is not None else CacheLookup()
            if query.key is None:
                return 0
            if held.state is Freshness.FRESH and held.entry is not None and not query.shows_patterns:
                if held.tier == "C1":
                    self.local.put(query.key, held.entry)
                return 0
            async with self._warming:
                try:
                    await self.load(query, held, load, deadline=Deadline.after_ms(budget_ms), why="warming")
                except ImemError:
                    return 0
            return 1

        return sum(await asyncio.gather(*(one(query, load) for query, load in works)))

    def revalidate(self, query: Query[T], found: CacheLookup, load: Load[T], *, budget_ms: float) -> None:
        """Load in the background after a stale result was served, unless a load is running."""

        async def work() -> None:
            try:
                await self.load(query, found, load, deadline=Deadline.after_ms(budget_ms), why="revalidating")
            except ImemError:
                return

        self._later(work())

    def _later(self, work: Coroutine[Any, Any, Any], *, brief: bool = False) -> None:
        """Run *work* in the background; :meth:`close` waits for *brief* work and cancels the rest."""
        task = asyncio.get_running_loop().create_task(work)
        of = self._ending if brief else self._background
        of.add(task)
        task.add_done_callback(of.discard)

    async def close(self) -> None:
        """Cancel background work; entries that are being stored in C1 are still stored."""
        await self._flights.close()
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, *self._ending, return_exceptions=True)


def _shows(query: Query[Any], entry: CacheEntry, epoch: int | None) -> bool:
    """Return whether *entry* has the current epoch of the patterns that it shows; False where the epoch is unknown."""
    return not query.shows_patterns or (epoch is not None and entry.epoch == epoch)
