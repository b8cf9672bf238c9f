"""Whether the detail of a record may leave the graph. No I/O, no clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from imem.journal.clock import years_after

OLD_YEARS: Final = 2
FEW_ACCESSES: Final = 3
LOW_RELEVANCE: Final = 0.3
GROUNDS: Final = 2
"""So many grounds suffice."""

YOUNG: Final = timedelta(days=180)
"""A record that was recorded later than so long ago is never pruned, whatever its date."""


class Ground(StrEnum):
    """A reason for pruning a record."""

    OLD = "old"
    UNREAD = "unread"
    IRRELEVANT = "irrelevant"
    SUPERSEDED = "superseded"


class Exemption(StrEnum):
    """Why a record is never pruned while this holds."""

    YOUNG = "young"
    CITED = "cited"
    HELD = "held"
    INVESTIGATED = "investigated"
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordUse:
    """
    The facts about a record that pruning needs.

    Attributes:
        known_at: when it was known first.
        recorded_at: when it was recorded here.
        accesses: reads of its detail within the last 12 months.
        relevance: 0 to 1; None for a kind without one.
        superseded: whether a later record replaced it.
        exempt: what exempts it beside its age.
    """

    known_at: datetime
    recorded_at: datetime
    accesses: int
    relevance: float | None
    superseded: bool
    exempt: Exemption | None = None


def exemption_of(use: RecordUse, now: datetime) -> Exemption | None:
    """Return why the record is never pruned; None if nothing exempts it."""
    return Exemption.YOUNG if now - use.recorded_at < YOUNG else use.exempt


def grounds_of(use: RecordUse, now: datetime) -> tuple[Ground, ...]:
    """Return what speaks for pruning the record."""
    met = {
        Ground.OLD: now > years_after(use.known_at, OLD_YEARS),
        Ground.UNREAD: use.accesses < FEW_ACCESSES,
        Ground.IRRELEVANT: use.relevance is not None and use.relevance < LOW_RELEVANCE,
        Ground.SUPERSEDED: use.superseded,
    }
    return tuple(ground for ground, holds in met.items() if holds)


def is_prunable(use: RecordUse, now: datetime) -> bool:
    """Return whether the detail of the record leaves the graph."""
    return exemption_of(use, now) is None and len(grounds_of(use, now)) >= GROUNDS
