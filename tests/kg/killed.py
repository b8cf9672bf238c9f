"""
The way of a write, killed at a step: a program, told where on its first line, and on each further line how.

``apply STEP COUNT`` applies what is due, in both lanes, until the step is taken for the COUNT-th time; ``apply any
COUNT`` until so many steps of whatever name are taken. ``push STEP NUMBER`` records a finding by its number, as its
agent does. A step is whatever lies between two things that a crash could tear apart. Each run is a fork of this
process, so that a hundred of them cost seconds. For each it answers with how the run ended: the number of the signal,
or 0.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID

import neo4j

from imem.credibility.settled_links import SettledBy
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.events.entry import JournalEntry, Tier
from imem.journal.gateway import Gateway
from imem.journal.notifications.visibility import VisibilityPublisher
from imem.journal.notifications.wakeups import WakeupPublisher
from imem.journal.postgres.connection import Parameters, Row
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.kg.engine import Graph
from imem.kg.projection.applier import Applier
from imem.kg.projection.rows import Event
from tests.kg.lanes.conftest import finding
from tests.kg.projection.world import entries_of
from tests.kill_points import run_each_line

T = TypeVar("T")

APPLYING = ("claimed", "statement", "commit", "committed", "told", "marking", "marked", "said")
"""Where an applier can be killed, in order."""

PUSHING = ("before", "stored", "rung")
"""Where a writer can be."""

ANY = "any"
"""All steps."""

AGENTS = 3


class Finished(Exception):
    """Nothing is due any more."""


def said(number: int) -> tuple[Actor, list[JournalEntry]]:
    """Return who states the finding of that number, and what the journal takes."""
    name = f"agent{number % AGENTS}"
    return Actor(name, Role.HUMAN_ADMIN), entries_of(finding(f"f-{number}", by=name), tier=Tier(number % 4))


class Steps:
    """Ends the process when the step of that name, or any, is taken for the last time."""

    def __init__(self, name: str, left: int) -> None:
        self.name, self.left = name, left

    def take(self, name: str) -> None:
        if self.name not in {name, ANY}:
            return
        self.left -= 1
        if self.left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


class Transaction:
    """A transaction each of whose statements is a step."""

    def __init__(self, inner: neo4j.AsyncTransaction, steps: Steps) -> None:
        self._inner, self._steps = inner, steps

    async def run(self, text: Any, parameters: Any = None) -> Any:
        self._steps.take("statement")
        return await self._inner.run(text, parameters)


class MortalGraph(Graph):
    steps: Steps

    async def write(
        self, name: str, work: Callable[[neo4j.AsyncTransaction], Awaitable[T]], *, deadline: Deadline
    ) -> tuple[T, str | None]:
        async def stepwise(transaction: neo4j.AsyncTransaction) -> T:
            result = await work(Transaction(transaction, self.steps))  # type: ignore[arg-type]
            self.steps.take("commit")
            return result

        result = await super().write(name, stepwise, deadline=deadline)
        self.steps.take("committed")
        return result


class MortalDatabase(Database):
    steps: Steps

    async def named(self, name: str, parameters: Parameters | None = None, *, deadline: Deadline) -> list[Row]:
        rows = await super().named(name, parameters, deadline=deadline)
        if rows and name.startswith("claim_") and name != "claim_derive":
            self.steps.take("claimed")
        return rows

    async def execute(self, name: str, parameters: Parameters | None = None, *, deadline: Deadline) -> int:
        before, after = ("marking", "marked") if name == "settle_applied" else ("executing", "executed")
        self.steps.take(before)
        changed = await super().execute(name, parameters, deadline=deadline)
        self.steps.take(after)
        return changed


class WakeupSource:
    """Ends the run when nothing is due any more."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def wait(self) -> None:
        counts = await self._database.named("delivery_counts", deadline=Deadline.never())
        waiting = "SELECT FROM due_row WHERE queue = 'graph' LIMIT 1"
        derived = await self._database.rows(waiting, deadline=Deadline.never())
        if not counts[0]["pending"] and not derived:
            raise Finished
        await asyncio.sleep(0.02)


async def apply(where: dict[str, Any], steps: Steps) -> None:
    graph, database = MortalGraph(*where["graph"]), MortalDatabase(where["postgres"])
    graph.steps = database.steps = steps
    speaker = VisibilityPublisher(where["valkey"]) if "valkey" in where else None

    async def written(_: Sequence[Event]) -> None:
        steps.take("told")

    def announce(event_ids: Sequence[UUID]) -> None:
        assert speaker is not None
        speaker.publish(event_ids)
        steps.take("said")

    wakeups = WakeupSource(database)
    telling: dict[str, Any] = {} if speaker is None else {"written": written, "announce": announce}
    applier = Applier(database, graph, wakeups, batch=where["batch"], derivers={"settled_by": SettledBy()}, **telling)
    assert await applier.lease.take()
    try:
        await applier._serve()
    except Finished:
        return
    finally:
        if speaker is not None:
            await speaker.close()
        await graph.close()
        await database.close()


async def push(where: dict[str, Any], step: str, number: int) -> None:
    database, wakeup_publisher = Database(where["postgres"]), WakeupPublisher(where["valkey"])
    actor, entries = said(number)
    steps = Steps(step, 1)

    async def publish_wakeup(tiers: Sequence[Tier]) -> None:
        steps.take("stored")
        await wakeup_publisher.publish_wakeup(tiers)
        steps.take("rung")

    gateway = Gateway(database, actor, publish_wakeup)
    steps.take("before")
    await gateway.append(entries, deadline=Deadline.never())
    await wakeup_publisher.close()
    await database.close()


async def run(where: dict[str, Any], line: str) -> None:
    what, step, number = line.split()
    if what == "push":
        await push(where, step, int(number))
    else:
        await apply(where, Steps(step, int(number)))


if __name__ == "__main__":
    run_each_line(run)
