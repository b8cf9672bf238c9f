"""
A program that compares analyses and is killed: ``python -m tests.kg.similarity.killed``, with the URL on stdin.

It forks one worker after the other. The n-th kills itself with SIGKILL before its n-th statement; the first that has
compared everything and built the index anew ends the program, which prints how many were killed.
"""

from __future__ import annotations

import sys
from functools import partial

from imem.jobs.throttle import Throttle
from imem.journal.deadline import Deadline
from imem.journal.postgres import rows as functions
from imem.journal.postgres.database import Database
from imem.kg.similarity import index, neighbours, vectors
from tests.kg.similarity.conftest import Directions
from tests.kill_points import killing, run_until_one_ends

PAGE = 6


async def _work(url: str, after: int) -> None:
    counter = [after]
    for name in ("rows", "execute"):
        dying = killing(counter, getattr(functions, name))
        for module in (vectors, neighbours, index):
            if hasattr(module, name):
                setattr(module, name, dying)
    for name in ("named", "execute", "commit"):
        setattr(Database, name, killing(counter, getattr(Database, name)))
    index.PAGE = PAGE  # type: ignore[misc]
    database = Database(url)
    embedder = Directions()
    # The server may not have noticed yet that the one before is dead.
    while (await index.update(database, embedder, until=Deadline.never(), loading=0.0)).busy:
        pass
    while (await index.rebuild(database, embedder, throttle=Throttle(Deadline.never()))).version is None:
        pass
    await database.close()


def main(url: str) -> int:
    return run_until_one_ends(partial(_work, url))


if __name__ == "__main__":
    sys.exit(main(sys.stdin.readline().strip()))
