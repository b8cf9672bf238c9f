"""Loading of sections from the stores (L3): four fifths of the whole budget, 400 of 500 ms."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from imem.cache.tiers import tags
from imem.cache.tiers.tiered import ANY_TIME, CacheLookup, Load, Loaded, Query
from imem.journal.deadline import Deadline
from imem.journal.errors import BudgetExceeded
from imem.kg.asof import AsOf, dated
from imem.kg.kinds.catalog import subject_ref
from imem.recall.answers import BriefingSection, Quality
from imem.recall.immutable import sealed
from imem.recall.read_horizon import ReadHorizon
from imem.recall.request.context import RequestContext
from imem.recall.request.horizon import RequestHorizon, background_task
from imem.recall.sections.spec import SectionSpec

A = TypeVar("A", bound=BriefingSection)


@dataclass(slots=True)
class SectionLoader:
    """Loads the sections of one request, through the cache."""

    context: RequestContext
    horizon: RequestHorizon
    _series: tuple[ReadHorizon, asyncio.Task[frozenset[str]]] | None = None

    async def load(self, query: Query[A], spec: SectionSpec[A], found: CacheLookup, epoch: int | None) -> A:
        """
        Load a section, and cache it if it is exact; concurrent callers share one load.

        Raises:
            ImemError: the stores refused, or did not answer in time.
        """
        self.horizon.loaded = True
        tiers, load, due = self.context.sources.tiers, self.loader(spec), self.context.l3
        if tiers is None:
            try:
                async with asyncio.timeout(due.left_s()):
                    loaded = await load(due, ANY_TIME)
            except TimeoutError as error:
                raise BudgetExceeded("The result did not come before the deadline.") from error
            self.horizon.moments.append(loaded.moment)
            return loaded.value
        if query.key is not None and await self.horizon.clamps_asked():
            query = replace(query, key=None)
        answer = await tiers.load(query, found, load, deadline=due, epoch=epoch)
        self.horizon.moments.append(answer.moment)
        return answer.value

    def loader(self, spec: SectionSpec[A]) -> Load[A]:
        """Return the function that loads a section from L3."""
        asked, on = self.context.asked, self.context.on

        async def load(due: Deadline, since_s: float) -> Loaded[A]:
            read_horizon = await self.horizon.read(since_s)
            at = read_horizon.resolve(asked, on)
            section, subject_tags = await asyncio.gather(
                spec.load(self.context.retrieval_request(at, due)), self._subject_tags(spec, read_horizon)
            )
            return Loaded(
                sealed(section),
                at.at,
                subject_tags | spec.tags(section),
                keep=section.quality is Quality.EXACT and (asked is None or at.at == asked),
                negative=not section.total,
                epoch=read_horizon.epoch,
            )

        return load

    async def _subject_tags(self, spec: SectionSpec[Any], read_horizon: ReadHorizon) -> frozenset[str]:
        """Return the subject's dependency tags: its own record's alone, or all records' about it and its series."""
        subject_id = self.context.subject_id
        if spec.own_record:
            return frozenset({tags.record(*subject_ref(subject_id))})
        return frozenset({tags.subject(subject_id)}) | await self._series_tags(read_horizon)

    async def _series_tags(self, read_horizon: ReadHorizon) -> frozenset[str]:
        """Return the tag of a market's series: analyses of other markets in it are part of the answer."""
        ref = subject_ref(self.context.subject_id)
        if ref[0] != "Market":
            return frozenset()
        if self._series is None or self._series[0] is not read_horizon:

            async def read() -> frozenset[str]:
                database = self.context.sources.gateway.database
                answer = await dated(database, [ref], AsOf(read_horizon.now), deadline=self.context.l3)
                record = answer.records.get(ref)
                series_id = record.get("series_id") if record is not None else None
                return frozenset({tags.series(str(series_id))}) if series_id else frozenset()

            self._series = read_horizon, background_task(read())
        return await asyncio.shield(self._series[1])
