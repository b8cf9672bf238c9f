"""Interface between the supervisor and a server."""

from __future__ import annotations

import re
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path

from imem.journal.errors import StackError
from imem.local.folders import Folders, Secrets, disk_full, is_full
from imem.local.process import LOOPBACK, Command

Note = Callable[[str], None]
"""
Told in a few words what a server is doing, for the status table.

It raises :class:`StartCancelled` if the start was cancelled.
"""

_PORT_TAKEN = re.compile(r"address already in use|could not bind|failed to bind|failed listening", re.IGNORECASE)
# Neo4j does not say why it could not make room for its log of transactions, only where it tried to.
_DISK_FULL = re.compile(r"no space left on device|disk quota exceeded|LogFile\w*\.preallocateSpace", re.IGNORECASE)
_ERROR = re.compile(r"\b(?:ERROR|FATAL|PANIC)\b")
_OTHER_VERSION = re.compile(r"database files are incompatible", re.IGNORECASE)
_STILL_ENDING = re.compile(r"pre-existing shared memory block|is another postmaster", re.IGNORECASE)


class StartCancelled(StackError):
    """The start was cancelled while a server was being prepared."""


class StartRetry(Exception):
    """The start failed; another attempt, perhaps on another port, may succeed."""

    def __init__(self, *, other_port: bool) -> None:
        super().__init__("The start is worth another attempt.")
        self.other_port = other_port


class Server(ABC):
    """
    One server of the stack.

    ``prepare`` and ``ready`` block and run in a thread of their own; the rest is instant.

    Attributes:
        name: as the status table and ``imem logs`` call it.
        timeout_s: seconds without any progress before a start counts as hung (:mod:`imem.local.startup`).
    """

    name: str
    timeout_s: float = 60.0

    def __init__(self, folders: Folders, secrets: Secrets) -> None:
        self.folders = folders
        self.secrets = secrets
        self.port = 0

    @property
    def log(self) -> Path:
        """Where its output goes."""
        return self.folders.log(self.name)

    @abstractmethod
    def prepare(self, note: Note) -> None:
        """
        Make its folders, data and configuration, for the port in :attr:`port`; harmless when repeated.

        Raises:
            StackError: it cannot be made, with the mend.
        """

    @abstractmethod
    def command(self) -> Command:
        """Return how it is started."""

    @abstractmethod
    def ready(self) -> bool:
        """
        Ask it once whether it answers; it listens already.

        Raises:
            StackError: it answers, but will never do, for example because the password is wrong.
        """

    def settle(self) -> None:  # noqa: B027 - most servers have nothing to settle
        """Do what needs the running server once per start: databases and roles."""

    @abstractmethod
    def endpoints(self) -> Mapping[str, str]:
        """Return setting → address, with the passwords."""

    def explain(self, tail: str) -> StackError:
        """
        Return why it ended while starting, from the end of its log.

        Raises:
            StartRetry: another attempt is worth while.
        """
        if _DISK_FULL.search(tail) or is_full(self.folders.home):
            return disk_full(self.folders.home)
        if _PORT_TAKEN.search(tail):
            raise StartRetry(other_port=True)
        if _STILL_ENDING.search(tail):
            raise StartRetry(other_port=False)
        if _OTHER_VERSION.search(tail):
            return StackError(
                f"The data of {self.name} in {self.folders.home} was made by another major version.",
                mend="Go back to the version of this program that made it, or choose another IMEM_HOME.",
            )
        lines = [line.strip() for line in tail.splitlines() if line.strip()]
        last = next(
            (line for line in reversed(lines) if _ERROR.search(line)), lines[-1] if lines else "it wrote nothing"
        )
        last = last[:200]
        return StackError(f"{self.name} stopped while starting: {last}", mend=f"`imem logs {self.name}` shows more.")

    def no_answer(self, lasted_s: float, tail: str) -> StackError:
        """Return why it was given up after *lasted_s* seconds, from the end of its log."""
        if _DISK_FULL.search(tail) or is_full(self.folders.home):
            return disk_full(self.folders.home)
        return StackError(
            f"{self.name} did not answer within {lasted_s:.0f} s and made no progress any more.",
            mend=f"`imem logs {self.name}` shows why.",
        )


def free_port() -> int:
    """Return a free port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def is_free(port: int) -> bool:
    """Whether a server could listen on *port* now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def wrong_password(server: str, folders: Folders) -> StackError:
    """Return the sentence for a server of ours that refuses our password."""
    return StackError(
        f"{server} refuses the password in {folders.secrets}: the file does not belong to this data.",
        mend="Put back the file that was made with the data, or choose another IMEM_HOME.",
    )


def tail_of(log: Path, start: int, limit: int = 16_384) -> str:
    """Return the end of *log*, from byte *start* on, at most *limit* bytes of it."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(min(start, size), size - limit))
            return file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
