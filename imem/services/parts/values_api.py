"""The values of metrics that count: a part of ``Memory``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from imem.credibility.disputes.reading import (
    MetricValue,
    Period,
    SourceRecord,
    difference_row,
    differences_at,
    sources_known_at,
    value_at,
)
from imem.journal.actors import Action, Resource, ResourceType
from imem.journal.arguments import checks_arguments
from imem.journal.errors import BadInput
from imem.kg.asof import parse_as_of
from imem.recall.read_horizon import fetch_read_horizon
from imem.recall.subjects import checked_candidates
from imem.services.parts.record_writer import RecordWriter


@checks_arguments
class ValuesApi(RecordWriter):
    """Reads values of data points; see :class:`imem.memory.Memory`."""

    async def value(
        self,
        subject: str,
        metric: str,
        period: Period,
        *,
        unit: str | None = None,
        basis: str | None = None,
        used_by: str | None = None,
        as_of: datetime | None = None,
        clock: str = "known",
        deadline_ms: float | None = None,
    ) -> MetricValue:
        """
        Return the value of *metric* of *subject* over *period*: what counts, how sure that is, and what contradicts it.

        ::

            year = datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 12, 31, tzinfo=UTC)
            revenue = await memory.value("company:MU", "revenue", year, used_by="desk:MU-1")
            print(revenue.value, revenue.confidence, revenue.provisional, revenue.standing)

        It follows from the data points that were known by then. The latest document of each source counts; between
        sources filings, primary sources, much newer documents and at last the scores of the sources decide. A value is
        provisional until a person has reviewed it, and None while it is uncertain.

        Args:
            subject: the subject's id, or a ticker.
            period: an instant, or beginning and end; as the data points state it.
            unit, basis: needed where the period has values in several units or on several accounting bases. Without
                *basis* the values that state none count, if there are any.
            used_by: the id of an analysis of the actor's that rests on the value; it is linked with the data point.

        Raises:
            BadInput: a unit or a basis is needed, a moment names no zone, or *subject* cannot be a name.
        """
        for name, moment in (("period", one) for one in (period if isinstance(period, tuple) else (period,))):
            if moment is not None and moment.utcoffset() is None:
                raise BadInput(name, "must name its zone; a time without one is ambiguous.")
        asked, on = parse_as_of(as_of, clock)
        ids = checked_candidates(subject)
        due = await self._due(deadline_ms)
        guard = self._stores.settings.contradiction_guard

        async def read() -> MetricValue:
            database = self._stores.database
            at = (await fetch_read_horizon(database, on, deadline=due)).resolve(asked, on)
            for one in ids:
                question = (one, metric, period)
                value = await value_at(database, at, question, unit=unit, basis=basis, guard=guard, deadline=due)
                if value.standing is not None:
                    break
            return value

        found = await self._allowed(Resource(ResourceType.GRAPH, f"value of {subject}"), Action.READ, read, due)
        if used_by is not None and found.point is not None:
            await self.link("USES_VALUE", ("Analysis", used_by), ("DataPoint", found.point.key))
        return found

    async def differences(
        self,
        subject: str,
        *,
        metric: str | None = None,
        as_of: datetime | None = None,
        clock: str = "known",
        deadline_ms: float | None = None,
    ) -> Sequence[Mapping[str, Any]]:
        """
        Return what the documents about *subject* state differently: contradictions, and what is none.

        Roundings, signs and stock splits are no contradictions. Each item names the two values with their documents.

        Args:
            subject: the subject's id, or a ticker.
            metric: None for all.
        """
        asked, on = parse_as_of(as_of, clock)
        ids = checked_candidates(subject)
        due = await self._due(deadline_ms)

        async def read() -> Sequence[Mapping[str, Any]]:
            database = self._stores.database
            at = (await fetch_read_horizon(database, on, deadline=due)).resolve(asked, on)
            found = [await differences_at(database, at, one, metric, deadline=due) for one in ids]
            return [difference_row(cell, pair) for pairs in found for cell, pair in pairs]

        return await self._allowed(Resource(ResourceType.GRAPH, f"values of {subject}"), Action.READ, read, due)

    async def sources(
        self, *, as_of: datetime | None = None, clock: str = "known", deadline_ms: float | None = None
    ) -> Sequence[SourceRecord]:
        """
        Return the sources of data that took part in contradictions: score, outcomes, and how many of them were right.

        The highest score comes first. Later knowledge changes no earlier score.
        """
        asked, on = parse_as_of(as_of, clock)
        due = await self._due(deadline_ms)

        async def read() -> Sequence[SourceRecord]:
            database = self._stores.database
            at = (await fetch_read_horizon(database, on, deadline=due)).resolve(asked, on)
            return await sources_known_at(database, at, deadline=due)

        return await self._allowed(Resource(ResourceType.GRAPH, "sources of data"), Action.READ, read, due)
