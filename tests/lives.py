"""Processes that are killed on purpose: one forked child for each line that is told, of a program imported once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from imem.logs import by_default


def one_a_line(live: Callable[[Any, str], Awaitable[None]]) -> None:
    """
    Read where the servers are, as JSON, from the first line; then live once for each line, and say how that ended.

    Args:
        live: is given where the servers are, and the line; what it does ends with its process.
    """
    by_default("ERROR")  # What it says on standard output is how lives ended, and nothing else.
    where = json.loads(sys.stdin.readline())
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                asyncio.run(_lived(live, where, line))
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


async def _lived(live: Callable[[Any, str], Awaitable[None]], where: Any, line: str) -> None:
    await live(where, line)


def until_one_ends(live: Callable[[int], Awaitable[None]]) -> int:
    """
    Live again and again, each time in a child, until one ends by itself; print how many were killed, return its code.

    Args:
        live: is given its number, from 1.
    """
    killed = 0
    while True:
        child = os.fork()
        if child == 0:
            asyncio.run(_numbered(live, killed + 1))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            killed += 1
            continue
        sys.stdout.write(f"{killed}\n")
        return os.waitstatus_to_exitcode(status)


async def _numbered(live: Callable[[int], Awaitable[None]], number: int) -> None:
    await live(number)


def deadly(counter: list[int], function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Return *function*, which ends the process with SIGKILL instead of beginning when *counter* has come to zero."""

    async def run(*args: Any, **named: Any) -> Any:
        counter[0] -= 1
        if counter[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return await function(*args, **named)

    return run


class NamedPoint:
    """
    The point at which a process dies: the call of a function in a stage, or of the statement that it is given.

    Attributes:
        point: stage and name; None lets the process live.
        stage: what the process does now; it says so itself.
    """

    def __init__(self, point: tuple[str, str] | None) -> None:
        self.point = point
        self.stage = ""

    def guard(self, owner: Any, name: str, *, named: bool) -> None:
        """
        Have *owner*'s function end the process with SIGKILL instead of beginning at the point.

        Args:
            named: whether the point has the name of the statement that the function is given, and not its own.
        """
        function: Callable[..., Awaitable[Any]] = getattr(owner, name)

        async def run(*args: Any, **more: Any) -> Any:
            if (self.stage, args[1] if named else name) == self.point:
                os.kill(os.getpid(), signal.SIGKILL)
            return await function(*args, **more)

        setattr(owner, name, run)

    def enter(self, owner: Any, name: str, stage: str) -> None:
        """Have *owner*'s function begin *stage*."""
        function: Callable[..., Awaitable[Any]] = getattr(owner, name)

        async def run(*args: Any, **more: Any) -> Any:
            self.stage = stage
            return await function(*args, **more)

        setattr(owner, name, run)


def one_a_point(
    live: Callable[[NamedPoint], Awaitable[None]],
    points: Iterable[tuple[str, str]],
    *,
    before: Callable[[], None] = lambda: None,
) -> int:
    """
    Live once for each of *points*, and once more without one, each time in a child; print how many were killed.

    Args:
        before: called in this process before each life.

    Returns:
        0, or 1 if one that was not killed failed.
    """
    by_default("ERROR")  # What it says on standard output is how many died, and nothing else.
    killed = 0
    for point in (*points, None):
        before()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                asyncio.run(_pointed(live, NamedPoint(point)))
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            killed += 1
        elif os.waitstatus_to_exitcode(status) != 0:
            return 1
    sys.stdout.write(f"{killed}\n")
    return 0


async def _pointed(live: Callable[[NamedPoint], Awaitable[None]], point: NamedPoint) -> None:
    await live(point)
