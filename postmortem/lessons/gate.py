"""The questions of a gate about lessons, and the effect of a person's decision on a lesson."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from imem.jobs.lifecycle import Effects, LifecycleRow, move
from imem.journal.actors import Action, Actor
from imem.journal.errors import BadInput
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.rows import json, rows
from imem.journal.settings import Role
from imem.kg.kinds.enums import LessonPriority, LessonSource, LessonState
from imem.kg.kinds.learning import SHOWN_STATES, Lesson
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import correction_of, link_of
from imem.postmortem.lessons.effect import CHECKPOINT, EffectVerdict, LessonEffect
from imem.postmortem.lessons.life import (
    applied_if_delivered,
    domains_of,
    due_of_row,
    linked,
    state_of,
    supersedes,
    targets_of,
    withdrawn,
)
from imem.postmortem.lessons.states import LESSON_STATES, LessonFacts

KEPT_FOR: Final = timedelta(days=CHECKPOINT)
"""How long a lesson that a person chose to keep is not asked about again."""

OVER: Final = frozenset({LessonState.RETIRED, LessonState.SUPERSEDED})
"""States of a lesson that agents are not shown any more."""

_Said = Annotated[str, Field(min_length=1, max_length=2_000)]


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LessonItem(_Value):
    """
    A lesson that waits for a person's decision.

    Attributes:
        lesson_id: of the record.
        source, category, insight, recommended_action, priority: as it was recorded, or corrected.
        affected_domains: whose agents it goes to; where it names none, those of the findings that its decisions cite.
        scope_sector, scope_regime, scope_metric: of which decisions it speaks alone, where it says so.
        patterns: those that it proposes to revise, which is approved with it, and what each says.
        reviewed: whether a person reviewed the post-mortem, or wrote the lesson.
        confirmations: cases that say the same, this one included.
        confidence: a fraction 0-1, where it was stated.
        contradicting_ids: lessons that say the opposite, as stated or as found in their words.
        replaceable: approved lessons of its category, in whose place it may be approved.
        postmortem_id: where it comes from.
        decision_ids: the decisions behind it.
        notes: what was said when it was left pending.
        since: since when it waits.
    """

    lesson_id: str
    source: LessonSource
    category: str
    insight: str
    recommended_action: str
    affected_domains: tuple[str, ...] = ()
    scope_sector: str | None = None
    scope_regime: str | None = None
    scope_metric: str | None = None
    patterns: Mapping[str, str] = Field(default_factory=dict)
    priority: LessonPriority
    reviewed: bool
    confirmations: int
    confidence: float | None = None
    contradicting_ids: tuple[str, ...] = ()
    replaceable: tuple[str, ...] = ()
    postmortem_id: str | None = None
    decision_ids: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    since: datetime


class LessonDecision(StrEnum):
    """A person's decision about a lesson."""

    APPROVE = "approve"
    ADD_CAVEATS = "add_caveats"
    """Approve it in other words."""
    REPLACE = "replace"
    """Approve it, in the place of another one."""
    REJECT = "reject"
    TEST_FIRST = "test_first"
    """Leave it pending."""


class LessonWording(_Value):
    """The words in which a person approves a lesson; what is None stays as it is."""

    insight: _Said | None = None
    recommended_action: _Said | None = None


async def lessons_waiting(conn: Connection) -> list[LessonItem]:
    """Return the lessons that wait for a decision at Gate 6, the oldest first; their rows are locked."""
    given = {"states": [LessonState.PENDING_GATE6.value, *SHOWN_STATES], "category": None}
    found = await rows(conn, "lesson_rows_of", given)
    approved: dict[str, list[str]] = {}
    for one in found:
        if one["state"] in SHOWN_STATES:
            approved.setdefault(one["core"]["category"], []).append(one["key"])
    pending = [one for one in found if one["state"] == LessonState.PENDING_GATE6]
    patterns: dict[str, dict[str, str]] = {}
    for one in await rows(conn, "lesson_patterns", {"lessons": [one["key"] for one in pending]}):
        said = ": ".join(filter(None, (one["name"], one["says"])))
        patterns.setdefault(one["lesson"], {})[one["pattern"]] = said
    waiting = []
    for one in pending:
        row, core = LifecycleRow.of(one), one["core"]
        domains = await domains_of(conn, core.get("affected_domains"), row.data)
        more = {"affected_domains": tuple(domains), "patterns": patterns.get(row.key, {})}
        waiting.append(_item(row, core, approved.get(core["category"], ())).model_copy(update=more))
    # Whichever of two that contradict each other was recorded later names the other.
    named_by: dict[str, list[str]] = {}
    for item in waiting:
        for other in item.contradicting_ids:
            named_by.setdefault(other, []).append(item.lesson_id)
    return [
        item.model_copy(update={"contradicting_ids": tuple(dict.fromkeys([*item.contradicting_ids, *others]))})
        for item in waiting
        for others in [named_by.get(item.lesson_id, [])]
    ]


_CORE: Final = (
    "source", "category", "insight", "recommended_action", "priority", "confidence", "contradicting_ids",
    "postmortem_id", "scope_sector", "scope_regime", "scope_metric",
)  # fmt: skip


def _item(row: LifecycleRow, core: Mapping[str, Any], replaceable: Sequence[str]) -> LessonItem:
    said = {name: core[name] for name in _CORE if core.get(name) is not None}
    opposite = dict.fromkeys([*said.pop("contradicting_ids", ()), *row.data.get("contradicts", ())])
    return LessonItem(
        lesson_id=row.key,
        since=row.opened_at,
        reviewed=row.data["reviewed"],
        confirmations=row.data["confirmations"],
        contradicting_ids=tuple(opposite),
        replaceable=tuple(replaceable),
        decision_ids=tuple(row.data["decision_ids"]),
        notes=tuple(f"{one['by']}: {one['said']}" for one in row.data.get("notes", ())),
        **said,
    )


async def decide_lesson(
    conn: Connection,
    lesson_id: str,
    decision: LessonDecision,
    *,
    by: str,
    reason: str | None,
    wording: LessonWording | None = None,
    replaces: str | None = None,
    patterns: Iterable[str] = (),
    task_id: str | None = None,
    now: datetime,
) -> Effects:
    """
    Give a person's decision about a lesson its effect, in the transaction of *conn*; return what is left to its end.

    An approved lesson is applied once its deliveries are done: a pipeline goes on with them. ``SUPERSEDES`` links it
    with the lesson that it replaces, ``REVISED_BY`` those of *patterns* with it.

    Args:
        by: the person, in whose name other words are recorded.
        reason: why; required to reject it.
        wording: the other words; required to add caveats, and for nothing else.
        replaces: the lesson in whose place it is approved; required to replace one, and for nothing else.
        patterns: those whose revision the person was shown with it, and approves with it.
        task_id: the task that was answered.

    Raises:
        BadInput: there is no such lesson, or the reason, the wording or *replaces* is missing or given without use.
        TransitionRefused: it does not wait for a decision, or the other one was never approved.
    """
    found = await rows(conn, "lesson_row", {"key": lesson_id})
    if not found:
        raise BadInput("lesson_id", f"no lesson {lesson_id!r} waits for a decision.")
    row, lesson = LifecycleRow.of(found[0]), Lesson.model_validate(found[0]["core"])
    if (wording is not None) != (decision is LessonDecision.ADD_CAVEATS):
        raise BadInput("wording", f"is for {LessonDecision.ADD_CAVEATS.value}, and required there.")
    if (replaces is not None) != (decision is LessonDecision.REPLACE) or replaces == lesson_id:
        raise BadInput("replaces", f"is another lesson, for {LessonDecision.REPLACE.value} alone, and required there.")
    if decision is LessonDecision.REJECT and not (reason or "").strip():
        raise BadInput("reason", "is required to reject a lesson.")
    decided = LessonFacts(decided=True)
    if decision is LessonDecision.TEST_FIRST:
        # It may be tested first exactly where it may be approved.
        LESSON_STATES.check(LessonState(row.state), LessonState.APPROVED, decided, of=f"The lesson {lesson_id}")
        notes = [*row.data.get("notes", ()), {"by": by, "said": reason or "Test it first.", "at": now.isoformat()}]
        noted = json({**row.data, "notes": notes})
        await rows(conn, "lesson_keep", {"key": lesson_id, "data": noted, "due_at": row.due_at})
        return Effects()
    data: dict[str, Any] = {**row.data, "decided_by": by}
    if decision is LessonDecision.REJECT:
        return await withdrawn(
            conn, await move(conn, LESSON_STATES, row, LessonState.REJECTED, decided, data=data, reason=reason)
        )
    replaced = Effects() if replaces is None else await _replaced(conn, replaces, by=lesson_id, reason=reason)
    data["deliveries"] = await targets_of(conn, lesson, data)
    approved = await move(
        conn, LESSON_STATES, row, LessonState.APPROVED, decided, data=data, due_at=due_of_row(data, now), reason=reason
    )
    applied = await applied_if_delivered(conn, approved, now)
    revised = _revised(lesson_id, patterns, task_id)
    return replaced + _reworded(lesson, wording, by, reason) + state_of(approved) + revised + applied


async def _replaced(conn: Connection, lesson_id: str, *, by: str, reason: str | None) -> Effects:
    """Supersede an approved or applied lesson by another; nothing if it is over."""
    found = await rows(conn, "lesson_row", {"key": lesson_id})
    if not found:
        raise BadInput("replaces", f"names {lesson_id!r}, which is no lesson.")
    row = LifecycleRow.of(found[0])
    if row.state in OVER:
        return Effects()
    moved = await move(
        conn, LESSON_STATES, row, LessonState.SUPERSEDED, LessonFacts(decided=True),
        data={**row.data, "superseded_by": by}, reason=reason or f"A person approved the lesson {by} in its place.",
    )  # fmt: skip
    return await withdrawn(conn, moved) + supersedes(by, lesson_id)


def _revised(lesson_id: str, patterns: Iterable[str], task_id: str | None) -> Effects:
    """Return what says that a person approved the revision of patterns which a lesson proposes to revise."""
    props = {} if task_id is None else {"task_id": task_id}
    lesson = ("Lesson", lesson_id)
    return linked(link_of("REVISED_BY", ("Pattern", pattern), lesson, props) for pattern in sorted(patterns))


def _reworded(lesson: Lesson, wording: LessonWording | None, by: str, reason: str | None) -> Effects:
    """Return the correction, in the person's name, that gives a lesson other words."""
    if wording is None:
        return Effects()
    line = correction_of(
        lesson.model_copy(update=wording.model_dump(exclude_none=True)), reason or "Approved in other words."
    )
    return Effects(facts=[(Actor(by, Role.HUMAN_ADMIN), Action.APPEND, entry_of(line))])


# Retirement


class HarmfulLesson(_Value):
    """
    An applied lesson after which decisions became worse.

    Attributes:
        lesson_id, category, insight, recommended_action: of the record.
        applied_at: when it was applied.
        uplift, low, high: its effect on accuracy, with the 95 % interval, which lies below zero.
        decisions: how many its effect rests on.
    """

    lesson_id: str
    category: str
    insight: str
    recommended_action: str
    applied_at: datetime
    uplift: float
    low: float
    high: float
    decisions: int


async def lessons_harmful(conn: Connection, now: datetime) -> list[HarmfulLesson]:
    """Return applied lessons whose effect was below zero when it was measured last, less those kept of late; locked."""
    given = {"states": [LessonState.APPLIED.value], "category": None}
    harmful = []
    for found in await rows(conn, "lesson_rows_of", given):
        row, core = LifecycleRow.of(found), found["core"]
        kept = row.data.get("kept_at")
        if kept is not None and now - datetime.fromisoformat(kept) < KEPT_FOR:
            continue
        measured = row.data.get("effect")
        effect = LessonEffect.model_validate(measured) if measured is not None else None
        if effect is None or effect.verdict is not EffectVerdict.HARMFUL:
            continue
        cells = (effect.before_in_scope, effect.after_in_scope, effect.before_outside, effect.after_outside)
        harmful.append(
            HarmfulLesson(
                lesson_id=row.key, **{name: core[name] for name in ("category", "insight", "recommended_action")},
                applied_at=effect.applied_at or row.entered_at, uplift=effect.uplift or 0.0, low=effect.low or 0.0,
                high=effect.high or 0.0, decisions=sum(cell.decisions for cell in cells),
            )
        )  # fmt: skip
    return harmful


async def retire_lesson(conn: Connection, lesson_id: str, *, keep: bool, reason: str | None, now: datetime) -> Effects:
    """
    Retire an applied lesson, or keep it for another :data:`KEPT_FOR`; return what is left to the end.

    Nothing if it is retired or superseded: another answer of the same package may have replaced it.

    Raises:
        BadInput: there is no such lesson.
        TransitionRefused: it is not applied.
    """
    found = await rows(conn, "lesson_row", {"key": lesson_id})
    if not found:
        raise BadInput("lesson_id", f"no lesson {lesson_id!r} is known.")
    row, decided = LifecycleRow.of(found[0]), LessonFacts(decided=True)
    if row.state in OVER:
        return Effects()
    if keep:
        # It may be kept exactly where it may be retired.
        LESSON_STATES.check(LessonState(row.state), LessonState.RETIRED, decided, of=f"The lesson {lesson_id}")
        data = json({**row.data, "kept_at": now.isoformat()})
        await rows(conn, "lesson_keep", {"key": lesson_id, "data": data, "due_at": row.due_at})
        return Effects()
    return await withdrawn(conn, await move(conn, LESSON_STATES, row, LessonState.RETIRED, decided, reason=reason))
