"""
Cases: opened for decisions that were off, reviewed by people, a few at a time.

A case is one lifecycle row. A forecast that is measured as off makes its outcome due, and the pipeline opens a case of
the decision, or adds the checkpoint to the one that is open. The cases of the highest priority are in review, at most
:data:`IN_REVIEW`; each is a review task. Opening, admission and what an answer records are each one transaction: a
crash leaves the case as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from imem.credibility.forecasts.measures import DeviationClass
from imem.jobs.due import DueRule, finish_due, halving, next_due, set_due_aside
from imem.jobs.lifecycle import Effects, LifecycleRow, finish, move
from imem.jobs.pipeline import Every, Pipeline, Report
from imem.jobs.state_machine import StateMachine, Transition
from imem.journal.actors import Action, Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import TransitionRefused
from imem.journal.events.entry import Tier
from imem.journal.events.ids import id_of
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.rows import json, rows
from imem.journal.settings import Role
from imem.kg.kinds.enums import LessonPriority, LessonSource, PostmortemStatus, RootCause
from imem.kg.kinds.learning import FailureAnalysis, HumanInsight, Lesson, PostMortem
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import groups_of, record_of
from imem.postmortem.cases.package import PostmortemCase, SixAnswers, case_kind
from imem.postmortem.cases.priorities import Impact, PriorityPolicy
from imem.postmortem.cases.records import case_of
from imem.review.kinds import Answer, Task
from imem.review.tasks import ReviewRuntime, open_task

ACTOR: Final = Actor("postmortem", Role.LEARNING_ENGINE)
"""The actor that records cases."""

QUEUE: Final = "postmortem"
"""The queue of its due rows: outcomes that were compared with a forecast."""

KIND: Final = "postmortem"
"""Kind of the lifecycle rows."""

IN_REVIEW: Final = 5
"""Cases that are in review at a time; the rest wait (postmortem-and-gates, section 2)."""

BATCH: Final = 200
BATCH_MS: Final = 60_000


class PostmortemRuntime(ReviewRuntime, Protocol):
    """A runtime that says what orders the queue."""

    postmortem_priority: PriorityPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFacts:
    """
    The facts that guards check.

    Attributes:
        room: whether a place is free.
        answered: whether a person answered the six questions.
        late: whether the time of the review is over.
        again: whether a person asked for another review.
    """

    room: bool = False
    answered: bool = False
    late: bool = False
    again: bool = False


_S = PostmortemStatus

CASE_STATES: Final[StateMachine[PostmortemStatus, CaseFacts]] = StateMachine(
    "post-mortem",
    Transition("open", None, _S.QUEUED, lambda _: None, "a forecast was off by more than noise"),
    Transition("admit", _S.QUEUED, _S.IN_REVIEW, lambda f: None if f.room else "No place is free.", "a place is free"),
    Transition(
        "complete", _S.IN_REVIEW, _S.COMPLETED, lambda f: None if f.answered else "Nobody answered.", "six answers"
    ),
    Transition("expire", _S.IN_REVIEW, _S.TIMEOUT, lambda f: None if f.late else "Its time is not over.", "48 hours"),
    Transition(
        "complete", _S.TIMEOUT, _S.COMPLETED, lambda f: None if f.answered else "Nobody answered.", "a late answer"
    ),
    Transition("reopen", _S.TIMEOUT, _S.QUEUED, lambda f: None if f.again else "Nobody asked.", "a person asks for it"),
    initial="not open",
)


# Opening


async def open_cases(runtime: PostmortemRuntime, *, until: Deadline) -> Report:
    """
    Open cases for outcomes that are due, and admit as many as there are places; return how many of each.

    Raises:
        PostgresUnavailable: committed batches stay; the rest is still due.
    """
    total: dict[str, Any] = {}
    while not until.passed:
        done = await halving(lambda size: _open_batch(runtime, size), BATCH, lambda error: _alone(runtime, error))
        if not done:
            break
        for name, count in done.items():
            total[name] = total.get(name, 0) + count
    admitted = await _admit(runtime)
    return {**total, "admitted": admitted} if admitted else total


async def _alone(runtime: PostmortemRuntime, error: Exception) -> dict[str, int]:
    async with runtime.database.transaction(Deadline.after_ms(BATCH_MS)) as conn:
        await rows(conn, "cases_lock")
        due = await next_due(conn, QUEUE, ("Outcome",), 1)
        await set_due_aside(conn, QUEUE, due, error)
    return {"stuck": len(due)}


async def _open_batch(runtime: PostmortemRuntime, size: int) -> dict[str, int]:
    async with runtime.database.transaction(Deadline.after_ms(BATCH_MS)) as conn:
        await rows(conn, "cases_lock")
        due = await next_due(conn, QUEUE, ("Outcome",), size)
        if not due:
            return {}
        off = await rows(
            conn, "forecasts_off", {"outcomes": sorted({one.key for one in due}), "off": DeviationClass.OFF.value}
        )
        effects, opened = Effects(), 0
        by_decision: dict[str, list[Row]] = {}
        for row in off:
            by_decision.setdefault(row["decision_id"], []).append(row["data"])
        for decision_id, checkpoints in by_decision.items():
            found = await rows(conn, "case_open_of", {"decision_id": decision_id})
            effects += await (
                _extend(conn, runtime, LifecycleRow.of(found[0]), checkpoints)
                if found
                else _open(conn, runtime, decision_id, checkpoints)
            )
            opened += not found
        await finish_due(conn, QUEUE, due)
        await finish(conn, effects, runtime.gateway, Deadline.after_ms(BATCH_MS))
    if effects.facts:
        await runtime.gateway.publish_wakeup(tuple(Tier))
    return {"outcomes": len(due), "opened": opened}


async def _open(
    conn: Connection, runtime: PostmortemRuntime, decision_id: str, checkpoints: Sequence[Mapping[str, Any]]
) -> Effects:
    """Open a case of a decision."""
    [count] = await rows(conn, "cases_of_decision", {"decision_id": decision_id})
    key = f"{decision_id}/{count['count'] + 1}"
    kept = _worst_first(checkpoints)
    priority = _priority(runtime, kept)
    CASE_STATES.check(None, _S.QUEUED, CaseFacts(), of=f"The post-mortem {key}")
    data = {"decision_id": decision_id, "checkpoints": kept, "priority": priority, "attempt": 0}
    [row] = await rows(conn, "case_insert", {"key": key, "decision_id": decision_id, "data": json(data)})
    first = kept[0]
    core = PostMortem(
        id=key, decision_id=decision_id, checkpoint=first["days"], deviation=float(first["deviation"]),
        trigger_date=row["opened_at"],
    )  # fmt: skip
    state = PostMortem.State(status=_S.QUEUED, priority=priority)
    return _facts(record_of(core), groups_of(PostMortem, key, {"state": state}, writer=QUEUE))


async def _extend(
    conn: Connection, runtime: PostmortemRuntime, row: LifecycleRow, checkpoints: Sequence[Mapping[str, Any]]
) -> Effects:
    """Add checkpoints to an open case; a revised outcome takes the place of the older one."""
    by_days = {one["days"]: one for one in (*row.data["checkpoints"], *checkpoints)}
    kept = _worst_first(list(by_days.values()))
    priority = _priority(runtime, kept)
    data = {**row.data, "checkpoints": kept, "priority": priority}
    await rows(conn, "case_data", {"key": row.key, "data": json(data)})
    state = PostMortem.State(status=PostmortemStatus(row.state), priority=priority)
    return _facts(groups_of(PostMortem, row.key, {"state": state}, writer=QUEUE))


_CHECKPOINT: Final = ("days", "metric", "predicted", "low", "high", "actual", "deviation", "outcome_id", "subject_id")


def _worst_first(checkpoints: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    kept = [{name: one[name] for name in _CHECKPOINT if name in one} for one in checkpoints]
    return sorted(kept, key=lambda one: (-float(one["deviation"]), one["days"]))


def _priority(runtime: PostmortemRuntime, checkpoints: Sequence[Mapping[str, Any]]) -> float:
    return Impact(deviation=float(checkpoints[0]["deviation"])).priority(runtime.postmortem_priority)


def _facts(*lines: Any) -> Effects:
    return Effects(facts=[(ACTOR, Action.APPEND_POSTMORTEM, entry_of(line)) for line in lines])


# Review


async def _admit(runtime: PostmortemRuntime) -> int:
    """Open the review of as many cases as there are places, those of the highest priority first."""
    async with runtime.database.transaction(Deadline.after_ms(BATCH_MS)) as conn:
        await rows(conn, "cases_lock")
        found = await rows(conn, "cases_to_admit", {"places": IN_REVIEW})
        effects = Effects()
        for each in found:
            row = LifecycleRow.of(each)
            attempt = row.data["attempt"] + 1
            case = await case_of(conn, row, attempt)
            moved = await move(
                conn, CASE_STATES, row, _S.IN_REVIEW, CaseFacts(room=True), data={**row.data, "attempt": attempt}
            )
            _, more = await open_task(
                runtime, conn, CASE, case, task_id=task_id_of(row.key, attempt), rank=0,
                subject_ids=[case.subject_id],
            )  # fmt: skip
            effects += more + _analysed(case) + _state(moved)
        await finish(conn, effects, runtime.gateway, Deadline.after_ms(BATCH_MS))
    if found:
        await runtime.gateway.publish_wakeup(tuple(Tier))
    return len(found)


def task_id_of(case_id: str, attempt: int) -> str:
    """Return the id of the review task of a case."""
    return str(id_of("postmortem task", case_id, attempt))


def _analysed(case: PostmortemCase) -> Effects:
    """Return what records the automatic cause."""
    quoted = "\n".join(f"{one.record}: {one.says}" for one in case.evidence) or "No record speaks for another cause."
    found = FailureAnalysis(
        id=f"{case.case_id}/analysis/{case.attempt}", postmortem_id=case.case_id, root_cause_category=case.cause,
        root_cause_details=quoted[:4_000], foreseeability_rating=1 if case.cause is RootCause.BLACK_SWAN else 3,
    )  # fmt: skip
    return _facts(record_of(found))


def _state(row: LifecycleRow, completed: datetime | None = None) -> Effects:
    values = PostMortem.State(
        status=PostmortemStatus(row.state), priority=row.data["priority"], completion_date=completed
    )
    return _facts(groups_of(PostMortem, row.key, {"state": values}, writer=QUEUE))


async def _apply(
    _runtime: PostmortemRuntime, conn: Connection, task: Task[PostmortemCase], answer: Answer | None, now: datetime
) -> Effects:
    """Give an answer, or its absence, its effect on the case."""
    [found] = await rows(conn, "case_lock", {"key": task.package.case_id})
    row = LifecycleRow.of(found)
    if answer is None:
        return _state(await move(conn, CASE_STATES, row, _S.TIMEOUT, CaseFacts(late=True)))
    if answer.action == "reopen":
        return _state(await move(conn, CASE_STATES, row, _S.QUEUED, CaseFacts(again=True), reason=answer.rationale))
    if not isinstance(answer.fields, SixAnswers):
        raise TransitionRefused("The six questions are not answered.")
    moved = await move(conn, CASE_STATES, row, _S.COMPLETED, CaseFacts(answered=True), reason=answer.rationale)
    return _state(moved, now) + _insight(task.package, answer.fields, answer, now)


def _insight(case: PostmortemCase, said: SixAnswers, answer: Answer, now: datetime) -> Effects:
    """Return what a person's answers record in the person's name: the insight, and the lesson that waits for Gate 6."""
    insight = HumanInsight(
        id=f"{case.case_id}/insight/{case.attempt}", postmortem_id=case.case_id,
        primary_reason=said.primary_reason.value, factors_missed=said.factors_missed,
        warning_signs_missed=said.warning_signs_missed, future_actions=said.future_actions,
        patterns_to_revise=said.patterns or None, foreseeability_rating=said.foreseeability,
        review_date=min(answer.at, now),
    )  # fmt: skip
    lesson = Lesson(
        id=f"{case.case_id}/lesson/{case.attempt}", source=LessonSource.HUMAN_INSIGHT, postmortem_id=case.case_id,
        category=said.primary_reason.value, insight=said.factors_missed[:2_000],
        recommended_action=said.future_actions[:2_000], priority=LessonPriority.HIGH,
    )  # fmt: skip
    person = Actor(answer.by, Role.HUMAN_ADMIN)
    return Effects(
        facts=[
            (person, Action.APPEND_POSTMORTEM, entry_of(record_of(insight))),
            (person, Action.APPEND, entry_of(record_of(lesson))),
        ]
    )


CASE: Final = case_kind(_apply)

OPEN_CASES: Final[Pipeline[PostmortemRuntime]] = Pipeline(
    "postmortem.open_cases",
    lambda runtime, until: open_cases(runtime, until=until),
    Every(15.0),
    budget_ms=45_000,
    without_broker=True,
    # What the pipeline of forecasts records with an outcome.
    due=(DueRule(QUEUE, "Outcome", "record.Outcome", "$key ? (exists($.groups.assessment))"),),
)
