"""The cache lookup of a request: one for all its sections, of at most 30 ms."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from imem.cache.tiers.cached_result import Freshness
from imem.cache.tiers.tag_versions import TagVersions
from imem.cache.tiers.tiered import CacheLookup, Query, key_of
from imem.journal.errors import ImemError
from imem.recall.answers import BriefingSection
from imem.recall.immutable import sealed
from imem.recall.request.context import RequestContext
from imem.recall.request.horizon import RequestHorizon
from imem.recall.sections.spec import SectionSpec, schema_of

A = TypeVar("A", bound=BriefingSection)


@dataclass(slots=True)
class SectionLookup:
    """Looks the sections of one request up in the cache."""

    context: RequestContext
    horizon: RequestHorizon
    _queries: dict[str, Query[Any]] = field(default_factory=dict)
    _lookup: asyncio.Task[dict[bytes, CacheLookup]] | None = None

    def query(self, spec: SectionSpec[A]) -> Query[A]:
        """Return the cache query of a section: its key and codec."""
        if spec.name not in self._queries:
            self._queries[spec.name] = self._query(spec)
        return self._queries[spec.name]

    def _query(self, spec: SectionSpec[A]) -> Query[A]:
        key, context = None, self.context
        # On the recorded clock "now" is the safe horizon, which advances without an invalidation.
        cacheable = context.of_now or (context.asked is not None and not spec.current_only)
        if context.sources.tiers is not None and cacheable:
            arguments = {
                "journal": context.sources.journal,
                "subject": context.subject_id,
                "at": context.asked.isoformat() if context.asked is not None else None,
                "clock": context.on.value,
                "halflife": context.sources.halflife_years,
                "seasons": context.sources.seasons,
                **spec.arguments(context.limits),
            }
            if spec.for_agent:
                arguments["for"] = context.for_agent
            key = key_of(spec.name, schema_of(spec.model), context.actor.role.value, arguments)
        return Query(
            spec.name,
            key,
            lambda section: section.model_dump_json(exclude_defaults=True).encode(),
            lambda data: sealed(spec.model.model_validate_json(data)),
            spec.shows_patterns,
        )

    def start(self, specs: Sequence[SectionSpec[Any]], *more: Query[Any]) -> None:
        """Start the lookup of *specs* and *more*; on any miss, start fetching the read horizon as well."""
        sources, horizon = self.context.sources, self.horizon
        tiers, deadline = sources.tiers, self.context.deadline
        queries = [*(self.query(spec) for spec in specs), *more]

        async def found() -> dict[bytes, CacheLookup]:
            here: dict[bytes, CacheLookup] = {}
            if tiers is not None:
                here = await tiers.lookup(queries, deadline=deadline.within_ms(tiers.cache_timeout_ms))
            present = {key: one for key, one in here.items() if one.state is not Freshness.ABSENT}
            if present and len(present) == len(here) and horizon.before is not None:
                if sources.last_horizon.due():
                    horizon.start()
                return here
            # Loads must see at least the changes that the lookup saw, so they need a read horizon from now on. The
            # entries found are validated again after it is known.
            horizon.start()
            if tiers is None or not present:
                return here
            try:
                await horizon.read()
            except ImemError:
                return here
            return {**here, **await tiers.recheck(present, deadline=deadline.within_ms(tiers.cache_timeout_ms))}

        self._lookup = asyncio.create_task(found())

    async def found(self, query: Query[Any]) -> CacheLookup:
        """Return the lookup of *query*, awaiting it."""
        if query.key is None:
            return CacheLookup()
        return (await self.results()).get(query.key, CacheLookup())

    async def results(self) -> dict[bytes, CacheLookup]:
        """Return the whole lookup by key, awaiting it."""
        return {} if self._lookup is None else await asyncio.shield(self._lookup)

    async def known(self, specs: Sequence[SectionSpec[Any]]) -> TagVersions | None:
        """Return the tag versions of a fresh, non-empty cached result of *specs*: it proves that the subject exists."""
        for spec in specs:
            found = await self.found(self.query(spec))
            # Patterns of no sector apply to unknown subjects too, so they prove nothing.
            proves = found.entry is not None and not found.entry.negative and not spec.shows_patterns
            if proves and found.state is Freshness.FRESH:
                return found.tag_versions
        return None

    async def tag_versions(self) -> TagVersions | None:
        """Return the tag versions that the lookup saw; None if it could not read them."""
        return next((one.tag_versions for one in (await self.results()).values()), None)

    async def end(self) -> None:
        """Cancel the lookup; fetches of the read horizon go on, since a shared load may wait for them."""
        if self._lookup is not None:
            self._lookup.cancel()
            await asyncio.gather(self._lookup, return_exceptions=True)
