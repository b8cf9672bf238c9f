"""
Sends due alerts to the channels, each message at least once.

A pass first plans: one statement turns due alerts into messages and sets when each is next due. Then it sends. A
message is claimed in a transaction of its own before it is sent. A sender that dies leaves a claim, which expires; the
message is then sent again under the same id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import structlog

from imem.alerts.notifiers import AlertMessage, Attempt, DeliveryOutcome, Notifier
from imem.alerts.store import Alert
from imem.journal.deadline import Deadline
from imem.journal.postgres.concurrent import all_finished
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import as_json

log = structlog.get_logger()

SEND_BUDGET_MS: Final = 10_000
"""Timeout of one attempt, in milliseconds."""

CLAIM_S: Final = 60.0
"""Duration of a claim, in seconds; after it another sender may send the message."""

CONCURRENT_SENDS: Final = 20
"""Messages sent concurrently, so that a receiver that does not answer holds up no other."""

FIRST_BACKOFF_S: Final = 10.0
LONGEST_BACKOFF_S: Final = 600.0
"""Pause before the second attempt, and longest pause, in seconds; doubled after each failure."""

LONGEST_RETRY_AFTER_S: Final = 3600.0
"""Longest pause that a receiver may ask for, in seconds."""

SUMMARY_ALERTS: Final = 100
"""Most alerts that a summary names."""

_STORE_MS: Final = 10_000
_ERROR_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class SendReport:
    """
    The result of a pass.

    Attributes:
        planned: alerts that were due.
        taken: messages that their channel took.
        put_off: messages that it did not.
    """

    planned: int
    taken: int
    put_off: int


async def send_due(database: Database, notifiers: Mapping[str, Notifier], *, until: Deadline) -> SendReport:
    """
    Plan and send due alerts, until none is left or *until* has passed.

    Several processes may do so concurrently. After a crash messages may be sent twice; none is lost.

    Raises:
        PostgresUnavailable, BudgetExceeded: retryable; messages that were sent may be sent once more.
    """
    channels = {"channels": sorted(notifiers)}
    [plan] = await database.commit("plan_alerts", channels, deadline=_store_deadline())
    found: Counter[DeliveryOutcome] = Counter()
    while not until.passed:
        claim = {**channels, "seconds": CLAIM_S, "limit": CONCURRENT_SENDS}
        rows = await database.commit("claim_sends", claim, deadline=_store_deadline())
        if not rows:
            break
        alerts = await _alerts(database, rows)
        # An error of one is raised after the others have ended: what was sent has been noted by then.
        found.update(await all_finished(*(_send(database, notifiers, row, alerts) for row in rows)))
    return SendReport(
        plan["planned"], found[DeliveryOutcome.DELIVERED], found[DeliveryOutcome.RETRY] + found[DeliveryOutcome.NEVER]
    )


async def _send(
    database: Database, notifiers: Mapping[str, Notifier], row: Row, alerts: Mapping[UUID, Alert]
) -> DeliveryOutcome:
    notice = notice_of(row, [alerts[one] for one in dict.fromkeys(row["alert_ids"]) if one in alerts])
    attempt = await notifiers[row["channel"]].send(notice, deadline=Deadline.after_ms(SEND_BUDGET_MS))
    if attempt.outcome is DeliveryOutcome.DELIVERED:
        await database.execute("settle_sent", {"send_id": row["send_id"]}, deadline=_store_deadline())
    else:
        await _schedule_retry(database, row, attempt)
    return attempt.outcome


async def _schedule_retry(database: Database, row: Row, attempt: Attempt) -> None:
    given = {
        "send_id": row["send_id"],
        "attempts": row["attempts"],
        "never": attempt.outcome is DeliveryOutcome.NEVER,
        "error": attempt.reason[:_ERROR_CHARS],
        "after_s": backoff_s(row["attempts"], attempt.after_s),
    }
    settled = await database.commit("settle_unsent", given, deadline=_store_deadline())
    log.warning(
        "alert.not_delivered",
        delivery_id=str(row["send_id"]),
        channel=row["channel"],
        attempts=row["attempts"],
        reason=attempt.reason,
        given_up=bool(settled) and settled[0]["state"] == "failed",
    )


def backoff_s(attempts: int, asked_s: float = 0.0) -> float:
    """Return the pause after so many attempts, in seconds; a receiver may ask for more."""
    # The exponent is bounded, since a day of attempts would overflow the power before the minimum applies.
    backoff = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(attempts - 1, 10))
    return float(max(backoff, min(asked_s, LONGEST_RETRY_AFTER_S)))


async def _alerts(database: Database, rows: Sequence[Row]) -> dict[UUID, Alert]:
    wanted = sorted({one for row in rows for one in row["alert_ids"]})
    found = await database.named("alerts_by_id", {"alert_ids": wanted}, deadline=_store_deadline())
    return {row["alert_id"]: Alert.from_row(row) for row in found}


def notice_of(row: Row, alerts: Sequence[Alert]) -> AlertMessage:
    """Return the message of a row, made only of what does not change: each attempt sends the same."""
    if row["reason"] == "summary":
        return AlertMessage(row["send_id"], "alerts.summary", row["created_at"], _summary(row, alerts))
    data = {**_alert_data(alerts[0]), "resend": row["number"]}
    return AlertMessage(row["send_id"], f"alert.{row['reason']}", row["created_at"], data)


def _alert_data(alert: Alert) -> dict[str, Any]:
    whole = as_json(alert)
    names = ("alert_id", "kind", "severity", "subject", "analysis_id", "about", "raised_at", "payload")
    return {name: whole[name] for name in names}


def _summary(row: Row, alerts: Sequence[Alert]) -> dict[str, Any]:
    subjects = sorted({alert.subject for alert in alerts if alert.subject is not None})
    return {
        "text": f"{len(alerts)} more alerts in a few minutes, about {len(subjects)} subjects; all are on the cards.",
        "count": len(alerts),
        "by_kind": dict(sorted(Counter(alert.kind for alert in alerts).items())),
        "by_severity": dict(sorted(Counter(alert.severity.value for alert in alerts).items())),
        "by_reason": dict(sorted(Counter(row["reasons"]).items())),
        "subjects": subjects[:SUMMARY_ALERTS],
        "alerts": [
            {"alert_id": str(alert.alert_id), "kind": alert.kind, "severity": alert.severity.value,
             "subject": alert.subject, "analysis_id": alert.analysis_id}
            for alert in alerts[:SUMMARY_ALERTS]
        ],
    }  # fmt: skip


def _store_deadline() -> Deadline:
    return Deadline.after_ms(_STORE_MS)
