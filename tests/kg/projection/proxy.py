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
        host, behind: the server's address.
        port: where it listens; the same before and after a refusal.
        cut_on: looks at what the client sends; where it says yes, those bytes still reach the server, and the client
            never hears the answer.
    """

    host: str
    behind: int
    port: int = 0
    cut_on: Callable[[bytes], bool] = lambda _: False
    cuts: int = 0
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _server: asyncio.Server | None = None

    async def listen(self) -> None:
        """Accept connections."""
        self._server = await asyncio.start_server(self.serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Refuse connections, and break those that stand."""
        if self._server is not None:
            self._server.close()
            self._server = None
        while self._writers:
            self._writers.pop().transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        there, back = await asyncio.open_connection(self.host, self.behind)
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
                self._writers.discard(one)
                one.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def proxied(host: str, port: int) -> AsyncIterator[Proxy]:
    """Run a proxy to a server."""
    proxy = Proxy(host, port)
    await proxy.listen()
    try:
        yield proxy
    finally:
        await proxy.refuse()
