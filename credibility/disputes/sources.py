"""
Scores of sources of data, as of a day.

A source has the weight of its type until fifteen contradictions that it took part in have an outcome; from then on its
accuracy counts too. Only what people labelled and what a later filing showed is an outcome: a verdict that the system
gave itself is never evidence.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from imem.kg.kinds.enums import OutcomeProvenance

FEWEST_OUTCOMES: Final = 15
"""Outcomes from which on the accuracy of a source counts."""

HALFLIFE_YEARS: Final = 4.5
YEAR: Final = timedelta(days=365.25)

UNKNOWN: Final = "unknown"

PERSON: Final = "person"
"""Type of the source of a value that a person states as an answer, and the first word of its name; no name gives it."""


class SourceType(NamedTuple):
    """
    A type of source.

    Attributes:
        weight: how far it is trusted without a record of its own, 0 to 1.
        primary: whether it states what it reports of itself or what was filed with it; others derive their values.
    """

    weight: float
    primary: bool = False


SOURCE_TYPES: Final[Mapping[str, SourceType]] = {
    "SEC_EDGAR": SourceType(1.00, primary=True),
    "Bloomberg": SourceType(0.95),
    "FactSet": SourceType(0.95),
    "Refinitiv": SourceType(0.90),
    "Reuters": SourceType(0.90),
    "Company_IR": SourceType(0.85, primary=True),
    "financial_api": SourceType(0.85),
    "alternative_data": SourceType(0.85),
    "News": SourceType(0.70),
    "blog": SourceType(0.70),
    UNKNOWN: SourceType(0.70),
}
"""The types, by name; a source that bears the name of one is of that type, any other is of the unknown type."""

SEC: Final = "SEC_EDGAR"


class SourceOutcome(NamedTuple):
    """
    The outcome of a contradiction that a source took part in.

    Attributes:
        source: which.
        correct: whether its value was the right one.
        provenance: who or what said so.
        known_at: since when that could be known.
        until: when another outcome of the same contradiction took its place; None if none did.
    """

    source: str
    correct: bool
    provenance: OutcomeProvenance
    known_at: datetime
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """
    A source as of a day.

    Attributes:
        name: of the source.
        type: name of its type.
        score: 0 to 1.
        outcomes: contradictions with a known outcome.
        correct: those in which its value was right.
    """

    name: str
    type: str
    score: float
    outcomes: int = 0
    correct: int = 0

    @property
    def primary(self) -> bool:
        """Whether it is a primary source."""
        return self.type in SOURCE_TYPES and SOURCE_TYPES[self.type].primary


def type_of(name: str) -> str:
    """Return the type of a source."""
    return name if name in SOURCE_TYPES else UNKNOWN


class Tally(NamedTuple):
    """
    The record of a source as known from a moment on.

    Attributes:
        since: the moment.
        outcomes: that were known and that no other one had replaced.
        correct: those in which its value was right.
        newest: since when the newest of them could be known; None without any.
    """

    since: datetime
    outcomes: int
    correct: int
    newest: datetime | None


Tallies = Mapping[str, Sequence[Tally]]
"""The tallies of each source, the oldest first."""


def tallies_of(outcomes: Iterable[SourceOutcome]) -> Tallies:
    """Return the tallies of the outcomes that are evidence: they score a source at many moments in little time."""
    by_source: dict[str, list[SourceOutcome]] = defaultdict(list)
    for one in outcomes:
        counts = one.provenance in {OutcomeProvenance.HUMAN_LABEL, OutcomeProvenance.LATER_FILING}
        if counts and (one.until is None or one.known_at < one.until):
            by_source[one.source].append(one)
    return {name: _tallies(found) for name, found in by_source.items()}


def _tallies(outcomes: Sequence[SourceOutcome]) -> list[Tally]:
    changes = [(one.known_at, 1, one) for one in outcomes]
    changes += [(one.until, -1, one) for one in outcomes if one.until is not None]
    changes.sort(key=lambda change: change[0])
    tallies: list[Tally] = []
    correct = 0
    known: list[datetime] = []
    for moment, step, one in changes:
        correct += step * one.correct
        if step > 0:
            insort(known, moment)
        else:
            del known[bisect_left(known, one.known_at)]
        tallies.append(Tally(moment, len(known), correct, known[-1] if known else None))
    return tallies


def source_in(tallies: Tallies, name: str, at: datetime) -> Source:
    """Return a source with its score by the outcomes that were known at *at*."""
    kind, of_source = type_of(name), tallies.get(name, ())
    place = bisect_right(of_source, at, key=lambda tally: tally.since)
    tally = of_source[place - 1] if place else None
    if tally is None or tally.newest is None:
        return Source(name, kind, SOURCE_TYPES[kind].weight)
    score = score_of(SOURCE_TYPES[kind].weight, tally.correct, tally.outcomes, at - tally.newest)
    return Source(name, kind, score, tally.outcomes, tally.correct)


def score_of(weight: float, correct: int, outcomes: int, age: timedelta) -> float:
    """
    Return the score of a source.

    Args:
        weight: of its type.
        correct: outcomes in which its value was right.
        outcomes: how many there are.
        age: of the newest of them.
    """
    if outcomes < FEWEST_OUTCOMES:
        return weight
    return 0.40 * correct / outcomes + 0.40 * weight + 0.20 * float(0.5 ** (age / YEAR / HALFLIFE_YEARS))
