"""
Alerts about running analyses and servers: raised, shown on cards, acknowledged.

An alert is raised in the transaction of what it is about: as a row, and as an event ``notice.<KIND>`` of the journal.
When it is next due is stored in the row, and :mod:`imem.alerts.sending` sends it; a crash loses nothing.

No alert drives an analysis: delivery and acknowledgement change no pause; only resuming or cancelling does. An alert is
on a card until it is closed; each subject has one card.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Self
from uuid import UUID

import orjson

from imem.journal.actors import Action, Actor, ResourceType
from imem.journal.audit import context_of
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import as_json, execute, rows

AGENT_FAILURE: Final = "AGENT_FAILURE"
"""Kind of the alert about an agent's failure; it is sent again until acknowledged."""

MOST_ALERTS: Final = 1000
"""Most alerts on one board; it says how many there are in all."""

BANNER_ABOVE: Final = 3
"""Number of cards above which a banner offers an action for all of them."""


class Severity(StrEnum):
    """Severities, the worst first."""

    CRITICAL = "CRITICAL"
    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    NORMAL = "NORMAL"


_WORST_FIRST = {severity: number for number, severity in enumerate(Severity)}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertContext:
    """
    How far the work was when the alert was raised; what is unknown is None.

    Attributes:
        checkpoint_id: what the agent can resume from.
        progress_pct: 100 × completed ÷ all subtasks.
        completed, pending: subtasks, in order.
        phase: the part of the analysis.
        day: the day of the pause, from 0.
        reason: what happened, one sentence.
        agent: which agent it happened to.
    """

    checkpoint_id: UUID | None = None
    progress_pct: float | None = None
    completed: Sequence[str] = ()
    pending: Sequence[str] = ()
    phase: str | None = None
    day: int | None = None
    reason: str | None = None
    agent: str | None = None

    def to_payload(self) -> dict[str, Any]:
        """Return it as the payload of an alert."""
        return as_json(storable(asdict(self)))


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAlert:
    """
    An alert to be raised.

    Attributes:
        alert_id: made of what it is about (uuid5), so that raising it is idempotent.
        kind: capitals, digits and underscores, such as :data:`AGENT_FAILURE`.
        severity: a critical one is sent again until acknowledged, whatever its kind.
        subject: the stock or market, on whose card it is shown.
        analysis_id: the analysis.
        about: id of the matter whose end closes it (:func:`close_alerts`), such as a pause; None where only a person
            closes it.
        payload: see :class:`AlertContext`; above 32 kB it is cut to its main fields.
    """

    alert_id: UUID
    kind: str
    severity: Severity
    subject: str | None = None
    analysis_id: str | None = None
    about: UUID | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)


async def raise_alert(conn: Connection, alert: NewAlert) -> bool:
    """
    Raise *alert* in the transaction of *conn*; return whether it is new.

    Make it the last statement of the transaction: it holds a lock that others that raise alerts wait for.
    """
    given = {
        "alert_id": alert.alert_id,
        "kind": alert.kind,
        "severity": alert.severity.value,
        "subject": alert.subject,
        "analysis_id": alert.analysis_id,
        "about": alert.about,
        "payload": orjson.dumps(storable(alert.payload)).decode(),
    }
    [row] = await rows(conn, "raise_alert", given)
    return bool(row["raised"])


async def raise_once(conn: Connection, alert: NewAlert) -> bool:
    """Raise *alert* unless another of its kind about the same matter is open; return whether it was raised."""
    # Concurrent callers wait here, and then see the alert.
    await rows(conn, "lock_alerts_about", {"about": alert.about})
    return not await is_open(conn, alert.kind, alert.about) and await raise_alert(conn, alert)


async def is_open(conn: Connection, kind: str, about: UUID | None) -> bool:
    """Return whether an alert of a kind about a matter is open."""
    return bool(await rows(conn, "open_alerts_among", {"kind": kind, "abouts": [about]}))


async def close_alerts(conn: Connection, about: UUID) -> int:
    """Close the alerts about a matter that has ended, in the transaction of *conn*; return how many."""
    return int((await rows(conn, "close_alerts", {"about": about}))[0]["closed"])


def storable(value: Any) -> Any:
    """Return *value* without what Postgres' JSON cannot hold: a text must not make the transaction fail."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
    if isinstance(value, Mapping):
        return {storable(str(name)): storable(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [storable(one) for one in value]
    return value


# The board of cards


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """
    A stored alert.

    Attributes:
        alert_id, kind, severity, subject, analysis_id, about, payload: as it was raised.
        requires_ack: whether it is sent again until acknowledged.
        raised_at: when.
        resends: how often it was sent again, at most 3.
        next_due_at: when it is next sent, unless acknowledged before.
        escalated_at: when it was escalated, after 90 minutes without acknowledgement.
        acknowledged_at, acknowledged_by: when it was acknowledged, and by which actor.
    """

    alert_id: UUID
    kind: str
    severity: Severity
    subject: str | None
    analysis_id: str | None
    about: UUID | None
    payload: Mapping[str, Any]
    requires_ack: bool
    raised_at: datetime
    resends: int
    next_due_at: datetime | None
    escalated_at: datetime | None
    acknowledged_at: datetime | None
    acknowledged_by: str | None

    @classmethod
    def from_row(cls, row: Row) -> Self:
        """Return the alert of a row."""
        values = {name: row[name] for name in cls.__slots__}
        return cls(**{**values, "severity": Severity(row["severity"])})


@dataclass(frozen=True, slots=True)
class Card:
    """
    The open alerts of one subject.

    Attributes:
        subject: a subject, or else an analysis, or else an alert.
        alerts: unacknowledged ones first, then the most severe, then the oldest; at least one.
    """

    subject: str
    alerts: tuple[Alert, ...]

    @property
    def severity(self) -> Severity:
        """The highest severity of its alerts."""
        return min((alert.severity for alert in self.alerts), key=_WORST_FIRST.__getitem__)

    @property
    def acknowledged(self) -> bool:
        """Whether all of its alerts are acknowledged."""
        return all(alert.acknowledged_at is not None for alert in self.alerts)

    @property
    def escalated(self) -> bool:
        """Whether any of its alerts is escalated and not acknowledged."""
        return any(alert.escalated_at is not None and alert.acknowledged_at is None for alert in self.alerts)

    @property
    def analyses(self) -> tuple[str, ...]:
        """The analyses of its alerts."""
        return tuple(dict.fromkeys(alert.analysis_id for alert in self.alerts if alert.analysis_id is not None))

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {
            "subject": self.subject,
            "severity": self.severity,
            "acknowledged": self.acknowledged,
            "escalated": self.escalated,
            "analyses": self.analyses,
            "alerts": self.alerts,
        }


@dataclass(frozen=True, slots=True)
class Banner:
    """
    An action for all cards.

    Attributes:
        text: one sentence.
        action: label of the button.
        analyses: the analyses that it applies to.
    """

    text: str
    action: str
    analyses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FailedDeliveries:
    """
    Messages that a channel did not take.

    Attributes:
        channel: its name.
        failed: messages given up in the last day.
        waiting: messages tried and due again.
        error: of the last attempt.
    """

    channel: str
    failed: int
    waiting: int
    error: str | None


@dataclass(frozen=True, slots=True)
class AlertBoard:
    """
    The open alerts at one moment.

    Attributes:
        cards: one a subject; unacknowledged ones first, then the most severe, then the oldest.
        total: open alerts, including those not shown.
        undelivered: channels that did not take every message.
    """

    cards: tuple[Card, ...]
    total: int
    undelivered: tuple[FailedDeliveries, ...] = ()

    @property
    def banner(self) -> Banner | None:
        """The banner, when there are more than :data:`BANNER_ABOVE` cards."""
        if len(self.cards) <= BANNER_ABOVE:
            return None
        analyses = tuple(dict.fromkeys(analysis for card in self.cards for analysis in card.analyses))
        return Banner(f"{len(self.cards)} subjects need attention.", "Resume All", analyses)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        cards = [card.to_dict() for card in self.cards]
        return as_json({"banner": self.banner, "cards": cards, "total": self.total, "undelivered": self.undelivered})


class Alerts:
    """
    Reads and acknowledges open alerts.

    Args:
        database: where they are.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def cards(self, *, deadline: Deadline) -> AlertBoard:
        """
        Return the board of open alerts, whether or not channels delivered them.

        Raises:
            PostgresUnavailable, BudgetExceeded: it could not be read; retryable.
        """
        open_ = await self._database.named("open_alerts", {"limit": MOST_ALERTS}, deadline=deadline)
        failed = await self._database.named("undelivered_alerts", deadline=deadline)
        gathered: dict[str, list[Alert]] = defaultdict(list)
        for row in open_:
            alert = Alert.from_row(row)
            gathered[alert.subject or alert.analysis_id or str(alert.alert_id)].append(alert)
        return AlertBoard(
            tuple(Card(subject, tuple(alerts)) for subject, alerts in gathered.items()),
            open_[0]["total"] if open_ else 0,
            tuple(FailedDeliveries(row["channel"], row["failed"], row["waiting"], row["error"]) for row in failed),
        )

    async def acknowledge(self, alert_id: UUID, actor: Actor, *, deadline: Deadline) -> tuple[Alert, bool]:
        """
        Acknowledge an alert, which stops its resends; return it, and whether it was not acknowledged before.

        What it is about is not changed. An audit row is written in the same transaction.

        Raises:
            BadInput: there is no such alert.
            PostgresUnavailable, BudgetExceeded: nothing was written; retryable.
            OutcomeUnknown: the connection broke while committing; repeating the call is harmless.
        """
        async with self._database.transaction(deadline) as conn:
            first = bool(await rows(conn, "acknowledge_alert", {"alert_id": alert_id, "actor": actor.id}))
            if first:
                await execute(conn, "drop_resends", {"alert_id": alert_id})
                await rows(conn, "audit", _audit(alert_id, actor))
            found = await rows(conn, "alerts_by_id", {"alert_ids": [alert_id]})
        if not found:
            raise BadInput("alert", f"there is no alert {alert_id}.", mend="`imem alerts` lists those that stand.")
        return Alert.from_row(found[0]), first


def _audit(alert_id: UUID, actor: Actor) -> dict[str, Any]:
    return {
        "actor": actor.id,
        "role": actor.role.value,
        "resource_type": ResourceType.WORKFLOW.value,
        "resource_id": f"alert {alert_id}",
        "action": Action.ACKNOWLEDGE.value,
        "authorized": True,
        "reason": None,
        "context": context_of(actor),
        "outcome": "recorded",
    }
