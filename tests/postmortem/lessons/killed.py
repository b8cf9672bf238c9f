"""
A program that delivers lessons and is killed: ``python -m tests.postmortem.lessons.killed``, with the URL on its input.

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
from imem.postmortem.lessons import life
from tests.kill_points import killing, run_until_one_ends


async def _work(url: str, after: int) -> None:
    """Open and deliver all that is due, two agents at a time."""
    life.DELIVERED_AT_ONCE = 2  # type: ignore[misc]
    counter = [after]
    statements = ((module, name) for module in (life, due, lifecycle) for name in ("rows", "execute"))
    for owner, name in (*statements, (Gateway, "append_in")):
        setattr(owner, name, killing(counter, getattr(owner, name)))
    database = Database(url)
    runtime: Any = SimpleNamespace(database=database, gateway=Gateway(database, life.ACTOR))
    while True:
        await life.open_lessons(runtime, until=Deadline.never())
        await advance_due(runtime, {life.KIND: life.LIFE}, until=Deadline.never())
        left = await database.rows(
            "SELECT FROM due_row WHERE queue = %s"
            " UNION ALL SELECT FROM lifecycle WHERE kind = %s AND wake_at <= imem_now()",
            (life.QUEUE, life.KIND), deadline=Deadline.never(),
        )  # fmt: skip
        if not left:
            break
        # The server may not have noticed yet that the one before is dead.
        await asyncio.sleep(0.02)
    await database.close()


def main(url: str) -> int:
    by_default("ERROR")  # On standard output there is the number of those killed and nothing else.
    return run_until_one_ends(partial(_work, url))


if __name__ == "__main__":
    sys.exit(main(sys.stdin.readline().strip()))
