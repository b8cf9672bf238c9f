"""Whom to trust: track records, scores and weights of agents, and what they rest on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Unpack

from imem.journal.actors import ResourceType
from imem.recall import single_reads
from imem.recall.model import TrackRecordsSection, TrackRecordsTable, WeightsTable
from imem.services.connections import Part
from imem.services.facets.facet import Facet, ReadOptions
from imem.services.operations import declares_operations, reads

if TYPE_CHECKING:
    from imem.recall.scores import AutoResolutionAnswer, ScoreExplanation, ScoresTable


@declares_operations("scores")
class ScoresFacet(Facet):
    """Scores and track records; see :attr:`imem.memory.Memory.scores`."""

    @reads(ResourceType.CREDIBILITY)
    async def track_record(
        self, agent: str, domain: str | None = None, **asked: Unpack[ReadOptions]
    ) -> TrackRecordsSection:
        """
        Return the track record of *agent* in *domain*, or in every domain in which it was scored.

        It holds the share right with its 95 % interval, and the skill.

        Raises:
            PermissionDenied: an agent reads its own record alone; briefings show those of agents with claims.
        """
        return await single_reads.agent_records(self._recall, agent, domain, **await self._at(**asked))

    @reads(ResourceType.CREDIBILITY)
    async def track_records(
        self,
        agents: Sequence[str] | None = None,
        domains: Sequence[str] | None = None,
        *,
        as_of: Sequence[datetime] | None = None,
        unscored: bool = False,
        clock: str = "known",
        deadline_ms: float | None = None,
    ) -> TrackRecordsTable:
        """
        Return the track records of many agents in many domains as of many moments.

        Args:
            agents: None for all.
            domains: None for every domain in which one of the agents was scored.
            as_of: the moments; None for now.
            unscored: whether to include agents none of whose claims was settled; their ``evidence`` is "none".

        Raises:
            BadInput: more than 10,000 records are asked for, by agents and domains or as of several moments; what is
                known later does not count.
            PermissionDenied: an agent reads its own record alone.
        """
        return await single_reads.many_records(
            self._recall,
            agents,
            domains,
            as_of=as_of,
            unscored=unscored,
            clock=clock,
            deadline=await self._due(deadline_ms, Part.SCORES),
        )

    @reads(ResourceType.CREDIBILITY)
    async def credibility(
        self,
        agents: Sequence[str] | None = None,
        domains: Sequence[str] | None = None,
        *,
        context: Mapping[str, str | None] | None = None,
        as_of: datetime | None = None,
        clock: str = "known",
        deadline_ms: float | None = None,
    ) -> ScoresTable:
        """
        Return the scores of *agents* in *domains* on both bases, with all that they follow from.

        A score is the posterior of :mod:`imem.credibility.posterior` and, beside it, the product as designed with every
        factor. Trends, overrides and calibration stand beside them and change neither.

        ::

            table = await memory.scores.credibility(domains=["earnings"], context={"sector": "Technology"})
            for score in table.items:
                print(score.record.agent, score.posterior.mean, score.designed.score, score.flags)

        When Postgres does not answer in time, the last answer to the same question in this process is returned, marked
        ``stale``; it decides nothing once it is a day old.

        Args:
            agents: None for all that were scored by then.
            domains: None for all in which they were scored by then.
            context: any of ``sector``, ``metric_type``, ``time_horizon``, ``company_size``, ``growth_stage`` and
                ``regime``; what is not named is none. Claims that match in four of the six are the scope of the
                posterior. None: the whole domain is.

        Raises:
            BadInput: more than 10,000 scores are asked for, or a dimension or its value is unknown.
            PermissionDenied: an agent reads its own score alone.
        """
        from imem.recall.scores import request_of, scores  # noqa: PLC0415 - statistics take long to import

        request = request_of(agents, domains, context, as_of, clock)
        return await scores(self._recall, request, deadline=await self._due(deadline_ms, Part.SCORES))

    @reads(ResourceType.CREDIBILITY)
    async def weights(
        self,
        agents: Sequence[str],
        domain: str,
        context: Mapping[str, str | None] | None = None,
        *,
        as_of: datetime | Sequence[datetime] | None = None,
        clock: str = "known",
        deadline_ms: float | None = None,
    ) -> WeightsTable:
        """
        Return the weights of *agents* as one panel in *domain*, for those who pool answers themselves.

        ::

            days = [...]
            found = await memory.scores.weights(["macro", "options", "news"], "rates", as_of=days)
            shares = found.at(days[0])

        They are those of a panel's answer: by earlier seasons, or by record, as of what was known by then. A baseline
        has none. Where an agent did not answer, divide the weights of the others by their sum.

        Args:
            context: values of the questions by dimension, as for :meth:`credibility`; observations that share fewer
                than four of the six count half. None: of any.
            as_of: one moment or many; None for now.

        Raises:
            BadInput: no agent is named, agents times moments are more than 100,000, or a dimension or its value is
                unknown.
            PermissionDenied: an agent reads its own alone; :meth:`imem.memory.Memory.panel` shows the weights of those
                who answered.
        """
        moments = [as_of] if isinstance(as_of, datetime) else as_of
        return await single_reads.weights(
            self._recall,
            agents,
            domain,
            context,
            as_of=moments,
            clock=clock,
            deadline=await self._due(deadline_ms, Part.SCORES),
        )

    @reads(ResourceType.CREDIBILITY)
    async def explain(
        self,
        agent: str,
        domain: str,
        *,
        context: Mapping[str, str | None] | None = None,
        limit: int = 50,
        as_of: datetime | None = None,
        clock: str = "known",
        deadline_ms: float | None = None,
    ) -> ScoreExplanation:
        """
        Return the score of *agent* in *domain*, how it follows from its numbers, and the claims that it rests on.

        When Postgres does not answer in time, the last answer to the same question in this process is returned, marked
        ``stale``.

        Args:
            context: as in :meth:`credibility`.
            limit: most claims, the newest first, 1 to 200; ``total`` says how many there are.

        Raises:
            PermissionDenied: an agent reads its own score alone.
        """
        from imem.recall.scores import explanation, request_of  # noqa: PLC0415 - as above

        request = request_of([agent], [domain], context, as_of, clock)
        return await explanation(self._recall, request, limit=limit, deadline=await self._due(deadline_ms, Part.SCORES))

    @reads(ResourceType.CREDIBILITY)
    async def auto_resolve(
        self,
        a: str,
        b: str,
        domain: str,
        *,
        context: Mapping[str, str | None] | None = None,
        as_of: datetime | None = None,
        clock: str = "known",
        deadline_ms: float | None = None,
    ) -> AutoResolutionAnswer:
        """
        Return whether the records of agents *a* and *b* in *domain* decide between them, on both bases.

        ``auto_resolution_basis`` of the settings says which verdict is in force. Records decide from fifteen
        observations of each in *context*, when the scores differ by more than 0.25 and by more than both half-widths
        together; what an agent wins whom people rightly override goes to a person.

        Args:
            context: as in :meth:`credibility`.

        Raises:
            BadInput: *a* is *b*.
            PermissionDenied: an agent reads its own score alone.
        """
        from imem.credibility.scores.auto_resolve import Basis  # noqa: PLC0415 - as above
        from imem.recall.scores import auto_resolution, request_of  # noqa: PLC0415 - as above

        request = request_of([a, b], [domain], context, as_of, clock)
        basis = Basis(self._stores.settings.auto_resolution_basis)
        return await auto_resolution(
            self._recall, request, basis=basis, deadline=await self._due(deadline_ms, Part.SCORES)
        )
