"""Analyses of other subjects similar to the newest of this one, and their results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imem.recall.sections.base import (
    Block,
    RenderContext,
    RenderedSection,
    calls,
    conclusion,
    decided,
    label,
    result_text,
    said,
    section,
    share,
    when,
)

if TYPE_CHECKING:
    from datetime import datetime

    from imem.recall.model import SimilarItem

WORTH: Final = 0.8
FADING: Final = 0.75
SUMMARY_CHARS: Final = 90
"""Longest quotation of a summary, in characters."""


def similar(context: RenderContext) -> RenderedSection:
    """Return the similar analyses, most similar first."""
    answer = context.briefing.similar_analyses
    return section(
        "Similar analyses of other subjects",
        answer,
        [
            Block(similar_text(item, context.briefing.as_of), WORTH * FADING**place)
            for place, item in enumerate(answer.items)
        ],
        nouns=("similar analysis", "similar analyses"),
        nothing="similar analyses",
        call=calls(context.own, "similar", "similar", answer.total),
    )


def similar_text(item: SimilarItem, at: datetime | None = None) -> str:
    """Return a similar analysis as a list item, as of *at*."""
    core = item.analysis.core
    concluded = conclusion(item.analysis) or label(core["kind"])
    told = ", ".join([concluded, *map(decided, item.decisions)])
    end = result_text(item.decisions, item.claims, at, core.get("probability"))
    summary = f"; {said(core['summary'], SUMMARY_CHARS)}" if core.get("summary") else ""
    head = f"- {share(item.score)} {label(item.subject_id)} {when(core['date'])}"
    return f"{head}: {told}{f' → {end}' if end else ''}{summary}"
