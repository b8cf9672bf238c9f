"""What a worker process lends to its tasks: Celery calls them by name alone, so they find it where it was put."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from imem.journal.postgres.database import Database

T = TypeVar("T")


class Runtime(Protocol):
    """What a worker process owns: one event loop in one thread, and the journal that lives in it."""

    database: Database

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run *work* in the process's loop and return its result."""


R = TypeVar("R", bound=Runtime)


class Lent(Generic[R]):
    """The runtime of this process, once the worker has lent it."""

    def __init__(self) -> None:
        self._runtime: R | None = None

    def install(self, runtime: R | None) -> None:
        """Set, or with None forget, what the tasks of this process run on."""
        self._runtime = runtime

    def get(self) -> R:
        """Return it."""
        if self._runtime is None:
            raise RuntimeError("The worker process has no runtime: imem.workers.celery installs it.")
        return self._runtime
