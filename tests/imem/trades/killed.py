"""
A runner that is killed: ``python -m tests.imem.trades.killed``, with where the journal is and what it trades on stdin.

It replays its ticks from the last one that is stored. Each life is a fork of this process that kills itself with
SIGKILL before or after one of its statements, a later one than the life before; the last one lives to the end.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any

from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.postmortem.trades.ledger import TradeLedger
from tests.kill_points import run_until_one_ends

from .paths import SYMBOLS, Broker, Move, Tick

TICKS = 24
LATEST = 15
"""The last point of a life at which it dies: within its third tick."""


def ticks_of(deployment: str) -> list[Tick]:
    """Return ticks that go through every change; the same ones for the same name."""
    chosen = random.Random(7)

    def move() -> Move:
        target = chosen.choice((None, Decimal(0), Decimal(-3), Decimal(2), Decimal("5.1"), Decimal(-1)))
        close, fee = Decimal(chosen.randint(900, 1100)) / 7, Decimal(chosen.randint(0, 9)) / 8
        price = close.quantize(Decimal("0.0001"))
        return Move(price, None, Decimal("0.25"), target, fee, liquidated=chosen.random() < 0.1)

    return Broker(deployment).ticks([{symbol: move() for symbol in SYMBOLS} for _ in range(TICKS)])


def killing(left: list[int], run: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    def count() -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    async def running(*given: Any, **named: Any) -> Any:
        count()
        answer = await run(*given, **named)
        count()
        return answer

    return running


async def run(number: int) -> None:
    left = [(number - 1) % LATEST + 1]
    for way in ("execute", "answer"):
        setattr(Connection, way, killing(left, getattr(Connection, way)))
    database = Database(GIVEN["url"], size=1)
    ledger, due = TradeLedger(database), Deadline.after_ms(20_000)
    last = (await ledger.resume(GIVEN["deployment"], deadline=due)).last_tick_at
    for tick in ticks_of(GIVEN["deployment"]):
        if last is None or tick.at >= last:
            await ledger.record(
                Actor("ann", Role.AGENT), tick.decision, tick.positions, tick.bars, fees=tick.fees, at=tick.at,
                deadline=due,
            )  # fmt: skip
    await database.close()


if __name__ == "__main__":
    GIVEN = json.loads(sys.stdin.readline())
    sys.exit(run_until_one_ends(run))
