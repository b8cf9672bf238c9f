"""
How a process of the product tells whoever started it that it does its work: the protocol of ``sd_notify(3)``.

One datagram, ``READY=1``, to the socket that ``NOTIFY_SOCKET`` names. The supervisor listens, and so does systemd for a
service with ``Type=notify``; without the variable nothing is sent.

Where nobody listens and somebody looks, as a container's health check does, ``NOTIFY_FILE`` names a file that is made
then. Neither variable is a setting: both belong to one process.
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
"""What the kernel says of a sender: process, user, group."""


def clear_ready() -> None:
    """Remove the file that an earlier process left; a folder that refuses is no trouble before :func:`notify_ready`."""
    if file := os.environ.get(FILE_VARIABLE):
        with suppress(OSError):
            Path(file).unlink(missing_ok=True)


def notify_ready() -> None:
    """Say that this process does its work; nobody who listens is no trouble, nor is a file that cannot be made."""
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
    Where one child tells that it is ready.

    The socket lies in *folder*, which nobody else may enter. Where its path would be too long it has an abstract name,
    which everybody on the machine can see in ``/proc/net/unix`` and send to; what others than this user and root send
    is passed over either way, by the sender that the kernel names. Processes of this user can claim that the child is
    ready, and nothing else.

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
        """Return once the child has said so."""
        loop = asyncio.get_running_loop()
        while True:
            readable = loop.create_future()
            loop.add_reader(self._socket, _wake, readable)
            try:
                # Waiting gives the loop a turn for each datagram: a flood of them must not hold up the supervisor.
                await readable
            finally:
                loop.remove_reader(self._socket)
            if self._receive():
                return

    def _receive(self) -> bool:
        """Take one datagram and return whether somebody who may has said that the child is ready."""
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
        """Remove from *folder* the sockets that a crash left; nobody may listen there now."""
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
