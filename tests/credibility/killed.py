"""
A program that settles and is killed: ``python -m tests.credibility.killed URL``.

It forks one settler after the other. The n-th kills itself with SIGKILL before its n-th statement; the first that ends
by itself ends the program, which prints how many were killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from credibility import settle, store
from journal.database import Database
from journal.deadline import Deadline
from journal.gateway import Gateway

QUESTIONS = 3
HALFLIFE = 2.0


def _deadly(counter: list[int], function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def run(*args: Any, **named: Any) -> Any:
        counter[0] -= 1
        if counter[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return await function(*args, **named)

    return run


async def _settle(url: str, after: int) -> None:
    counter = [after]
    for owner, name in ((store, "rows"), (store, "do"), (Gateway, "_append_batch")):
        setattr(owner, name, _deadly(counter, getattr(owner, name)))
    database = Database(url)
    gateway = Gateway(database, settle.ACTOR)
    while True:
        done = await settle.settle_due(
            database, gateway, halflife_years=HALFLIFE, until=Deadline.never(), questions=QUESTIONS
        )
        # The server may not have noticed yet that the one before is dead.
        if not done.busy:
            break
    await database.close()


def main(url: str) -> int:
    killed = 0
    while True:
        child = os.fork()
        if child == 0:
            asyncio.run(_settle(url, killed + 1))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            killed += 1
            continue
        sys.stdout.write(f"{killed}\n")
        return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(sys.stdin.readline().strip()))
