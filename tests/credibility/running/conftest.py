"""Debates that run, in a journal of the test's own: the sides as the application, the pipeline as the workers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest_asyncio

from imem.checkpoints.pauses.human_gates import GATES_OF_ANALYSES
from imem.credibility.scores.auto_resolve import Basis
from imem.debates.running import DEBATES
from imem.debates.service import DebateLimits, DebateProgress, Debates
from imem.debates.states import Act
from imem.jobs.lifecycle import advance_due
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from imem.journal.settings import Role, Settings
from imem.kg.kinds.enums import DebatePriority
from imem.review import inbox
from imem.review.admission import Reviewer
from imem.review.kinds import Task
from imem.review.states import TaskState
from imem.review.tasks import TASKS
from imem.services.task_kinds import TASK_KINDS
from tests.servers import ahead

from ..conftest import HALFLIFE, World, text  # noqa: TID252 - a folder of its own

ADMIN = Actor("ann", Role.HUMAN_ADMIN)
BULL, BEAR = Actor("bull", Role.AGENT), Actor("bear", Role.AGENT)
KINDS = {one.kind: one for one in (DEBATES, TASKS, GATES_OF_ANALYSES)}
ENOUGH = Deadline.never()
HOUR = timedelta(hours=1)
LIMITS = DebateLimits.of_settings(Settings.read({}))
LONG_AGO = datetime(2026, 1, 5, tzinfo=UTC)


def claimed(key: str, agent: str, value: float = 100.0, analysis: str = "a-1", **core: Any) -> dict[str, Any]:
    """Return a finding with a value of the price target, the most cautious of which is the lowest."""
    return {
        "record": "Finding",
        "known_at": text(LONG_AGO),
        "core": {
            "id": key, "analysis_id": analysis, "subject_id": "company:MU", "agent": agent, "domain": "valuation",
            "statement": f"The target of {key} is {value}.", "metric": "price_target", "value": value, "unit": "USD",
            "target_at": text(LONG_AGO + timedelta(days=700)), **core,
        },
    }  # fmt: skip


@dataclass
class Forum:
    """
    A journal with debates.

    Attributes:
        world: the journal.
        debates: as the application.
    """

    world: World
    debates: Debates
    halflife_years: float = HALFLIFE
    basis: Basis = Basis.POSTERIOR

    async def challenge(self, finding: str = "f-bull", by: Actor = BEAR, **given: Any) -> DebateProgress:
        asked: dict[str, Any] = {
            "basis": "Margins shrink.", "value": 80.0, "evidence": (), "required": (),
            "priority": DebatePriority.SUPPORTING, "judge": None, "topic": None, "metric": None,
        }  # fmt: skip
        return await self.debates.challenge(finding, **(asked | given), by=by, deadline=ENOUGH)

    async def act(self, debate: DebateProgress | str, act: Act, by: Actor, **given: Any) -> DebateProgress:
        key = debate if isinstance(debate, str) else debate.debate_id
        return await self.debates.act(key, act, by=by, **given, deadline=ENOUGH)

    async def now(self, debate: DebateProgress | str) -> DebateProgress:
        return await self.debates.read(debate if isinstance(debate, str) else debate.debate_id, deadline=ENOUGH)

    async def advance(self) -> None:
        runtime = SimpleNamespace(
            database=self.world.pipelines, gateway=self.world.engine, task_kinds=TASK_KINDS,
            halflife_years=self.halflife_years, auto_resolution_basis=self.basis,
        )  # fmt: skip
        while True:
            report = await advance_due(runtime, KINDS, until=ENOUGH)
            assert (report.failed, report.refused) == (0, 0), report
            if not report.moved:
                return

    async def later(self, by: timedelta) -> None:
        """Have the pipelines look, with a clock that is ahead."""
        async with self.clock(by):
            await self.advance()

    @asynccontextmanager
    async def clock(self, by: timedelta, *, application: bool = True) -> AsyncIterator[None]:
        """Let the clock of the pipelines be ahead, and that of the application."""
        world = self.world
        options = ahead(world.admin_url, by)
        made = [Database(world.pipeline_url, size=4, options=options), Database(world.url, size=4, options=options)]
        before = world.pipelines, world.engine, world.database, self.debates
        world.pipelines, world.engine = made[0], Gateway(made[0], world.engine.actor)
        if application:
            world.database, self.debates = made[1], Debates(Gateway(made[1], BULL), LIMITS)
        try:
            yield
        finally:
            world.pipelines, world.engine, world.database, self.debates = before
            for one in made:
                await one.close()

    async def reviewer(self, person: str = "eve", capacity: int = 3) -> None:
        entry = Reviewer(person=person, capacity=capacity)
        await inbox.set_reviewer(self.world.database, TASK_KINDS, entry, by=ADMIN, deadline=ENOUGH)

    async def tasks(self, *states: TaskState) -> list[Task[Any]]:
        return await inbox.list_tasks(
            self.world.database, TASK_KINDS, states=states or tuple(TaskState), deadline=ENOUGH
        )

    async def say(self, action: str = "choose", side: str | None = None, **more: Any) -> Task[Any]:
        """Answer the one task that there is."""
        [task] = await self.tasks(TaskState.OPEN, TaskState.DEFAULTED)
        if side is not None:
            more["fields"] = {"side": side}
        return await inbox.answer_task(
            self.world.database, TASK_KINDS, task.task_id, action, by=ADMIN, **more, deadline=ENOUGH
        )

    async def answer(self, action: str = "choose", side: str | None = None, **more: Any) -> None:
        """Answer it, and have the answer its effect."""
        await self.say(action, side, **more)
        await self.advance()

    async def group(self, kind: str, key: str, name: str) -> dict[str, Any]:
        """Return a group of a record as it was recorded last."""
        rows = await self.world.rows(
            "SELECT e.payload -> 'groups' -> h.grp AS value FROM record_head AS h"
            " JOIN event AS e ON e.position = h.position"
            " WHERE h.kind = %s AND h.key = %s AND h.grp = %s",
            kind,
            key,
            name,
        )
        return dict(rows[0]["value"]) if rows else {}

    async def state(self, debate: DebateProgress) -> dict[str, Any]:
        return await self.group("Debate", debate.debate_id, "state")

    async def resolutions(self, debate: DebateProgress) -> list[dict[str, Any]]:
        rows = await self.world.rows(
            "SELECT e.payload -> 'core' AS core FROM event AS e WHERE e.kind = 'record.DebateResolution'"
            " AND e.payload #>> '{core,debate_id}' = %s ORDER BY e.position",
            debate.debate_id,
        )
        return [row["core"] for row in rows]

    async def audit(self, debate: DebateProgress) -> list[tuple[str, str, str | None]]:
        rows = await self.world.rows(
            "SELECT action, actor_id, request_context ->> 'after' AS after, action_reason, timestamp"
            " FROM memory_access_audit WHERE request_context ->> 'kind' = 'debate'"
            " AND request_context ->> 'key' = %s AND request_context ? 'after'"
            " ORDER BY timestamp, id",
            debate.debate_id,
        )
        assert all(row["timestamp"] is not None and row["action_reason"] for row in rows), rows
        return [(row["action"], row["actor_id"], row["after"]) for row in rows]


@pytest_asyncio.fixture
async def forum(world: World) -> Forum:
    await world.say(claimed("f-bull", "bull"), claimed("e-bull", "bull", 101.0), claimed("e-bear", "bear", 81.0))
    return Forum(world, Debates(Gateway(world.database, BULL), LIMITS))
