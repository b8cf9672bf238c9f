"""
A program that compares analyses and is killed: ``python -m tests.similar.killed``, with the URL on standard input.

It forks one worker after the other. The n-th kills itself with SIGKILL before its n-th statement; the first that has
compared everything and built the index anew ends the program, which prints how many were killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from journal.database import Database
from journal.deadline import Deadline
from kg import embedding, neighbours, similar
from kg.similar import Pace
from tests.similar.conftest import Directions

PAGE = 6


def _deadly(counter: list[int], function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def run(*args: Any, **named: Any) -> Any:
        counter[0] -= 1
        if counter[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return await function(*args, **named)

    return run


async def _work(url: str, after: int) -> None:
    counter = [after]
    for name in ("rows", "do"):
        deadly = _deadly(counter, getattr(embedding, name))
        for module in (embedding, neighbours, similar):
            if hasattr(module, name):
                setattr(module, name, deadly)
    for name in ("named", "do", "commit"):
        setattr(Database, name, _deadly(counter, getattr(Database, name)))
    similar.PAGE = PAGE  # type: ignore[misc]
    database = Database(url)
    embedder = Directions()
    # The server may not have noticed yet that the one before is dead.
    while (await similar.update(database, embedder, until=Deadline.never(), rest=0.0)).busy:
        pass
    while (await similar.rebuild(database, embedder, pace=Pace(Deadline.never()))).version is None:
        pass
    await database.close()


def main(url: str) -> int:
    killed = 0
    while True:
        child = os.fork()
        if child == 0:
            asyncio.run(_work(url, killed + 1))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            killed += 1
            continue
        sys.stdout.write(f"{killed}\n")
        return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(sys.stdin.readline().strip()))
