"""The runtime of a worker process, in one slot where tasks find it: Celery calls them by name alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from imem.journal.postgres.database import Database

T = TypeVar("T")


class Runtime(Protocol):
    """The resources of a worker process: one event loop in one thread, and the database that lives in it."""

    database: Database

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run *work* in the process's loop and return its result."""


class RuntimeSlot:
    """The slot of this process, shared by all tasks. Each pipeline types the part that it needs as a protocol."""

    def __init__(self) -> None:
        self._runtime: Any = None

    def install(self, runtime: Runtime | None) -> None:
        """Set the runtime of this process; None removes it."""
        self._runtime = runtime

    def get(self) -> Any:
        """
        Return the runtime.

        Raises:
            RuntimeError: none is installed.
        """
        if self._runtime is None:
            raise RuntimeError("The worker process has no runtime: imem.workers.celery installs it.")
        return self._runtime


slot = RuntimeSlot()
