"""Listens for requests, until the process is told to stop."""

from __future__ import annotations

import socket
from typing import Final

import uvicorn

from imem.api.app import make_app
from imem.api.server import Server
from imem.journal.errors import StackError
from imem.journal.settings import Settings
from imem.local.readiness import notify_ready

MOST_CONNECTIONS: Final = 1_000
"""Connections at a time; beyond, 503."""

IDLE_S: Final = 20
"""How long a connection may be idle, in seconds."""

STOPPING_S: Final = 10
"""How long a request may still take when the process is told to stop, in seconds."""


async def listen(
    settings: Settings,
    host: str,
    port: int,
    *,
    certificate: str | None = None,
    key: str | None = None,
    behind_proxy: bool = False,
    sockets: list[socket.socket] | None = None,
) -> None:
    """
    Serve until SIGTERM or SIGINT; requests under way are answered first.

    It notifies of its readiness once it listens (:mod:`imem.local.readiness`).

    Args:
        sockets: that listen already, in place of *host* and *port*.

    Raises:
        StackError: another program holds the port, or this one may not have it.
    """
    sockets = sockets or [_bound(host, port)]
    async with Server.open(settings) as server:
        config = uvicorn.Config(
            make_app(server),
            host=host,
            port=port,
            ssl_certfile=certificate,
            ssl_keyfile=key,
            proxy_headers=behind_proxy,
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=True,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=IDLE_S,
            timeout_graceful_shutdown=STOPPING_S,
            h11_max_incomplete_event_size=64 * 1024,
        )
        await _NotifyingServer(config).serve(sockets=sockets)


class _NotifyingServer(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        notify_ready()


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=MOST_CONNECTIONS)
    except OSError as error:
        raise StackError(
            f"Port {port} of {host} cannot be listened on: {error.strerror or type(error).__name__}.",
            mend="Does another program hold it? --port or IMEM_SERVE_PORT names another.",
        ) from error
