"""Processes that are killed on purpose: one forked child for each line that is told, of a program imported once."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
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
