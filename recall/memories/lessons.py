"""
Memories about decisions and their ends, and their rendering in a prompt. Pure.

A decision is one case: the texts state what was done and what came of it, and derive no rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from imem.journal.errors import BadInput
from imem.journal.texts.prompt_text import TEXT_CHARS, WARNING, quoted
from imem.kg.kinds.work import Decision
from imem.recall.memories.model import FoundMemory, MemoryType, NewMemory
from imem.recall.rendering.formatting import label, number, when

DECISION_IMPORTANCE: Final = 0.6
SUCCESS_IMPORTANCE: Final = 0.7
FAILURE_IMPORTANCE: Final = 0.8
LESSON_IMPORTANCE: Final = 0.9

TITLE: Final = "## Relevant Past Knowledge"

LEAST_CHARS: Final = 500
"""Shortest bound of a prompt's section, in characters: title, note and one short memory."""


def decision_memory(decision: Decision, reasoning: str | None) -> NewMemory:
    """
    Return the memory of a decision.

    Raises:
        BadInput: the text is too long.
    """
    details = [
        *([f"stance {decision.stance.value}"] if decision.stance is not None else []),
        *([f"confidence {decision.confidence:.2f}"] if decision.confidence is not None else []),
        *([f"${number(decision.size_usd)}"] if decision.size_usd is not None else []),
    ]
    shown = f" ({', '.join(details)})" if details else ""
    text = f"{_named(decision)}{shown}."
    text = f"{text} {reasoning}" if reasoning else text
    return _episode(decision, text, DECISION_IMPORTANCE, {})


def outcome_memories(decision: Decision, pnl_pct: float, lesson: str | None, lesson_loss_pct: float) -> list[NewMemory]:
    """
    Return the memory of how a decision ended, and of a loss beyond *lesson_loss_pct* percent a lesson, too.

    Raises:
        BadInput: a text is too long.
    """
    result = f"a profit of {number(pnl_pct)} %" if pnl_pct >= 0 else f"a loss of {number(-pnl_pct)} %"
    text = f"{_named(decision)}. It ended with {result}."
    importance = SUCCESS_IMPORTANCE if pnl_pct > 0 else FAILURE_IMPORTANCE
    found = [_episode(decision, text, importance, {"pnl_pct": pnl_pct})]
    if pnl_pct < -lesson_loss_pct:
        learned = lesson or "One case, not a rule: before deciding so again, check what was assumed then."
        text = f"Lesson of {result}: {_named(decision)}. {learned}"
        metadata = {"decision_id": decision.id, "subject_id": decision.subject_id, "pnl_pct": pnl_pct}
        found.append(NewMemory(text, MemoryType.PROCEDURAL, metadata, LESSON_IMPORTANCE, distinct=True))
    return found


def _named(decision: Decision) -> str:
    action = decision.action or decision.type
    return f"Decision {decision.id} of {decision.decided_at:%Y-%m-%d} on {decision.subject_id}: {action}"


def _episode(decision: Decision, text: str, importance: float, more: dict[str, float]) -> NewMemory:
    # A conversation of the decision and what came of it: what is said later is found by what it is about.
    metadata = {"decision_id": decision.id, "subject_id": decision.subject_id, **more}
    return NewMemory(text, MemoryType.EPISODIC, metadata, importance, conversation_id=decision.id, distinct=True)


def prompt_section(memories: Sequence[FoundMemory], max_chars: int, reason: str | None) -> str:
    """
    Return *memories*, best first, as a section of a prompt, quoted, as many as fit; empty for none.

    Args:
        max_chars: longest text, :data:`LEAST_CHARS` or more.
        reason: why some may be missing.

    Raises:
        BadInput: *max_chars* is too small.
    """
    if max_chars < LEAST_CHARS:
        raise BadInput("max_chars", f"must be at least {LEAST_CHARS}.")
    lines = [TITLE, WARNING, *([f"[partial: {reason[:200]}]"] if reason else [])]
    left = max_chars - len("\n".join(lines)) - len("\n")  # The section ends with a line break.
    shown = 0
    for memory in memories:
        by = f", {label(memory.author)}" if memory.author is not None else ""
        said = quoted(memory.excerpt or memory.content, TEXT_CHARS)
        line = f"- {when(memory.recorded_at)} {memory.memory_type.value}{by}: {said}"
        if len(line) + 1 <= left:
            lines.append(line)
            left -= len(line) + 1
            shown += 1
    return "\n".join(lines) + "\n" if shown else ""
