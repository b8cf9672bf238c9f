"""Pipelines of signals: their projection from findings, and its retention."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, Protocol

from imem.jobs.due import DueRule, finish_due, halving, next_due, set_due_aside
from imem.jobs.pipeline import Daily, Every, Pipeline, Report
from imem.jobs.runtime import Runtime
from imem.journal.deadline import Deadline
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import rows
from imem.kg.pipelines import BUDGET_MS
from imem.kg.similarity.vectors import store_deadline

QUEUE: Final = "signals"
KIND: Final = "Analysis"
"""Queue and kind of its due rows."""

PAGE: Final = 200
"""Analyses that are projected in one transaction, rows that are due."""

DELETED: Final = 10_000
"""Rows that are deleted in one transaction."""


class SignalRuntime(Runtime, Protocol):
    """A runtime that knows how long signals are kept."""

    signal_retention: timedelta


async def project(conn: Connection, analyses: list[str], retention: timedelta) -> int:
    """Bring the signals of some analyses to what the journal says, in the transaction of *conn*; return the changes."""
    given = {"analyses": analyses, "retention": retention}
    changed: int = (await rows(conn, "project_signals", given))[0]["changed"]
    return changed


async def project_due(database: Database, retention: timedelta, *, until: Deadline) -> Report:
    """
    Project the analyses that are due until none is left.

    One that cannot be projected is set aside with an alert.

    Raises:
        PostgresUnavailable, BudgetExceeded: finished pages stay; the rest is still due.
    """
    changed = 0

    async def page(size: int) -> int:
        async with database.transaction(store_deadline()) as conn:
            due = await next_due(conn, QUEUE, (KIND,), size)
            nonlocal changed
            changed += await project(conn, sorted({one.key for one in due}), retention) if due else 0
            await finish_due(conn, QUEUE, due)
        return len(due)

    async def alone(error: Exception) -> int:
        async with database.transaction(store_deadline()) as conn:
            due = await next_due(conn, QUEUE, (KIND,), 1)
            await set_due_aside(conn, QUEUE, due, error)
        return len(due)

    while not until.passed:
        if not await halving(page, PAGE, alone):
            return {"changed": changed, "more": False}
    return {"changed": changed, "more": True}


async def retain(database: Database, retention: timedelta, *, until: Deadline) -> Report:
    """Delete signals older than *retention*; the journal keeps their findings."""
    deleted = 0
    while not until.passed:
        given = {"retention": retention, "limit": DELETED}
        count = (await database.commit("retain_signals", given, deadline=store_deadline()))[0]["deleted"]
        deleted += count
        if count < DELETED:
            return {"deleted": deleted, "more": False}
    return {"deleted": deleted, "more": True}


async def _retain(runtime: SignalRuntime, until: Deadline) -> Report:
    return await retain(runtime.database, runtime.signal_retention, until=until)


PROJECT_SIGNALS: Final[Pipeline[SignalRuntime]] = Pipeline(
    "recall.project_signals",
    lambda runtime, until: project_due(runtime.database, runtime.signal_retention, until=until),
    Every(15.0),
    budget_ms=BUDGET_MS,
    retry_max_s=60,
    due=(
        # A finding without a confidence is no signal; a correction may make it one, or none.
        DueRule(QUEUE, KIND, "record.Finding", "$analysis ? (exists($.core.confidence))"),
        DueRule(QUEUE, KIND, "correct.Finding", "$analysis"),
    ),
)

RETAIN_SIGNALS: Final = Pipeline(
    "recall.retain_signals", _retain, Daily(4, 7), budget_ms=BUDGET_MS, retry_max_s=600, without_broker=True
)
