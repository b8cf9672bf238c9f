"""
Lessons that bear on the subject, newest first: those that agents see.

A lesson is shown once a person approved it, or as advisory once a person reviewed what it is learned from. The journal
decides, as of the moment; the graph may lag behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

from imem.cache.tiers import tags
from imem.journal.texts.prompt_text import tokens
from imem.kg.asof import RecordAsOf, ValuesAsOf
from imem.kg.kinds.learning import LessonVisibility, visibility
from imem.recall.answers import Completeness, DatedRecord, RecordsSection
from imem.recall.dated_rows import DatedQuery, Row, active_patterns, refs_in
from imem.recall.rendering.formatting import label, quote_lead, when
from imem.recall.rendering.rendered import RenderContext, RenderedSection, faded, follow_up_call, rendered_section
from imem.recall.retrievers import RetrievalRequest, graph_rows, mark_partial, record
from imem.recall.sections.spec import SectionSpec

WORTH: Final = 0.85
FADING: Final = 0.8
TEXT_CHARS: Final = 150
"""Longest quotation of what a lesson says, in characters."""

CHECKLIST_TOKENS: Final = 600
"""Tokens that lessons take of a briefing at most, however much room it has: an agent heeds no long checklist."""


# Retrieval


async def load(request: RetrievalRequest) -> RecordsSection:
    """Return the lessons that bear on the subject, newest first."""
    active = await active_patterns(request.database, request.subject_id, request.at, deadline=request.deadline)
    rows, _ = await graph_rows(request, "lessons_of_subject", request.limits.lessons, active=active)
    found = await request.dated(("Lesson", row["lesson"]) for row in rows)
    rows = _dated_rows(rows, found, {"limit": request.limits.lessons})
    return _section_of([found.records["Lesson", row["lesson"]] for row in rows], rows[0]["total"] if rows else 0)


async def load_from_journal(request: RetrievalRequest) -> RecordsSection:
    """Return the newest lessons for the domains of records about the subject, from record heads."""
    return mark_partial(await _answer_from_journal(request, half=False))


async def load_sample(request: RetrievalRequest) -> RecordsSection:
    """Return a sample of half of the lessons."""
    return mark_partial(await _answer_from_journal(request, half=True), Completeness.SAMPLED)


async def _answer_from_journal(request: RetrievalRequest, *, half: bool) -> RecordsSection:
    parameters = {"subject_id": request.subject_id, "limit": request.limits.lessons, "half": half, **request.at.limits}
    rows = await request.database.named("lessons_in_journal", parameters, deadline=request.deadline)
    found = await request.dated(("Lesson", row["key"]) for row in rows)
    bearing = [found.records["Lesson", row["key"]] for row in rows if ("Lesson", row["key"]) in found.records]
    return _section_of(bearing, rows[0]["total"] if rows else 0)


def _section_of(bearing: list[RecordAsOf], total: int) -> RecordsSection:
    bearing.sort(key=lambda one: one.key)
    bearing.sort(key=lambda one: one.known_at, reverse=True)
    return RecordsSection(items=[record(one) for one in bearing], total=total)


def _dated_rows(rows: Sequence[Row], answer: ValuesAsOf, given: Mapping[str, Any]) -> list[Row]:
    """Return rows of ``lessons_of_subject`` that concern the subject by their values of the moment, with the total."""
    if not rows:
        return []
    total = rows[0]["total"]
    corrected = len(rows) - min(
        given["limit"], total
    )  # They come first, in addition to the limit, and are not in the total.
    kept = []
    for number, row in enumerate(rows):
        via = _ways(row, answer)
        if via:
            kept.append({**row, "via": via})
            total += number < corrected
        else:
            total -= number >= corrected
    kept.sort(key=lambda row: (-row["newness"], row["lesson"]))
    return [{**row, "total": total} for row in kept[: given["limit"]]]


def _ways(row: Row, answer: ValuesAsOf) -> list[str]:
    """Return the ways in which a lesson concerns the subject."""
    lesson = answer.records.get(("Lesson", row["lesson"]))
    if lesson is None or visibility(lesson.groups.get("state")) is None:
        return []
    by_domain = not set(lesson.get("affected_domains") or ()).isdisjoint(row["domains"])
    return sorted({way for way in row["via"] if way != "domain"} | ({"domain"} if by_domain else set()))


# Rendering


def render(context: RenderContext) -> RenderedSection:
    """Return the lessons that bear on the subject, newest first, as many as fit into :data:`CHECKLIST_TOKENS`."""
    answer = context.briefing.lessons
    texts = [lesson_text(item) for item in answer.items]
    fitting = sum(taken <= CHECKLIST_TOKENS for taken in accumulate(map(tokens, texts)))
    return rendered_section(
        "Lessons",
        answer,
        faded(texts[:fitting], WORTH, FADING),
        nouns=("lesson", "lessons"),
        call=follow_up_call(context.own, "lessons", answer.total),
    )


def lesson_text(record: DatedRecord) -> str:
    """Return a lesson as a list item."""
    core = record.core
    advisory = ", advisory" if visibility(record.groups.get("state")) is LessonVisibility.ADVISORY else ""
    return (
        f"- {when(record.known_at)} ({label(core['priority'])}{advisory}) {quote_lead(core['insight'], TEXT_CHARS)}; "
        f"do: {quote_lead(core['recommended_action'], TEXT_CHARS)} [{label(record.key)}]"
    )


SECTION: Final = SectionSpec(
    name="lessons",
    model=RecordsSection,
    load=load,
    fallbacks=(load_from_journal, load_sample),
    limits=("lessons",),
    tags=lambda _: frozenset({tags.PATTERNS, tags.LESSONS}),
    shows_patterns=True,
    query=DatedQuery("lessons_of_subject", refs_in("lesson", "Lesson"), _dated_rows),
    renderers=(render,),
    item_text=lesson_text,
)
