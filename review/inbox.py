"""
The operations of reviewers: list and read tasks, answer them, hand them over; and the roster.

An answer is checked here against the task's kind, stored with its audit row, and from then on counts: of several, or of
an answer and the end of the task's time, the first one. The pipeline gives it its effect within seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from imem.jobs.lifecycle import LifecycleRow, request_transition
from imem.journal.actors import Actor
from imem.journal.audit import context_of
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, PermissionDenied, TransitionRefused
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.journal.texts.spelling import says_nothing
from imem.review.admission import Reviewer, answers, check_room
from imem.review.kinds import Task, TaskAction, TaskKind
from imem.review.states import ANSWERABLE, PROVISIONAL, TASK_STATES, TaskFacts, TaskState
from imem.review.tasks import KIND, held_task, task_of

Kinds = Mapping[str, TaskKind[Any, Any]]

LISTED: Final = 200
"""Tasks of one listing at most."""

LONGEST_RATIONALE: Final = 2_000
"""Characters of a rationale at most."""


async def list_tasks(
    database: Database,
    kinds: Kinds,
    *,
    kind: str | None = None,
    reviewer: str | None = None,
    analysis_id: str | None = None,
    states: Sequence[TaskState] = ANSWERABLE,
    limit: int = LISTED,
    deadline: Deadline,
) -> list[Task[Any]]:
    """
    Return tasks that can be answered: open ones first, the most urgent of each first, then those due first.

    Args:
        kind, reviewer, analysis_id: of these alone.
        states: in these alone.
        limit: how many at most.

    Raises:
        BadInput: there is no such kind.
    """
    if kind is not None and kind not in kinds:
        raise BadInput("kind", f"is one of {', '.join(sorted(kinds))}.")
    values = {"states": [one.value for one in states], "of_kind": kind, "reviewer": reviewer, "limit": limit}
    found = await database.named("tasks_listed", values | {"analysis_id": analysis_id}, deadline=deadline)
    return [_task(row, kinds) for row in found]


async def read_task(
    database: Database, kinds: Kinds, task_id: str, *, shown: bool = False, deadline: Deadline
) -> Task[Any]:
    """
    Return a task whole.

    Args:
        shown: note that a person sees it: the minutes until the answer are measured from the first time.

    Raises:
        BadInput: there is no such task.
    """
    row = await _row(database, task_id, deadline)
    if shown and row["shown_at"] is None:
        await database.commit("note_task_shown", {"task_id": task_id}, deadline=deadline)
    return _task(row, kinds)


async def answer_task(
    database: Database,
    kinds: Kinds,
    task_id: str,
    action: str,
    *,
    fields: Mapping[str, Any] | None = None,
    rationale: str | None = None,
    by: Actor,
    deadline: Deadline,
) -> Task[Any]:
    """
    Answer a task, and return it as it is with the answer. Repeating the same answer changes nothing.

    Args:
        action: one of the kind's.
        fields: what the action states.
        rationale: why; required to override a default, and where the action says so.
        by: a person: an admin, or a reviewer of the roster who answers such tasks.

    Raises:
        BadInput: there is no such task or action, or a field is wrong; names it.
        PermissionDenied: the person does not answer such tasks.
        TransitionRefused: it was answered otherwise or withdrawn, its window is closed, or it was given more time
            before.
    """
    row = await _row(database, task_id, deadline)
    task, kind = _task(row, kinds), kinds[row["task_kind"]]
    await check_reviewer(database, kind.name, by, deadline)
    chosen = kind.actions.get(action)
    if chosen is None:
        raise BadInput("action", f"is one of {', '.join(sorted(kind.actions))}.")
    given = _checked(chosen, task.package, fields or {})
    state = _state_at(task, row["now"])
    after = _after(task, state, chosen)
    said = _rationale(rationale, required=chosen.rationale or after is TaskState.OVERRIDDEN)
    details = {"action": action, "fields": given}
    if task.answer is not None:
        same = all(task.answer[name] == value for name, value in details.items()) and task.answer["by"] == by.id
        if same:
            return task
    # Who looks into a default has answered, and answers again.
    if task.answer is not None and (row["request"] is not None or task.state not in ANSWERABLE):
        raise TransitionRefused(f"The task {task_id} was answered by {task.answer['by']}: {task.answer['action']}.")
    if row["request"] is not None:
        raise TransitionRefused(f"The task {task_id} is just being handed over or given more time: try again.")
    facts = TaskFacts(by_person=True, extends=chosen.extends, extended=task.extended)
    TASK_STATES.check(state, after, facts, of=f"The task {task_id}")
    stored = await request_transition(
        database, KIND, task_id, row["version"], after, by=by, reason=said, details=details,
        late=state is not TaskState.OPEN, deadline=deadline,
    )  # fmt: skip
    if stored is None:
        # Somebody was faster, or its time ended just now: look again, which says what happened.
        return await answer_task(
            database, kinds, task_id, action, fields=fields, rationale=rationale, by=by, deadline=deadline
        )
    return await read_task(database, kinds, task_id, deadline=deadline)


def possible_actions(kind: TaskKind[Any, Any], task: Task[Any], now: datetime) -> dict[str, TaskAction]:
    """Return the actions with which a task can be answered now, by name; an answer without effect yet leaves none."""
    state = _state_at(task, now)
    given = kind.actions.get(str(task.answer["action"])) if task.answer is not None else None
    if given is not None and (
        task.state is not TaskState.INVESTIGATING or given.reviews is not TaskState.INVESTIGATING
    ):
        return {}
    found = {}
    for name, action in kind.actions.items():
        facts = TaskFacts(by_person=True, extends=action.extends, extended=task.extended)
        with suppress(TransitionRefused):
            TASK_STATES.check(state, _after(task, state, action), facts)
            found[name] = action
    return found


async def tasks_alike(database: Database, kinds: Kinds, task_id: str, action: str, *, deadline: Deadline) -> list[str]:
    """
    Return the ids of the other tasks that may be answered with *action* together with a task, since they ask alike.

    Raises:
        BadInput: there is no such task.
    """
    row = await _row(database, task_id, deadline)
    chosen = kinds[row["task_kind"]].actions.get(action)
    states = PROVISIONAL if chosen is not None and chosen.only_default else ANSWERABLE
    of = {"kind": row["task_kind"], "likeness": row["likeness"], "task_id": task_id}
    found = await database.named("tasks_alike", of | {"states": [state.value for state in states]}, deadline=deadline)
    return [one["task_id"] for one in found]


async def delegate_task(
    database: Database, kinds: Kinds, task_id: str, to: str, *, reason: str, by: Actor, deadline: Deadline
) -> Task[Any]:
    """
    Hand an open task over to another reviewer; its time goes on. Return the task.

    Raises:
        BadInput: there is no such task, or *to* is not on the roster for its kind.
        PermissionDenied: the person does not answer such tasks.
        TransitionRefused: the task is not open any more, or *to* has it, is away, or has as many tasks as the person's
            capacity.
    """
    row = await _row(database, task_id, deadline)
    task, kind = _task(row, kinds), row["task_kind"]
    await check_reviewer(database, kind, by, deadline)
    roster = {one.person: one for one in await read_roster(database, deadline=deadline)}
    if to not in roster or not answers(roster[to], kind):
        raise BadInput(
            "to", f"{to!r:.200} answers no tasks of the kind {kind}.", mend="`imem tasks roster` lists who does."
        )
    TASK_STATES.check(task.state, TaskState.OPEN, TaskFacts(delegates=True), of=f"The task {task_id}")
    held = [held_task(one) for one in await database.named("tasks_held", deadline=deadline)]
    check_room(roster[to], held, task_id, row["now"])
    said = _rationale(reason, required=True, field="reason")
    stored = await request_transition(
        database, KIND, task_id, row["version"], TaskState.OPEN, by=by, reason=said, details={"to": to},
        deadline=deadline,
    )  # fmt: skip
    if stored is None:
        raise TransitionRefused(f"The task {task_id} was changed meanwhile, or its time is over.")
    return await read_task(database, kinds, task_id, deadline=deadline)


# The roster


async def read_roster(database: Database, *, deadline: Deadline) -> list[Reviewer]:
    """Return the reviewers, by name."""
    return [Reviewer(**row) for row in await database.named("roster", deadline=deadline)]


async def set_reviewer(
    database: Database, kinds: Kinds, reviewer: Reviewer, *, removed: bool = False, by: Actor, deadline: Deadline
) -> None:
    """
    Put a person on the roster or change the entry, with an audit row; or remove it.

    Raises:
        BadInput: a kind, the capacity, the moment or the deputy is wrong; names the field.
    """
    if not 1 <= len(reviewer.person.strip()) <= 200:
        raise BadInput("person", "is a name of 1 to 200 characters.")
    if unknown := sorted(set(reviewer.kinds) - set(kinds)):
        raise BadInput("kinds", f"{unknown[0]!r:.100} is no kind of task; there are {', '.join(sorted(kinds))}.")
    if not 1 <= reviewer.capacity <= 100:
        raise BadInput("capacity", "is a number from 1 to 100.")
    if reviewer.away_until is not None and reviewer.away_until.utcoffset() is None:
        raise BadInput("away_until", "has no time zone.")
    known = {one.person for one in await read_roster(database, deadline=deadline)}
    if reviewer.deputy is not None and (reviewer.deputy == reviewer.person or reviewer.deputy not in known):
        raise BadInput("deputy", f"{reviewer.deputy!r:.200} is nobody else on the roster.")
    entry = {"person": reviewer.person, "kinds": list(reviewer.kinds), "capacity": reviewer.capacity}
    more = {"away_until": reviewer.away_until, "deputy": reviewer.deputy, "removed": removed}
    who = {"actor": by.id, "role": by.role.value, "context": context_of(by)}
    await database.commit("set_reviewer", entry | more | who, deadline=deadline)


# Checks


async def check_reviewer(database: Database, kind: str, by: Actor, deadline: Deadline) -> None:
    """
    Refuse who is neither an admin nor a reviewer of such tasks; the gateway has checked the role.

    Raises:
        PermissionDenied: the person is not on the roster for tasks of the kind.
    """
    if by.role is Role.HUMAN_ADMIN:
        return
    roster = {one.person: one for one in await read_roster(database, deadline=deadline)}
    if by.id not in roster or not answers(roster[by.id], kind):
        raise PermissionDenied(
            f"{by.id} is not on the roster for tasks of the kind {kind}.",
            mend="An admin adds a reviewer with `imem tasks roster`.",
        )


def _state_at(task: Task[Any], now: datetime) -> TaskState:
    """Return the state in which an answer finds a task: after its time the default applies, whoever has noticed."""
    late = task.state is TaskState.OPEN and task.due_at is not None and now >= task.due_at
    return TaskState.DEFAULTED if late else task.state


def _after(task: Task[Any], state: TaskState, action: TaskAction) -> TaskState:
    """Return the state that the answer leads to."""
    if action.only_default and state is TaskState.OPEN:
        raise TransitionRefused(
            f"{action.name!r} reviews a default, and the task {task.task_id} still waits for an answer."
        )
    if action.extends:
        return TaskState.OPEN
    return action.reviews if state in PROVISIONAL else TaskState.ANSWERED


def _checked(action: TaskAction, package: BaseModel, fields: Mapping[str, Any]) -> dict[str, Any]:
    try:
        stated = action.fields.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "fields"
        raise BadInput(f"fields.{where}", f"{first['msg'][:1].lower()}{first['msg'][1:]}.") from error
    action.check(package, stated)
    return stated.model_dump(mode="json")


def _rationale(text: str | None, *, required: bool, field: str = "rationale") -> str | None:
    said = (text or "").strip()
    if required and says_nothing(said):
        raise BadInput(field, "is required here: say why.")
    if len(said) > LONGEST_RATIONALE:
        raise BadInput(field, f"has more than {LONGEST_RATIONALE:,} characters.")
    return said or None


async def _row(database: Database, task_id: str, deadline: Deadline) -> Row:
    found = await database.named("task_shown", {"task_id": task_id}, deadline=deadline)
    if not found:
        raise BadInput("task_id", f"there is no task {task_id!r:.200}.", mend="`imem tasks` lists those that wait.")
    return found[0]


def _task(row: Row, kinds: Kinds) -> Task[Any]:
    """Return the task of a row; an answer that waits for its effect is shown with it."""
    stored = LifecycleRow.of(row)
    asked = stored.request
    kind = kinds[row["task_kind"]]
    action = kind.actions.get(str(asked.details.get("action"))) if asked is not None else None
    if asked is None or action is None or action.extends:
        return task_of(stored, row, kind)
    answer = {**asked.details, "by": asked.actor, "at": asked.at.isoformat(), "rationale": asked.reason}
    return task_of(replace(stored, data={**stored.data, "answer": answer}), row, kind)
