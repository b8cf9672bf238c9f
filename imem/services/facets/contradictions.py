"""What documents state differently, and the standing rules of people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack

from imem.credibility.disputes.reading import SourceRecord, difference_row, differences_at, sources_known_at
from imem.journal.actors import Action, Resource, ResourceType
from imem.kg.asof import parse_as_of
from imem.recall import single_reads
from imem.recall.read_horizon import fetch_read_horizon
from imem.recall.sections import contradictions
from imem.recall.subjects import checked_candidates
from imem.services.facets.facet import Facet, ReadOptions
from imem.services.facets.tasks import ANSWER_MS
from imem.services.operations import declares_operations, reads, writes

if TYPE_CHECKING:
    from imem.credibility.disputes.rules import StandingRule
    from imem.recall.sections.contradictions import ContradictionsSection


@declares_operations("contradictions")
class ContradictionsFacet(Facet):
    """Contradictions between sources; see :attr:`imem.memory.Memory.contradictions`."""

    @reads(ResourceType.GRAPH)
    async def about(
        self, subject: str, *, limit: int | None = None, **asked: Unpack[ReadOptions]
    ) -> ContradictionsSection:
        """
        Return contradictions between sources about *subject*: open ones first, by priority, then the newest.

        Without ``as_of`` the answer says who is asked about those that wait for a person, and until when.
        """
        at = await self._at(**asked)
        found = await single_reads.part(self._recall, contradictions.SECTION, subject, limit=limit, **at)
        if at["as_of"] is not None:
            return contradictions.ContradictionsSection(**dict(found))
        return await contradictions.with_persons_asked(found, self._stores.database, deadline=at["deadline"])

    @reads(ResourceType.GRAPH)
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

    @reads(ResourceType.GRAPH)
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

    @reads(ResourceType.REVIEWS)
    async def rules(self, *, deadline_ms: float | None = None) -> list[StandingRule]:
        """
        Return what people answered for all later contradictions of a kind: rules in force first, the newest first.

        ``tasks.answer(task_id, "choose", fields={"document": "a", "always": True})`` makes a rule.
        """
        from imem.credibility.disputes.rules import read_rules  # noqa: PLC0415 - as above

        due = await self._due(deadline_ms)
        return await self._allowed(
            Resource(ResourceType.REVIEWS, "rules"),
            Action.READ,
            lambda: read_rules(self._stores.database, deadline=due),
            due,
        )

    @writes(ResourceType.REVIEWS, Action.ANSWER)
    async def revoke_rule(self, rule_id: str, *, reason: str, deadline_ms: float | None = None) -> StandingRule:
        """
        Revoke a standing rule from now on, and return it; what it has settled stays settled.

        Raises:
            BadInput: no rule of that id is in force, or *reason* is empty.
        """
        from imem.credibility.disputes.arbitration import KIND  # noqa: PLC0415 - as above
        from imem.credibility.disputes.rules import revoke_rule  # noqa: PLC0415 - as above
        from imem.review import inbox  # noqa: PLC0415 - as above

        due = self._write_due(deadline_ms, ANSWER_MS)

        async def revoke() -> StandingRule:
            database, by = self._stores.database, self._actor
            await inbox.check_reviewer(database, KIND, by, due)
            return await revoke_rule(database, rule_id, reason, by=by, deadline=due)

        return await self._allowed(Resource(ResourceType.REVIEWS, rule_id), Action.ANSWER, revoke, due)
