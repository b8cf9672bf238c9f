"""Processes that are killed at a given point: each is a forked child of a program that is imported once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from imem.logs import by_default


def run_each_line(run: Callable[[Any, str], Awaitable[None]]) -> None:
    """
    Read the servers' addresses, as JSON, from the first line; then run once for each line, and print each exit code.

    Args:
        run: gets the addresses and the line, in a child of its own.
    """
    by_default("ERROR")  # On standard output there are exit codes and nothing else.
    where = json.loads(sys.stdin.readline())
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                asyncio.run(_run_line(run, where, line))
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


async def _run_line(run: Callable[[Any, str], Awaitable[None]], where: Any, line: str) -> None:
    await run(where, line)


def run_until_one_ends(run: Callable[[int], Awaitable[None]]) -> int:
    """
    Run in one child after another until one ends by itself; print how many were killed, and return its code.

    Args:
        run: gets the number of the child, from 1.
    """
    killed = 0
    while True:
        child = os.fork()
        if child == 0:
            asyncio.run(_run_numbered(run, killed + 1))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            killed += 1
            continue
        sys.stdout.write(f"{killed}\n")
        return os.waitstatus_to_exitcode(status)


async def _run_numbered(run: Callable[[int], Awaitable[None]], number: int) -> None:
    await run(number)


def killing(counter: list[int], function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Return *function*, which ends the process with SIGKILL instead of beginning when *counter* has come to zero."""

    async def run(*args: Any, **named: Any) -> Any:
        counter[0] -= 1
        if counter[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return await function(*args, **named)

    return run


class NamedPoint:
    """
    The point at which a process is killed: the call of a function in a stage, or of the statement that it is given.

    Attributes:
        point: stage and name; None for no point.
        stage: what the process does now, set by itself.
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


def run_at_each_point(
    run: Callable[[NamedPoint], Awaitable[None]],
    points: Iterable[tuple[str, str]],
    *,
    before: Callable[[], None] = lambda: None,
) -> int:
    """
    Run a child for each of *points*, and one without a point; print how many were killed.

    Args:
        before: called in this process before each child.

    Returns:
        0, or 1 if one that was not killed failed.
    """
    by_default("ERROR")  # On standard output there is the number of those killed and nothing else.
    killed = 0
    for point in (*points, None):
        before()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                asyncio.run(_run_until_point(run, NamedPoint(point)))
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


async def _run_until_point(run: Callable[[NamedPoint], Awaitable[None]], point: NamedPoint) -> None:
    await run(point)
