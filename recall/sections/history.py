"""The history of a subject, one line per analysis: conclusion, decisions, and their results."""

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
    when,
)

if TYPE_CHECKING:
    from datetime import datetime

    from imem.recall.model import HistoryItem

WORTH: Final = 1.0
FADING: Final = 0.97
"""Worth of a line, as a share of the line before it: last week's analysis is worth nearly as much as yesterday's."""

SUMMARY_CHARS: Final = 70
"""Longest quotation of a summary, for an analysis without a conclusion, in characters."""


def history(context: RenderContext) -> RenderedSection:
    """Return the lines of the history, newest first."""
    answer = context.briefing.history
    kind = context.newest.analysis.core["kind"] if context.newest is not None else None
    at = context.briefing.as_of
    blocks = [
        Block(f"- {_line(item, context.own, kind, at)}", WORTH * FADING**place)
        for place, item in enumerate(answer.items)
    ]
    most = max(answer.total, context.newest.findings_total if context.newest is not None else 0)
    series = ", its own before its series" if any(item.subject_id != context.own for item in answer.items) else ""
    return section(
        f"History, newest first{series}: what each {label(kind)} concluded → what came of it" if kind else "History",
        answer,
        blocks,
        nouns=("analysis", "analyses"),
        nothing="analyses",
        call=calls(context.own, "history", "history", most),
    )


def _line(item: HistoryItem, own: str, kind: str | None, at: datetime) -> str:
    core = item.analysis.core
    found = []
    if item.subject_id != own:
        found.append(label(item.subject_id))
    if core["kind"] != kind:
        found.append(label(core["kind"]))
    concluded = conclusion(item.analysis)
    if concluded:
        found.append(concluded)
    elif core.get("summary"):
        found.append(said(core["summary"], SUMMARY_CHARS))
    found += [decided(one) for one in item.decisions]
    end = result_text(item.decisions, item.claims, at, core.get("probability"))
    corrected = " (corrected)" if item.analysis.corrected_at is not None else ""
    return f"{when(core['date'])}{corrected} {', '.join(found)}{f' → {end}' if end else ''}"
