"""
An applier that kills itself: a program, told where on its first line, and on each further line after how many steps.

A step is whatever lies between two things that a crash could tear apart: each statement of a transaction, its commit,
and the marking of what was applied, before and after. Each life is a fork of this process, so that a hundred of them
cost seconds. For each it answers with how the life ended: the number of the signal, or 0.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import neo4j

from imem.credibility.settled_links import SettledBy
from imem.journal.deadline import Deadline
from imem.journal.postgres.connection import Parameters
from imem.journal.postgres.database import Database
from imem.kg.engine import Graph
from imem.kg.projection.applier import Applier
from tests.lives import one_a_line

T = TypeVar("T")


class Finished(Exception):
    """Nothing is due any more."""


class Steps:
    """Counts down to the end."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class Transaction:
    """A transaction each of whose statements is a step."""

    def __init__(self, inner: neo4j.AsyncTransaction, steps: Steps) -> None:
        self._inner = inner
        self._steps = steps

    async def run(self, text: Any, parameters: Any = None) -> Any:
        self._steps.take()
        return await self._inner.run(text, parameters)


class CrashingGraph(Graph):
    """A graph whose writes are made of steps."""

    steps: Steps

    async def write(
        self, name: str, work: Callable[[neo4j.AsyncTransaction], Awaitable[T]], *, deadline: Deadline
    ) -> tuple[T, str | None]:
        async def stepwise(transaction: neo4j.AsyncTransaction) -> T:
            result = await work(Transaction(transaction, self.steps))  # type: ignore[arg-type]
            self.steps.take()
            return result

        result = await super().write(name, stepwise, deadline=deadline)
        self.steps.take()
        return result


class CrashingDatabase(Database):
    """A journal in which marking is a step before and after."""

    steps: Steps

    async def execute(self, name: str, parameters: Parameters | None = None, *, deadline: Deadline) -> int:
        self.steps.take()
        changed = await super().execute(name, parameters, deadline=deadline)
        self.steps.take()
        return changed


class WakeupSource:
    """Ends the life when nothing is due any more."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def wait(self) -> None:
        counts = await self._database.named("delivery_counts", deadline=Deadline.never())
        waiting = "SELECT FROM due_row WHERE queue = 'graph' LIMIT 1"
        derived = await self._database.rows(waiting, deadline=Deadline.never())
        if not counts[0]["pending"] and not derived:
            raise Finished
        await asyncio.sleep(0.005)


async def live(where: dict[str, Any], steps: Steps) -> None:
    """Apply until killed, or until nothing is due."""
    graph, database = CrashingGraph(*where["graph"]), CrashingDatabase(where["postgres"])
    graph.steps = database.steps = steps
    applier = Applier(
        database, graph, WakeupSource(database), batch=where["batch"], derivers={"settled_by": SettledBy()}
    )
    assert await applier.lease.take()
    try:
        await applier._serve()
    except Finished:
        return
    finally:
        await graph.close()
        await database.close()


if __name__ == "__main__":
    one_a_line(lambda where, line: live(where, Steps(int(line))))
