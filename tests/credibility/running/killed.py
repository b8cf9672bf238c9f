"""
Pipelines that are killed: ``python -m tests.credibility.running.killed``, told the database on its first line.

Each further line says what to do (:data:`OPERATIONS`), how far ahead the clock is, in seconds, and the point
(:data:`POINTS`) at which the process ends itself. Each is a fork of this process; it answers with how the fork ended.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import psycopg

from imem.credibility.disputes.detection import find_contradictions
from imem.credibility.scores.auto_resolve import Basis
from imem.credibility.settling import ACTOR
from imem.gates.learning.gate import open_due_package
from imem.jobs.lifecycle import advance_due
from imem.journal.deadline import Deadline
from imem.journal.gateway import Gateway
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.database import Database
from imem.journal.statements import sql
from imem.postmortem.cases.priorities import PriorityPolicy
from imem.postmortem.cases.queue import open_cases
from imem.services.task_kinds import TASK_KINDS
from imem.workers.pipelines import LIFECYCLES
from tests.kill_points import run_each_line
from tests.killed_programs import KilledProgram
from tests.waiting import until

if TYPE_CHECKING:
    from ..conftest import World  # noqa: TID252 - a folder of its own

POINTS: Final = ("before_change", "after_change", "before_append", "before_commit", "after_commit", "cut_off")
"""
Where a process ends: around the statement that changes a row or takes what is due, before facts are appended, before
the transaction commits, and after it, before anybody hears of it and before the next row. ``cut_off`` kills nothing:
Postgres ends the connection before the commit.
"""

CHANGES: Final = {
    "advance": "lifecycle_move", "find": "disputes_lock", "open": "case_insert", "admit": "lifecycle_move",
    "validate": "lifecycle_move",
}  # fmt: skip
"""Operation → the first statement of its transaction that changes or takes something."""

ENDS_ITSELF: Final = 1
"""Exit code of a process whose connection was cut off."""


async def killed_at(
    world: World, program: KilledProgram, point: str, operation: str, before: Counter[str], *, ahead_s: int = 0
) -> Counter[str]:
    """Have a process end at a point; return what is written then: what was *before*, or all of its change."""
    ended = await program.ended(json.dumps({"operation": operation, "ahead_s": ahead_s, "point": point}))
    assert ended == (ENDS_ITSELF if point == "cut_off" else -signal.SIGKILL), point
    # The server may not have noticed yet that a process is dead, whose row nobody else can move.
    await until(world.released)
    after = await world.written()
    assert (after == before) is (point != "after_commit"), point
    return after


def _arm(point: str, change: str, url: str) -> None:
    """Put the end of this process at the point into the product's way."""
    statement: Any = sql(change)
    changing: list[Any] = []
    execute, append, leave = Connection.execute, Gateway.append_in, psycopg.AsyncTransaction.__aexit__

    def reach(here: str) -> None:
        if here == point:
            os.kill(os.getpid(), signal.SIGKILL)

    async def watched(conn: Connection, query: Any, *given: Any, **named: Any) -> Any:
        if query != statement:
            return await execute(conn, query, *given, **named)
        changing.append(conn)
        reach("before_change")
        answer = await execute(conn, query, *given, **named)
        reach("after_change")
        return answer

    async def appended(*given: Any, **named: Any) -> Any:
        reach("before_append")
        return await append(*given, **named)

    async def left(transaction: Any, *given: Any) -> Any:
        if transaction.connection not in changing:
            return await leave(transaction, *given)
        reach("before_commit")
        if point == "cut_off":
            with psycopg.connect(url, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 10000)", (transaction.connection.info.backend_pid,))
        answer = await leave(transaction, *given)
        reach("after_commit")
        return answer

    Connection.execute = watched  # type: ignore[method-assign, assignment]
    Gateway.append_in = appended  # type: ignore[method-assign]
    psycopg.AsyncTransaction.__aexit__ = left  # type: ignore[method-assign, assignment]


async def _advance(runtime: Any) -> None:
    while (await advance_due(runtime, LIFECYCLES, until=Deadline.after_ms(30_000))).moved:
        pass


async def _find(runtime: Any) -> None:
    await find_contradictions(runtime, guard=True, until=Deadline.after_ms(30_000))


async def _cases(runtime: Any) -> None:
    await open_cases(runtime, until=Deadline.after_ms(30_000))


async def _validate(runtime: Any) -> None:
    await open_due_package(runtime)


OPERATIONS: Final[dict[str, Callable[[Any], Awaitable[None]]]] = {
    "advance": _advance, "find": _find, "open": _cases, "admit": _cases, "validate": _validate,
}  # fmt: skip


async def run(url: str, line: str) -> None:
    """Do what is told until the point."""
    told = json.loads(line)
    _arm(told["point"], CHANGES[told["operation"]], url)
    database = Database(url, size=4, options=f"-c imem.clock_shift={told['ahead_s']}s")
    runtime = SimpleNamespace(
        database=database, gateway=Gateway(database, ACTOR), task_kinds=TASK_KINDS, halflife_years=2.0,
        auto_resolution_basis=Basis.POSTERIOR, postmortem_priority=PriorityPolicy.DEVIATION, postmortem_model=None,
    )  # fmt: skip
    try:
        await OPERATIONS[told["operation"]](runtime)
    finally:
        await database.close()


if __name__ == "__main__":
    run_each_line(run)
