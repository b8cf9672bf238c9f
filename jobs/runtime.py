"""What a worker process owns, where its tasks find it: Celery calls them by name alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from imem.journal.postgres.database import Database

T = TypeVar("T")


class Runtime(Protocol):
    """What a worker process owns: one event loop in one thread, and the journal that lives in it."""

    database: Database

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run *work* in the process's loop and return its result."""


class RuntimeSlot:
    """The runtime of this process; one for all tasks. Each pipeline types the part that it needs as a protocol."""

    def __init__(self) -> None:
        self._runtime: Any = None

    def install(self, runtime: Runtime | None) -> None:
        """Set, or with None remove, the runtime of this process."""
        self._runtime = runtime

    def get(self) -> Any:
        """
        Return the runtime.

        Raises:
            RuntimeError: the process has none.
        """
        if self._runtime is None:
            raise RuntimeError("The worker process has no runtime: imem.workers.celery installs it.")
        return self._runtime


slot = RuntimeSlot()
