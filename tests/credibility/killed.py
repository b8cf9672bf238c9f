"""
A program that settles and is killed: ``python -m tests.credibility.killed URL``.

It forks one settler after the other. The n-th kills itself with SIGKILL before its n-th statement; the first that ends
by itself ends the program, which prints how many were killed.
"""

from __future__ import annotations

import sys
from functools import partial

from imem.credibility import settling, store
from imem.jobs import due
from imem.journal.deadline import Deadline
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from tests.kill_points import killing, run_until_one_ends

QUESTIONS = 3
HALFLIFE = 2.0


async def settle_to_the_end(url: str) -> None:
    """Settle all that is due."""
    database = Database(url)
    gateway = Gateway(database, settling.ACTOR)
    while True:
        done = await settling.settle_due(
            database, gateway, halflife_years=HALFLIFE, until=Deadline.never(), questions=QUESTIONS
        )
        # The server may not have noticed yet that the one before is dead.
        if not done.busy:
            break
    await database.close()


async def _settle(url: str, after: int) -> None:
    counter = [after]
    statements = ((module, name) for module in (store, settling, due) for name in ("rows", "execute"))
    for owner, name in (*statements, (Gateway, "append_in")):
        setattr(owner, name, killing(counter, getattr(owner, name)))
    await settle_to_the_end(url)


def main(url: str) -> int:
    return run_until_one_ends(partial(_settle, url))


if __name__ == "__main__":
    sys.exit(main(sys.stdin.readline().strip()))
