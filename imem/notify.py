"""
How a process of the product tells whoever started it that it does its work: the protocol of ``sd_notify(3)``.

One datagram, ``READY=1``, to the socket that ``NOTIFY_SOCKET`` names. The supervisor listens, and so does systemd for a
service with ``Type=notify``; without the variable nothing is sent.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from types import TracebackType
from typing import Self

VARIABLE = "NOTIFY_SOCKET"
READY = b"READY=1"

_LONGEST = 4096


def tell_ready() -> None:
    """Say that this process does its work; nobody who listens is no trouble."""
    address = os.environ.get(VARIABLE, "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        try:
            # A leading @ stands for the zero byte of Linux's abstract names.
            sock.connect(f"\0{address[1:]}" if address.startswith("@") else address)
            sock.sendall(READY)
        except OSError:
            return


class Listener:
    """
    Where one child tells that it is ready.

    The name is abstract, so that no path is too long for it and nothing is left on the disk. It is random; who guesses
    it can claim that a child is ready, and nothing else.

    Attributes:
        address: the value of :data:`VARIABLE` for the child.
    """

    def __init__(self) -> None:
        self.address = f"@imem-{secrets.token_hex(12)}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        self._socket.bind(f"\0{self.address[1:]}")

    async def ready(self) -> None:
        """Return once the child has said so."""
        loop = asyncio.get_running_loop()
        while READY not in (await loop.sock_recv(self._socket, _LONGEST)).splitlines():
            continue

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
