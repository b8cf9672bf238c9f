"""Forecasts of a crowd with an effect in them, and the pipelines that test a pattern on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from types import SimpleNamespace
from typing import Any

from imem.jobs.lifecycle import LifecycleRow, advance_due
from imem.journal.actors import Action, Actor
from imem.journal.deadline import Deadline
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.patterns.definition import PatternDefinition, definition_of
from imem.patterns.life import GateMode, proposal
from imem.patterns.monitoring import test_patterns as advance_tests
from imem.patterns.shadows import SHIFTED, ShadowRunner
from imem.services.task_kinds import TASK_KINDS
from imem.workers.pipelines import LIFECYCLES
from tests.credibility.conftest import IMPORTER, World, finding, outcome
from tests.servers import ahead, as_curators

ENOUGH = Deadline.never()
DAY, WEEK = timedelta(days=1), timedelta(days=7)
NOW = datetime.now(UTC).replace(microsecond=0)
SUBJECTS = tuple(f"market:q{number}" for number in range(8))
PROPOSER = Actor("miner", Role.AGENT)


def definition(**changes: Any) -> PatternDefinition:
    """Return a pattern: where the crowd states at least a half, it happens more often."""
    given = {
        "name": "Crowds hold back", "category": "financial", "metric": "up", "reference": "crowd", "claim": "higher",
        "condition": [{"feature": "forecast", "comparison": "at_least", "value": 0.5}], "period": "week",
        "mechanism": "Nobody likes to be sure.", "frequency": "monthly",
    }  # fmt: skip
    return definition_of({**given, **changes})


def weeks(
    first: int,
    last: int,
    *,
    start: datetime,
    effect: float = 0.35,
    seed: int = 1,
    horizon: timedelta = WEEK,
    hard: Collection[str] = (),
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """
    Return forecasts by the crowd and their outcomes, one of each subject and week from *first* to before *last*.

    The crowd states 0.6 or 0.4; where it states 0.6 the event happens with a probability that is higher by *effect*.
    Of *hard* subjects it happens about as often as not, and of the others always; the crowd states 0.6 of them once in
    four weeks.
    """
    random = Random(seed)
    said, happened = [], []
    for week in range(first, last):
        for subject in SUBJECTS:
            at = start + week * WEEK
            stated = random.choice((0.6, 0.4)) if subject not in hard else 0.4 if week % 4 else 0.6
            chance = stated + (effect if stated > 0.5 else 0.0)
            if hard:
                chance = 0.45 if subject in hard else 1.0
            key = f"{subject[7:]}-{start:%Y%m%d}-{week}"
            target = at + horizon
            said.append(
                finding(key, at, target, subject_id=subject, agent="crowd", probability=stated, analysis_id=f"a-{key}")
            )
            answer = float(random.random() < chance)
            happened.append(outcome(f"o-{key}", target + timedelta(hours=1), target, answer, subject_id=subject))
    return said, happened


@dataclass
class Lab:
    """A journal in which patterns are tested."""

    world: World
    mode: GateMode = GateMode.BOTH
    runner: ShadowRunner | None = SHIFTED
    cap: int = 10_000

    def runtime(self) -> Any:
        world = self.world
        return SimpleNamespace(
            database=world.pipelines, gateway=Gateway(world.pipelines, world.engine.actor), task_kinds=TASK_KINDS,
            pattern_gate_mode=self.mode, shadow_runner=self.runner, shadow_runs_per_month=self.cap,
        )  # fmt: skip

    async def propose(self, *definitions: PatternDefinition, by: Actor = PROPOSER, run: str | None = None) -> None:
        """Propose patterns, as an agent does."""
        entries = [proposal(one, by.id, run=run, search_space_size=None if run is None else 40) for one in definitions]
        gateway = Gateway(self.world.database, by)
        receipts = await gateway.append(entries, actor=by, action=Action.APPEND, deadline=ENOUGH)
        assert not any(receipt.verdict.refused for receipt in receipts), receipts

    async def history(self, effect: float = 0.35) -> None:
        """Have fifty weeks of forecasts, settled."""
        said, happened = weeks(0, 50, start=NOW - 53 * WEEK, effect=effect)
        await self.world.say(*said, *happened)
        await self.world.settle()

    async def test(self) -> Mapping[str, Any]:
        """Let the pipelines do what is due; return what tests did."""
        done = await advance_tests(self.runtime(), until=ENOUGH)
        while (report := await advance_due(self.runtime(), LIFECYCLES, until=ENOUGH)).moved:
            assert (report.failed, report.refused) == (0, 0), report
        return done

    @asynccontextmanager
    async def later(self, by: timedelta) -> AsyncIterator[datetime]:
        """Let the clock of all be ahead; lend the moment that it is then."""
        world, options = self.world, ahead(self.world.admin_url, by)
        urls = world.pipeline_url, world.url, self.curators
        made = [Database(url, size=4, options=options) for url in urls]
        before = world.pipelines, world.database, world.curators, world.gateway, world.engine
        world.pipelines, world.database, world.curators = made
        world.gateway, world.engine = Gateway(world.curators, IMPORTER), Gateway(world.pipelines, IMPORTER)
        try:
            yield NOW + by
        finally:
            world.pipelines, world.database, world.curators, world.gateway, world.engine = before
            for one in made:
                await one.close()

    curators: str = ""

    async def row(self, key: str | None = None) -> LifecycleRow:
        """Return the row of a pattern, of the only one by default."""
        found = await self.world.rows(
            "SELECT * FROM lifecycle WHERE kind = 'pattern' AND coalesce(key = %s, true)", key
        )
        assert len(found) == 1, found
        return LifecycleRow.of(found[0])

    async def statuses(self) -> dict[str, str]:
        """Return the status of each pattern; what is recorded, the quarantine included, says the same as the rows."""
        found = await self.world.rows("SELECT key, state FROM lifecycle WHERE kind = 'pattern' ORDER BY key")
        states = {row["key"]: row["state"] for row in found}
        said = await self.world.rows(
            "SELECT h.key, e.payload -> 'groups' -> 'status' AS value FROM record_head AS h"
            " JOIN event AS e ON e.position = h.position WHERE h.kind = 'Pattern' AND h.grp = 'status' ORDER BY h.key"
        )
        assert {row["key"]: row["value"]["status"] for row in said} == states
        assert all(row["value"]["quarantined"] == (row["value"]["status"] != "active") for row in said)
        return states

    async def validations(self) -> list[dict[str, Any]]:
        """Return the records of tests, the oldest first."""
        found = await self.world.rows(
            "SELECT payload -> 'core' AS core FROM event WHERE kind = 'record.PatternValidation' ORDER BY position"
        )
        return [row["core"] for row in found]

    async def half_a_year(self, *, effect: float = 0.35, since: int = 0, hard: Collection[str] = ()) -> None:
        """Let the crowd forecast for 26 weeks, each week tested and settled in its time."""
        said, happened = weeks(0, 14, start=NOW + since * DAY + DAY, effect=effect, seed=7, horizon=13 * DAY, hard=hard)
        steps = len(said) // 14
        for number in range(14):
            hop = 6 * number * DAY
            async with self.later((since + 2 + 13 * number) * DAY):
                await self.world.say(*moved_by(said[number * steps : (number + 1) * steps], hop))
                await self.test()
        outcomes = [
            line
            for number in range(14)
            for line in moved_by(happened[number * steps : (number + 1) * steps], 6 * number * DAY)
        ]
        async with self.later((since + 186) * DAY):
            await self.world.say(*outcomes)
            await self.world.settle()


def moved_by(lines: list[dict[str, Any]], by: timedelta) -> list[dict[str, Any]]:
    """Return lines with all their times later by so much."""
    named = ("target_at", "observed_at")
    return [
        {
            **line, "known_at": (datetime.fromisoformat(line["known_at"]) + by).isoformat(),
            "core": {
                name: (datetime.fromisoformat(value) + by).isoformat() if name in named else value
                for name, value in line["core"].items()
            },
        }
        for line in lines
    ]  # fmt: skip


def curators_of(settings: Any, world: World) -> str:
    """Return the URL of the curators of a world."""
    return as_curators(settings, world.url)
