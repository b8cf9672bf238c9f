"""
Celery shells of the journal's upkeep.

A worker process hands its runtime in when it starts (:func:`install`). What the tasks do is harmless to repeat, and a
day missed is made up for by the next.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from celery import shared_task

from journal.database import Database
from journal.deadline import Deadline
from journal.errors import StoreUnavailable
from journal.upkeep import make_audit_partitions

T = TypeVar("T")

UPKEEP = "journal.upkeep"

UPKEEP_BUDGET_MS = 60_000
"""How long the upkeep may take; moving a month's audit rows is most of it."""


class Runtime(Protocol):
    """What a worker process owns: one event loop in one thread, and the journal that lives in it."""

    database: Database

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run *work* in the process's loop and return its result."""


_installed: list[Runtime] = []


def install(runtime: Runtime | None) -> None:
    """Set, or with None forget, what the tasks of this process run on."""
    _installed[:] = [] if runtime is None else [runtime]


# Celery has no types; what it makes of these functions is called by name alone.
@shared_task(  # type: ignore[untyped-decorator]
    name=UPKEEP, autoretry_for=(StoreUnavailable,), retry_backoff=True, retry_backoff_max=600, max_retries=5
)
def upkeep() -> dict[str, int]:
    """Make the audit's partitions of the months to come."""
    if not _installed:
        raise RuntimeError("The worker process has no runtime: imem.workers.celery installs it.")
    runtime = _installed[0]
    made = runtime.run(lambda: make_audit_partitions(runtime.database, deadline=Deadline.after_ms(UPKEEP_BUDGET_MS)))
    return {"audit_partitions": made}
