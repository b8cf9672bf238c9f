"""
Error watch: counts errors of checkpoints, and raises an alert for the first.

One cause (a counter and a store) has one open alert, however many errors and processes there are; once a human has
acknowledged it, the next error raises another. Without Postgres, the alert is retried for as long as the process lives.
The totals of all processes are in ``workflow.error_counter``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from prometheus_client import Counter

from imem.alerts.store import NewAlert, Severity, raise_once, storable
from imem.checkpoints.metrics import name_of
from imem.journal.deadline import Deadline
from imem.journal.errors import UNANSWERED, ImemError
from imem.journal.events.ids import id_of, new_id
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import execute

log = structlog.get_logger()

KINDS: Final = {
    "checkpoint_save_errors_total": "CHECKPOINT_SAVE_ERRORS",
    "checkpoint_consistency_errors_total": "CHECKPOINT_CONSISTENCY_ERRORS",
}
"""Counter → kind of its alert."""

REST_S: Final = 1.0
"""Delay between two reports of one process, in seconds: errors counted meanwhile are reported together."""

LONGEST_WAIT_S: Final = 15.0
"""Longest delay between two attempts without Postgres, in seconds."""

BUDGET_MS: Final = 5_000
"""Timeout of one report, in milliseconds."""

LONGEST_REASON: Final = 500
"""Characters of a stored error."""


class ErrorWatch:
    """
    Counts errors, and reports them in the background: counting never waits and never fails.

    Args:
        database: where alerts are raised.
        sleep: waits, in seconds.
    """

    def __init__(self, database: Database, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._database = database
        self._sleep = sleep
        self._unreported: dict[tuple[str, str], tuple[int, str]] = {}
        self._task: asyncio.Task[None] | None = None

    def count(self, counter: Counter, error: ImemError, *, store: str) -> None:
        """Count one error of *store*, and schedule its alert."""
        counter.labels(store=store).inc()
        cause, reason = (name_of(counter), store), storable(f"{type(error).__name__}: {error.message}")[:LONGEST_REASON]
        self._unreported[cause] = self._unreported.get(cause, (0, ""))[0] + 1, reason
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._raise_alerts())

    async def flush(self) -> None:
        """Wait until every counted error was reported."""
        if self._task is not None:
            await self._task

    async def _raise_alerts(self) -> None:
        wait = REST_S
        while self._unreported and not self._database.closed:
            name, store = cause = next(iter(self._unreported))
            count, reason = self._unreported.pop(cause)
            try:
                await self._one(name, store, count, reason)
                wait = REST_S
            except UNANSWERED:
                later, newest = self._unreported.pop(cause, (0, reason))
                self._unreported[cause] = count + later, newest
                wait = min(2.0 * wait, LONGEST_WAIT_S)
            except ImemError:
                log.exception("error_alert_failed", counter=name, store=store)
            if self._unreported:
                await self._sleep(wait)

    async def _one(self, name: str, store: str, count: int, reason: str) -> None:
        about = id_of("errors", name, store)
        values = {"name": name, "store": store, "count": count, "reason": reason}
        async with self._database.transaction(Deadline.after_ms(BUDGET_MS)) as conn:
            await execute(conn, "count_errors", values)
            payload = {"metric": name, "store": store, "count": count, "reason": reason}
            alert = NewAlert(alert_id=new_id(), kind=KINDS[name], severity=Severity.HIGH, about=about, payload=payload)
            raised = await raise_once(conn, alert)
        if raised:
            log.warning("error_alert_raised", counter=name, store=store, count=count, reason=reason)
