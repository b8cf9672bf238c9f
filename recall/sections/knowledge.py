"""Active patterns, and lessons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imem.recall.sections.base import Block, RenderContext, RenderedSection, calls, label, said, section, share, when

if TYPE_CHECKING:
    from imem.recall.model import DatedRecord

PATTERN_WORTH, LESSON_WORTH = 0.75, 0.85
FADING: Final = 0.8
PATTERN_CHARS, LESSON_CHARS = 100, 150
"""Longest quotation of a pattern's name, and of what a lesson says, in characters."""


def patterns(context: RenderContext) -> RenderedSection:
    """Return the active patterns, the most successful first."""
    answer = context.briefing.patterns
    return section(
        "Active patterns",
        answer,
        [Block(pattern_text(one), PATTERN_WORTH * FADING**place) for place, one in enumerate(answer.items)],
        nouns=("pattern", "patterns"),
        nothing="active patterns",
        call=calls(context.own, "patterns", "patterns", answer.total),
    )


def lessons(context: RenderContext) -> RenderedSection:
    """Return the lessons that bear on the subject, newest first."""
    answer = context.briefing.lessons
    return section(
        "Lessons",
        answer,
        [Block(lesson_text(one), LESSON_WORTH * FADING**place) for place, one in enumerate(answer.items)],
        nouns=("lesson", "lessons"),
        nothing="lessons",
        call=calls(context.own, "lessons", "lessons", answer.total),
    )


def pattern_text(record: DatedRecord) -> str:
    """Return a pattern as a list item."""
    performance = record.groups.get("performance", {})
    rate = performance.get("success_rate")
    shown = f", success rate {share(rate)} over {performance['occurrence_count']}" if rate is not None else ""
    what = said(record.core["name"], PATTERN_CHARS)
    return f"- {what} ({label(record.core['category'])}){shown} [{label(record.key)}]"


def lesson_text(record: DatedRecord) -> str:
    """Return a lesson as a list item."""
    core = record.core
    return (
        f"- {when(record.known_at)} ({label(core['priority'])}) {said(core['insight'], LESSON_CHARS)}; "
        f"do: {said(core['recommended_action'], LESSON_CHARS)} [{label(record.key)}]"
    )
