"""The first read of a request in Postgres, before its sections: the read horizon, and the right to read patterns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar

from imem.cache.tiers.tiered import ANY_TIME
from imem.journal.actors import Resource, ResourceType
from imem.journal.errors import ImemError
from imem.kg.asof import AsOf, AsOfClock
from imem.recall.read_horizon import ReadHorizon, fetch_read_horizon, pattern_epoch
from imem.recall.request.context import RequestContext
from imem.recall.sections.spec import SectionSpec
from imem.recall.subjects import PRESENT

T = TypeVar("T")


@dataclass(slots=True)
class RequestHorizon:
    """
    The read horizon of one request: fetched at most once, and once more for a load that needs a later one.

    Attributes:
        moments: the as-of of each section so far.
        loaded: whether any section was loaded from L3.
        before: the process's last read horizon when the request began, before the cache lookup.
    """

    context: RequestContext
    moments: list[datetime] = field(default_factory=list)
    loaded: bool = False
    before: ReadHorizon | None = None
    _first: asyncio.Task[ReadHorizon] | None = None
    _first_s: float = ANY_TIME
    _later: asyncio.Task[ReadHorizon] | None = None
    _later_s: float = ANY_TIME

    def __post_init__(self) -> None:
        """Take the process's read horizon of before the cache lookup."""
        self.before = self.context.sources.last_horizon.read_horizon

    def start(self) -> asyncio.Task[ReadHorizon]:
        """Start fetching the horizon, unless that was done."""
        if self._first is None:
            self._first_s, self._first = time.monotonic(), self._fetch()
        return self._first

    async def read(self, since_s: float = ANY_TIME) -> ReadHorizon:
        """
        Return the horizon; it is fetched once more if the first fetch began before *since_s*.

        Args:
            since_s: earliest start of the fetch, on the monotonic clock.

        Raises:
            PostgresUnavailable, BudgetExceeded: Postgres did not answer in time.
        """
        first = self.start()
        if self._first_s >= since_s:
            return await asyncio.shield(first)
        if self._later is None or self._later_s < since_s:
            self._later_s, self._later = time.monotonic(), self._fetch()
        return await asyncio.shield(self._later)

    def _fetch(self) -> asyncio.Task[ReadHorizon]:
        async def fetched() -> ReadHorizon:
            sources = self.context.sources
            read_horizon = await fetch_read_horizon(sources.gateway.database, self.context.on, deadline=self.context.l3)
            sources.last_horizon.note(read_horizon)
            return read_horizon

        return background_task(fetched())

    async def resolve(self) -> AsOf:
        """
        Return the as-of asked for, clamped to the horizon.

        Raises:
            PostgresUnavailable, BudgetExceeded: Postgres did not answer in time.
        """
        return (await self.read()).resolve(self.context.asked, self.context.on)

    async def moment_of_subject(self) -> AsOf:
        """
        Return the as-of at which the subject must exist; for "now" on the known clock, all that is recorded counts.

        Raises:
            PostgresUnavailable, BudgetExceeded: Postgres did not answer in time.
        """
        asked = self.context.asked
        if self.context.of_now:
            return PRESENT
        if asked is not None and self.covers_asked():
            return AsOf(asked, self.context.on, asked)
        return await self.resolve()

    def covers_asked(self) -> bool:
        """Return whether the as-of asked for is now, or lies within the horizon held when the request began."""
        asked = self.context.asked
        if asked is None:
            return True
        return self.before is not None and self.context.on is AsOfClock.KNOWN and asked <= self.before.horizon

    async def clamps_asked(self) -> bool:
        """Return whether the as-of asked for is clamped to the horizon: then no cache entry is for it."""
        if self.context.asked is None or self.covers_asked():
            return False
        try:
            return (await self.resolve()).at != self.context.asked
        except ImemError:
            return False

    def as_of_answer(self, read_horizon: ReadHorizon | None) -> AsOf | None:
        """Return the as-of of the whole answer, after its sections are complete; None if no section has one."""
        asked, on = self.context.asked, self.context.on
        if asked is not None and not self.loaded and self.moments:
            return AsOf(max(self.moments), on, asked, self.before.horizon if self.before else None)
        if read_horizon is None or not self.loaded:
            read_horizon = self.before or read_horizon
        if read_horizon is None:
            return AsOf(max(self.moments), on, asked) if self.moments else None
        at = read_horizon.resolve(asked, on)
        return replace(at, at=max([at.at, *self.moments])) if asked is None else at


@dataclass(slots=True)
class PatternAccess:
    """
    The authorization of patterns for one request; its audit row is written while the cache lookup runs.

    Attributes:
        granted: the authorization, with the epoch; None if it was not asked for.
    """

    context: RequestContext
    granted: asyncio.Task[int] | None = None
    _epoch: asyncio.Task[int] | None = None

    def start(self, specs: Sequence[SectionSpec[Any]]) -> None:
        """Start the authorization (an audit row) or the read of the epoch, if *specs* show patterns."""
        if any(spec.resource is ResourceType.PATTERNS for spec in specs):
            self.start_grant()
        elif any(spec.shows_patterns for spec in specs):
            self._start_epoch()

    def start_grant(self) -> asyncio.Task[int]:
        """Start the authorization of reading patterns, once per request."""
        if self.granted is None:
            context = self.context
            resource = Resource(ResourceType.PATTERNS, context.subject_id)
            grant = context.sources.gateway.authorize_patterns(resource, deadline=context.l3, actor=context.actor)
            self.granted = background_task(grant)
        return self.granted

    def _start_epoch(self) -> asyncio.Task[int]:
        if self._epoch is None:
            database = self.context.sources.gateway.database
            self._epoch = background_task(pattern_epoch(database, deadline=self.context.l3))
        return self._epoch

    async def epoch(self) -> int | None:
        """Return the epoch of pattern statuses: from the authorization, else read by itself; None if both fail."""
        for start in (*((self.start_grant,) if self.granted is not None else ()), self._start_epoch):
            try:
                return await asyncio.shield(start())
            except ImemError:
                continue
        return None


def background_task(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Return *work* as a task whose exception is consumed even if it is never awaited."""
    task = asyncio.create_task(work)
    task.add_done_callback(_consume_exception)
    return task


def _consume_exception(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception of a task, so that asyncio does not log it as lost."""
    if not task.cancelled():
        task.exception()
