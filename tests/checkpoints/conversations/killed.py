"""
A program that talks and is killed: ``python -m tests.checkpoints.conversations.killed``, the URL on standard input.

It forks one talker after the other. Each goes on where the one before stopped, and kills itself with SIGKILL at the
n-th of its points: before or after a statement, or while its summariser works. In the end one talker finishes what is
left, and the program prints how many were killed and how many messages there must be.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from imem.checkpoints.conversations.messages import Message, StoredMessage
from imem.checkpoints.conversations.store import Conversations
from imem.journal.deadline import Deadline
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.database import Database

POINTS = 45
"""How many points a talker passes, about: some of adding, some of summarising."""

EACH = 4
"""How many messages back each talker begins: what its forerunner may have died over."""


class Fuse:
    """Kills the process at its n-th point; 0 never."""

    def __init__(self, after: int) -> None:
        self._left = after

    def burn(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class Summariser:
    def __init__(self, fuse: Fuse) -> None:
        self._fuse = fuse

    async def summarise(self, messages: Sequence[StoredMessage], *, deadline: Deadline) -> str:
        deadline.check("a summary")
        self._fuse.burn()
        return f"summary of {len(messages)}"


async def _talk(url: str, fuse: Fuse, first: int, last: int) -> None:
    def deadly(execute: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def dying(self: Connection, *args: Any, **named: Any) -> Any:
            fuse.burn()
            done = await execute(self, *args, **named)
            fuse.burn()
            return done

        return dying

    for name in ("execute", "answer"):
        setattr(Connection, name, deadly(getattr(Connection, name)))
    database = Database(url, size=2)
    conversations = Conversations(database, Summariser(fuse))
    await conversations.add("w", "t", Message(role="system", content="rule", id="rule"), deadline=Deadline.never())
    for number in range(first, last + 1):
        message = Message(role="user", content=f"message {number}", id=f"m{number}")
        await conversations.add("w", "t", message, deadline=Deadline.never())
    await conversations.summarise("w", "t", deadline=Deadline.never())
    await database.close()


def _in_a_child(url: str, fuse: Fuse, first: int, last: int) -> int:
    """Return how it ended, as a negative signal or an exit code."""
    child = os.fork()
    if child == 0:
        asyncio.run(_talk(url, fuse, first, last))
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(url: str) -> int:
    kills = int(os.environ["TALK_KILLS"])
    killed = lives = last = 0
    while killed < kills:
        last += lives % 2
        ended = _in_a_child(url, Fuse(1 + lives * 7 % POINTS), max(1, last - EACH), last)
        if ended not in {0, -signal.SIGKILL}:
            return 1
        killed += ended == -signal.SIGKILL
        lives += 1
    last += 21
    code = _in_a_child(url, Fuse(0), 1, last)
    sys.stdout.write(f"{killed} {last + 1}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.stdin.readline().strip()))
