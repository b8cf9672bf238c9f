"""Gate 6 in a journal of the test's own: scores that were published, what is asked, and the two roles."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest_asyncio

from imem.credibility.publication import ACTOR, WRITER
from imem.gates.learning.gate import open_due_package
from imem.jobs.lifecycle import advance_due
from imem.journal.actors import Action, Actor
from imem.journal.deadline import Deadline
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import record_of
from imem.kg.model import AgentCredibility
from imem.review import inbox
from imem.review.kinds import Task
from imem.review.states import TaskState
from imem.review.tasks import TASKS
from imem.services.task_kinds import TASK_KINDS
from tests.credibility.conftest import World, opened, outcome
from tests.postmortem.lessons.parts import go_on, lesson, record
from tests.servers import ahead, cloned

ADMIN = Actor("ann", Role.HUMAN_ADMIN)
ENOUGH = Deadline.never()
DAY = timedelta(days=1)
LONG_AGO = datetime(2026, 1, 5, tzinfo=UTC)


def bias(key: str, agent: str = "ann", domain: str = "flu") -> dict[str, Any]:
    """Return a proposed correction of a bias."""
    core = {
        "id": key, "agent": agent, "domain": domain, "of_metric": "close", "kind": "relative", "bias": 0.2, "n": 20,
        "accuracy_before": 0.1, "accuracy_after": 0.9, "proposed_at": LONG_AGO.isoformat(),
    }  # fmt: skip
    state = {"status": "proposed", "decided_at": LONG_AGO.isoformat()}
    return {"record": "BiasCorrection", "known_at": LONG_AGO.isoformat(), "core": core, "groups": {"state": state}}


@dataclass
class Desk:
    """
    A journal whose changes of scores go to Gate 6.

    Attributes:
        world: the journal.
        shifted: how far the clock of pipelines and application is ahead.
    """

    world: World
    shifted: timedelta = timedelta()
    outcomes_made: int = 0
    runtimes: list[Database] = field(default_factory=list)

    @asynccontextmanager
    async def databases(self) -> AsyncIterator[tuple[Database, Database]]:
        """Lend databases as the pipelines and as the application, with the clock of the desk."""
        options = ahead(self.world.admin_url, self.shifted)
        made = [Database(url, size=4, options=options) for url in (self.world.pipeline_url, self.world.url)]
        try:
            yield made[0], made[1]
        finally:
            for one in made:
                await one.close()

    async def publish(self, agent: str, domain: str, score: float, n: int = 20, **more: Any) -> None:
        """Publish a score as the pipeline does."""
        values = {
            "sample_size": n, "last_updated": datetime.now(UTC), "decay_halflife_years": 2.0, "posterior_mean": score,
            "posterior_lower": max(score - 0.2, 0.0), "posterior_upper": min(score + 0.2, 1.0),
            "trend_direction": "stable", "time_weighted_score": score, **more,
        }  # fmt: skip
        made = AgentCredibility(agent_id=agent, domain=domain, score=AgentCredibility.Score(**values))
        entries = [entry_of(record_of(made, writer=WRITER))]
        await self.world.engine.append(entries, actor=ACTOR, action=Action.APPEND_CREDIBILITY, deadline=ENOUGH)

    async def changed(self, agent: str, domain: str, by: float, n: int = 20, **more: Any) -> None:
        """Publish a score, and another one that differs by so much."""
        await self.publish(agent, domain, 0.7, n)
        await self.publish(agent, domain, 0.7 + by, n, **more)

    async def lesson(self, key: str, *, times: int = 1, **core: Any) -> None:
        """Record a lesson, and others that say the same."""
        words = " ".join(f"{key}{place}" for place in ("one", "two", "three", "four", "five"))
        alike = {"insight": words, "recommended_action": f"Wait for {words}."}
        for number in range(times):
            named = key if not number else f"{key}-{number}"
            await record(self.world, lesson(named, **alike, **core))
        await go_on(self.world)

    async def settle(self, outcomes: int) -> None:
        """Record so many new outcomes."""
        first, self.outcomes_made = self.outcomes_made, self.outcomes_made + outcomes
        await self.world.say(
            *[
                outcome(f"out-{n}", LONG_AGO + DAY, LONG_AGO, 1.0, subject_id=f"market:{n}")
                for n in range(first, self.outcomes_made)
            ]
        )

    async def validate(self) -> Mapping[str, Any]:
        async with self.databases() as (database, _):
            return await open_due_package(_runtime(database))

    async def later(self, by: timedelta) -> Mapping[str, Any]:
        """Let time pass, and have the pipelines look."""
        self.shifted += by
        await self.advance()
        return await self.validate()

    async def started(self) -> None:
        """Start the clock."""
        assert await self.validate() == {}

    async def advance(self) -> None:
        async with self.databases() as (database, _):
            while True:
                report = await advance_due(_runtime(database), {TASKS.kind: TASKS}, until=ENOUGH)
                assert (report.failed, report.refused) == (0, 0), report
                if not report.moved:
                    return

    async def tasks(self, *states: TaskState) -> list[Task[Any]]:
        async with self.databases() as (_, application):
            found = await inbox.list_tasks(application, TASK_KINDS, states=states or tuple(TaskState), deadline=ENOUGH)
        return sorted(found, key=lambda task: task.opened_at)

    async def package(self) -> Task[Any]:
        """Return the newest package."""
        return (await self.tasks())[-1]

    async def say(self, *items: Mapping[str, Any], bulk: bool = False, looked: bool = True, **more: Any) -> Task[Any]:
        """Answer the newest package; *looked*: two hours after a look at it."""
        task = await self.package()
        if looked:
            async with self.databases() as (_, application):
                await inbox.read_task(application, TASK_KINDS, task.task_id, shown=True, deadline=ENOUGH)
            self.shifted += timedelta(hours=2)
        async with self.databases() as (_, application):
            fields = {"items": list(items), "bulk": bulk}
            return await inbox.answer_task(
                application, TASK_KINDS, task.task_id, "decide", fields=fields, by=ADMIN, deadline=ENOUGH, **more
            )

    async def answer(self, *items: Mapping[str, Any], **more: Any) -> None:
        """Answer the newest package, and have the answer its effect."""
        await self.say(*items, **more)
        await self.advance()

    async def group(self, kind: str, key: str, name: str) -> dict[str, Any] | None:
        """Return a group of a record as it was recorded last, with who did."""
        found = await self.world.rows(
            "SELECT e.payload -> 'groups' -> h.grp AS value, e.actor FROM record_head AS h"
            " JOIN event AS e ON e.position = h.position WHERE h.kind = %s AND h.key = %s AND h.grp = %s",
            kind,
            key,
            name,
        )
        return {**found[0]["value"], "by": found[0]["actor"]} if found else None

    async def pins(self) -> list[dict[str, Any]]:
        found = await self.world.rows(
            "SELECT payload -> 'core' AS core, actor FROM event WHERE kind = 'record.CredibilityPin' ORDER BY position"
        )
        return [{**row["core"], "by": row["actor"]} for row in found]

    async def alerts(self, kind: str) -> list[dict[str, Any]]:
        found = await self.world.rows("SELECT payload FROM workflow.alert WHERE kind = %s ORDER BY raised_at", kind)
        return [row["payload"] for row in found]


def _runtime(database: Database) -> Any:
    return SimpleNamespace(database=database, gateway=Gateway(database, ADMIN), task_kinds=TASK_KINDS)


@pytest_asyncio.fixture
async def desk(light_stack: Any, light_template: str) -> AsyncIterator[Desk]:
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        async with opened(light_stack.settings, url, admin_url) as world:
            yield Desk(world)
