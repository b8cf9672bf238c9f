"""Raises alerts about denials, skipped steps of patterns and scores that wait, and tries whether the audit works."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import psycopg
import structlog
from prometheus_client import Gauge

from imem.alerts.store import NewAlert, Severity, close_alerts, is_open, raise_alert, raise_once
from imem.journal.audit import TRIED
from imem.journal.deadline import Deadline
from imem.journal.errors import StatementRejected
from imem.journal.events.ids import id_of, new_id
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import execute

log = structlog.get_logger()

MOST_DENIALS: Final = 10
"""Denials within an hour above which an alert says so (performance-and-resilience, section 8)."""

DENIALS: Final = "ACCESS_DENIALS"
"""Kind of that alert."""

LATEST_S: Final = 900.0
"""How long a statement may wait to be scored before an alert says so, in seconds; normal is a minute."""

LATE: Final = "SCORES_LATE"
"""Kind of that alert."""

SKIPS: Final = "PATTERN_STATUS_SKIPS"
"""Kind of the alert about statuses of patterns, of the last day, that no step of their lifecycle leads to."""

DENIED: Final = Gauge("access_denials_gauge", "Denials of the last hour.", multiprocess_mode="mostrecent")
LAG_S: Final = Gauge(
    "settled_lag_seconds_gauge", "How long the oldest statement that is not scored has waited.",
    multiprocess_mode="mostrecent",
)  # fmt: skip
AUDIT_FAILING: Final = Gauge(
    "audit_failing_gauge", "Whether no row can be added to the audit, so that every write is refused.",
    multiprocess_mode="mostrecent",
)  # fmt: skip


async def watch_access(database: Database, *, deadline: Deadline) -> dict[str, Any]:
    """
    Raise and close the alerts; return how many denials there were in an hour, and the lag of scores in seconds.

    An alert is an event with an audit row: while none can be added, the log and the gauge say so instead.

    Raises:
        PostgresUnavailable, BudgetExceeded: alerts were not updated; the next round does.
    """
    [denied] = await database.named("denials_of_hour", deadline=deadline)
    [waiting] = await database.named("settled_lag", deadline=deadline)
    count, lag_s = denied["denials"], waiting["lag_s"]
    DENIED.set(count)
    LAG_S.set(lag_s)
    report = {"denials": count, "settled_lag_s": round(lag_s)}
    if await _audit_fails(database, deadline):
        return report
    reason = f"{count} calls were denied within an hour, most of them by {denied['most']}."
    over = count > MOST_DENIALS
    await _update(database, id_of("denials"), DENIALS, reason if over else None, deadline)
    reason = f"The event recorded {lag_s / 60:.0f} minutes ago is not scored yet: does a worker run?"
    await _update(database, id_of("scores late"), LATE, reason if lag_s > LATEST_S else None, deadline)
    await _watch_statuses(database, deadline)
    return report


async def _watch_statuses(database: Database, deadline: Deadline) -> None:
    """Raise an alert for each newest status of a pattern that skips a step; a day after the last they are over."""
    reason = alert_id = None
    for last in await database.named("status_skips_of_day", deadline=deadline):
        reason = (
            f"{last['skips']} statuses of patterns were recorded within a day that no step leads to, "
            f"last of {last['key']}: from {last['before']} to {last['after']}."
        )
        # Its id follows from the step: once a person has acknowledged it, it is not raised again.
        alert_id = id_of("pattern status", last["key"], last["order_key"], last["before"])
    await _update(database, id_of("pattern statuses"), SKIPS, reason, deadline, alert_id=alert_id)


async def _audit_fails(database: Database, deadline: Deadline) -> bool:
    """Return whether no row can be added to the audit; the one that is tried is rolled back."""
    reason = None
    try:
        async with database.transaction(deadline) as conn:
            await execute(conn, "audit", TRIED)
            raise psycopg.Rollback
    except StatementRejected as error:
        reason = str(error)
        log.error("audit.failing", reason=reason)  # noqa: TRY400 - the reason is all there is to say
    AUDIT_FAILING.set(reason is not None)
    return reason is not None


async def _update(
    database: Database, about: UUID, kind: str, reason: str | None, deadline: Deadline, *, alert_id: UUID | None = None
) -> None:
    """
    Raise the alert *about*, for *reason*; without a reason close it.

    One with an *alert_id* is raised unless it was before, others unless one of their kind is open.
    """
    async with database.transaction(deadline) as conn:
        if reason is not None:
            alert = NewAlert(
                alert_id=alert_id or new_id(), kind=kind, severity=Severity.HIGH, about=about,
                payload={"reason": reason},
            )  # fmt: skip
            raised = await raise_once(conn, alert) if alert_id is None else await raise_alert(conn, alert)
            if raised:
                log.warning("alert.raised", kind=kind, reason=reason)
        elif await is_open(conn, kind, about):
            await close_alerts(conn, about)
