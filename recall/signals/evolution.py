"""The changes between an agent's new signal and its last one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from imem.kg.kinds.base import StrictModel
from imem.recall.signals.model import AgentMemory, AgentSignal

PROBABILITY_SHIFT: Final = 0.10
CONFIDENCE_CHANGE: Final = 0.20
"""Changes above which an event is made."""

LEAST_OVERLAP: Final = 0.5
"""Overlap of key drivers below which the reasoning counts as another."""

TOLERANCE: Final = 1e-9
"""0.30 to 0.40 is a change of 0.10, whatever floating point makes of it."""

DIRECTION_MAGNITUDE: Final = 1.0
REASONING_MAGNITUDE: Final = 0.5


class EvolutionType(StrEnum):
    """The kind of change."""

    DIRECTION_CHANGE = "direction_change"
    PROBABILITY_SHIFT = "probability_shift"
    CONFIDENCE_CHANGE = "confidence_change"
    REASONING_EVOLUTION = "reasoning_evolution"


class EvolutionEvent(StrictModel):
    """
    One change.

    Attributes:
        type: what changed.
        agent_name, market_id: whose view, of what.
        timestamp: when the new signal was recorded, if it was.
        previous_value, current_value: before and after.
        magnitude: the change of a number; 1.0 of a direction, 0.5 of the reasoning.
        description: a sentence.
    """

    type: EvolutionType
    agent_name: str
    market_id: str
    timestamp: datetime | None
    previous_value: Any
    current_value: Any
    magnitude: float
    description: str


@dataclass(frozen=True, slots=True)
class RecordedSignal:
    """
    A signal that was recorded.

    Attributes:
        signal: with its id, its time and its analysis.
        events: what it changes against the history that was given.
    """

    signal: AgentSignal
    events: list[EvolutionEvent]


def evolution(new: AgentSignal, history: AgentMemory | Sequence[AgentSignal]) -> list[EvolutionEvent]:
    """Return what *new* changes against the newest signal of *history*, which is newest first."""
    signals = history.signals if isinstance(history, AgentMemory) else history
    if not signals:
        return []
    old, events = signals[0], []

    def changed(type_: EvolutionType, before: Any, after: Any, magnitude: float, description: str) -> None:
        events.append(
            EvolutionEvent(
                type=type_,
                agent_name=new.agent_name,
                market_id=new.market_id,
                timestamp=new.created_at,
                previous_value=before,
                current_value=after,
                magnitude=magnitude,
                description=description,
            )
        )

    if new.direction is not old.direction:
        text = f"The direction changed from {old.direction} to {new.direction}."
        changed(EvolutionType.DIRECTION_CHANGE, old.direction.value, new.direction.value, DIRECTION_MAGNITUDE, text)
    for type_, name, before, after, least in (
        (EvolutionType.PROBABILITY_SHIFT, "probability", old.fair_probability, new.fair_probability, PROBABILITY_SHIFT),
        (EvolutionType.CONFIDENCE_CHANGE, "confidence", old.confidence, new.confidence, CONFIDENCE_CHANGE),
    ):
        # A finding about a company may state no probability.
        if before is not None and after is not None and abs(after - before) - least > TOLERANCE:
            text = f"The {name} changed from {before:.2f} to {after:.2f}."
            changed(type_, before, after, abs(after - before), text)
    share = overlap(old.key_drivers, new.key_drivers)
    if LEAST_OVERLAP - share > TOLERANCE:
        text = f"{share:.0%} of the key drivers are the same."
        drivers = list(old.key_drivers), list(new.key_drivers)
        changed(EvolutionType.REASONING_EVOLUTION, *drivers, REASONING_MAGNITUDE, text)
    return events


def newest_changes(signals: Sequence[AgentSignal]) -> list[EvolutionEvent]:
    """Return what the newest of *signals*, which come first, changes against the one before it."""
    return evolution(signals[0], signals[1:]) if signals else []


def overlap(one: Sequence[str], other: Sequence[str]) -> float:
    """Return the share of key drivers, in small letters, that the longer list has in common with the other."""
    left, right = ({driver.lower() for driver in drivers} for drivers in (one, other))
    return len(left & right) / max(len(left), len(right)) if left or right else 1.0
