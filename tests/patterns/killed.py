"""
A program that tests patterns and is killed: ``python -m tests.patterns.killed``, with URL and clock on its input.

It forks one worker after the other. The n-th kills itself with SIGKILL before its n-th statement; the first that ends
by itself ends the program, which prints how many were killed.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from types import SimpleNamespace
from typing import Any

from imem.jobs import due, lifecycle
from imem.jobs.lifecycle import advance_due
from imem.journal.deadline import Deadline
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from imem.logs import by_default
from imem.patterns import life, looks, monitoring, prospective, testing
from imem.patterns.shadows import SHIFTED
from imem.services.task_kinds import TASK_KINDS
from tests.kill_points import killing, run_until_one_ends

LEFT = """
    SELECT FROM due_row WHERE queue = 'patterns'
    UNION ALL SELECT FROM lifecycle WHERE kind = 'pattern' AND (
        wake_at <= imem_now() OR state = 'candidate' AND (data ->> 'look_at')::timestamptz <= imem_now())"""


async def _work(url: str, options: str, after: int) -> None:
    """Do all that is due of patterns."""
    counter = [after]
    modules = (life, testing, prospective, looks, monitoring, due, lifecycle)
    statements = ((module, name) for module in modules for name in ("rows", "execute") if hasattr(module, name))
    for owner, name in (*statements, (Gateway, "append_in")):
        setattr(owner, name, killing(counter, getattr(owner, name)))
    database = Database(url, options=options)
    runtime: Any = SimpleNamespace(
        database=database, gateway=Gateway(database, life.ACTOR), task_kinds=TASK_KINDS, shadow_runner=SHIFTED,
        pattern_gate_mode=life.GateMode.BOTH, shadow_runs_per_month=10_000,
    )  # fmt: skip
    while True:
        await monitoring.test_patterns(runtime, until=Deadline.never())
        await advance_due(runtime, {life.KIND: monitoring.LIFE}, until=Deadline.never())
        if not await database.rows(LEFT, deadline=Deadline.never()):
            break
        # The server may not have noticed yet that the one before is dead.
        await asyncio.sleep(0.02)
    await database.close()


def main(url: str, options: str) -> int:
    by_default("ERROR")  # On standard output there is the number of those killed and nothing else.
    return run_until_one_ends(partial(_work, url, options))


if __name__ == "__main__":
    sys.exit(main(sys.stdin.readline().strip(), sys.stdin.readline().strip()))
