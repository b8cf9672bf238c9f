"""
Reads the sections of one request: from the cache, else loaded, else from a fallback.

The gateway authorizes each section on every request, before a cached result is used. Fresh cached results are used
without a task of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from imem.cache.tiers.tiered import CacheLookup, Query
from imem.journal.actors import Action, Resource, ResourceType
from imem.journal.errors import BadInput, ImemError, PermissionDenied
from imem.journal.telemetry.tracing import TRACER
from imem.recall.answers import BriefingSection
from imem.recall.request.context import RequestContext
from imem.recall.request.fallbacks import FallbackPolicy, mark_stale, may_revalidate
from imem.recall.request.horizon import PatternAccess, RequestHorizon
from imem.recall.request.loading import SectionLoader
from imem.recall.request.lookup import SectionLookup
from imem.recall.sections.spec import SectionSpec
from imem.recall.timing.latency_watch import AnswerSource

A = TypeVar("A", bound=BriefingSection)


class SectionReader:
    """Reads the sections of one request; its parts share what was asked, and one read horizon."""

    __slots__ = ("context", "fallbacks", "horizon", "loader", "lookup", "patterns")

    def __init__(self, context: RequestContext) -> None:
        self.context = context
        self.horizon = RequestHorizon(context)
        self.lookup = SectionLookup(context, self.horizon)
        self.patterns = PatternAccess(context)
        self.loader = SectionLoader(context, self.horizon)
        self.fallbacks = FallbackPolicy(context, self.horizon)

    async def section(self, spec: SectionSpec[A]) -> A:
        """
        Return a section: cached, loaded, or from a fallback.

        Raises:
            PermissionDenied: the actor may not read it.
            ImemError: neither the load nor any fallback succeeded.
        """

        async def read() -> A:
            return await self._read(spec)

        with TRACER.start_as_current_span("imem.section", attributes={"imem.section": spec.name}):
            if spec.resource is ResourceType.PATTERNS:
                await asyncio.shield(self.patterns.start_grant())
                return await read()
            resource = Resource(spec.resource, self.context.subject_id)
            context = self.context
            return await context.sources.gateway.authorize_and_execute(
                resource, Action.READ, read, deadline=context.deadline, actor=context.actor
            )

    async def cached_sections(self, specs: Sequence[SectionSpec[Any]]) -> dict[str, Any]:
        """
        Return by name the sections of *specs* that fresh cached results answer.

        Sections that show patterns are included only if all others are: they have to wait for the audit row.
        """
        shown: dict[str, Any] = {}
        sources, found = self.context.sources, await self.lookup.results()
        if sources.tiers is None or not self.horizon.covers_asked():
            return shown
        # One decision per resource type; a refusal is made and audited per section, in section().
        resources = {spec.resource for spec in specs} - {ResourceType.PATTERNS}
        subject_id, may, actor = self.context.subject_id, sources.gateway.may, self.context.actor
        if not all(may(Resource(one, subject_id), Action.READ, actor=actor) for one in resources):
            return shown
        plain = [spec for spec in specs if not spec.shows_patterns]
        # Lets the statement just started be sent before entries are decoded: Postgres writes the row meanwhile.
        await asyncio.sleep(0)
        for spec in plain:
            self._take(spec, found, None, shown)
        if self.patterns.granted is None or len(shown) < len(plain):
            return shown
        try:
            epoch = await asyncio.shield(self.patterns.granted)
        except ImemError:
            return shown
        for spec in specs:
            if spec.shows_patterns:
                self._take(spec, found, epoch, shown)
        return shown

    def _take(
        self, spec: SectionSpec[Any], found: Mapping[bytes, CacheLookup], epoch: int | None, shown: dict[str, Any]
    ) -> None:
        """Add the section to *shown* if its cached result is fresh."""
        query, sources = self.lookup.query(spec), self.context.sources
        one = found.get(query.key) if query.key is not None else None
        answer = sources.tiers.fresh(query, one, epoch) if sources.tiers is not None and one is not None else None
        if answer is not None:
            shown[spec.name] = answer.value
            self.horizon.moments.append(answer.moment)
            sources.watch.observe(spec.name, AnswerSource.CACHED)

    async def _read(self, spec: SectionSpec[A]) -> A:
        query = self.lookup.query(spec)
        found = await self.lookup.found(query)
        epoch = await self.patterns.epoch() if spec.shows_patterns else None
        cached = await self._cached(spec, query, found, epoch)
        if cached is not None:
            return cached
        try:
            section = await self.loader.load(query, spec, found, epoch)
        except (PermissionDenied, BadInput):
            raise
        except ImemError as error:
            return await self.fallbacks.answer(query, spec, found, epoch, error)
        self.context.sources.watch.observe(spec.name, AnswerSource.EXACT)
        return section

    async def _cached(self, spec: SectionSpec[A], query: Query[A], found: CacheLookup, epoch: int | None) -> A | None:
        """Return the cached result if it is fresh; if it has only expired, marked stale, while it is revalidated."""
        sources = self.context.sources
        tiers = sources.tiers
        if tiers is None or found.entry is None or await self.horizon.clamps_asked():
            return None
        answer = tiers.fresh(query, found, epoch)
        if answer is None and may_revalidate(found, tiers):
            answer = tiers.stale(query, found, epoch)
            if answer is not None:
                tiers.revalidate(query, found, self.loader.loader(spec), budget_ms=self.context.budget_ms)
        if answer is None:
            return None
        self.horizon.moments.append(answer.moment)
        sources.watch.observe(spec.name, AnswerSource.CACHED if answer.age_s is None else AnswerSource.STALE)
        return answer.value if answer.age_s is None else mark_stale(answer.value, answer.age_s, "it is being renewed")
