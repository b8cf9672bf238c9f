"""Programs whose children are killed, as the tests see them; the programs' own side is :mod:`tests.kill_points`."""

from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from tests import forking

ANSWERS_S: Final = 300.0


class KilledProgram:
    """A program of :func:`tests.kill_points.run_each_line`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ended(self, line: str) -> int:
        """Run a child; return its exit code, or minus the signal that killed it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n".encode())
        await self._process.stdin.drain()
        return int(await asyncio.wait_for(self._process.stdout.readline(), ANSWERS_S))


@asynccontextmanager
async def killed_program(module: str, first: Any) -> AsyncIterator[KilledProgram]:
    """Run a program until the block ends; *first*, as JSON, is the line that it begins with."""
    process = await asyncio.create_subprocess_exec(*forking.command("module", module), stdin=PIPE, stdout=PIPE)
    assert process.stdin is not None
    process.stdin.write(json.dumps(first).encode() + b"\n")
    try:
        yield KilledProgram(process)
    finally:
        process.stdin.close()
        await asyncio.wait_for(process.wait(), ANSWERS_S)


async def printed(module: str, *words: str, given: str, **variables: str) -> str:
    """Run a program to its end, which must be a good one; return what it printed."""
    process = await asyncio.create_subprocess_exec(
        *forking.command("module", module, *words),
        stdin=PIPE, stdout=PIPE, stderr=PIPE, env={**os.environ, **variables},
    )  # fmt: skip
    out, errors = await process.communicate(given.encode())
    assert process.returncode == 0, errors.decode()[-3_000:]
    return out.decode()
