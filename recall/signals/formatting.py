"""An agent's earlier signals as text for its prompt, within a bound."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import orjson

from imem.journal.errors import BadInput
from imem.journal.texts.prompt_text import WARNING, quoted
from imem.recall.rendering.formatting import number, with_noun
from imem.recall.signals.evolution import newest_changes
from imem.recall.signals.model import AgentMemory, AgentSignal

MAX_LENGTH: Final = 1000
"""Default bound, in characters."""

LEAST_LENGTH: Final = 200
"""Room for the numbers of one signal and for what says what is left out, in characters."""

NO_HISTORY: Final = "No previous analysis available for this market."
NOT_READ: Final = "Previous analyses could not be read."

CHANGED: Final = "Changes of the newest, compared with the one before:"

HEADING: Final = "## Your Previous Analysis"

INSTRUCTIONS: Final = (
    "Read these earlier conclusions of yours before you form a new one.",
    "State what has changed since the newest of them.",
    "If your view has changed, give the reasons as key drivers.",
    "If your view still holds, say so, and give the evidence.",
    "When you rely on an earlier point or depart from it, cite that point and its date.",
)

DATE_FORMATS: Final = ("human", "iso", "relative")

_DRIVER_CHARS: Final = 200
_METADATA_CHARS: Final = 300
"""Longest quotations, in characters."""

_UNITS: Final = ((86_400, ("day", "days")), (3_600, ("hour", "hours")), (60, ("minute", "minutes")))
"""Seconds of each unit, and its names."""


@dataclass(frozen=True, slots=True)
class FormattedMemory:
    """
    Signals as text.

    Attributes:
        text: oldest first.
        signal_count: how many it shows.
        truncated: whether anything was left out.
    """

    text: str
    signal_count: int
    truncated: bool


def format_memory(
    memory: AgentMemory, max_length: int = MAX_LENGTH, *, include_metadata: bool = False, date_format: str = "human"
) -> FormattedMemory:
    """
    Return the signals of *memory* as text, oldest first, of at most *max_length* characters.

    Over the limit, the oldest are left out first, and a line says how many; the newest loses what it was recorded with
    and key drivers, from the end, before its numbers.

    Args:
        memory: what is shown.
        max_length: at least 200.
        include_metadata: whether to show what else was recorded with each signal.
        date_format: ``human`` (2025-01-15 14:30 UTC), ``iso``, or ``relative`` to the moment of *memory*.

    Raises:
        BadInput: an argument is wrong.
    """
    if max_length < LEAST_LENGTH:
        raise BadInput("max_length", f"must be {LEAST_LENGTH} or more.")
    if date_format not in DATE_FORMATS:
        raise BadInput("date_format", f"must be one of {', '.join(DATE_FORMATS)}.")
    if not memory.signals:
        return FormattedMemory(NOT_READ if memory.error is not None else NO_HISTORY, 0, truncated=False)
    dates = [_date(signal.created_at, memory.as_of, date_format) for signal in memory.signals]
    total = len(dates)
    blocks = [
        "\n".join(_lines(signal, dates[nth], metadata=include_metadata)) for nth, signal in enumerate(memory.signals)
    ]
    for kept in range(total, 0, -1):
        text = _with_marker(blocks[:kept], total - kept)
        if len(text) <= max_length:
            return FormattedMemory(text, kept, truncated=kept < total)
    newest = memory.signals[0]
    for drivers in range(len(newest.key_drivers), -1, -1):
        text = _with_marker(["\n".join(_lines(newest, dates[0], drivers=drivers))], total - 1)
        if len(text) <= max_length:
            break
    return FormattedMemory(text, 1, truncated=True)


def memory_prompt(memory: AgentMemory, max_length: int = MAX_LENGTH) -> str:
    """
    Return the section of a prompt that shows an agent its earlier signals, what changed last, and how to use them.

    It begins with the warning that quotations are data. Without earlier ones it says so; it is empty where signals are
    switched off for the subject. *max_length* bounds the signals; heading, warning, changes and instructions come on
    top.

    Raises:
        BadInput: *max_length* is less than 200.
    """
    if memory.reason is not None and memory.error is None:
        return ""
    text = format_memory(memory, max_length).text
    if not memory.signals:
        return f"{HEADING}\n\n{text}"
    numbered = "\n".join(f"{nth}. {line}" for nth, line in enumerate(INSTRUCTIONS, 1))
    # The warning comes before the first quotation: what is read later comes too late.
    return "\n\n".join([HEADING, WARNING, text, *_changes(memory), numbered])


def _changes(memory: AgentMemory) -> list[str]:
    if len(memory.signals) == 1:
        return []
    said = " ".join(event.description for event in newest_changes(memory.signals))
    return [f"{CHANGED} {said or 'nothing important.'}"]


def _with_marker(newest_first: list[str], left_out: int) -> str:
    marker = [f"({with_noun(left_out, ('earlier signal', 'earlier signals'))} left out)"] if left_out else []
    return "\n\n".join([*marker, *reversed(newest_first)])


def _lines(signal: AgentSignal, date: str, *, metadata: bool = False, drivers: int | None = None) -> list[str]:
    """Return the lines of a signal with its first *drivers* key drivers, or all."""
    said = [signal.direction.value]
    if signal.fair_probability is not None:
        said.append(f"probability {_percent(signal.fair_probability)}")
    said.append(f"confidence {_percent(signal.confidence)}")
    shown = signal.key_drivers[:drivers]
    lines = [date, ", ".join(said), *(f"• {quoted(driver, _DRIVER_CHARS)}" for driver in shown)]
    if left_out := len(signal.key_drivers) - len(shown):
        lines.append(f"({with_noun(left_out, ('key driver', 'key drivers'))} left out)")
    if metadata and signal.metadata:
        as_json = orjson.dumps(signal.metadata, option=orjson.OPT_SORT_KEYS, default=str).decode()
        lines.append(f"Recorded with it: {quoted(as_json, _METADATA_CHARS)}")
    return lines


def _percent(share: float) -> str:
    return f"{number(100.0 * share)} %"


def _date(at: datetime | None, now: datetime | None, date_format: str) -> str:
    if at is None:
        return "Not recorded yet"
    at = at.astimezone(UTC)
    if date_format == "iso":
        return at.isoformat()
    if date_format == "relative" and now is not None:
        age_s = (now - at).total_seconds()
        for unit_s, nouns in _UNITS:
            if age_s >= unit_s:
                return f"{with_noun(int(age_s // unit_s), nouns)} ago"
        return "just now"
    return at.strftime("%Y-%m-%d %H:%M UTC")
