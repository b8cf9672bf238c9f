"""Regimes of markets: a part of ``Memory``."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from imem.credibility.regimes.readings import MARKET, MarketRegime, market_regime
from imem.journal.actors import Action, Resource, ResourceType
from imem.journal.arguments import check_int, checks_arguments
from imem.journal.errors import BadInput
from imem.kg.asof import parse_as_of
from imem.recall.read_horizon import fetch_read_horizon
from imem.services.parts.actor_api import ActorApi

MOST: Final = 10_000
"""Most readings of one answer."""


@checks_arguments
class RegimeApi(ActorApi):
    """Reads regimes of markets; see :class:`imem.memory.Memory`."""

    async def regime(
        self,
        *,
        market: str = MARKET,
        limit: int = 1,
        as_of: datetime | None = None,
        clock: str = "known",
        deadline_ms: float | None = None,
    ) -> MarketRegime:
        """
        Return the regime that a market was in, with its newest readings, the one in force first.

        In force is the latest reading by ``observed_at`` that is not withdrawn; of two at one moment the one that was
        known later. Where none was known it is NORMAL, and stale. A person, or the import right, records one with
        :meth:`record`, and takes one back with :meth:`correct` and ``withdrawn``; the worker records what it detects.

        Args:
            market: which.
            limit: most readings, 0 to 10,000.
        """
        check_int("limit", limit)
        if not 0 <= limit <= MOST:
            raise BadInput("limit", f"must be a whole number from 0 to {MOST:,}.")
        asked, on = parse_as_of(as_of, clock)
        due = await self._due(deadline_ms)

        async def read() -> MarketRegime:
            database = self._stores.database
            at = (await fetch_read_horizon(database, on, deadline=due)).resolve(asked, on)
            return await market_regime(database, at, market=market, limit=limit, deadline=due)

        return await self._allowed(Resource(ResourceType.GRAPH, f"regime of {market}"), Action.READ, read, due)
