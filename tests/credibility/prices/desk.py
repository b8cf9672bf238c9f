"""The pipelines of forecasts of returns, upon a world and a file of prices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from imem.credibility.forecasts.sessions import is_session
from imem.credibility.forecasts.tracking import FORECASTS, track_forecasts
from imem.credibility.pipelines import MEASURE_RETURNS
from imem.credibility.prices.providers import PRICES
from imem.jobs.lifecycle import advance_due
from imem.journal.deadline import Deadline
from imem.journal.endpoints.feeds import FileFeed
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from imem.kg.kinds.forecasts import Forecast
from imem.postmortem.successes import VALIDATE_SUCCESSES
from tests.credibility.conftest import World, decision
from tests.servers import ahead

DECIDED = datetime(2025, 1, 6, 15, tzinfo=UTC)
ENOUGH = Deadline.never()
DAY = timedelta(days=1)
FIRST = date(2025, 1, 6)
HEAD = "subject_id,session,close,dividend,split,known_at,delisted"


def decided(key: str = "d", at: datetime = DECIDED, subject: str = "company:MU", **core: Any) -> dict[str, Any]:
    forecast = Forecast.of_return(0.20).stored()
    return decision(key, at, **{"subject_id": subject, "forecast": forecast, "stance": "long", **core})


def benchmarked(known_at: datetime = DECIDED - DAY, ticker: str = "MU") -> dict[str, Any]:
    groups = {"profile": {"market_benchmark": "market:sp500", "sector_benchmark": "market:semis"}}
    return {"record": "Company", "known_at": known_at.isoformat(), "core": {"ticker": ticker}, "groups": groups}


def closes(subject: str, first: date, values: Mapping[int, float], days: int = 400) -> list[str]:
    """Return a row a session: the value stated last, by the number of its day."""
    rows, value = [], 0.0
    for n in range(days):
        value = values.get(n, value)
        day = first + timedelta(days=n)
        if is_session(day) and value:
            rows.append(f"{subject},{day},{value},,,,")
    return rows


def before(subject: str, first: date) -> list[str]:
    """Return the rows of a year before, of about 1.6 percent a day."""
    days = [day for n in range(365, 0, -1) if is_session(day := first - timedelta(days=n))]
    return [f"{subject},{day},{100 if n % 2 else 101.6},,,," for n, day in enumerate(days)]


class Desk:
    """The pipelines of forecasts upon a world, with a file of prices."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.path = folder / "prices.csv"
        self.validated: Mapping[str, Any] = {}

    def write(self, *rows: str) -> None:
        self.path.write_text("\n".join([HEAD, *rows]) + "\n")

    async def run(self, by: timedelta | None = None) -> Mapping[str, Any]:
        """Let the pipelines do what is due; return the report of the prices."""
        world = self.world
        pipelines = world.pipelines
        if by is not None:
            pipelines = Database(world.pipeline_url, size=4, options=ahead(world.admin_url, by))
        prices = FileFeed(self.path, PRICES)
        runtime: Any = SimpleNamespace(
            database=pipelines, gateway=Gateway(pipelines, world.engine.actor), prices=prices
        )
        try:
            await self._track(runtime)
            report = await MEASURE_RETURNS.reported(runtime)
            await self._track(runtime)
            self.validated = await VALIDATE_SUCCESSES.step(runtime, ENOUGH)
            return report
        finally:
            if pipelines is not world.pipelines:
                await pipelines.close()

    async def _track(self, runtime: Any) -> None:
        await track_forecasts(runtime, until=ENOUGH)
        while (report := await advance_due(runtime, {FORECASTS.kind: FORECASTS}, until=ENOUGH)).moved:
            assert (report.failed, report.refused) == (0, 0), report

    async def outcomes(self) -> Sequence[Mapping[str, Any]]:
        found = await self.world.rows(
            "SELECT payload -> 'core' AS core, known_at, actor FROM event"
            " WHERE kind = 'record.Outcome' AND payload ? 'core'"
            " ORDER BY (payload -> 'core' ->> 'checkpoint')::integer, (payload -> 'core' ->> 'vintage')::integer"
        )
        return [{**row["core"], "known": row["known_at"], "actor": row["actor"]} for row in found]
