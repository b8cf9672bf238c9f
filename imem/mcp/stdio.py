"""
The server over standard input and output: one client, one message a line, until either side ends.

Standard output carries nothing but the protocol: while the server runs, whatever else is printed goes to standard
error, where the logs are.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from typing import IO, Any, Final

import anyio
import structlog
from mcp.server.stdio import stdio_server

from imem.journal.actors import Actor
from imem.journal.settings import Settings
from imem.mcp.server import MemoryServer
from imem.memory import Memory

log = structlog.get_logger()

MOST_LINE_BYTES: Final = 16 * 2**20
"""Longest message that is read, in bytes; a longer one ends the connection."""

_CHUNK_BYTES: Final = 64 * 2**10
_WAITING: Final = 16
"""Most lines that are read ahead."""


async def serve(settings: Settings, version: str) -> None:
    """
    Serve the client until it closes standard input, or the process is told to stop.

    Running calls are then cancelled: each write is committed whole or not at all, as after a crash.

    Raises:
        StackError: a server is not named and no local stack runs.
    """
    this = asyncio.current_task()
    assert this is not None  # noqa: S101 - a coroutine that runs is a task
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, this.cancel)
    with contextlib.suppress(asyncio.CancelledError), _wire() as out:
        async with Memory.open(settings) as memory:
            server = MemoryServer(memory, Actor.from_settings(settings), version).protocol()
            given: Any = _lines(0)
            async with stdio_server(given, anyio.wrap_file(out)) as (reads, writes):
                await server.run(reads, writes, server.create_initialization_options())


@contextlib.contextmanager
def _wire() -> Iterator[IO[str]]:
    """Lend standard output to the protocol alone; a client that has left is no error."""
    try:
        with os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n") as out:
            os.dup2(2, 1)
            yield out
    except* BrokenPipeError:
        pass


async def _lines(source: int) -> AsyncIterator[str]:
    """
    Yield the lines of a file descriptor.

    A thread reads it that neither a stop nor the program's end waits for: such a read cannot be called off.
    """
    loop, lines = asyncio.get_running_loop(), asyncio.Queue[bytes | None](_WAITING)

    def put(line: bytes | None) -> None:
        asyncio.run_coroutine_threadsafe(lines.put(line), loop).result()

    def read() -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed: the server has ended.
            rest = bytearray()
            while len(rest) <= MOST_LINE_BYTES and (chunk := os.read(source, _CHUNK_BYTES)):
                rest += chunk
                if b"\n" in chunk:
                    *whole, rest = rest.split(b"\n")
                    for line in whole:
                        put(bytes(line))
            if len(rest) > MOST_LINE_BYTES:
                log.error("mcp.message_too_long", most_bytes=MOST_LINE_BYTES)
            put(None)

    threading.Thread(target=read, name="mcp-stdin", daemon=True).start()
    while (line := await lines.get()) is not None:
        yield _whole_characters(line.decode(errors="replace"))


def _whole_characters(line: str) -> str:
    """Return a message with U+FFFD for each half of a surrogate pair, on which its parser would drop it unanswered."""
    if "\\ud" not in line.lower():
        return line
    try:
        text = json.dumps(json.loads(line), ensure_ascii=False)
    except (ValueError, RecursionError):
        return line
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
