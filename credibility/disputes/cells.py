"""
Cells: the data points that state one thing, in the order in which they became known, and how neighbours differ.

A cell is a metric of a subject over one period, in one unit and on one accounting basis. Points of different cells are
never compared. Everything here follows from the set of the points, so that the order in which they arrive makes no
difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, Final, NamedTuple

from imem.journal.events.ids import id_of
from imem.kg.kinds.enums import DataDifference

EPSILON: Final = 1e-9
"""Tolerance of comparisons at a boundary (credibility-and-contradictions, section 0)."""

DETECTED_ABOVE: Final = 0.001
"""Difference as a share of the larger value above which two values do not agree."""

RATIO_TOLERANCE: Final = 0.0001
"""Absolute difference up to which two ratios near zero agree: a hundredth of a percent point."""

RATIO_UNITS: Final = frozenset({"pure", "ratio", "fraction"})

SCALE_TOLERANCE: Final = 0.01
"""How far a quotient may lie from a power of ten, as a share of it, and from the ratio of a split."""

SPLIT_RATIOS: Final = (1.5, *map(float, range(2, 10)), 12.0, 15.0, 16.0, 20.0, 25.0, 28.0, 30.0, 40.0, 50.0, 56.0)
"""Ratios of stock splits, also of two that follow each other; a power of ten counts as a fault of scale."""

FEWEST_DIGITS: Final = 2
"""Significant digits of a value from which it can be a rounding, where its decimals are not stated."""

CONTRADICTIONS: Final = frozenset({DataDifference.RESTATEMENT, DataDifference.DISAGREEMENT, DataDifference.SCALE})
"""Differences that are contradictions."""


@dataclass(frozen=True, slots=True)
class Point:
    """
    A data point as it stood at some moment.

    Attributes:
        key: of the record.
        value: stated.
        source, document: who states it, and where.
        filed_at: when the document was filed.
        known_at: since when it could be known.
        unit: of the value.
        decimals: places to which it is rounded; None if unknown.
        decided_by: the person who states it as an answer to a review task; None where a document states it.
    """

    key: str
    value: float
    source: str
    document: str
    filed_at: datetime
    known_at: datetime
    unit: str
    decimals: int | None = None
    decided_by: str | None = None

    @property
    def place(self) -> tuple[Any, ...]:
        """Its place in the order of its cell; no two points of a cell share one."""
        return self.known_at, self.filed_at, self.source, self.document, self.key


class Pair(NamedTuple):
    """Two neighbours of a cell, the one that was known first first, and how their values differ."""

    a: Point
    b: Point
    difference: DataDifference

    @property
    def contradicts(self) -> bool:
        """Whether the two contradict each other."""
        return self.difference in CONTRADICTIONS

    @property
    def id(self) -> str:
        """Id of the contradiction: it follows from the points and their values."""
        return str(id_of("data contradiction", self.a.key, self.b.key, repr(self.a.value), repr(self.b.value)))


def runs_of(points: Iterable[Point]) -> list[list[Point]]:
    """Return the points in their order, equal neighbours together."""
    runs: list[list[Point]] = []
    for point in sorted(points, key=lambda one: one.place):
        if runs and _same(runs[-1][0].value, point.value):
            runs[-1].append(point)
        else:
            runs.append([point])
    return runs


def pairs_of(points: Iterable[Point]) -> list[Pair]:
    """
    Return the neighbours whose values are not equal, with how they differ.

    Of equal points the one that was known first stands for all, or the first of the source that states the new value,
    so that what is known later changes no earlier pair.
    """
    return [_pair(earlier, later[0]) for earlier, later in pairwise(runs_of(points))]


def _pair(earlier: Sequence[Point], b: Point) -> Pair:
    a = next((point for point in earlier if point.source == b.source), earlier[0])
    return Pair(a, b, difference_of(a, b))


def difference_of(a: Point, b: Point) -> DataDifference:
    """Return how two points of a cell differ."""
    if not differ(a.value, b.value, a.unit):
        return DataDifference.AGREEMENT
    if is_rounding(a, b):
        return DataDifference.ROUNDING
    if _same(a.value, -b.value, DETECTED_ABOVE):
        return DataDifference.SIGN
    if is_power_of_ten(a.value, b.value):
        return DataDifference.SCALE
    if _counts_shares(a.unit) and _is_split(a, b):
        return DataDifference.SPLIT
    return DataDifference.RESTATEMENT if a.source == b.source else DataDifference.DISAGREEMENT


def spread(a: float, b: float) -> float:
    """Return the difference of two values as a share of the larger one by size; 0 if both are 0."""
    largest = max(abs(a), abs(b))
    # Divided first: the difference of two values of opposite signs may be larger than any number.
    return abs(a / largest - b / largest) if largest else 0.0


def differ(a: float, b: float, unit: str = "") -> bool:
    """Return whether two values differ by more than :data:`DETECTED_ABOVE`, ratios near zero by enough."""
    if unit in RATIO_UNITS and abs(a - b) <= RATIO_TOLERANCE + EPSILON:
        return False
    return spread(a, b) > DETECTED_ABOVE + EPSILON


def is_power_of_ten(a: float, b: float) -> bool:
    """Return whether one value is ten, a hundred, a thousand… times the other, within 1 %, whatever the signs."""
    small, large = sorted((abs(a), abs(b)))
    if not small:
        return False
    exponent = math.log10(large) - math.log10(small)
    power = round(exponent)
    return power != 0 and abs(10.0 ** (exponent - power) - 1.0) <= SCALE_TOLERANCE + EPSILON


def is_rounding(a: Point, b: Point) -> bool:
    """
    Return whether one value is the other, rounded.

    It is where they differ by at most half a unit of the last place of the coarser one. Where decimals are not stated
    the last place is that of the last digit that is not zero, and the coarser one has :data:`FEWEST_DIGITS` of them.
    """
    (coarse, coarser), (fine, _) = sorted(((_places(point), point) for point in (a, b)), key=lambda one: one[0])
    if coarse == fine or (coarser.decimals is None and _digits(coarser.value) < FEWEST_DIGITS):
        return False
    return abs(a.value - b.value) <= 0.5 * 10.0**-coarse * (1.0 + EPSILON)


def _places(point: Point) -> int:
    """Return the decimal places of a value: as stated, else up to its last digit that is not zero."""
    if point.decimals is not None:
        return point.decimals
    return _digits(point.value) - 1 - int(f"{point.value:.14e}".partition("e")[2])


def _digits(value: float) -> int:
    """Return the significant digits of a value, up to its last digit that is not zero."""
    return len(f"{value:.14e}".partition("e")[0].lstrip("-").replace(".", "").rstrip("0"))


def _counts_shares(unit: str) -> bool:
    return unit.lower() == "shares" or unit.lower().endswith(("/shares", "/share"))


def _is_split(a: Point, b: Point) -> bool:
    """Return whether two values per share, or numbers of shares, differ as before and after a split."""
    small, large = sorted((a, b), key=lambda point: abs(point.value))
    if not small.value or (small.value < 0) != (large.value < 0):
        return False
    # A small value per share is rounded to cents, which moves the quotient by more than 1 %.
    half = 0.5 * 10.0 ** -_places(small)
    tolerance = max(SCALE_TOLERANCE, min(half / abs(small.value), 5 * SCALE_TOLERANCE))
    quotient = large.value / small.value
    return any(abs(quotient / ratio - 1.0) <= tolerance + EPSILON for ratio in SPLIT_RATIOS)


def _same(a: float, b: float, tolerance: float = EPSILON) -> bool:
    return spread(a, b) <= tolerance + (EPSILON if tolerance > EPSILON else 0.0)
