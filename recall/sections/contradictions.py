"""Contradictions between sources, the most important first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from imem.recall.sections.base import Block, RenderContext, RenderedSection, calls, label, number, section, when

if TYPE_CHECKING:
    from imem.recall.model import DatedRecord

WORTH: Final = {"CRITICAL": 1.22, "HIGH": 1.0, "MEDIUM": 0.7, "LOW": 0.12}
FADING: Final = 0.8
TRIVIAL: Final = 0.01
"""Relative difference up to which a contradiction is trivial, whatever its priority."""

TRIVIAL_WORTH: Final = 0.1
RESOLVED: Final = 0.7
"""Worth of a resolved contradiction, as a share of an open one's."""


def contradictions(context: RenderContext) -> RenderedSection:
    """Return the contradictions by priority, open before resolved, trivial ones last."""
    answer = context.briefing.contradictions
    newest = sorted(answer.items, key=lambda one: one.key)
    newest.sort(key=lambda one: str(one.core["timestamp"]), reverse=True)
    ranked = sorted(newest, key=lambda one: -_worth(one))
    blocks = [Block(contradiction_text(one), _worth(one) * FADING**place) for place, one in enumerate(ranked)]
    return section(
        "Contradictions between sources",
        answer,
        blocks,
        nouns=("contradiction", "contradictions"),
        nothing="contradictions",
        call=calls(context.own, "contradictions", "contradictions", answer.total),
    )


def _worth(record: DatedRecord) -> float:
    core = record.core
    worth = WORTH.get(str(core["priority"]), TRIVIAL_WORTH)
    one, other = float(core["value_a"]), float(core["value_b"])
    if abs(one - other) <= TRIVIAL * max(abs(one), abs(other)):
        worth = min(worth, TRIVIAL_WORTH)
    return worth * (RESOLVED if record.groups.get("resolution") else 1.0)


def contradiction_text(record: DatedRecord) -> str:
    """Return a contradiction and how it was resolved as a list item."""
    core = record.core
    resolution: dict[str, Any] = record.groups.get("resolution", {})
    if not resolution:
        end = "not resolved"
    else:
        level = label(resolution.get("resolution_level", "resolved"))
        taken = resolution.get("final_value")
        end = f"resolved ({level}): {number(taken) if taken is not None else 'no value taken'}"
    corrected = " (corrected)" if record.corrected_at is not None else ""
    values = ", ".join(f"{label(core[f'source_{side}'])} {number(core[f'value_{side}'])}" for side in "ab")
    return f"- {core['priority']} {when(core['timestamp'])}{corrected} {label(core['data_point'])}: {values} → {end}"
