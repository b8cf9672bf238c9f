"""
Lifecycle rows: in which state a thing is, and when its time is over.

A :class:`Lifecycle` declares one kind: the step that a pipeline takes once the time of a row is over or a person's
request waits. :func:`advance_due` claims such rows. Everything of one step is one transaction: the
check against the machine, the new state with the time of the next, the audit row, alerts. A process that is killed
leaves the row as it was, and the next round makes up for it.

A person's request is stored in the row by whoever has the application's login (:func:`request_transition`), with its
audit row. It is final from then on: of two, or of a request and the end of the row's time, the first one counts. A
pipeline gives it its effect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import groupby
from typing import Any, Final, Generic, Protocol, Self, TypeVar
from uuid import UUID

import structlog

from imem.alerts.store import NewAlert, Severity, close_alerts, raise_alert, raise_once
from imem.jobs.due import BAD_CONTENT, SET_ASIDE, DueRow, finish_due, halving, next_due, set_due_aside
from imem.jobs.runtime import Runtime
from imem.jobs.state_machine import StateMachine
from imem.journal.actors import Action, Actor
from imem.journal.audit import context_of
from imem.journal.deadline import Deadline
from imem.journal.errors import UNANSWERED, BadInput, BudgetExceeded, ImemError, TransitionRefused
from imem.journal.events.entry import JournalEntry, Tier
from imem.journal.events.ids import id_of, new_id
from imem.journal.gateway import Gateway
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import execute, json, rows

log = structlog.get_logger()

S = TypeVar("S", bound=StrEnum)
C = TypeVar("C")


class LifecycleRuntime(Runtime, Protocol):
    """A runtime with the gateway that appends facts."""

    gateway: Gateway


R = TypeVar("R", bound=LifecycleRuntime)

SYSTEM: Final = "SYSTEM"
"""Actor of what happens without a request."""

ROWS: Final = 500
"""Rows of one round at most."""

LOCKED_S: Final = 2.0
"""After how many seconds a row is tried again of which something else is locked."""

BATCH_MS: Final = 60_000
"""How long a transaction of many rows may take, in milliseconds."""

LONGEST_RETRY_S: Final = 3_600.0
"""Longest pause between attempts of a row whose step fails, in seconds; the first is :data:`LOCKED_S`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionRequest:
    """
    A request that was stored.

    Attributes:
        state: the state that is to be entered.
        actor, role: of who asked.
        reason: why.
        details: further fields.
        at: when it was stored.
    """

    state: str
    actor: str
    role: str
    reason: str | None
    details: Mapping[str, Any]
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleRow:
    """
    A row.

    Attributes:
        kind, key: of the row.
        about: what it belongs to, such as an analysis.
        state: its state; *version* counts the changes of the row.
        opened_at, entered_at: when it was opened, and when it entered the state.
        due_at: when the time of the state is over; None for a state without a limit.
        data: what the kind keeps, as JSON types.
        request: a request that waits for its effect.
        failures: failed attempts of its step.
    """

    kind: str
    key: str
    about: str | None
    state: str
    version: int
    opened_at: datetime
    entered_at: datetime
    due_at: datetime | None
    data: Mapping[str, Any]
    request: TransitionRequest | None = None
    failures: int = 0

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Return a row of Postgres as a value."""
        asked, request = row["request"], None
        if asked is not None:
            details = asked.get("details", {})
            names = ("state", "actor", "role", "reason")
            request = TransitionRequest(
                **{name: asked[name] for name in names}, details=details, at=row["requested_at"]
            )
        return cls(**{name: row[name] for name in cls.__slots__ if name != "request"}, request=request)

    @property
    def matter(self) -> UUID:
        """The matter that alerts about it have."""
        return id_of("lifecycle", self.kind, self.key)

    @property
    def failure(self) -> UUID:
        """The matter that alerts about failed attempts of its step have."""
        return id_of("lifecycle step", self.kind, self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """
    The work that a step defers to the end of its transaction, since it takes locks that others wait for.

    Attributes:
        facts: to be appended to the journal, each with its actor and the action that its kinds need.
        alerts: to be raised.
        over: matters whose alerts are closed.
    """

    facts: Sequence[tuple[Actor, Action, JournalEntry]] = ()
    alerts: Sequence[NewAlert] = ()
    over: Sequence[UUID] = ()

    def __add__(self, other: Effects) -> Effects:
        """Return both."""
        return Effects(
            facts=(*self.facts, *other.facts), alerts=(*self.alerts, *other.alerts), over=(*self.over, *other.over)
        )


@dataclass(frozen=True, slots=True)
class Lifecycle(Generic[R]):
    """
    A kind of lifecycle row.

    Attributes:
        kind: its name.
        step: moves a row whose time is over or that has a request, in the transaction of the connection; takes the
            present moment, and returns its effects, or None if something that it needs is locked.
    """

    kind: str
    step: Callable[[R, Connection, LifecycleRow, datetime], Awaitable[Effects | None]]


def wanted(states: type[S], request: TransitionRequest) -> S:
    """
    Return the state that a request names.

    Raises:
        TransitionRefused: there is no such state: the request was stored without the checks of the API.
    """
    try:
        return states(request.state)
    except ValueError as error:
        raise TransitionRefused(f"{request.state!r:.100} is no state.") from error


async def move(
    conn: Connection,
    machine: StateMachine[S, C],
    row: LifecycleRow,
    after: S,
    facts: C,
    *,
    due_at: datetime | None = None,
    data: Mapping[str, Any] | None = None,
    reason: str | None = None,
) -> LifecycleRow:
    """
    Set *row* to the state *after*, with the audit row, in the transaction of *conn*; return it as it is then.

    The audit row names who asked, or :data:`SYSTEM`. A state that waits for its effect had the effect already.

    Args:
        facts: for the guard of the transition.
        due_at: when the time of the new state is over.
        data: what the row keeps from now on; unchanged if None.
        reason: why; that of the request by default.

    Raises:
        TransitionRefused: the machine has no such transition, its guard refuses it, or the row was changed since it
            was read.
    """
    event = machine.check(type(after)(row.state), after, facts, of=f"The {machine.name} {row.key}").event
    values = {"kind": row.kind, "key": row.key, "version": row.version, "state": after.value, "due_at": due_at}
    found = await rows(conn, "lifecycle_move", values | {"data": json(row.data if data is None else data)})
    if not found:
        raise TransitionRefused(f"The {machine.name} {row.key} was changed meanwhile.")
    await _audit(conn, row, event, after.value, reason)
    return LifecycleRow.of(found[0])


async def _audit(conn: Connection, row: LifecycleRow, action: str, after: str, reason: str | None) -> None:
    asked = row.request
    context = context_of(None, kind=row.kind, key=row.key, before=row.state, after=after)
    given = {"resource_type": "workflow", "resource_id": row.about or row.key, "action": action, "authorized": True}
    who = {"actor": asked.actor if asked else SYSTEM, "role": asked.role if asked else "service"}
    why = reason if reason is not None else asked.reason if asked else None
    await rows(conn, "audit", {**given, **who, "reason": why, "context": context, "outcome": "done"})


async def request_transition(
    database: Database,
    kind: str,
    key: str,
    version: int,
    after: StrEnum,
    *,
    by: Actor,
    reason: str | None,
    details: Mapping[str, Any] | None = None,
    late: bool = False,
    deadline: Deadline,
) -> LifecycleRow | None:
    """
    Store the request that a row, of the *version* that was read, enters a state, with the audit row; return the row.

    None if another request came first, if the row was changed meanwhile, or if its time is over. The caller has
    checked the transition against the machine; the pipeline that gives the request its effect checks it again.

    Args:
        details: further fields, JSON types.
        late: store it although the row's time is over.
    """
    request = {"state": after.value, "details": dict(details or {})}
    given = {"kind": kind, "key": key, "version": version, "request": json(request), "after_due": late}
    who = {"actor": by.id, "role": by.role.value, "reason": reason, "context": context_of(by)}
    found = await database.commit("lifecycle_request", given | who, deadline=deadline)
    return LifecycleRow.of(found[0]) if found else None


# Rounds


@dataclass(slots=True)
class AdvanceReport:
    """
    Counts of what a round did.

    Attributes:
        moved: kind → how many rows were moved.
        refused: requests that no transition allows, and that were removed.
        failed: rows whose step failed, to be tried again.
        more: whether rows are left.
    """

    moved: dict[str, int] = field(default_factory=dict)
    refused: int = 0
    failed: int = 0
    more: bool = False


async def advance_due(runtime: R, kinds: Mapping[str, Lifecycle[R]], *, until: Deadline) -> AdvanceReport:
    """
    Move the rows of *kinds* whose time is over or that have a request, each in a transaction of its own.

    A row whose step fails is put off, for longer each time, and an alert says so; the others go on.

    Raises:
        StoreUnavailable, BudgetExceeded, OutcomeUnknown: the rest would fail alike; the next round continues.
    """
    report = AdvanceReport()
    found = await runtime.database.named("lifecycle_due", {"kinds": sorted(kinds), "limit": ROWS}, deadline=until)
    for row in found:
        if until.passed:
            break
        await _advance(runtime, kinds[row["kind"]], row, report, until)
    report.more = until.passed or len(found) == ROWS
    return report


async def _advance(runtime: R, of: Lifecycle[R], which: Row, report: AdvanceReport, until: Deadline) -> None:
    try:
        moved = await _step(runtime, of, which, until)
    except TransitionRefused as error:
        if await _refuse(runtime.database, which, error, until):
            report.refused += 1
        else:
            await _put_off(runtime.database, which, error, until)
            report.failed += 1
    except (ImemError, *BAD_CONTENT) as error:
        # One row that is too slow by itself must not keep the others waiting in each round.
        slow = isinstance(error, BudgetExceeded) and not until.passed
        if isinstance(error, UNANSWERED) and not slow:
            raise
        await _put_off(runtime.database, which, error, until)
        report.failed += 1
    else:
        if moved:
            report.moved[of.kind] = report.moved.get(of.kind, 0) + 1


async def _step(runtime: R, of: Lifecycle[R], which: Row, until: Deadline) -> bool:
    async with runtime.database.transaction(until) as conn:
        found = await rows(conn, "lifecycle_claim", which)
        if not found:
            return False
        row = LifecycleRow.of(found[0])
        effects = await of.step(runtime, conn, row, found[0]["now"])
        if effects is None:
            await rows(conn, "lifecycle_retry", {**which, "failed": False, "seconds": LOCKED_S})
            return False
        over = [row.failure] if row.failures else []
        appended = await finish(conn, effects + Effects(over=over), runtime.gateway, until)
    if appended:
        await runtime.gateway.publish_wakeup(tuple(Tier))
    return True


async def finish(conn: Connection, effects: Effects, gateway: Gateway, deadline: Deadline) -> bool:
    """
    Append, raise and close what *effects* say; make it the last of the transaction. Return whether facts were appended.

    Raises:
        BadInput: a fact was refused: the transaction must not be committed.

    The caller then calls :meth:`~imem.journal.gateway.Gateway.publish_wakeup`.
    """
    for (actor, action), group in groupby(effects.facts, key=lambda fact: fact[:2]):
        entries = [entry for _, _, entry in group]
        for receipt in await gateway.append_in(conn, entries, actor=actor, action=action, deadline=deadline):
            if receipt.verdict.refused:
                raise BadInput("facts", f"the records of a step were refused: {receipt.verdict.value}.")
    for matter in effects.over:
        await close_alerts(conn, matter)
    for alert in effects.alerts:
        await raise_alert(conn, alert)
    return bool(effects.facts)


async def _refuse(database: Database, which: Row, error: TransitionRefused, until: Deadline) -> bool:
    """Remove a request that no transition allows, stored without the checks of the API; whether there was one."""
    async with database.transaction(until) as conn:
        found = await rows(conn, "lifecycle_claim", which)
        row = LifecycleRow.of(found[0]) if found else None
        if row is None or row.request is None:
            return False
        log.warning("lifecycle.request_refused", kind=row.kind, key=row.key, reason=error.message)
        await _audit(conn, row, "refuse", row.state, error.message)
        await execute(conn, "lifecycle_drop_request", which)
    return True


async def _put_off(database: Database, which: Row, error: Exception, until: Deadline) -> None:
    async with database.transaction(until) as conn:
        found = await rows(conn, "lifecycle_claim", which)
        if found:
            await _note_failure(conn, LifecycleRow.of(found[0]), error)


async def put_off(database: Database, row: LifecycleRow, error: Exception, until: Deadline) -> None:
    """Put a row off whose step failed because of its contents, for longer each time, with an alert."""
    async with database.transaction(until) as conn:
        await _note_failure(conn, row, error)


async def _note_failure(conn: Connection, row: LifecycleRow, error: Exception) -> None:
    reason, which = f"{type(error).__name__}: {error}", {"kind": row.kind, "key": row.key}
    log.error("lifecycle.step_failed", **which, reason=reason, exc_info=error)
    pause_s = min(LOCKED_S * 2.0 ** min(row.failures, 20), LONGEST_RETRY_S)
    await rows(conn, "lifecycle_retry", {**which, "failed": True, "seconds": pause_s})
    text = f"The {row.kind} {row.key} could not be moved, and is tried again: {reason}"
    payload = {**which, "reason": text[:2000]}
    alert = NewAlert(
        alert_id=new_id(), kind=SET_ASIDE, severity=Severity.HIGH, analysis_id=row.about, about=row.failure,
        payload=payload,
    )  # fmt: skip
    await raise_once(conn, alert)


# Due rows in batches


@dataclass(frozen=True, slots=True, kw_only=True)
class DueBatches(Generic[R]):
    """
    The due rows of one queue, done in batches: each batch is one transaction under the lock of the queue.

    A crash leaves whole batches; the rest is still due. A batch that fails because of its contents is halved, and the
    bad row is set aside with an alert.

    Attributes:
        queue, kinds: of the rows.
        lock: the statement that takes the lock; its column ``now`` is the present moment.
        step: does a batch in the transaction of the connection; takes the rows and the present moment, and returns
            its effects and what it counts.
        size: most rows of one batch.
    """

    queue: str
    kinds: Sequence[str]
    lock: str
    step: Callable[[R, Connection, Sequence[DueRow], datetime], Awaitable[tuple[Effects, Mapping[str, int]]]]
    size: int = 200

    async def run(self, runtime: R, *, until: Deadline) -> dict[str, Any]:
        """
        Do batches until none is left or *until* has passed; return the sums of what they counted.

        Rows that were set aside count as ``stuck``; ``more`` is True if the time did not suffice. Empty if nothing was
        due.

        Raises:
            PostgresUnavailable: committed batches stay; the rest is still due.
        """
        total: dict[str, Any] = {}
        while not until.passed:
            done = await halving(
                lambda size: self._batch(runtime, size), self.size, lambda error: self._alone(runtime, error)
            )
            if not done:
                return total
            for name, count in done.items():
                total[name] = total.get(name, 0) + count
        return {**total, "more": True}

    async def _batch(self, runtime: R, size: int) -> Mapping[str, int]:
        async with runtime.database.transaction(Deadline.after_ms(BATCH_MS)) as conn:
            [clock] = await rows(conn, self.lock)
            due = await next_due(conn, self.queue, self.kinds, size)
            if not due:
                return {}
            effects, counts = await self.step(runtime, conn, due, clock["now"])
            await finish_due(conn, self.queue, due)
            appended = await finish(conn, effects, runtime.gateway, Deadline.after_ms(BATCH_MS))
        if appended:
            await runtime.gateway.publish_wakeup(tuple(Tier))
        return counts

    async def _alone(self, runtime: R, error: Exception) -> Mapping[str, int]:
        async with runtime.database.transaction(Deadline.after_ms(BATCH_MS)) as conn:
            await rows(conn, self.lock)
            due = await next_due(conn, self.queue, self.kinds, 1)
            await set_due_aside(conn, self.queue, due, error)
        return {"stuck": len(due)} if due else {}
