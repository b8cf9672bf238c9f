"""A wire between a client and a server that a test can cut: meanwhile the port refuses."""

from __future__ import annotations

import asyncio
from contextlib import suppress

CHUNK = 65_536


class Proxy:
    """
    Forwards TCP connections on a loopback port of its own.

    Attributes:
        port: where to connect; the same before and after a cut.
    """

    def __init__(self, host: str, port: int) -> None:
        self._behind = (host, port)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def listen(self) -> None:
        """Accept connections."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Refuse connections, and break those that stand."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            behind_reader, behind_writer = await asyncio.open_connection(*self._behind)
            self._open |= {writer, behind_writer}
            try:
                await asyncio.gather(_copy(reader, behind_writer), _copy(behind_reader, writer))
            finally:
                for end in (writer, behind_writer):
                    self._open.discard(end)
                    end.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(CHUNK):
            writer.write(chunk)
            await writer.drain()
    writer.close()
