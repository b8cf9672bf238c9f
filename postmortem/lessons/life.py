"""
Lessons: proposed to people as they are recorded, and delivered to the agents that they concern.

A lesson is one lifecycle row. Its record makes it due; the pipeline opens the row and proposes the lesson for Gate 6,
or merges it with an open one that says the same. A lesson that a person reviewed or approved is delivered to the agents
of its domains: one entry of the row for each, and a batch of them with their links in one transaction. A crash leaves
the rest for the next round, and no agent has a lesson twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from imem.alerts.store import NewAlert, Severity
from imem.jobs.due import DueRow, DueRule
from imem.jobs.lifecycle import DueBatches, Effects, Lifecycle, LifecycleRow, LifecycleRuntime, move
from imem.jobs.pipeline import Every, Pipeline, Report
from imem.journal.actors import Action, Actor
from imem.journal.deadline import Deadline
from imem.journal.events.ids import id_of
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.rows import execute, json, rows
from imem.journal.settings import Role
from imem.kg.kinds.enums import LessonState
from imem.kg.kinds.learning import SHOWN_STATES, Lesson, visibility
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import Line, groups_of, link_of
from imem.postmortem.lessons.states import LESSON_STATES, OPEN, LessonFacts, concerned, says_the_opposite, says_the_same

ACTOR: Final = Actor("postmortem", Role.LEARNING_ENGINE)
"""The actor that records states and deliveries."""

WRITER: Final = "postmortem"
"""The subsystem that owns the governed group written here."""

QUEUE: Final = "lessons"
"""The queue of its due rows: lessons that were recorded."""

KIND: Final = "lesson"
"""Kind of the lifecycle rows."""

MOST_AGENTS: Final = 500
"""Agents that a lesson is delivered to at most."""

DELIVERED_AT_ONCE: Final = 20
"""Agents that get a lesson in one transaction."""

REVIEW_AFTER: Final = timedelta(days=365)
"""After how long an applied lesson is to be looked at again (postmortem-and-gates, section 8)."""

REVIEW_ALERT: Final = "LESSON_TO_REVIEW"
"""Kind of the alert about an applied lesson that is a year old."""


# Opening


async def _open_due(
    _runtime: LifecycleRuntime, conn: Connection, due: Sequence[DueRow], now: datetime
) -> tuple[Effects, dict[str, int]]:
    effects = Effects()
    for found in await rows(conn, "lessons_recorded", {"lessons": sorted({one.key for one in due})}):
        effects += await _open(conn, found, now)
    return effects, {"lessons": len(due)}


OPENING: Final[DueBatches[LifecycleRuntime]] = DueBatches(
    queue=QUEUE, kinds=("Lesson",), lock="lessons_lock", step=_open_due, size=100
)


async def open_lessons(runtime: LifecycleRuntime, *, until: Deadline) -> Report:
    """Open the rows of lessons that are due; see :meth:`~imem.jobs.lifecycle.DueBatches.run`."""
    return await OPENING.run(runtime, until=until)


async def _open(conn: Connection, found: Row, now: datetime) -> Effects:
    """Open the row of a lesson: in the state that was recorded with it, else proposed, or merged with an older one."""
    lesson = Lesson.model_validate(found["core"])
    stated = found["state"]
    data = {
        "reviewed": stated["reviewed"] if stated else found["by_person"] or found["insights"] > 0,
        "confirmations": lesson.confirmations or 1,
        "decision_ids": [found["decision_id"]] if found["decision_id"] else [],
        "deliveries": {},
    }
    if stated is not None:
        state = LessonState(stated["state"])
        LESSON_STATES.check(None, state, LessonFacts(stated=True), of=f"The lesson {lesson.id}")
        await _insert(conn, lesson, state, data, now + REVIEW_AFTER if state is LessonState.APPLIED else None)
        return Effects()
    LESSON_STATES.check(None, LessonState.DRAFT, LessonFacts(), of=f"The lesson {lesson.id}")
    row = await _insert(conn, lesson, LessonState.DRAFT, data, None)
    revises = found["patterns"]
    older, contradicted = await _compared(conn, lesson, reviewed=data["reviewed"], revises=bool(revises))
    if older is not None:
        await _confirm(conn, older, data)
        reason = f"The lesson {older.key} says the same."
        superseded = await move(
            conn, LESSON_STATES, row, LessonState.SUPERSEDED, LessonFacts(alike=True),
            data={**data, "superseded_by": older.key}, reason=reason,
        )  # fmt: skip
        return state_of(superseded) + supersedes(older.key, lesson.id) + _revisions(older.key, revises)
    data["contradicts"] = contradicted
    data["deliveries"] = await targets_of(conn, lesson, data) if data["reviewed"] else {}
    proposed = await move(
        conn, LESSON_STATES, row, LessonState.PENDING_GATE6, LessonFacts(), data=data, due_at=due_of_row(data, now)
    )
    return state_of(proposed) + _revisions(lesson.id, revises)


def _revisions(lesson_id: str, patterns: Iterable[str]) -> Effects:
    """Return what proposes, with a lesson, the patterns that a person would revise; no lesson changes a pattern."""
    return linked(link_of("AFFECTS_PATTERN", ("Lesson", lesson_id), ("Pattern", pattern)) for pattern in patterns)


async def _insert(
    conn: Connection, lesson: Lesson, state: LessonState, data: Mapping[str, Any], due_at: datetime | None
) -> LifecycleRow:
    values = {"key": lesson.id, "postmortem_id": lesson.postmortem_id, "state": state.value, "due_at": due_at}
    [row] = await rows(conn, "lesson_insert", values | {"data": json(data)})
    return LifecycleRow.of(row)


async def _compared(
    conn: Connection, lesson: Lesson, *, reviewed: bool, revises: bool
) -> tuple[LifecycleRow | None, list[str]]:
    """
    Return the oldest open lesson that says the same, and the ids of those that say the opposite.

    A lesson that a person reviewed is not merged into one that no person reviewed and no agent is shown. A lesson that
    revises a pattern is not merged into one that is decided, since nobody would be asked about the revision.
    """
    given = {"states": [state.value for state in OPEN], "category": lesson.category}
    same: LifecycleRow | None = None
    opposite: list[str] = []
    for found in await rows(conn, "lesson_rows_of", given):
        row, other = LifecycleRow.of(found), Lesson.model_validate(found["core"])
        heard = row.data["reviewed"] or row.state in SHOWN_STATES or not reviewed
        asked = row.state == LessonState.PENDING_GATE6 or not revises
        if same is None and heard and asked and says_the_same(lesson, other):
            same = row
        if says_the_opposite(lesson, other):
            opposite.append(row.key)
    return same, opposite


async def _confirm(conn: Connection, older: LifecycleRow, newer: Mapping[str, Any]) -> None:
    data = {
        **older.data,
        "confirmations": older.data["confirmations"] + newer["confirmations"],
        "decision_ids": list(dict.fromkeys([*older.data["decision_ids"], *newer["decision_ids"]])),
    }
    await rows(conn, "lesson_keep", {"key": older.key, "data": json(data), "due_at": older.due_at})


# What is recorded of a lesson


def _facts(action: Action, lines: Iterable[Line]) -> Effects:
    return Effects(facts=[(ACTOR, action, entry_of(line)) for line in lines])


def linked(links: Iterable[Line]) -> Effects:
    """Return what records links of a lesson."""
    return _facts(Action.APPEND, links)


def supersedes(lesson_id: str, other: str) -> Effects:
    """Return what links a lesson with the one in whose place it stands."""
    return linked([link_of("SUPERSEDES", ("Lesson", lesson_id), ("Lesson", other))])


def state_of(row: LifecycleRow) -> Effects:
    """Return what records the state of a lesson."""
    state = LessonState(row.state)
    applied = state is LessonState.APPLIED
    values = Lesson.State(
        state=state, reviewed=row.data["reviewed"], applied=applied, applied_date=row.entered_at if applied else None,
        effectiveness_tracked=applied,
    )  # fmt: skip
    return _facts(Action.APPEND_POSTMORTEM, [groups_of(Lesson, row.key, {"state": values}, writer=WRITER)])


async def withdrawn(conn: Connection, row: LifecycleRow) -> Effects:
    """Return what records the state of a lesson that agents see no more; what waits to be pulled is over."""
    await execute(conn, "notices_of_lesson_over", {"key": row.key})
    return state_of(row)


# Deliveries


async def domains_of(conn: Connection, stated: Sequence[str] | None, data: Mapping[str, Any]) -> Sequence[str]:
    """Return the domains that a lesson states, or else those of the findings that the decisions behind it cite."""
    if stated:
        return stated
    cited = await rows(conn, "lesson_domains", {"decisions": data["decision_ids"]})
    return [one["domain"] for one in cited]


async def targets_of(conn: Connection, lesson: Lesson, data: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the deliveries of a lesson, those that were done included: agent → when; None of one that waits."""
    domains = await domains_of(conn, lesson.affected_domains, data)
    found = await rows(conn, "lesson_agents", {"domains": concerned(domains), "limit": MOST_AGENTS})
    return {**{one["agent"]: None for one in found}, **data["deliveries"]}


def waiting_in(data: Mapping[str, Any]) -> list[str]:
    """Return the agents that a lesson is still to be delivered to."""
    return sorted(agent for agent, at in data["deliveries"].items() if at is None)


def due_of_row(data: Mapping[str, Any], now: datetime) -> datetime | None:
    """Return when a lesson that is not applied is looked at: at once while deliveries wait."""
    return now if waiting_in(data) else None


async def applied_if_delivered(conn: Connection, row: LifecycleRow, now: datetime) -> Effects:
    """Return the state of an approved lesson: applied where every agent that it concerns has it."""
    if row.state != LessonState.APPROVED or waiting_in(row.data):
        return Effects()
    return state_of(
        await move(
            conn, LESSON_STATES, row, LessonState.APPLIED, LessonFacts(delivered=True), due_at=now + REVIEW_AFTER,
            reason="Every agent that it concerns has it.",
        )
    )  # fmt: skip


async def _deliver(conn: Connection, row: LifecycleRow, now: datetime) -> Effects:
    """Deliver a lesson to the next agents, with their links."""
    agents = waiting_in(row.data)[:DELIVERED_AT_ONCE]
    data = {**row.data, "deliveries": {**row.data["deliveries"], **dict.fromkeys(agents, now.isoformat())}}
    [kept] = await rows(conn, "lesson_keep", {"key": row.key, "data": json(data), "due_at": due_of_row(data, now)})
    lesson = ("Lesson", row.key)
    lines = [
        line
        for agent in agents
        for line in (
            link_of("AFFECTS_AGENT", lesson, ("Agent", agent)),
            link_of("ADDED_TO_CHECKLIST", lesson, ("Agent", agent), {"at": now}),
            link_of("RECEIVED_LESSON", ("Agent", agent), lesson, {"at": now}),
        )
    ]
    return linked(lines) + await applied_if_delivered(conn, LifecycleRow.of(kept), now)


async def _step(_runtime: LifecycleRuntime, conn: Connection, row: LifecycleRow, now: datetime) -> Effects:
    """Deliver a lesson further; a year after it was applied, ask people to look at it again."""
    [found] = await rows(conn, "lesson_row", {"key": row.key})
    if row.state == LessonState.APPLIED:
        data = json(row.data)
        await rows(conn, "lesson_keep", {"key": row.key, "data": data, "due_at": now + REVIEW_AFTER})
        return Effects(alerts=[_to_review(row, found["core"], now)])
    state = {"state": row.state, "reviewed": row.data["reviewed"]}
    if visibility(state) is not None and waiting_in(row.data):
        return await _deliver(conn, row, now)
    await rows(conn, "lesson_keep", {"key": row.key, "data": json(row.data), "due_at": None})
    return Effects()


def _to_review(row: LifecycleRow, core: Mapping[str, Any], now: datetime) -> NewAlert:
    reason = f"The lesson {row.key} was applied a year ago: does it still hold? {core['insight']}"
    return NewAlert(
        alert_id=id_of("lesson to review", row.key, f"{now:%Y-%m-%d}"), kind=REVIEW_ALERT, severity=Severity.MEDIUM,
        about=row.matter, payload={"reason": reason[:2000]},
    )  # fmt: skip


LIFE: Final[Lifecycle[Any]] = Lifecycle(KIND, _step)

LESSONS: Final[Pipeline[LifecycleRuntime]] = Pipeline(
    "postmortem.lessons",
    lambda runtime, until: open_lessons(runtime, until=until),
    Every(15.0),
    budget_ms=45_000,
    without_broker=True,
    due=(DueRule(QUEUE, "Lesson", "record.Lesson", "$key ? (exists($.core))"),),
)
