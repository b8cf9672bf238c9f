"""The history of a subject, one line for each analysis: what was concluded, decided, and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imem.recall.sections.base import (
    Block,
    Page,
    Section,
    calls,
    conclusion,
    decided,
    ending,
    label,
    said,
    section,
    when,
)

if TYPE_CHECKING:
    from datetime import datetime

    from imem.recall.model import HistoryItem

WORTH: Final = 1.0
FADING: Final = 0.97
"""A line is worth so much of the line before it: an analysis of last week tells nearly as much as yesterday's."""

SUMMARY_CHARS: Final = 70
"""Longest quotation of a summary where an analysis concluded nothing, in characters."""


def history(page: Page) -> Section:
    """Return the lines of the history, newest first."""
    arm = page.briefing.history
    kind = page.newest.analysis.core["kind"] if page.newest is not None else None
    at = page.briefing.as_of
    blocks = [
        Block(f"- {_line(item, page.own, kind, at)}", WORTH * FADING**place) for place, item in enumerate(arm.items)
    ]
    most = max(arm.total, page.newest.findings_total if page.newest is not None else 0)
    series = ", its own before its series" if any(item.subject_id != page.own for item in arm.items) else ""
    return section(
        f"History, newest first{series}: what each {label(kind)} concluded → what came of it" if kind else "History",
        arm,
        blocks,
        nouns=("analysis", "analyses"),
        nothing="analyses",
        call=calls(page.own, "history", "history", most),
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
    end = ending(item.decisions, item.claims, at, core.get("probability"))
    corrected = " (corrected)" if item.analysis.corrected_at is not None else ""
    return f"{when(core['date'])}{corrected} {', '.join(found)}{f' → {end}' if end else ''}"
