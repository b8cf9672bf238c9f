"""How the forecasts of decisions turned out, and which decisions are under review: a part of ``Memory``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from imem.journal.actors import Action, Resource, ResourceType
from imem.journal.arguments import checks_arguments
from imem.kg.asof import parse_as_of
from imem.recall.read_horizon import fetch_read_horizon
from imem.services.parts.actor_api import ActorApi

if TYPE_CHECKING:
    from imem.credibility.forecasts.reading import DecisionForecast, ForecastReport
    from imem.credibility.forecasts.replay import PolicyReplay
    from imem.postmortem.cases.reading import CaseSummary


@checks_arguments
class ForecastsApi(ActorApi):
    """Reads forecasts of decisions; see :class:`imem.memory.Memory`."""

    async def forecasts(
        self,
        decision_id: str,
        *,
        as_of: datetime | None = None,
        clock: str = "known",
        deadline_ms: float | None = None,
    ) -> list[DecisionForecast]:
        """
        Return what a decision forecast, by checkpoint, beside what happened; empty if it forecast nothing.

        ::

            for one in await memory.forecasts("desk:MU-1/pm"):
                print(one.days, one.predicted, one.actual, one.verdict)

        Raises:
            BadInput: there was no such decision then.
        """
        from imem.credibility.forecasts.reading import forecasts_at  # noqa: PLC0415 - who asks for none needs none of it

        asked, on = parse_as_of(as_of, clock)
        due = await self._due(deadline_ms)

        async def read() -> list[DecisionForecast]:
            database = self._stores.database
            at = (await fetch_read_horizon(database, on, deadline=due)).resolve(asked, on)
            return await forecasts_at(database, decision_id, at, deadline=due)

        return await self._allowed(Resource(ResourceType.GRAPH, decision_id), Action.READ, read, due)

    async def forecast_report(self, *, deadline_ms: float | None = None) -> ForecastReport:
        """Return how the forecasts of all decisions stand now: counts, those without an outcome, those off."""
        from imem.credibility.forecasts.reading import forecast_report  # noqa: PLC0415 - as above

        due = await self._due(deadline_ms)
        database = self._stores.database
        resource = Resource(ResourceType.GRAPH, "forecasts of decisions")
        return await self._allowed(resource, Action.READ, lambda: forecast_report(database, deadline=due), due)

    async def postmortems(self, *, every: bool = False, deadline_ms: float | None = None) -> list[CaseSummary]:
        """
        Return decisions that were off: those in review, then those that wait, by priority; for people.

        Args:
            every: also those that were completed, timed out or withdrawn, the newest first.
        """
        from imem.kg.kinds.enums import PostmortemStatus  # noqa: PLC0415 - as above
        from imem.postmortem.cases.priorities import PriorityPolicy  # noqa: PLC0415 - as above
        from imem.postmortem.cases.reading import OPEN, list_cases  # noqa: PLC0415 - as above

        due = await self._due(deadline_ms)
        database, policy = self._stores.database, PriorityPolicy(self._stores.settings.postmortem_priority)
        states = tuple(PostmortemStatus) if every else OPEN
        resource = Resource(ResourceType.REVIEWS)
        return await self._allowed(
            resource, Action.READ, lambda: list_cases(database, policy, states=states, deadline=due), due
        )

    async def replay_policy(
        self,
        settings: Mapping[str, float],
        *,
        as_of: datetime | None = None,
        clock: str = "known",
        deadline_ms: float | None = None,
    ) -> PolicyReplay:
        """
        Return what another policy would have decided of all measured forecasts, beside the one in force.

        ::

            replay = await memory.replay_policy({"deviation": 0.5})
            print(replay.cases, replay.cases_then)

        Args:
            settings: ``deviation``, above which a forecast is off, and ``noise``, in standard deviations.

        Raises:
            BadInput: there is no such setting, or its value is below zero.
        """
        from imem.credibility.forecasts.replay import policy_of, replay_policy  # noqa: PLC0415 - as above

        policy_of(settings)
        asked, on = parse_as_of(as_of, clock)
        due = await self._due(deadline_ms)

        async def read() -> PolicyReplay:
            database = self._stores.database
            at = (await fetch_read_horizon(database, on, deadline=due)).resolve(asked, on)
            return await replay_policy(database, settings, at, deadline=due)

        return await self._allowed(Resource(ResourceType.GRAPH, "forecasts of decisions"), Action.READ, read, due)
