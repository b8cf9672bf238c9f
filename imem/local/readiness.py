"""
Readiness notification of a process, by the protocol of ``sd_notify(3)``.

A process sends one datagram, ``READY=1``, to the socket that ``NOTIFY_SOCKET`` names. The supervisor listens there, and
so does systemd for a service with ``Type=notify``; without the variable nothing is sent.

For a health check that polls, as in a container, the process also makes the file that ``NOTIFY_FILE`` names. Neither
variable is a setting: both belong to one process.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import struct
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

VARIABLE = "NOTIFY_SOCKET"
FILE_VARIABLE = "NOTIFY_FILE"
READY = b"READY=1"

LONGEST_PATH: Final = 107
"""Longest path of a socket on Linux, in bytes."""

_LONGEST: Final = 4096
_CREDENTIALS: Final = struct.Struct("iII")
"""The kernel's credentials of a sender: process, user, group."""


def clear_ready() -> None:
    """Remove the file that an earlier process left; an OSError is ignored."""
    if file := os.environ.get(FILE_VARIABLE):
        with suppress(OSError):
            Path(file).unlink(missing_ok=True)


def notify_ready() -> None:
    """Send the notification and make the file; a missing listener, or a file that cannot be made, is ignored."""
    if file := os.environ.get(FILE_VARIABLE):
        with suppress(OSError):
            Path(file).touch(mode=0o600)
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


class ReadinessListener:
    """
    Receives the readiness notification of one child.

    The socket lies in *folder*, which is private. If its path would be too long it has an abstract name, to which every
    process on the machine can send. Either way, datagrams are accepted only from this user and root, by the sender's
    credentials from the kernel. Another process of this user can therefore forge the notification, and nothing else.

    Used as a context manager; leaving it removes the socket. A crash leaves its file, which :meth:`clear` removes.

    Attributes:
        address: the value of :data:`VARIABLE` for the child.

    Raises:
        OSError: no socket can be made.
    """

    def __init__(self, folder: Path | None = None) -> None:
        name = f"imem-{secrets.token_hex(12)}"
        path = folder / f"{name}.sock" if folder is not None else None
        self._path = path if path is not None and len(os.fsencode(path)) <= LONGEST_PATH else None
        self.address = str(self._path) if self._path is not None else f"@{name}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self._socket.bind(self.address if self._path is not None else f"\0{name}")
            if self._path is not None:
                self._path.chmod(0o600)
        except BaseException:
            self._close()
            raise

    async def ready(self) -> None:
        """Wait for the child's notification."""
        loop = asyncio.get_running_loop()
        while True:
            readable = loop.create_future()
            loop.add_reader(self._socket, _wake, readable)
            try:
                # One datagram per turn of the loop, so that a flood of them does not block the supervisor.
                await readable
            finally:
                loop.remove_reader(self._socket)
            if self._receive():
                return

    def _receive(self) -> bool:
        """Receive one datagram; return whether it is a notification from this user or root."""
        try:
            data, ancillary, _, _ = self._socket.recvmsg(_LONGEST, socket.CMSG_SPACE(_CREDENTIALS.size))
        except (BlockingIOError, InterruptedError):
            return False
        senders = [
            _CREDENTIALS.unpack(content[: _CREDENTIALS.size])[1]
            for level, kind, content in ancillary
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS)
        ]
        return senders in ([os.geteuid()], [0]) and READY in data.splitlines()

    def _close(self) -> None:
        self._socket.close()
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    @staticmethod
    def clear(folder: Path) -> None:
        """Remove from *folder* the sockets that a crash left; no listener may be open there."""
        for left in folder.glob("imem-*.sock"):
            with suppress(OSError):
                left.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()


def _wake(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)
