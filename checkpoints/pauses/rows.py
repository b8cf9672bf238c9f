"""
Pauses as values, and helpers of the transactions on their rows.

Nothing here decides, and nothing opens a transaction: callers pass the connection whose transaction holds the lock of
the analysis, so that reads and writes are consistent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from imem.alerts.store import NewAlert, Severity, raise_alert, storable
from imem.checkpoints.incidents.correlation import signature_of
from imem.checkpoints.incidents.failures import LONGEST_MESSAGE, AgentFailure
from imem.checkpoints.model import LONGEST_ID, checked_text
from imem.checkpoints.pauses import timers
from imem.checkpoints.pauses.lifecycle import OPEN, FailureClass, Initiator, PauseStatus, Trigger
from imem.checkpoints.pauses.plan import Plan, plan_of
from imem.jobs.lifecycle import SYSTEM
from imem.journal.actors import Actor
from imem.journal.audit import context_of
from imem.journal.errors import BadInput
from imem.journal.events.ids import id_of, new_id
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.rows import as_json, execute, rows
from imem.journal.texts.spelling import says_nothing

DRAIN: Final = timedelta(seconds=60)
"""How long agents may take to reach a safe point before they are fenced off."""

LONGEST_ENDPOINT: Final = 200
"""Characters of a stored endpoint."""

LONGEST_REASON: Final = 2_000
"""Characters of a reason."""


def missing_results_id(analysis_id: str) -> UUID:
    """Return the id of the alert about missing results of an analysis, and of its subject."""
    return id_of("results missing", analysis_id)


@dataclass(frozen=True, slots=True)
class LockedAnalysis:
    """
    An analysis with its row locked.

    Attributes:
        analysis_id, stock_id: of the analysis.
        outcome: how it ended; None while it is running or paused.
    """

    analysis_id: str
    stock_id: str
    outcome: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """
    A pause, as stored.

    Attributes:
        id: its id.
        analysis_id, stock_id: of the analysis.
        status: its state.
        step: the last completed step of the state's saga.
        reason, trigger, created_by: its cause and its actor.
        paused_at, resumed_at: begin and end.
        checkpoint_id: the failed agent's checkpoint, or the newest one.
        failed_agent: the agent of the first failure.
        batch_id: the batch that it belongs to.
        extended_until, extension_reason: its one extension.
        auto_resume_attempts: number of automatic resumes.
        plan: of the last requested resume.
        drain_until: until when agents may reach a safe point.
        automatic, notify: of the current resume.
        troubles, last_trouble: failed attempts of the next step, and the last error.
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
        """Whether it is open: no agent of its analysis starts."""
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
        """Return it as JSON types; times with their zone."""
        hidden = {"id", "step", "plan", "drain_until", "automatic", "notify", "troubles", "rests"}
        found = {name: getattr(self, name) for name in self.__slots__ if name not in hidden}
        ends = {"stale_at": self.stale_at, "expires_at": self.expires_at}
        return as_json({"pause_id": self.id, **found, **ends, "plan": self.plan.to_dict()})


_COLUMNS: Final = {
    "reason": "pause_reason",
    "trigger": "pause_trigger",
    "paused_at": "pause_timestamp",
    "resumed_at": "resume_timestamp",
    "plan": "resume_dependencies",
}
"""Field of a pause → its column, where that has another name."""


def pause_of(row: Mapping[str, Any]) -> Pause:
    """Return a row of ``paused_analyses`` as a value."""
    found = {name: row[_COLUMNS.get(name, name)] for name in Pause.__slots__ if name != "rests"}
    typed = {
        "status": PauseStatus(found["status"]),
        "trigger": Trigger(found["trigger"]),
        "plan": plan_of(found["plan"]),
    }
    return Pause(**{**found, **typed, "rests": bool(row.get("rests"))})


def archived_pause_of(row: Mapping[str, Any]) -> Pause:
    """Return a row of the history as a value: the pause as of its end, with its moments parsed from JSON."""
    body = dict(row["body"])
    for name in ("pause_timestamp", "resume_timestamp", "extended_until", "drain_until"):
        body[name] = datetime.fromisoformat(body[name]) if body[name] is not None else None
    for name in ("id", "checkpoint_id", "batch_id"):
        body[name] = UUID(body[name]) if body[name] is not None else None
    return pause_of(body)


# Locks


async def lock_analysis(conn: Connection, analysis_id: str) -> LockedAnalysis:
    """
    Lock an analysis until the transaction ends, waiting for another holder of the lock.

    Raises:
        BadInput: there is none of that id.
    """
    found = await rows(conn, "analysis_held", {"analysis_id": analysis_id, "skip": False})
    if not found:
        raise BadInput("analysis_id", f"there is no analysis {analysis_id!r}.")
    return _analysis(found[0])


async def try_lock_analysis(conn: Connection, analysis_id: str) -> LockedAnalysis | None:
    """
    Lock an analysis until the transaction ends; return None where another manager has locked it.

    A manager that hangs while it holds the lock loses it, with its session, after half a minute.
    """
    await rows(conn, "pause_patience")
    found = await rows(conn, "analysis_held", {"analysis_id": analysis_id, "skip": True})
    return _analysis(found[0]) if found else None


def _analysis(row: Row) -> LockedAnalysis:
    return LockedAnalysis(row["analysis_id"], row["subject_id"], row["outcome"])


async def open_pause(conn: Connection, analysis_id: str) -> Pause | None:
    """Return the open pause of an analysis, with its row locked until the transaction ends."""
    found = await rows(conn, "pause_open", {"analysis_id": analysis_id})
    return pause_of(found[0]) if found else None


async def move_pause(conn: Connection, pause: Pause, status: PauseStatus, step: int) -> Pause:
    """Set the status and step of a pause whose row is locked."""
    values = {"id": pause.id, "was": pause.status.value, "status": status.value, "step": step}
    return pause_of((await rows(conn, "pause_set", values))[0])


async def archive_pause(conn: Connection, pause: Pause, outcome: str) -> None:
    """Move a pause to the history: RESUMED, EXPIRED or FAILED."""
    await execute(conn, "pause_archive", {"id": pause.id, "outcome": outcome})


# Failures


async def newest_checkpoint(conn: Connection, analysis_id: str, agent_type: str | None) -> Row | None:
    """Return the newest checkpoint of an agent, or of its whole analysis; None where there is none."""
    found = await rows(conn, "pause_newest_checkpoint", {"analysis_id": analysis_id, "agent_type": agent_type})
    return found[0] if found else None


async def record_failure(
    conn: Connection, of: Pause | LockedAnalysis, agent_type: str, failure: AgentFailure, *, failure_id: UUID,
    effect: FailureClass, details: str = "{}",
) -> Row:  # fmt: skip
    """Record a failure, with its signature and the agent's newest checkpoint, and return its row. Idempotent."""
    failure = replace(
        failure,
        message=storable(failure.message)[:LONGEST_MESSAGE].strip() or failure.kind.value,
        endpoint=storable(failure.endpoint)[:LONGEST_ENDPOINT] if failure.endpoint else None,
    )
    signature, shown = signature_of(failure, agent_type), await newest_checkpoint(conn, of.analysis_id, agent_type)
    values = {
        "id": failure_id,
        "analysis_id": of.analysis_id,
        "stock_id": of.stock_id,
        "agent_type": agent_type,
        "kind": failure.kind.value,
        "class": effect.value,
        "message": failure.message,
        "endpoint": failure.endpoint,
        "attempt": failure.attempt,
        "signature": signature.hash,
        "pattern": signature.pattern,
        "external": signature.external,
        "checkpoint_id": shown["id"] if shown is not None else None,
        "details": details,
    }
    found = await rows(conn, "failure_insert", values)
    return found[0] if found else (await rows(conn, "failure_by_id", {"id": failure_id}))[0]


# Batches


async def insert_batch(
    conn: Connection,
    operation: str,
    *,
    name: str,
    reason: str,
    limit: int,
    members: Sequence[tuple[str, str, UUID | None, str]],
    by: Actor | None,
) -> UUID:
    """Insert a batch and its members, each with its analysis, stock, pause and state; return its id."""
    batch_id = new_id()
    analyses, stocks, pauses, states = (list(column) for column in zip(*members, strict=True))
    values = {"name": name[:200], "operation": operation, "reason": reason, "limit": limit, "stock_ids": stocks}
    await execute(conn, "batch_insert", {**values, "id": batch_id, "automatic": by is None, "created_by": who(by)})
    placed = {"analyses": analyses, "stocks": stocks, "pauses": pauses, "states": states}
    await execute(conn, "batch_members_insert", {"batch_id": batch_id, **placed})
    return batch_id


# Alerts and audit


async def alert(
    conn: Connection, alert_id: UUID, kind: str, severity: str, *, of: Pause | LockedAnalysis,
    about: UUID | None = None, **payload: Any,
) -> None:  # fmt: skip
    """Raise an alert in the transaction; the last statement, since it locks the journal's cursor."""
    pause = of if isinstance(of, Pause) else None
    new = NewAlert(
        alert_id=alert_id,
        kind=kind,
        severity=Severity(severity),
        subject=of.stock_id,
        analysis_id=of.analysis_id,
        about=about or (pause.id if pause is not None else None),
        payload={**payload, **({"pause_id": str(pause.id)} if pause is not None else {})},
    )
    await raise_alert(conn, new)


async def audit(conn: Connection, by: Actor | None, action: str, analysis_id: str, reason: str, **context: Any) -> None:
    """Write the audit row of a request, in the transaction of its effect."""
    values = {"resource_id": analysis_id, "action": action, "reason": reason[:LONGEST_MESSAGE], "outcome": "done"}
    await rows(conn, "pause_audit", {**values, **audited(by, **context)})


def audited(by: Actor | None, **context: Any) -> dict[str, str]:
    """Return the actor and context of an audit row, for a statement that writes it."""
    role = by.role.value if by is not None else "service"
    return {"actor": who(by), "role": role, "context": context_of(by, **context)}


def who(by: Actor | None) -> str:
    """Return the actor's name in rows; :data:`SYSTEM` without one."""
    return by.id if by is not None else SYSTEM


def role_of(by: Actor | None) -> Initiator:
    """Return the initiator: the gateway has checked that a named actor is human."""
    return Initiator.SYSTEM if by is None else Initiator.HUMAN


# Validation


def checked_id(field: str, value: object) -> str:
    """
    Return an id of an analysis or a stock.

    Raises:
        BadInput: it is invalid; names *field*.
    """
    return checked_text(field, value, LONGEST_ID)


def checked_reason(value: object, field: str = "reason") -> str:
    """
    Return the reason of a request, stripped.

    Raises:
        BadInput: it is empty, too long, or cannot be stored.
    """
    text = checked_text(field, value, LONGEST_REASON).strip()
    if says_nothing(text):
        raise BadInput(field, "says nothing.")
    return text


def single_match(found: Sequence[Row], name: str, what: str) -> str:
    """
    Return the id of the only analysis that matches a name: the exact one, or the only one of that stock.

    Raises:
        BadInput: there is none, or there are several.
    """
    if not found:
        raise BadInput("analysis", f"{name!r} has no {what}.")
    if found[0]["exact"] or len(found) == 1:
        return str(found[0]["analysis_id"])
    names = ", ".join(str(row["analysis_id"]) for row in found[:5])
    raise BadInput("analysis", f"{name!r} has several of that kind: {names}.", mend="Name one of them.")
