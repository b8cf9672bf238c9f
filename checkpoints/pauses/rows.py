"""
Pauses as values, and the small steps that every transaction about them is made of.

Nothing here decides anything, and nothing opens a transaction: callers pass the connection whose transaction holds the
lock of the analysis, so that what was read and what is written belong together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import orjson

from imem.alerts.store import NewAlert, Severity, raise_alert
from imem.checkpoints.incidents.correlation import signature_of
from imem.checkpoints.incidents.failures import LONGEST_MESSAGE, AgentFailure
from imem.checkpoints.model import LONGEST_ID, checked_text
from imem.checkpoints.pauses import timers
from imem.checkpoints.pauses.lifecycle import OPEN, Initiator, PauseStatus, Trigger
from imem.checkpoints.pauses.plan import Plan, plan_of
from imem.journal.actors import Actor
from imem.journal.audit import context_of
from imem.journal.errors import BadInput
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.rows import execute, id_of, rows

SYSTEM: Final = "SYSTEM"
"""Who ordered what nobody did."""

DRAIN: Final = timedelta(seconds=60)
"""How long agents have to come to a safe point before they are fenced off."""

LONGEST_REASON: Final = 2_000
"""Characters of a reason."""


def missing_results_id(analysis_id: str) -> UUID:
    """Return the id of an alert that results of an analysis are missing, and of what it is about."""
    return id_of("results missing", analysis_id)


def json(value: object) -> str:
    """Return *value* as the text of JSON."""
    return orjson.dumps(value).decode()


@dataclass(frozen=True, slots=True)
class LockedAnalysis:
    """
    An analysis, its row locked.

    Attributes:
        analysis_id, stock_id: which, and of what.
        outcome: how it ended; None while it is under way, paused included.
    """

    analysis_id: str
    stock_id: str
    outcome: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """
    A pause, as it is on file.

    Attributes:
        id: its id.
        analysis_id, stock_id: what is paused.
        status: where it stands.
        step: the last step done of the saga that the status names.
        reason, trigger, created_by: why, and who ordered it.
        paused_at, resumed_at: since when, until when.
        checkpoint_id: the failed agent's checkpoint, or the newest one.
        failed_agent: whose failure it was; of several the first.
        batch_id: the batch that it belongs to.
        extended_until, extension_reason: its one extension.
        auto_resume_attempts: how often it was resumed without a person.
        plan: what each agent does, of the last resume that was ordered.
        drain_until: until when agents may come to a safe point.
        automatic, notify: of the resume under way.
        troubles, last_trouble: how often the next step failed, and why.
        rests: whether the next attempt is not due yet.
    """

    id: UUID
    analysis_id: str
    stock_id: str
    status: PauseStatus
    step: int
    reason: str
    trigger: Trigger
    created_by: str
    paused_at: datetime
    resumed_at: datetime | None
    checkpoint_id: UUID | None
    failed_agent: str | None
    batch_id: UUID | None
    extended_until: datetime | None
    extension_reason: str | None
    auto_resume_attempts: int
    plan: Plan
    drain_until: datetime
    automatic: bool
    notify: bool
    troubles: int
    last_trouble: str | None
    rests: bool = False

    @property
    def open(self) -> bool:
        """Whether it holds its analysis."""
        return self.status in OPEN

    @property
    def stale_at(self) -> datetime:
        """When it becomes stale; its working memory is kept until then."""
        return timers.stale_at(self.paused_at, self.extended_until)

    @property
    def expires_at(self) -> datetime:
        """When it expires."""
        return timers.expires_at(self.paused_at, self.extended_until)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it; times with their zone."""
        return {
            "pause_id": str(self.id),
            "analysis_id": self.analysis_id,
            "stock_id": self.stock_id,
            "status": self.status.value,
            "reason": self.reason,
            "trigger": self.trigger.value,
            "created_by": self.created_by,
            "paused_at": self.paused_at.isoformat(),
            "resumed_at": self.resumed_at.isoformat() if self.resumed_at else None,
            "stale_at": self.stale_at.isoformat(),
            "expires_at": self.expires_at.isoformat(),
            "checkpoint_id": str(self.checkpoint_id) if self.checkpoint_id else None,
            "failed_agent": self.failed_agent,
            "batch_id": str(self.batch_id) if self.batch_id else None,
            "extended_until": self.extended_until.isoformat() if self.extended_until else None,
            "extension_reason": self.extension_reason,
            "auto_resume_attempts": self.auto_resume_attempts,
            "plan": self.plan.to_dict(),
            "last_trouble": self.last_trouble,
        }


def pause_of(row: Mapping[str, Any]) -> Pause:
    """Return a row of ``paused_analyses`` as a value."""
    return Pause(
        id=row["id"],
        analysis_id=row["analysis_id"],
        stock_id=row["stock_id"],
        status=PauseStatus(row["status"]),
        step=row["step"],
        reason=row["pause_reason"],
        trigger=Trigger(row["pause_trigger"]),
        created_by=row["created_by"],
        paused_at=row["pause_timestamp"],
        resumed_at=row["resume_timestamp"],
        checkpoint_id=row["checkpoint_id"],
        failed_agent=row["failed_agent"],
        batch_id=row["batch_id"],
        extended_until=row["extended_until"],
        extension_reason=row["extension_reason"],
        auto_resume_attempts=row["auto_resume_attempts"],
        plan=plan_of(row["resume_dependencies"]),
        drain_until=row["drain_until"],
        automatic=row["automatic"],
        notify=row["notify"],
        troubles=row["troubles"],
        last_trouble=row["last_trouble"],
        rests=bool(row.get("rests")),
    )


def failure_values(failure: AgentFailure, agent_type: str, analysis: LockedAnalysis) -> dict[str, Any]:
    """Return the columns of a failure that it says itself, its signature among them."""
    signature = signature_of(failure, agent_type)
    return {
        "analysis_id": analysis.analysis_id,
        "stock_id": analysis.stock_id,
        "agent_type": agent_type,
        "kind": failure.kind.value,
        "message": failure.message,
        "endpoint": failure.endpoint,
        "attempt": failure.attempt,
        "signature": signature.hash,
        "pattern": signature.pattern,
        "external": signature.external,
    }


def archived_pause_of(row: Mapping[str, Any]) -> Pause:
    """Return a row of the history as a value: the pause as it was when it ended, its moments read from JSON."""
    body = dict(row["body"])
    for name in ("pause_timestamp", "resume_timestamp", "extended_until", "drain_until"):
        body[name] = datetime.fromisoformat(body[name]) if body[name] is not None else None
    for name in ("id", "checkpoint_id", "batch_id"):
        body[name] = UUID(body[name]) if body[name] is not None else None
    return replace(pause_of(body))


# Locks


async def lock_analysis(conn: Connection, analysis_id: str) -> LockedAnalysis:
    """
    Lock an analysis until the transaction ends, waiting for whoever has it.

    Raises:
        BadInput: there is none of that id.
    """
    found = await rows(conn, "analysis_held", {"analysis_id": analysis_id, "skip": False})
    if not found:
        raise BadInput("analysis_id", f"there is no analysis {analysis_id!r}.")
    return _analysis(found[0])


async def try_lock_analysis(conn: Connection, analysis_id: str) -> LockedAnalysis | None:
    """
    Lock an analysis until the transaction ends, unless another manager works on it just now: then None.

    A manager that stands still with the lock in its hands loses it, with its session, after half a minute.
    """
    await rows(conn, "pause_patience")
    found = await rows(conn, "analysis_held", {"analysis_id": analysis_id, "skip": True})
    return _analysis(found[0]) if found else None


def _analysis(row: Row) -> LockedAnalysis:
    return LockedAnalysis(row["analysis_id"], row["subject_id"], row["outcome"])


async def open_pause(conn: Connection, analysis_id: str) -> Pause | None:
    """Return the open pause of an analysis, its row locked until the transaction ends."""
    found = await rows(conn, "pause_open", {"analysis_id": analysis_id})
    return pause_of(found[0]) if found else None


async def move_pause(conn: Connection, pause: Pause, status: PauseStatus, step: int) -> Pause:
    """Move a pause, whose row is locked, on."""
    values = {"id": pause.id, "was": pause.status.value, "status": status.value, "step": step}
    return pause_of((await rows(conn, "pause_set", values))[0])


async def archive_pause(conn: Connection, pause: Pause, outcome: str) -> None:
    """Move a pause into the history: RESUMED, EXPIRED or FAILED."""
    await execute(conn, "pause_archive", {"id": pause.id, "outcome": outcome})


# What people are told


async def alert(
    conn: Connection, alert_id: UUID, kind: str, severity: str, *, pause: Pause | None, analysis: LockedAnalysis,
    about: UUID | None = None, **payload: Any,
) -> None:  # fmt: skip
    """Raise an alert with the transaction; the last thing that it does, for it holds the journal's cursor."""
    new = NewAlert(
        alert_id=alert_id,
        kind=kind,
        severity=Severity(severity),
        subject=analysis.stock_id,
        analysis_id=analysis.analysis_id,
        about=about or (pause.id if pause is not None else None),
        payload={**payload, **({"pause_id": str(pause.id)} if pause is not None else {})},
    )
    await raise_alert(conn, new)


async def audit(conn: Connection, by: Actor | None, action: str, analysis_id: str, reason: str, **context: Any) -> None:
    """Write the audit row of an order, in the transaction of its effect."""
    values = {"resource_id": analysis_id, "action": action, "reason": reason[:LONGEST_MESSAGE], "outcome": "done"}
    await rows(conn, "pause_audit", {**values, **audited(by, **context)})


def audited(by: Actor | None, **context: Any) -> dict[str, str]:
    """Return who ordered something and what else its audit row says, for a statement that writes the row."""
    role = by.role.value if by is not None else "service"
    return {"actor": who(by), "role": role, "context": context_of(by, **context)}


def who(by: Actor | None) -> str:
    """Return how rows name whoever ordered something."""
    return by.id if by is not None else SYSTEM


def role_of(by: Actor | None) -> Initiator:
    """Return whether a person ordered something: whoever is named has been allowed to by the gateway."""
    return Initiator.SYSTEM if by is None else Initiator.HUMAN


# Checks of what callers state


def checked_id(field: str, value: object) -> str:
    """
    Return an id of an analysis or a stock.

    Raises:
        BadInput: it is none; names *field*.
    """
    return checked_text(field, value, LONGEST_ID)


def checked_reason(value: object, field: str = "reason") -> str:
    """
    Return why something is ordered.

    Raises:
        BadInput: nothing is said, too much, or what cannot be stored.
    """
    text = checked_text(field, value, LONGEST_REASON).strip()
    if not text:
        raise BadInput(field, "says nothing.")
    return text


def checked_uuid(field: str, value: object) -> UUID:
    """
    Return *value* as an id.

    Raises:
        BadInput: it is no UUID; names *field*.
    """
    if isinstance(value, UUID):
        return value
    try:
        return UUID(str(value))
    except ValueError:
        raise BadInput(field, f"{str(value)[:80]!r} is no UUID.") from None


def single_match(found: Sequence[Row], name: str, field: str, what: str) -> str:
    """
    Return the id of the one analysis that a name means: exactly that one, or the only one of that stock.

    Raises:
        BadInput: there is none, or there are several; names *field*.
    """
    if not found:
        raise BadInput(field, f"{name!r} has no {what}.")
    if found[0]["exact"] or len(found) == 1:
        return str(found[0]["analysis_id"])
    names = ", ".join(str(row["analysis_id"]) for row in found[:5])
    raise BadInput("analysis_id", f"{name!r} has several of that kind: {names}.", mend="Name one of them.")
