"""
Alerts: what people have to be told about analyses under way.

An alert is raised in the transaction of what it is about: as a row, and as an event ``notice.<KIND>`` of the journal.
Both are there, or neither. What is due next stands in the row (:mod:`imem.alerts.sending` sends it), so that a
process that dies loses nothing.

Nothing here drives an analysis. Whether an alert was delivered, or acknowledged, or not, changes no pause: only
resuming or cancelling does. An alert has a card until what it is about is over; one subject has one card.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
from imem.journal.statements import sql

AGENT_FAILURE: Final = "AGENT_FAILURE"
"""The kind of alert that an agent's failure raises; it is sent again until somebody acknowledges it."""

MOST_ALERTS: Final = 1000
"""Most alerts that one board shows; it says how many there are."""

BANNER_ABOVE: Final = 3
"""With more cards than that, a banner offers what can be done about all of them."""


class Severity(StrEnum):
    """How bad it is, the worst first."""

    CRITICAL = "CRITICAL"
    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    NORMAL = "NORMAL"


_WORST_FIRST = {severity: number for number, severity in enumerate(Severity)}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertContext:
    """
    How far the work was that an alert is about; what is unknown is left out.

    Attributes:
        checkpoint_id: what the agent can go on from.
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
        return {
            "checkpoint_id": str(self.checkpoint_id) if self.checkpoint_id is not None else None,
            "progress_pct": self.progress_pct,
            "completed": list(self.completed),
            "pending": list(self.pending),
            "phase": self.phase,
            "day": self.day,
            "reason": self.reason,
            "agent": self.agent,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAlert:
    """
    An alert to be raised.

    Attributes:
        alert_id: made of what it is about (uuid5), so that raising it again changes nothing.
        kind: capitals, digits and underscores, such as :data:`AGENT_FAILURE`.
        severity: one that is critical is sent again until acknowledged, whatever its kind.
        subject: the stock or market; its card is the subject's.
        analysis_id: the analysis.
        about: what ends it when it is over (:func:`close_alerts`), such as a pause; none where only a person can.
        payload: see :class:`AlertContext`; more than 32 kB of it are not kept.
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

    It should be the last statement of the transaction: until that ends, others that raise alerts wait for it.
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
    row = await (await conn.execute(sql("raise_alert"), given)).fetchone()
    return bool(row and row["raised"])


async def close_alerts(conn: Connection, about: UUID) -> int:
    """Take the alerts about something that is over off the cards, in the transaction of *conn*; return how many."""
    row = await (await conn.execute(sql("close_alerts"), {"about": about})).fetchone()
    return int(row["closed"]) if row else 0


def storable(value: Any) -> Any:
    """Return *value* without what Postgres' JSON cannot hold: a pause must not fail because of a text about it."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
    if isinstance(value, Mapping):
        return {storable(str(name)): storable(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [storable(one) for one in value]
    return value


# What people see


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """
    An alert as it stands.

    Attributes:
        alert_id, kind, severity, subject, analysis_id, about, payload: as it was raised.
        requires_ack: whether it is sent again until somebody acknowledges it.
        raised_at: when.
        resends: how often it was sent again, at most 3.
        next_due_at: when it is next sent, unless acknowledged before.
        escalated_at: when nobody had acknowledged it for 90 minutes.
        acknowledged_at, acknowledged_by: who has seen it, and when.
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

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {name: _json(getattr(self, name)) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Card:
    """
    Everything that stands about one subject.

    Attributes:
        subject: whose card it is: a subject, or else an analysis, or else an alert.
        alerts: that nobody has acknowledged first, then the worst, then the oldest; at least one.
    """

    subject: str
    alerts: tuple[Alert, ...]

    @property
    def severity(self) -> Severity:
        """The worst of its alerts."""
        return min((alert.severity for alert in self.alerts), key=_WORST_FIRST.__getitem__)

    @property
    def acknowledged(self) -> bool:
        """Whether somebody has seen all of it."""
        return all(alert.acknowledged_at is not None for alert in self.alerts)

    @property
    def escalated(self) -> bool:
        """Whether something of it was escalated, and is not acknowledged yet."""
        return any(alert.escalated_at is not None and alert.acknowledged_at is None for alert in self.alerts)

    @property
    def analyses(self) -> tuple[str, ...]:
        """The analyses that it speaks of."""
        return tuple(dict.fromkeys(alert.analysis_id for alert in self.alerts if alert.analysis_id is not None))

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {
            "subject": self.subject,
            "severity": self.severity.value,
            "acknowledged": self.acknowledged,
            "escalated": self.escalated,
            "analyses": list(self.analyses),
            "alerts": [alert.to_dict() for alert in self.alerts],
        }


@dataclass(frozen=True, slots=True)
class Banner:
    """
    What is offered above many cards.

    Attributes:
        text: one sentence.
        action: what the button says.
        analyses: what it is about.
    """

    text: str
    action: str
    analyses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FailedDeliveries:
    """
    What a channel did not take.

    Attributes:
        channel: its name.
        failed: messages given up in the last day.
        waiting: messages tried and due again.
        error: what the last attempt met.
    """

    channel: str
    failed: int
    waiting: int
    error: str | None


@dataclass(frozen=True, slots=True)
class AlertBoard:
    """
    The cards, as they stand at one moment.

    Attributes:
        cards: one a subject; what nobody has acknowledged first, then the worst, then the oldest.
        total: alerts that stand, those that are not shown included.
        undelivered: channels that did not take everything.
    """

    cards: tuple[Card, ...]
    total: int
    undelivered: tuple[FailedDeliveries, ...] = ()

    @property
    def banner(self) -> Banner | None:
        """What is offered for all cards together, when there are more than :data:`BANNER_ABOVE`."""
        if len(self.cards) <= BANNER_ABOVE:
            return None
        analyses = tuple(dict.fromkeys(analysis for card in self.cards for analysis in card.analyses))
        return Banner(f"{len(self.cards)} subjects need attention.", "Resume All", analyses)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        banner = self.banner
        return {
            "banner": None
            if banner is None
            else {"text": banner.text, "action": banner.action, "analyses": list(banner.analyses)},
            "cards": [card.to_dict() for card in self.cards],
            "total": self.total,
            "undelivered": [
                {"channel": one.channel, "failed": one.failed, "waiting": one.waiting, "error": one.error}
                for one in self.undelivered
            ],
        }


class Alerts:
    """
    The alerts that stand.

    Args:
        database: where they are.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def cards(self, *, deadline: Deadline) -> AlertBoard:
        """
        Return what people have to look at; every alert is there, whatever channels got of it.

        Raises:
            PostgresUnavailable, BudgetExceeded: it could not be read; retryable.
        """
        rows = await self._database.named("open_alerts", {"limit": MOST_ALERTS}, deadline=deadline)
        failed = await self._database.named("undelivered_alerts", deadline=deadline)
        gathered: dict[str, list[Alert]] = defaultdict(list)
        for row in rows:
            alert = Alert.from_row(row)
            gathered[alert.subject or alert.analysis_id or str(alert.alert_id)].append(alert)
        return AlertBoard(
            tuple(Card(subject, tuple(alerts)) for subject, alerts in gathered.items()),
            rows[0]["total"] if rows else 0,
            tuple(FailedDeliveries(row["channel"], row["failed"], row["waiting"], row["error"]) for row in failed),
        )

    async def acknowledge(self, alert_id: UUID, actor: Actor, *, deadline: Deadline) -> tuple[Alert, bool]:
        """
        Note that *actor* has seen an alert: it is not sent again. Return it, and whether nobody had before.

        What it is about goes on as it was. An audit row is written in the same transaction.

        Raises:
            BadInput: there is no such alert.
            PostgresUnavailable, BudgetExceeded: nothing was written; retryable.
            OutcomeUnknown: the connection broke while committing; repeating the call is harmless.
        """
        async with self._database.transaction(deadline) as conn:
            given = {"alert_id": alert_id, "actor": actor.id}
            first = await (await conn.execute(sql("acknowledge_alert"), given)).fetchone() is not None
            if first:
                await conn.execute(sql("drop_resends"), {"alert_id": alert_id})
                await conn.execute(sql("audit"), _audit(alert_id, actor))
            rows = await (await conn.execute(sql("alerts_by_id"), {"alert_ids": [alert_id]})).fetchall()
        if not rows:
            raise BadInput("alert", f"there is no alert {alert_id}.", mend="`imem alerts` lists those that stand.")
        return Alert.from_row(rows[0]), first


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


def _json(value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    return value.isoformat() if isinstance(value, datetime) else value
