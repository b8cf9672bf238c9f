"""A proxy between a client and a server that a test makes slow, silent, or absent."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit


@dataclass
class SlowProxy:
    """
    Passes bytes on, late, or not at all for a while.

    Attributes:
        host, behind: the server's address.
        port: where it listens.
        delay_s: how much later it passes on what the server answers, in seconds.
        tls: as whom it speaks TLS with clients; none speaks as the server does.
    """

    host: str
    behind: int
    port: int = 0
    delay_s: float = 0.0
    tls: ssl.SSLContext | None = None
    _flows: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _server: asyncio.Server | None = None

    def stall(self) -> None:
        """Go silent: connections are accepted, and nothing passes."""
        self._flows.clear()

    def flow(self) -> None:
        """Pass on what has waited, and what comes."""
        self._flows.set()

    async def listen(self) -> None:
        """Accept connections."""
        self.flow()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Refuse connections, and break those that stand."""
        if self._server is not None:
            self._server.close()
            self._server = None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        back: asyncio.StreamWriter | None = None
        try:
            await self._flows.wait()
            there, back = await asyncio.open_connection(self.host, self.behind)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass_on(reader, back, late=False))
                both.create_task(self._pass_on(there, writer, late=True))
        except* (ConnectionError, OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            for one in (writer, back):
                if one is not None:
                    one.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, late: bool) -> None:
        while data := await reader.read(65_536):
            if late and self.delay_s:
                await asyncio.sleep(self.delay_s)
            await self._flows.wait()
            writer.write(data)
            await writer.drain()
        with suppress(ConnectionError, OSError):
            writer.write_eof()


def through(url: str, proxy: SlowProxy) -> str:
    """Return *url* by way of *proxy*."""
    parts = urlsplit(url)
    user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    return urlunsplit(parts._replace(netloc=f"{user}127.0.0.1:{proxy.port}"))


@asynccontextmanager
async def slowly(url: str) -> AsyncIterator[SlowProxy]:
    """Run a proxy to the server of *url*."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    proxy = SlowProxy(parts.hostname, parts.port)
    await proxy.listen()
    try:
        yield proxy
    finally:
        await proxy.refuse()
