"""Debates on the subject: topic, sides, and how they ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imem.recall.rendering.quoting import name, quoted
from imem.recall.sections.base import Block, RenderContext, RenderedSection, calls, label, said, section, when

if TYPE_CHECKING:
    from imem.recall.model import DebateItem, DebateTurn

WORTH: Final = 0.94
FADING: Final = 0.7
TOPIC_CHARS, POSITION_CHARS = 90, 130
"""Longest quotation of a topic, and of a position, in characters."""

TURN_CHARS: Final = 4000


def debates(context: RenderContext) -> RenderedSection:
    """Return the debates, newest first."""
    answer = context.briefing.debates
    return section(
        "Debates",
        answer,
        [Block(debate_text(item), WORTH * FADING**place) for place, item in enumerate(answer.items)],
        nouns=("debate", "debates"),
        nothing="debates",
        call=calls(context.own, "debates", "debates", answer.total),
    )


def debate_text(item: DebateItem) -> str:
    """Return a debate and how it ended as a list item."""
    core = item.debate.core
    corrected = " (corrected)" if item.debate.corrected_at is not None else ""
    head = (
        f"- {when(core['timestamp'])}{corrected} {label(core['challenger_agent'])} challenged "
        f"{label(core['challenged_agent'])}: {quoted(core['topic'], TOPIC_CHARS)}"
    )
    turns = f"; {item.turns:,} turns by {item.speakers}" if item.turns else ""
    return f"{head} → {_end(item)}{turns} [{name(item.debate.key)}]"


def _end(item: DebateItem) -> str:
    state = item.debate.groups.get("state", {})
    how = [f"level {state['resolution_level']}"] if state.get("resolution_level") else []
    how += [str(state["resolution_method"]).replace("_", " ")] if state.get("resolution_method") else []
    how += ["provisional"] if state.get("provisional") else []
    by = f" ({', '.join(how)})" if how else ""
    if item.resolutions:
        ended = []
        for resolution in item.resolutions[:2]:
            won = resolution.core.get("winning_agent")
            who = f"{label(won)} won" if won else "no winner"
            ended.append(f"{who}: {said(resolution.core['winning_position'], POSITION_CHARS)}")
        return f"{'; '.join(ended)}{by}"
    if not state:
        return "not resolved"
    position = f": {said(state['final_position'], POSITION_CHARS)}" if state.get("final_position") else ""
    return f"{label(state['state'])}{position}{by}"


def turn_text(turn: DebateTurn) -> str:
    """Return a turn, quoted in full, as a list item."""
    where = f" ({label(turn.stage)})" if turn.stage else ""
    return f"- {turn.number}. {name(turn.speaker)}{where}: {quoted(turn.text, TURN_CHARS)}"
