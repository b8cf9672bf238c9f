"""Whom to trust: scores of agents, what they rest on, and whether two records decide; a part of ``Memory``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from imem.journal.arguments import checks_arguments
from imem.recall.brief import Recall
from imem.services.connections import Part
from imem.services.parts.actor_api import ActorApi

if TYPE_CHECKING:
    from imem.recall.scores import AutoResolutionAnswer, ScoreExplanation, ScoresTable


@checks_arguments
class ScoresApi(ActorApi):
    """Reads scores; see :class:`imem.memory.Memory`. The class that has this part sets ``_recall``."""

    _recall: Recall

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

            table = await memory.credibility(domains=["earnings"], context={"sector": "Technology"})
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
