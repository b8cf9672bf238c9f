"""Cases of a condition, and their parts by time: what shapes a pattern never tests it. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """
    A settled question as it stood when a forecast of it was made.

    Attributes:
        subject: of the question.
        period: what is compared within: cases of one period meet the same circumstances.
        predicted_at: when the forecast was made; the features of the condition were known then.
        known_at: when the outcome could be known.
        outcome: what happened, in the unit of the metric; 0 or 1 of an event.
        reference: the best forecast of it that existed then, in the same unit.
        matches: whether the condition held.
        sd: standard deviation of the outcome about the reference, as known then; above zero.
    """

    subject: str
    period: str
    predicted_at: datetime
    known_at: datetime
    outcome: float
    reference: float
    matches: bool
    sd: float


class Split(NamedTuple):
    """Cases by part: what discovery sees, what validates, what tests; and those that are left out between them."""

    training: Sequence[Case]
    validation: Sequence[Case]
    test: Sequence[Case]
    embargoed: Sequence[Case]


def sizes(n: int) -> tuple[int, int]:
    """Return where training and validation of *n* cases end: at 70 and 85 hundredths, rounded down."""
    return 70 * n // 100, 85 * n // 100


def split(cases: Sequence[Case]) -> Split:
    """
    Return the parts of *cases* in the order in which their outcomes became known.

    Cuts lie between days (UTC): the cases of one day are in one part. A case of a later part whose forecast was made
    before the earlier part had ended is left out, since its outcome window crosses the boundary.
    """
    ordered = sorted(cases, key=lambda case: (case.known_at, case.predicted_at, case.subject))
    known = [case.known_at.astimezone(UTC).date() for case in ordered]
    first, second = (_between_dates(known, place) for place in sizes(len(ordered)))
    second = max(first, second)
    parts = ordered[:first], ordered[first:second], ordered[second:]
    validation = _after(parts[0], parts[1])
    test = _after([*parts[0], *parts[1]], parts[2])
    kept = {id(case) for case in (*parts[0], *validation, *test)}
    return Split(parts[0], validation, test, [case for case in ordered if id(case) not in kept])


def _between_dates(known: Sequence[date], place: int) -> int:
    """Return the boundary between two days that is nearest to *place*, the earlier of two as near."""
    if place in {0, len(known)}:
        return place
    start, end = bisect_left(known, known[place]), bisect_right(known, known[place])
    return start if place - start <= end - place else end


def _after(earlier: Sequence[Case], later: Sequence[Case]) -> list[Case]:
    """Return the cases of *later* that were predicted when every outcome of *earlier* was known."""
    if not earlier:
        return list(later)
    end = earlier[-1].known_at
    return [case for case in later if case.predicted_at > end]
