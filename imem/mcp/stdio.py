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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import IO, Any, Final

import anyio
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError

from imem.journal.actors import Actor
from imem.journal.settings import Settings
from imem.mcp.refusals import HEAD_BYTES, TAIL_BYTES, refusal_of, too_long
from imem.mcp.server import MemoryServer
from imem.memory import Memory

MOST_LINE_BYTES: Final = 16 * 2**20
"""Longest message that is read, in bytes; a longer one is answered with an error."""

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
            stream: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

            async def answer(error: JSONRPCError) -> None:
                await (await stream).send(SessionMessage(error))

            given: Any = _messages(0, answer)
            async with stdio_server(given, anyio.wrap_file(out)) as (reads, writes):
                stream.set_result(writes)
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


async def _messages(source: int, answer: Callable[[JSONRPCError], Awaitable[None]]) -> AsyncIterator[str]:
    """Yield the messages of a file descriptor; *answer* each line that is none."""
    async for line, tail in _lines(source):
        text = line.decode(errors="replace")
        if tail is not None:
            await answer(too_long(text, tail.decode(errors="replace"), MOST_LINE_BYTES))
        elif text.strip():
            message = _whole_characters(text)
            refusal = refusal_of(message)
            if refusal is None:
                yield message
            else:
                await answer(refusal)


async def _lines(source: int) -> AsyncIterator[tuple[bytes, bytes | None]]:
    """
    Yield the lines of a file descriptor, each with None; of one that is too long its beginning, with its end.

    A thread reads it that neither a stop nor the program's end waits for: such a read cannot be called off.
    """
    loop, lines = asyncio.get_running_loop(), asyncio.Queue[tuple[bytes, bytes | None] | None](_WAITING)

    def put(line: tuple[bytes, bytes | None] | None) -> None:
        asyncio.run_coroutine_threadsafe(lines.put(line), loop).result()

    def read() -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed: the server has ended.
            rest, is_whole = bytearray(), True
            while chunk := os.read(source, _CHUNK_BYTES):
                for number, piece in enumerate(chunk.split(b"\n")):
                    if number:
                        put((bytes(rest), None) if is_whole else (bytes(rest[:HEAD_BYTES]), bytes(rest[HEAD_BYTES:])))
                        rest, is_whole = bytearray(), True
                    rest += piece
                    if len(rest) > MOST_LINE_BYTES or not is_whole:
                        del rest[HEAD_BYTES : max(HEAD_BYTES, len(rest) - TAIL_BYTES)]
                        is_whole = False
            put(None)

    threading.Thread(target=read, name="mcp-stdin", daemon=True).start()
    while (line := await lines.get()) is not None:
        yield line


def _whole_characters(line: str) -> str:
    """Return a message with U+FFFD for each half of a surrogate pair, on which its parser would drop it unanswered."""
    if "\\ud" not in line.lower():
        return line
    try:
        text = json.dumps(json.loads(line), ensure_ascii=False)
    except (ValueError, RecursionError):
        return line
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
