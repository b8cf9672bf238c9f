"""A proxy between a client and a server, which a test cuts where it hurts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class Proxy:
    """
    Passes bytes on until told to cut.

    Attributes:
        port: where it listens.
        cut_on: looks at what the client sends; where it says yes, those bytes still reach the server, and the client
            never hears the answer.
    """

    port: int = 0
    cut_on: Callable[[bytes], bool] = lambda _: False
    cuts: int = 0
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def serve(self, host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        there, back = await asyncio.open_connection(host, port)
        self._writers |= {writer, back}
        answers = asyncio.create_task(_pass_on(there, writer))
        try:
            with suppress(ConnectionError):
                while data := await reader.read(65_536):
                    cut = self.cut_on(data)
                    if cut:
                        # The answer shall not get through, but the server shall do what it was asked.
                        answers.cancel()
                        await asyncio.gather(answers, return_exceptions=True)
                    back.write(data)
                    await back.drain()
                    if cut:
                        self.cuts += 1
                        await there.read(1)
                        break
        finally:
            answers.cancel()
            await asyncio.gather(answers, return_exceptions=True)
            for one in (writer, back):
                one.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def proxied(host: str, port: int) -> AsyncIterator[Proxy]:
    """Run a proxy to a server."""
    proxy = Proxy()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await proxy.serve(host, port, reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        for writer in proxy._writers:
            writer.close()
        await server.wait_closed()
