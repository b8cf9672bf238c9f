"""Contradictions between sources, the most important first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from imem.credibility.disputes.priorities import priority_of
from imem.kg.asof import RecordAsOf, ValuesAsOf
from imem.kg.kinds.enums import ContradictionStatus
from imem.recall.answers import DatedRecord, RecordsSection
from imem.recall.dated_rows import DatedQuery, Row, newest_rows, refs_in
from imem.recall.rendering.formatting import label, number, when
from imem.recall.rendering.rendered import Block, RenderContext, RenderedSection, follow_up_call, rendered_section
from imem.recall.retrievers import RetrievalRequest, graph_rows, mark_partial, record
from imem.recall.sections.spec import SectionSpec

WORTH: Final = {"CRITICAL": 1.22, "HIGH": 1.0, "MEDIUM": 0.7, "LOW": 0.12}
FADING: Final = 0.8
TRIVIAL: Final = 0.01
"""Relative difference up to which a contradiction is trivial, whatever its priority."""

TRIVIAL_WORTH: Final = 0.1

RESOLVED: Final = 0.7
"""Worth of a contradiction of which one value counts, as a share of that of an open one."""

PRIORITIES: Final = ("CRITICAL", "HIGH", "MEDIUM", "LOW")
"""Priorities of contradictions, highest first."""

COUNTING: Final = frozenset({ContradictionStatus.RESOLVED, ContradictionStatus.PROVISIONAL})
"""States in which one of the two values counts; the others are open."""


def contradiction_priority(record: DatedRecord | RecordAsOf) -> str:
    """Return the priority of a contradiction; where the pipeline has not written it yet, what it will compute."""
    computed = record.groups.get("resolution", {}).get("priority")
    return str(computed or priority_of(str(record.core["data_point"]), record.core.get("valuation_impact")))


def _counts(record: DatedRecord | RecordAsOf) -> bool:
    return record.groups.get("resolution", {}).get("status") in COUNTING


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
    ranked = sorted(newest, key=lambda one: -_worth(one))
    blocks = [Block(contradiction_text(one), _worth(one) * FADING**place) for place, one in enumerate(ranked)]
    return rendered_section(
        "Contradictions between sources",
        answer,
        blocks,
        nouns=("contradiction", "contradictions"),
        call=follow_up_call(context.own, "contradictions", answer.total),
    )


def _worth(record: DatedRecord) -> float:
    core = record.core
    worth = WORTH[contradiction_priority(record)]
    one, other = float(core["value_a"]), float(core["value_b"])
    if abs(one - other) <= TRIVIAL * max(abs(one), abs(other)):
        worth = min(worth, TRIVIAL_WORTH)
    return worth * (RESOLVED if _counts(record) else 1.0)


def contradiction_text(record: DatedRecord) -> str:
    """Return a contradiction and how it was resolved as a list item."""
    core = record.core
    resolution: dict[str, Any] = record.groups.get("resolution", {})
    corrected = " (corrected)" if record.corrected_at is not None else ""
    values = ", ".join(f"{_source(core, side)} {number(core[f'value_{side}'])}" for side in "ab")
    priority = contradiction_priority(record)
    return (
        f"- {priority} {when(core['timestamp'])}{corrected} {label(core['data_point'])}: {values} → {_end(resolution)}"
    )


def _source(core: Mapping[str, Any], side: str) -> str:
    """Return a source, with its document where one source contradicts itself."""
    source = label(core[f"source_{side}"])
    document = core.get(f"document_{side}") if core["source_a"] == core["source_b"] else None
    return source if document is None else f"{source} in {label(document)}"


def _end(resolution: Mapping[str, Any]) -> str:
    if not resolution:
        return "not resolved"
    level, taken = label(resolution.get("resolution_level", "resolved")), resolution.get("final_value")
    if taken is None:
        return f"uncertain ({level}): no value taken"
    word = "resolved" if resolution.get("status") == ContradictionStatus.RESOLVED else "provisional"
    confidence = resolution.get("confidence")
    return f"{word} ({level}{'' if confidence is None else f', {confidence:.0%} sure'}): {number(taken)}"


SECTION: Final = SectionSpec(
    name="contradictions",
    model=RecordsSection,
    load=load,
    fallbacks=(load_from_journal,),
    limits=("contradictions",),
    query=DatedQuery("contradictions_of_subject", refs_in("contradiction", "DataContradiction"), _dated_rows),
    renderers=(render,),
    item_text=contradiction_text,
)
