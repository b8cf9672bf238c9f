"""Items of Gate 6 about lessons: those that wait for a person, and what the decision does to one."""

from __future__ import annotations

from datetime import datetime
from textwrap import shorten
from typing import Annotated, Final

from pydantic import Field

from imem.gates.learning.items import APPROVE, Importance, ItemAction, ItemAnswer, ItemKind, WaitingItem
from imem.gates.learning.scores import TOLERANCE, VALUATION
from imem.jobs.lifecycle import Effects
from imem.journal.errors import BadInput
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.rows import rows
from imem.kg.kinds.enums import LessonPriority
from imem.postmortem.lessons.gate import (
    HarmfulLesson,
    LessonDecision,
    LessonItem,
    LessonWording,
    decide_lesson,
    lessons_harmful,
    lessons_waiting,
    retire_lesson,
)
from imem.review.kinds import Fields

CONFIRMED: Final = 5
SURE: Final = 0.90
"""A lesson with so many confirmations, that sure and without a contradiction, may be approved in bulk."""

LEAD: Final = 120
"""Characters of a lesson in the line that says what is asked."""

_Words = Annotated[str, Field(min_length=1, max_length=2_000)]


class OtherWords(Fields):
    """The words in which a lesson is approved; what is left out stays as it is."""

    insight: _Words | None = None
    recommended_action: _Words | None = None


class Replaced(Fields):
    """The lesson that another one replaces."""

    lesson_id: Annotated[str, Field(min_length=1, max_length=200)]


def _check_replaced(seen: LessonItem, fields: Replaced) -> None:
    if fields.lesson_id not in seen.replaceable:
        named = ", ".join(seen.replaceable) or "none"
        raise BadInput("fields.lesson_id", f"is no approved lesson of the category; there are: {named}.")


def _check_words(_seen: LessonItem, fields: OtherWords) -> None:
    if fields.insight is None and fields.recommended_action is None:
        raise BadInput("fields.insight", "or recommended_action is needed: the words with the caveats.")


def _about(lesson: LessonItem, word: str) -> bool:
    names = (lesson.category, *lesson.affected_domains, lesson.scope_metric or "")
    return any(word in name.casefold() for name in names)


def bulk_of(lesson: LessonItem) -> str | None:
    """Return why a lesson may be approved in bulk; None: it is answered alone."""
    sure = lesson.confidence is not None and lesson.confidence >= SURE - TOLERANCE
    # The revision of its patterns is approved with it, and nothing about patterns is in bulk.
    more = lesson.contradicting_ids or lesson.patterns or _about(lesson, VALUATION)
    if lesson.confirmations >= CONFIRMED and sure and not more:
        return f"at least {CONFIRMED} confirmations, a confidence of at least {SURE:.2f}, and no contradiction"
    return None


def importance_of(lesson: LessonItem) -> Importance:
    """Return what the priority of a lesson follows from; one of high priority has a high impact."""
    return Importance(
        impact=1.0 if lesson.priority is LessonPriority.HIGH else None,
        confidence=lesson.confidence,
        valuation=_about(lesson, VALUATION),
        risk=_about(lesson, "risk"),
        disagreement=bool(lesson.contradicting_ids),
        supporting=lesson.priority is LessonPriority.LOW,
        n=lesson.confirmations,
    )


async def _lessons(conn: Connection) -> list[WaitingItem[LessonItem]]:
    return [
        WaitingItem(
            key=lesson.lesson_id, headline=f"{lesson.category}: {shorten(lesson.insight, LEAD)}", seen=lesson,
            since=lesson.since, importance=importance_of(lesson), bulk=bulk_of(lesson),
        )
        for lesson in await lessons_waiting(conn)
    ]  # fmt: skip


async def _decide(conn: Connection, key: str, seen: LessonItem, answer: ItemAnswer, now: datetime) -> Effects:
    words = answer.fields.model_dump() if isinstance(answer.fields, OtherWords) else None
    return await decide_lesson(
        conn, key, LessonDecision(answer.action), by=answer.by, reason=answer.rationale,
        wording=None if words is None else LessonWording(**words),
        replaces=answer.fields.lesson_id if isinstance(answer.fields, Replaced) else None,
        patterns=seen.patterns, task_id=answer.task_id, now=now,
    )  # fmt: skip


LESSON: Final = ItemKind(
    name="lesson",
    seen=LessonItem,
    actions=ItemKind.of(
        ItemAction(
            name=APPROVE,
            does="It goes to the agents that it concerns, and counts from then on, as do its revisions of patterns.",
        ),
        ItemAction(
            name=LessonDecision.ADD_CAVEATS.value,
            does="Approve it in other words.",
            fields=OtherWords,
            check=_check_words,
        ),
        ItemAction(
            name=LessonDecision.REPLACE.value,
            does="Approve it in the place of an approved lesson, which no agent sees any more.",
            fields=Replaced,
            check=_check_replaced,
        ),
        ItemAction(name=LessonDecision.REJECT.value, does="No agent is shown it.", rationale=True),
        ItemAction(
            name=LessonDecision.TEST_FIRST.value,
            does="Have it tested first: it stays in quarantine and comes up again.",
        ),
    ),
    minutes=7.0,
    # Further cases confirm the same words, and approvals of others change what it may replace: neither is decided.
    decides=frozenset(LessonItem.model_fields) - {"confirmations", "decision_ids", "replaceable"},
    waiting=_lessons,
    decide=_decide,
)


KEEP: Final = "keep"


async def _harmful(conn: Connection) -> list[WaitingItem[HarmfulLesson]]:
    [clock] = await rows(conn, "lessons_now")
    return [
        WaitingItem(
            key=one.lesson_id, headline=f"retire? {one.category}: {shorten(one.insight, LEAD)}", seen=one,
            since=one.applied_at, importance=Importance(n=one.decisions),
        )
        for one in await lessons_harmful(conn, clock["now"])
    ]  # fmt: skip


async def _retire(conn: Connection, key: str, _seen: HarmfulLesson, answer: ItemAnswer, now: datetime) -> Effects:
    return await retire_lesson(conn, key, keep=answer.action == KEEP, reason=answer.rationale, now=now)


RETIREMENT: Final = ItemKind(
    name="retirement",
    seen=HarmfulLesson,
    actions=ItemKind.of(
        ItemAction(name=APPROVE, does="Retire the lesson: no agent sees it any more."),
        ItemAction(name=KEEP, does="Keep it for another 90 days.", rationale=True),
    ),
    minutes=7.0,
    # Its effect is measured every day; one that is not harmful any more waits for no answer.
    decides=frozenset({"category", "insight", "recommended_action"}),
    waiting=_harmful,
    decide=_retire,
)
"""A lesson after which decisions became worse comes back (postmortem-and-gates, section 4)."""
