"""Listens for requests, until the process is told to stop."""

from __future__ import annotations

import socket
from typing import Final

import uvicorn

from imem.api.app import make_app
from imem.api.server import Server
from imem.journal.settings import Settings

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

    Args:
        sockets: that listen already, in place of *host* and *port*.
    """
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
        await uvicorn.Server(config).serve(sockets=sockets)
