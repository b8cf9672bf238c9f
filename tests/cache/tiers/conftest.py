"""Tiers of several processes over one pair of servers, emptied for each test, and somebody who tells of changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest_asyncio
import redis.asyncio

from imem.cache.client import Client
from imem.cache.keys import APPLIER_HEARTBEAT
from imem.cache.tiers.invalidation import InvalidationPublisher
from imem.cache.tiers.local import LocalCache
from imem.cache.tiers.shared import SharedCache
from imem.cache.tiers.tag_versions import TagVersionReader
from imem.cache.tiers.tiered import ANY_TIME, CacheLookup, Load, Loaded, Query, QueryResult, TieredCache, key_of
from imem.journal.clock import ManualClock
from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError
from tests.telling import publishing_heartbeat
from tests.waiting import until as waiting_until

MOMENT = datetime(2026, 3, 1, tzinfo=UTC)

until = partial(waiting_until, within_s=20.0)
"""Wait for what only asking shows: here nothing takes as long as with a graph."""


def soon(ms: float = 5_000) -> Deadline:
    """Return a deadline that a busy machine keeps."""
    return Deadline.after_ms(ms)


def text_query(name: str, *, scope: str = "agent", shows_patterns: bool = False) -> Query[str]:
    """Return a query for a text."""
    key = key_of("text", "1", scope, {"name": name})
    return Query("text", key, str.encode, bytes.decode, shows_patterns)


async def answered(
    tiers: TieredCache, query: Query[str], load: Load[str], *, deadline: Deadline, epoch: int | None = None
) -> QueryResult[str]:
    """Answer from a fresh copy, else by a load, else by a stale copy, as the reader of a section does."""
    found = await tiers.lookup([query], deadline=deadline)
    one = found[query.key] if query.key is not None else CacheLookup()
    try:
        return tiers.fresh(query, one, epoch) or await tiers.load(query, one, load, deadline=deadline, epoch=epoch)
    except ImemError:
        if (stale := tiers.stale(query, one, epoch)) is None:
            raise
        return stale


@dataclass
class Source:
    """
    What L3 says, and how often it was asked.

    Attributes:
        text: the answer.
        tags: what it hangs on.
        more: of :class:`Loaded`.
        begun: set when a load has begun.
        go: holds loads back until it is set.
        since_s: of when the last answer had to be.
    """

    text: str = "one"
    tags: frozenset[str] = frozenset({"subject:a"})
    more: dict[str, Any] = field(default_factory=dict)
    asked: int = 0
    ended: int = 0
    since_s: float = ANY_TIME
    fails: Exception | None = None
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.go.set()

    async def load(self, _: Deadline, since_s: float = ANY_TIME) -> Loaded[str]:
        self.since_s = since_s
        self.asked += 1
        text = self.text
        self.begun.set()
        try:
            await self.go.wait()
        finally:
            self.ended += 1
        if self.fails is not None:
            raise self.fails
        return Loaded(text, MOMENT, self.tags, **self.more)


@dataclass
class Servers:
    """
    The two servers, and what was made over them.

    Attributes:
        durable, cache: URLs.
        clock: of all tiers.
        publisher: tells of changes; it leads.
    """

    durable: str
    cache: str
    clock: ManualClock
    publisher: InvalidationPublisher
    _stack: AsyncExitStack

    async def process(
        self, *, durable: str | None = None, cache: str | None = None, patient: bool = True, **bounds: int
    ) -> TieredCache:
        """Return the tiers of another process."""
        there = await self._stack.enter_async_context(Client(durable or self.durable))
        shared = await self._stack.enter_async_context(Client(cache or self.cache))
        # A busy machine takes longer than the product waits, where that is not what is looked at.
        tiers = TieredCache(
            LocalCache(self.clock, **bounds),
            SharedCache(shared, budget_ms=5_000.0 if patient else 30.0),
            TagVersionReader(there),
            self.clock,
        )
        tiers.cache_timeout_ms = 5_000.0
        self._stack.push_async_callback(tiers.close)
        return tiers

    async def bare(self, url: str) -> Any:
        """Return the driver's own client."""
        return await self._stack.enter_async_context(redis.asyncio.Redis.from_url(url))


@pytest_asyncio.fixture
async def servers(light_stack: Any) -> AsyncIterator[Servers]:
    """Empty both servers, and give the word that changes are told."""
    urls = [getattr(light_stack.settings, f"valkey_{name}_url").get_secret_value() for name in ("durable", "cache")]
    async with AsyncExitStack() as stack:
        for url in urls:
            bare = await stack.enter_async_context(redis.asyncio.Redis.from_url(url))
            await bare.flushall()
        client = await stack.enter_async_context(Client(urls[0]))
        # A busy machine may not come to repeat it for a while.
        publisher = InvalidationPublisher(client, lambda: True, heartbeat_ttl_s=60.0)
        made = Servers(urls[0], urls[1], ManualClock(MOMENT), publisher, stack)
        try:
            async with publishing_heartbeat(publisher):
                yield made
        finally:
            # It would hold for whoever comes next, too.
            await (await made.bare(urls[0])).delete(APPLIER_HEARTBEAT)
