"""Contradictions between sources, the most important first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from pydantic import Field

from imem.credibility.disputes.priorities import priority_of
from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from imem.journal.texts.prompt_text import name
from imem.kg.asof import RecordAsOf, ValuesAsOf
from imem.kg.kinds.enums import ContradictionStatus, ResolutionLevelData
from imem.recall.answers import AnswerModel, DatedRecord, RecordsSection
from imem.recall.dated_rows import DatedQuery, Row, newest_rows, refs_in
from imem.recall.rendering.formatting import label, moment, number, when
from imem.recall.rendering.rendered import Block, RenderContext, RenderedSection, follow_up_call, rendered_section
from imem.recall.retrievers import RetrievalRequest, graph_rows, mark_partial, record
from imem.recall.sections.spec import SectionSpec
from imem.review.states import TaskState

WORTH: Final = {"CRITICAL": 1.22, "HIGH": 1.0, "MEDIUM": 0.7, "LOW": 0.12}
FADING: Final = 0.8
TRIVIAL: Final = 0.01
"""Relative difference up to which a contradiction is trivial, whatever its priority."""

TRIVIAL_WORTH: Final = 0.1

RESOLVED: Final = 0.7
"""Worth of a contradiction of which one value counts, as a share of that of an open one."""

FORMER: Final = 0.3
"""Worth of a contradiction that a later one of the same value follows, as a share: the last one says what counts."""

PRIORITIES: Final = ("CRITICAL", "HIGH", "MEDIUM", "LOW")
"""Priorities of contradictions, highest first."""

RULES: Final[Mapping[str, str]] = {
    ResolutionLevelData.EVIDENCE: "level 1, by evidence",
    ResolutionLevelData.CREDIBILITY: "level 2, by the scores of the sources",
    ResolutionLevelData.HUMAN: "level 3, by a person",
    ResolutionLevelData.FALLBACK: "level 4, a fallback",
}
"""By what a level resolves a contradiction."""

VALUE_CHARS: Final = 120
"""Characters of what is disputed: a metric with its period and unit."""

COUNTING: Final = frozenset({ContradictionStatus.RESOLVED, ContradictionStatus.PROVISIONAL})
"""States in which one of the two values counts; the others are open."""


def contradiction_priority(record: DatedRecord | RecordAsOf) -> str:
    """Return the priority of a contradiction; where the pipeline has not written it yet, what it will compute."""
    computed = record.groups.get("resolution", {}).get("priority")
    return str(computed or priority_of(str(record.core["data_point"]), record.core.get("valuation_impact")))


def _counts(record: DatedRecord | RecordAsOf) -> bool:
    return record.groups.get("resolution", {}).get("status") in COUNTING


class AskedPerson(AnswerModel):
    """
    A review task about contradictions of the subject that waits for an answer.

    Attributes:
        task_id: the task.
        reviewer: who is asked; None: nobody in particular.
        due_at: until when; then the fallback applies.
        values: what the contradictions are about.
    """

    task_id: str
    reviewer: str | None
    due_at: datetime | None
    values: list[str]


class ContradictionsSection(RecordsSection):
    """Contradictions, and who is asked about those that wait for a person; of a past moment that is left out."""

    asked: list[AskedPerson] = Field(default_factory=list)


# Retrieval


async def load(request: RetrievalRequest) -> RecordsSection:
    """Return contradictions between sources about the subject's data: open ones first, by priority, then the newest."""
    rows, total = await graph_rows(request, "contradictions_of_subject", request.limits.contradictions)
    return await _answer(request, rows, total)


async def load_from_journal(request: RetrievalRequest) -> RecordsSection:
    """Return the subject's contradictions from record heads."""
    given = {"subject_id": request.subject_id, "limit": request.limits.contradictions, **request.at.limits}
    rows = await request.database.named("contradictions_in_journal", given, deadline=request.deadline)
    return mark_partial(await _answer(request, rows, rows[0]["total"] if rows else 0))


async def _answer(request: RetrievalRequest, rows: Sequence[dict[str, Any]], total: int) -> RecordsSection:
    found = await request.dated(("DataContradiction", row["contradiction"]) for row in rows)
    rows = _dated_rows(rows, found, {"limit": request.limits.contradictions})
    items = [record(found.records["DataContradiction", row["contradiction"]]) for row in rows]
    return RecordsSection(items=items, total=max(total, len(items)))


async def with_persons_asked(
    section: RecordsSection, database: Database, *, deadline: Deadline
) -> ContradictionsSection:
    """
    Return the contradictions with the review tasks that wait for an answer about them now.

    Raises:
        PostgresUnavailable, BudgetExceeded: no answer in time; retryable.
    """
    waiting = {
        one.key: str(one.core["data_point"])
        for one in section.items
        if one.groups.get("resolution", {}).get("status") == ContradictionStatus.QUEUED
    }
    about = {"keys": list(waiting), "states": [TaskState.OPEN.value]}
    rows = await database.named("tasks_about", about, deadline=deadline) if waiting else []
    asked = [
        AskedPerson(
            task_id=row["task_id"],
            reviewer=row["reviewer"],
            due_at=row["due_at"],
            values=[waiting[key] for key in row["keys"] if key in waiting],
        )
        for row in rows
    ]
    return ContradictionsSection(**dict(section), asked=asked)


def _dated_rows(rows: Iterable[Row], answer: ValuesAsOf, given: Mapping[str, Any]) -> list[Row]:
    """
    Return rows of ``contradictions_of_subject``: open ones before resolved ones, by priority, the newest first.

    Those that were withdrawn by the moment are left out.
    """
    kept = newest_rows(rows, answer, "contradiction", "DataContradiction", "timestamp")

    def known(row: Row) -> RecordAsOf:
        return answer.records["DataContradiction", row["contradiction"]]

    def withdrawn(row: Row) -> bool:
        return known(row).groups.get("resolution", {}).get("status") == ContradictionStatus.WITHDRAWN

    def rank(row: Row) -> tuple[bool, int]:
        return _counts(known(row)), PRIORITIES.index(contradiction_priority(known(row)))

    return sorted((row for row in kept if not withdrawn(row)), key=rank)[: given["limit"]]


# Rendering


def render(context: RenderContext) -> RenderedSection:
    """Return the contradictions by priority, open before resolved, trivial ones last."""
    answer = context.briefing.contradictions
    newest = sorted(answer.items, key=lambda one: one.key)
    newest.sort(key=lambda one: str(one.core["timestamp"]), reverse=True)
    former = _former(newest)
    worth = {one.key: _worth(one) * (FORMER if one.key in former else 1.0) for one in newest}
    ranked = sorted(newest, key=lambda one: -worth[one.key])
    blocks = [Block(contradiction_text(one), worth[one.key] * FADING**place) for place, one in enumerate(ranked)]
    return rendered_section(
        "Contradictions between sources",
        answer,
        blocks,
        nouns=("contradiction", "contradictions"),
        call=follow_up_call(context.own, "contradictions", answer.total),
    )


def _former(newest: Iterable[DatedRecord]) -> set[str]:
    """Return the contradictions between data points that a later one of the same value follows."""
    values: set[str] = set()
    former = set()
    for one in newest:
        if one.core.get("point_b") is not None:
            former |= {one.key} if one.core["data_point"] in values else set()
            values.add(one.core["data_point"])
    return former


def _worth(record: DatedRecord) -> float:
    core = record.core
    worth = WORTH[contradiction_priority(record)]
    one, other = float(core["value_a"]), float(core["value_b"])
    if abs(one - other) <= TRIVIAL * max(abs(one), abs(other)):
        worth = min(worth, TRIVIAL_WORTH)
    return worth * (RESOLVED if _counts(record) else 1.0)


def contradiction_text(record: DatedRecord) -> str:
    """Return a contradiction as a list item: what is disputed, what counts and why, and what each side rests on."""
    core = record.core
    corrected = " (corrected)" if record.corrected_at is not None else ""
    sides = ", ".join(f"{number(core[f'value_{side}'])} by {_source(core, side)}" for side in "ab")
    counts = _counting(record.groups.get("resolution", {}))
    priority = contradiction_priority(record)
    return (
        f"- {priority} {when(core['timestamp'])}{corrected} {name(core['data_point'], VALUE_CHARS)}: {counts}; {sides}"
    )


def _source(core: Mapping[str, Any], side: str) -> str:
    document = core.get(f"document_{side}")
    source = label(core[f"source_{side}"])
    return source if document is None else f"{source} in {label(document)}"


def _counting(resolution: Mapping[str, Any]) -> str:
    """Return what counts, whether for good, and by what."""
    if not resolution:
        return "not resolved yet"
    status, taken = resolution.get("status"), resolution.get("final_value")
    why = ", ".join(filter(None, (_rule(resolution), _sure(resolution))))
    if status == ContradictionStatus.RESOLVED and taken is not None:
        return f"{number(taken)} counts ({why})"
    value = "no value" if taken is None else number(taken)
    waits: dict[str | None, str] = {
        ContradictionStatus.QUEUED: "until a person decides",
        ContradictionStatus.INVESTIGATING: "while a person looks into it",
    }
    until = waits.get(status, "for now" if taken is None else "provisionally")
    return f"{value} counts {until} ({why})"


def _rule(resolution: Mapping[str, Any]) -> str:
    """Return by what a contradiction is resolved: the person who decided it, or the level."""
    if (person := resolution.get("decided_by")) is not None:
        return f"{label(person)} decided"
    if resolution.get("status") == ContradictionStatus.QUEUED:
        return "a fallback"
    level = resolution.get("resolution_level")
    return RULES.get(level, "") if level is not None else ""


def _sure(resolution: Mapping[str, Any]) -> str:
    confidence = resolution.get("confidence")
    return "" if confidence is None else f"{confidence:.0%} sure"


def _persons_asked(section: RecordsSection) -> Iterable[str]:
    """Yield who decides, and until when."""
    for one in getattr(section, "asked", ()):
        who = "The person who answers first" if one.reviewer is None else label(one.reviewer)
        until = "" if one.due_at is None else f" until {moment(one.due_at)}"
        about = f"{name(one.values[0], VALUE_CHARS)}{f' and {len(one.values) - 1} more' if one.values[1:] else ''}"
        yield f"{who} decides{until} about {about}: `imem tasks show {one.task_id}`"


SECTION: Final = SectionSpec(
    name="contradictions",
    model=RecordsSection,
    load=load,
    fallbacks=(load_from_journal,),
    limits=("contradictions",),
    query=DatedQuery("contradictions_of_subject", refs_in("contradiction", "DataContradiction"), _dated_rows),
    renderers=(render,),
    item_text=contradiction_text,
    tail=_persons_asked,
)
