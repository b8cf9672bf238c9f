"""Cases, in a journal of the test's own: the pipelines as the workers, people as the application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest_asyncio

from imem.credibility.forecasts.sessions import checkpoint_at
from imem.credibility.forecasts.tracking import track_forecasts
from imem.jobs.lifecycle import advance_due
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.kg.kinds.forecasts import Forecast
from imem.postmortem.cases.model_analyst import ModelAnalyst
from imem.postmortem.cases.package import PostmortemCase
from imem.postmortem.cases.priorities import PriorityPolicy
from imem.postmortem.cases.queue import open_cases
from imem.review import inbox
from imem.review.kinds import Task
from imem.review.states import TaskState
from imem.services.task_kinds import TASK_KINDS
from imem.workers.pipelines import LIFECYCLES
from tests.credibility.conftest import World, decision, outcome, text, world
from tests.servers import ahead

__all__ = ["world"]

ANN = Actor("ann", Role.HUMAN_ADMIN)
ENOUGH = Deadline.never()
DECIDED = datetime(2026, 1, 5, 15, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
EXPECTED = Forecast.of_return(0.20, low=-0.10, high=0.50)
MONTH = Forecast(points=EXPECTED.points[:1])
"""Of one checkpoint, so that no other becomes due while a clock runs."""
ANSWERS: Mapping[str, Any] = {
    "primary_reason": "missing_factors", "factors_missed": "Inventories.", "warning_signs_missed": "Orders fell.",
    "future_actions": "Ask for inventories.", "patterns_to_revise": "none", "foreseeability": 4,
}  # fmt: skip


def decided(key: str = "d", forecast: Forecast = EXPECTED, subject: str = "company:MU", **core: Any) -> dict[str, Any]:
    """Return a decision with a forecast."""
    return decision(key, DECIDED, subject_id=subject, forecast=forecast.stored(), **core)


def happened(
    actual: float, key: str = "d", days: int = 30, vintage: int = 0, subject: str = "company:MU", **core: Any
) -> dict[str, Any]:
    """Return the outcome of a checkpoint, known a day later, a revision another."""
    at = checkpoint_at(DECIDED, days)
    return outcome(
        f"o-{key}-{days}-{vintage}", at + (1 + vintage) * DAY, at, actual, metric="total_return", unit="fraction",
        subject_id=subject, decision_id=key, checkpoint=days, period_start=text(DECIDED), vintage=vintage, **core,
    )  # fmt: skip


def cites_pattern(decision_id: str, pattern: str) -> dict[str, Any]:
    """Return that a decision cites a pattern."""
    return {
        "link": "CITES", "known_at": text(DECIDED), "from": {"Decision": decision_id}, "to": {"Pattern": pattern},
        "props": {"at": text(DECIDED), "rank": 2},
    }  # fmt: skip


@dataclass
class Clinic:
    """A journal with cases."""

    world: World
    policy: PriorityPolicy = PriorityPolicy.DEVIATION
    model: ModelAnalyst | None = None

    def runtime(self) -> Any:
        world = self.world
        return SimpleNamespace(
            database=world.pipelines, gateway=Gateway(world.pipelines, world.engine.actor), task_kinds=TASK_KINDS,
            postmortem_priority=self.policy, postmortem_model=self.model,
        )  # fmt: skip

    async def track(self) -> None:
        """Let the pipeline of forecasts do what is due."""
        await track_forecasts(self.runtime(), until=ENOUGH)

    async def move(self) -> bool:
        """Let timers and answers have their effect; return whether there were any."""
        moved = False
        while (report := await advance_due(self.runtime(), LIFECYCLES, until=ENOUGH)).moved:
            assert (report.failed, report.refused) == (0, 0), report
            moved = True
        return moved

    async def advance(self) -> None:
        """Let the pipelines do what is due: forecasts, timers and answers, cases."""
        await self.track()
        while True:
            moved, opened = await self.move(), await open_cases(self.runtime(), until=ENOUGH)
            assert "stuck" not in opened, opened
            if not moved and not opened:
                return

    @asynccontextmanager
    async def later(self, by: timedelta) -> AsyncIterator[None]:
        """Let the clock of all be ahead."""
        world, options = self.world, ahead(self.world.admin_url, by)
        made = [Database(world.pipeline_url, size=4, options=options), Database(world.url, size=4, options=options)]
        before = world.pipelines, world.database
        world.pipelines, world.database = made
        try:
            yield
        finally:
            world.pipelines, world.database = before
            for one in made:
                await one.close()

    async def cases(self) -> dict[str, str]:
        found = await self.world.rows("SELECT key, state FROM lifecycle WHERE kind = 'postmortem' ORDER BY key")
        return {row["key"]: row["state"] for row in found}

    async def audit(self, key: str) -> list[str]:
        """Return the states that a case has entered."""
        found = await self.world.rows(
            "SELECT request_context ->> 'after' AS after FROM memory_access_audit"
            " WHERE request_context ->> 'kind' = 'postmortem' AND request_context ->> 'key' = %s"
            " AND request_context ? 'after' ORDER BY timestamp, id",
            key,
        )
        return [row["after"] for row in found]

    async def tasks(self, *states: TaskState) -> list[Task[PostmortemCase]]:
        return await inbox.list_tasks(
            self.world.database, TASK_KINDS, kind="postmortem", states=states or tuple(TaskState), deadline=ENOUGH
        )

    async def answer(self, task_id: str, action: str = "review", why: str | None = None, **fields: Any) -> None:
        given = {**ANSWERS, **fields} if action == "review" else {}
        await inbox.answer_task(
            self.world.database, TASK_KINDS, task_id, action, fields=given, rationale=why, by=ANN, deadline=ENOUGH
        )

    async def records(self, kind: str) -> list[dict[str, Any]]:
        """Return the cores of a kind, the oldest first, with who recorded each."""
        found = await self.world.rows(
            "SELECT actor, payload -> 'core' AS core FROM event WHERE kind = 'record.' || %s AND payload ? 'core'"
            " ORDER BY position",
            kind,
        )
        return [{**row["core"], "by": row["actor"]} for row in found]

    async def group(self, kind: str, key: str, name: str) -> dict[str, Any]:
        """Return a group of a record as it was recorded last."""
        rows = await self.world.rows(
            "SELECT e.payload -> 'groups' -> h.grp AS value FROM record_head AS h"
            " JOIN event AS e ON e.position = h.position WHERE h.kind = %s AND h.key = %s AND h.grp = %s",
            kind, key, name,
        )  # fmt: skip
        return dict(rows[0]["value"]) if rows else {}


@pytest_asyncio.fixture
async def clinic(world: World) -> Clinic:
    return Clinic(world)
