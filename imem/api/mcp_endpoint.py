"""
MCP over streamable HTTP: the tools and resources of ``imem mcp`` at one address, for many identities.

There are no sessions: nothing is kept between two requests, so that each of several processes can answer any of them,
and a session id gives nobody the rights of another. Each request has one answer, in JSON.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from mcp.server import ServerRequestContext
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings

from imem.api.guards import MOST_BODY_BYTES, Receive, Scope, Send
from imem.api.identity import AUTHENTICATION_MS, authenticate
from imem.api.server import Server
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.mcp.server import MemoryServer, make_protocol
from imem.terminal.version import version_of_this

PATH: Final = "/mcp"

_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


class McpEndpoint:
    """
    Answers requests, each as the identity of its bearer token.

    Args:
        server: the process.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._manager: StreamableHTTPSessionManager | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer requests until the end of the block; those under way are then called off."""
        manager = StreamableHTTPSessionManager(
            make_protocol(version_of_this(), self._handlers),
            json_response=True,
            stateless=True,
            security_settings=allowed_names(self._server.stores.settings.public_url),
            max_request_body_size=MOST_BODY_BYTES,
        )
        async with manager.run():
            self._manager = manager
            try:
                yield
            finally:
                self._manager = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """
        Answer a request.

        Raises:
            NotAuthenticated: it carries no token in force; the application answers with 401.
        """
        header = next((value for name, value in scope["headers"] if name == b"authorization"), None)
        actor = await authenticate(self._server, None if header is None else header.decode("latin-1"))
        assert self._manager is not None  # noqa: S101 - an application is started before it is asked
        await self._manager.handle_request({**scope, "user": actor}, receive, send)

    def _handlers(self, context: ServerRequestContext[Any]) -> MemoryServer:
        assert context.request is not None  # noqa: S101 - over HTTP each message has its request
        actor: Actor = context.request.user
        return MemoryServer(self._server.memory_of(actor), actor, partial(self._admit, actor))

    async def _admit(self, actor: Actor, *, writes: bool) -> None:
        await self._server.limiter.admit(actor, writes=writes, deadline=Deadline.after_ms(AUTHENTICATION_MS))


def allowed_names(public_url: str) -> TransportSecuritySettings:
    """
    Return what a request's ``Host`` and ``Origin`` may name: this machine, or the public address.

    A page of another site, whose name resolves to this machine, is thus refused. Programs send no ``Origin``.
    """
    url = urlsplit(public_url)
    hosts = [f"{name}{port}" for name in _LOOPBACK for port in ("", ":*")]
    origins = [f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts]
    if url.netloc:
        hosts.append(url.netloc)
        origins.append(f"{url.scheme}://{url.netloc}")
    return TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=origins)
