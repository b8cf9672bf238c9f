"""
Programs that raise or send alerts and are killed: ``python -m tests.alerts.killed raise|send``, the URL on standard
input.

``raise`` forks one program after the other; each pauses something and says so in one transaction, and kills itself with
SIGKILL before or after one of its statements, or between two. Prints how many were killed.

``send`` sends what is due to the URL on its second line of input, and kills itself once the receiver has answered,
before that is noted.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any
from uuid import uuid4, uuid5

import psycopg

from imem.alerts.notifiers import AlertMessage, Attempt, WebhookNotifier
from imem.alerts.sending import CLAIM_S, send_due
from imem.alerts.store import raise_alert
from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from tests.alerts.conftest import failure

SECRET = "a secret of the tests"  # noqa: S105
POINTS = 4


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def _pause(url: str, point: int, *, undone: bool) -> None:
    """Pause something; the last point lies behind the commit."""
    database = Database(url, size=1)
    about = uuid4()
    alert = failure(f"company:{about}", alert_id=uuid5(about, "paused"), about=about)
    async with database.connection(Deadline.never()) as conn:
        async with conn.transaction(force_rollback=undone):
            await conn.execute("INSERT INTO workflow.told_pause (id) VALUES (%s)", (about,))
            if point == 0:
                die()
            await raise_alert(conn, alert)
            if point == 1:
                die()
            await raise_alert(conn, alert)
            if point == 2:
                die()
        if point == POINTS - 1:
            die()


def _raise(url: str) -> int:
    kills = int(os.environ["ALERT_KILLS"])
    for number in range(kills):
        child = os.fork()
        if child == 0:
            asyncio.run(_pause(url, number % POINTS, undone=number % 5 == 4))
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != -signal.SIGKILL:
            return 1
    # What nobody kills: there is something to count even where all others died too early.
    for _ in range(kills // 4 + 1):
        asyncio.run(_pause(url, -1, undone=False))
    sys.stdout.write(f"{kills}\n")
    return 0


class Dying(WebhookNotifier):
    """Dies before it sends, or once the receiver has answered."""

    early = False

    async def send(self, notice: AlertMessage, *, deadline: Deadline) -> Attempt:
        if self.early:
            die()
        done = await super().send(notice, deadline=deadline)
        die()
        return done


async def _deliver(url: str, notifier: WebhookNotifier) -> None:
    database = Database(url, size=2)
    channels: dict[str, Any] = {"webhook": notifier}
    done = await send_due(database, channels, until=Deadline.never())
    await database.close()
    # Nobody sends what another has claimed.
    assert done.taken == 0


def _send(url: str, receiver: str) -> int:
    kills = int(os.environ["ALERT_KILLS"])
    for number in range(kills):
        child = os.fork()
        if child == 0:
            notifier = Dying(receiver, SECRET)
            notifier.early = number % 2 == 0
            asyncio.run(_deliver(url, notifier))
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != -signal.SIGKILL:
            return 1
        if number % 10 < 2:
            asyncio.run(_deliver(url, WebhookNotifier(receiver, SECRET)))
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute(
                "UPDATE workflow.alert_send SET next_attempt_at = next_attempt_at - make_interval(secs => %s) "
                "WHERE state = 'due'",
                (CLAIM_S,),
            )
    sys.stdout.write(f"{kills}\n")
    return 0


if __name__ == "__main__":
    URL = sys.stdin.readline().strip()
    sys.exit(_raise(URL) if sys.argv[1] == "raise" else _send(URL, sys.stdin.readline().strip()))
