"""
Life of review tasks: opened, answered, defaulted, withdrawn, and their windows closed.

A subsystem opens a task in the transaction of what it is about (:func:`open_task`); the pipeline of lifecycle rows
gives answers and the end of a task's time their effect (:data:`TASKS`). Each change of a task and what its kind makes
of it are one transaction: a crash leaves the task as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from imem.alerts.store import NewAlert, Severity
from imem.jobs.lifecycle import Effects, Lifecycle, LifecycleRow, LifecycleRuntime, TransitionRequest, move
from imem.journal.errors import BadInput, TransitionRefused
from imem.journal.events.ids import new_id
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.rows import json, rows
from imem.review.admission import Admission, HeldTask, Reviewer, admit, check_room
from imem.review.kinds import Answer, Fields, Task, TaskAction, TaskKind
from imem.review.states import PROVISIONAL, TASK_STATES, TaskFacts, TaskState, Why

P = TypeVar("P", bound=BaseModel)

KIND: Final = "task"
"""Kind of the lifecycle rows."""

TASK_ALERT: Final = "REVIEW_TASK"
"""Kind of the alert about an open task."""


class ReviewRuntime(LifecycleRuntime, Protocol):
    """A runtime with the kinds of tasks, by name."""

    task_kinds: Mapping[str, TaskKind[Any, Any]]


def task_of(row: LifecycleRow, stored: Row, kind: TaskKind[Any, P]) -> Task[P]:
    """Return a task from its two rows; *stored* has the columns of ``review_task``."""
    data, answer = row.data, row.data.get("answer")
    minutes = None
    if answer is not None and stored["shown_at"] is not None:
        minutes = max(0.0, (datetime.fromisoformat(answer["at"]) - stored["shown_at"]).total_seconds() / 60.0)
    return Task(
        task_id=row.key,
        kind=kind.name,
        rank=stored["rank"],
        state=TaskState(row.state),
        package=kind.package.model_validate(stored["package"]),
        analysis_id=stored["analysis_id"],
        subject_ids=tuple(stored["subject_ids"]),
        reviewer=data.get("reviewer"),
        opened_at=row.opened_at,
        due_at=row.due_at,
        why=Why(data["why"]) if data.get("why") else None,
        extended=bool(data.get("extended")),
        trail=tuple(data.get("trail", ())),
        answer=answer,
        minutes=minutes,
    )


def held_task(row: Row) -> HeldTask:
    """Return an open task that a reviewer has, from a row of ``tasks_held``."""
    return HeldTask(task_id=row["key"], **{name: row[name] for name in ("kind", "reviewer", "rank", "opened_at")})


# Opening


async def open_task(
    runtime: ReviewRuntime,
    conn: Connection,
    kind: TaskKind[Any, P],
    package: P,
    *,
    task_id: str,
    rank: int,
    analysis_id: str | None = None,
    subject_ids: Sequence[str] = (),
    due: timedelta | None = None,
) -> tuple[Task[P], Effects]:
    """
    Open a task in the transaction of *conn*, and return it with the effects for the end of the transaction.

    A reviewer with room gets it; where nobody is there or the queue is full, its default applies at once, unless it
    displaces a less urgent one, whose default applies then. One that was opened before is returned as it is.

    Args:
        due: how long it waits for an answer; by default as long as its kind says.
    """
    due = due if due is not None else kind.due
    [locked] = await rows(conn, "review_lock")
    now: datetime = locked["now"]
    values = {"task_id": task_id, "kind": kind.name, "rank": rank, "analysis_id": analysis_id}
    more = {"subject_ids": list(subject_ids), "likeness": kind.likeness(package), "package": package.model_dump_json()}
    inserted = await rows(conn, "task_insert", values | more)
    if not inserted:
        [known] = await rows(conn, "task_lock", {"task_id": task_id})
        return await _task(runtime, conn, LifecycleRow.of(known)), Effects()
    place, displaced = await _admission(conn, kind, rank, now) if kind.queued else (Admission(), None)
    effects = Effects()
    if displaced is not None:
        effects = await _default(runtime, conn, displaced, Why.DISPLACED, now)
    state = TaskState.OPEN if place.why is None else TaskState.DEFAULTED
    TASK_STATES.check(None, state, TaskFacts(why=place.why), of=f"The task {task_id}")
    data = {"kind": kind.name, "rank": rank, "reviewer": place.reviewer, "why": place.why}
    due_at = now + due if place.why is None and due is not None else None
    opened = {"task_id": task_id, "analysis_id": analysis_id, "state": state.value, "due_at": due_at, "now": now}
    [row] = await rows(conn, "task_open", opened | {"data": json(data)})
    placed = LifecycleRow.of(row)
    task = task_of(placed, inserted[0], kind)
    if place.why is not None:
        return task, effects + await kind.apply(runtime, conn, task, None, now)
    return task, effects + Effects(alerts=[_alert(kind, task, placed)])


async def _admission(
    conn: Connection, kind: TaskKind[Any, Any], rank: int, now: datetime
) -> tuple[Admission, LifecycleRow | None]:
    """Admit a task; return the row of the task that it displaces, locked: one that is being answered is passed over."""
    roster = [Reviewer(**row) for row in await rows(conn, "roster")]
    held = [held_task(row) for row in await rows(conn, "tasks_held")]
    there = [one for one in held if one.kind == kind.name]
    while True:
        place = admit(kind.name, rank, roster, held, may_displace=kind.displaces(rank) and bool(there), now=now)
        if place.displaced is None:
            return place, None
        locked = await rows(conn, "task_displace", {"task_id": place.displaced.task_id})
        if locked:
            return place, LifecycleRow.of(locked[0])
        # It is being answered: its place is free when that is committed, and no other task waits for it.
        held = [one for one in held if one is not place.displaced]
        there = [one for one in there if one is not place.displaced]


async def _task(runtime: ReviewRuntime, conn: Connection, row: LifecycleRow) -> Task[Any]:
    [stored] = await rows(conn, "task_package", {"task_id": row.key})
    return task_of(row, stored, runtime.task_kinds[row.data["kind"]])


def _alert(kind: TaskKind[Any, P], task: Task[P], row: LifecycleRow) -> NewAlert:
    """Return the alert about an open task: an urgent one is sent at once, others with the digest."""
    text = f"{kind.headline(task.package)} If nobody answers: {kind.default(task.package)}"
    payload = {
        "task_id": task.task_id,
        "reviewer": task.reviewer,
        "due_at": task.due_at.isoformat() if task.due_at else None,
        "reason": text[:2000],
    }
    severity = Severity.HIGH if kind.urgent(task.rank) else Severity.NORMAL
    return NewAlert(
        alert_id=new_id(), kind=TASK_ALERT, severity=severity, about=row.matter, analysis_id=task.analysis_id,
        subject=task.subject_ids[0] if task.subject_ids else None, payload=payload,
    )  # fmt: skip


# Moving


async def _default(runtime: ReviewRuntime, conn: Connection, row: LifecycleRow, why: Why, now: datetime) -> Effects:
    """Apply the default of an open task."""
    late = row.due_at is not None and now >= row.due_at
    facts = TaskFacts(why=why, late=late)
    moved = await move(conn, TASK_STATES, row, TaskState.DEFAULTED, facts, data={**row.data, "why": why})
    task = await _task(runtime, conn, moved)
    effects = await runtime.task_kinds[task.kind].apply(runtime, conn, task, None, now)
    return Effects(over=[row.matter]) + effects


async def _step(runtime: ReviewRuntime, conn: Connection, row: LifecycleRow, now: datetime) -> Effects | None:
    """Give an answer, or the end of a task's time, its effect."""
    asked = row.request
    if asked is None:
        return await _default(runtime, conn, row, Why.LATE, now)
    late = row.due_at is not None and asked.at >= row.due_at
    if row.state == TaskState.OPEN and late:
        # Nobody had applied the default in time: it counts first, and the answer reviews it.
        effects = await _default(runtime, conn, replace(row, request=None), Why.LATE, asked.at)
        [found] = await rows(conn, "task_lock", {"task_id": row.key})
        moved = replace(LifecycleRow.of(found), request=asked)
        return effects + await _answered(runtime, conn, moved, asked, now)
    return await _answered(runtime, conn, row, asked, now)


async def _answered(
    runtime: ReviewRuntime, conn: Connection, row: LifecycleRow, asked: TransitionRequest, now: datetime
) -> Effects:
    kind = runtime.task_kinds[row.data["kind"]]
    details = asked.details
    if "to" in details:
        return await _delegated(runtime, conn, row, asked, now)
    action = kind.actions.get(str(details.get("action")))
    if action is None:
        raise TransitionRefused(f"Tasks of the kind {kind.name} have no action {details.get('action')!r}.")
    if action.extends:
        facts = TaskFacts(by_person=True, extends=True, extended=bool(row.data.get("extended")))
        due_at = row.due_at + kind.extension if row.due_at is not None else None
        await move(conn, TASK_STATES, row, TaskState.OPEN, facts, due_at=due_at, data={**row.data, "extended": True})
        return Effects()
    fields = _fields(action, (await _task(runtime, conn, row)).package, details.get("fields", {}))
    wanted = TaskState.ANSWERED if row.state == TaskState.OPEN else action.reviews
    answer = {"action": action.name, "fields": details.get("fields", {}), "by": asked.actor, "at": asked.at.isoformat()}
    data = {**row.data, "answer": {**answer, "rationale": asked.reason}}
    moved = await move(conn, TASK_STATES, row, wanted, TaskFacts(by_person=True), data=data)
    task = await _task(runtime, conn, moved)
    given = Answer(
        action=action.name,
        fields=fields,
        by=asked.actor,
        role=asked.role,
        rationale=asked.reason,
        at=asked.at,
    )
    return Effects(over=[row.matter]) + await kind.apply(runtime, conn, task, given, now)


def _fields(action: TaskAction, package: BaseModel, stated: object) -> Fields:
    try:
        fields = action.fields.model_validate(stated)
        action.check(package, fields)
    except (ValidationError, BadInput) as error:
        raise TransitionRefused(f"The fields of the answer {action.name} are wrong.") from error
    return fields


async def _delegated(
    runtime: ReviewRuntime, conn: Connection, row: LifecycleRow, asked: TransitionRequest, now: datetime
) -> Effects:
    """Hand a task over, and tell its new reviewer; who was given other tasks meanwhile has no room any more."""
    if not isinstance(asked.details["to"], str):
        raise TransitionRefused("The request names nobody.")
    await rows(conn, "review_lock")
    roster = {one.person: one for one in (Reviewer(**found) for found in await rows(conn, "roster"))}
    if asked.details["to"] not in roster:
        raise TransitionRefused(f"{asked.details['to']!r:.200} is not on the roster.")
    held = [held_task(one) for one in await rows(conn, "tasks_held")]
    check_room(roster[asked.details["to"]], held, row.key, now)
    step = {"from": row.data.get("reviewer"), "by": asked.actor, "at": now.isoformat(), "reason": asked.reason}
    data = {**row.data, "reviewer": asked.details["to"], "trail": [*row.data.get("trail", ()), step]}
    facts = TaskFacts(delegates=True)
    moved = await move(conn, TASK_STATES, row, TaskState.OPEN, facts, due_at=row.due_at, data=data)
    task = await _task(runtime, conn, moved)
    return Effects(over=[row.matter], alerts=[_alert(runtime.task_kinds[task.kind], task, moved)])


TASKS: Final[Lifecycle[Any]] = Lifecycle(KIND, _step)


async def amend_task(conn: Connection, kind: TaskKind[Any, P], task_id: str, package: P) -> bool:
    """Replace what the reviewer of an open task sees, unless somebody has looked at it; return whether it was."""
    values = {"task_id": task_id, "package": package.model_dump_json(), "likeness": kind.likeness(package)}
    return bool(await rows(conn, "task_amend", values))


# Ending


async def withdraw_task(conn: Connection, task_id: str, reason: str) -> Effects:
    """Withdraw a task in the transaction of *conn*, since it is no question any more; one with an answer stays."""
    found = await rows(conn, "task_lock", {"task_id": task_id})
    row = LifecycleRow.of(found[0]) if found else None
    if row is None or row.request is not None or TaskState(row.state) in TASK_STATES.terminal:
        return Effects()
    await move(conn, TASK_STATES, row, TaskState.WITHDRAWN, TaskFacts(), reason=reason)
    return Effects(over=[row.matter])


async def close_windows(
    runtime: ReviewRuntime, conn: Connection, analysis_id: str, reason: str, now: datetime
) -> Effects:
    """
    Close the windows of an analysis after a human gate was decided; return the effects.

    The defaults that nobody reviewed stand for good; a stored answer has its effect all the same.
    """
    values = {"analysis_id": analysis_id, "states": [state.value for state in PROVISIONAL]}
    effects = Effects()
    for each in await rows(conn, "tasks_with_open_window", values):
        row = LifecycleRow.of(each)
        closed = await move(conn, TASK_STATES, row, TaskState.CLOSED, TaskFacts(), reason=reason)
        kind = runtime.task_kinds[row.data["kind"]]
        if kind.closes:
            effects += await kind.apply(runtime, conn, await _task(runtime, conn, closed), None, now)
    return effects
