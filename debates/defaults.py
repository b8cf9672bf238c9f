"""
The conservative default: if nobody settles a debate, its most cautious position applies. Pure.

The registry of metrics (:mod:`imem.kg.kinds.metrics`) declares the cautious end of a metric's values. Ratings are
ordered from strong sell to strong buy, and the lowest is the most cautious. Where no end is declared there is no
default: the value is uncertain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from typing import Final

from imem.kg.kinds.enums import Recommendation
from imem.kg.kinds.metrics import Cautious, metric_of

RATING: Final = "rating"
"""Name of the metric of a debate about a rating."""

RATINGS: Final[Mapping[str, int]] = {
    rating: rank
    for rank, rating in enumerate(
        (
            Recommendation.STRONG_SELL,
            Recommendation.SELL,
            Recommendation.HOLD,
            Recommendation.BUY,
            Recommendation.STRONG_BUY,
        )
    )
}
"""Ratings in their order: the most cautious has rank 0."""


class DefaultReason(StrEnum):
    """Why a position is the default, or why there is none."""

    MOST_CAUTIOUS = "most_cautious"
    NO_DIRECTION = "no_direction"
    """The metric declares no cautious end, or there is no metric: the value is uncertain."""
    NOT_COMPARABLE = "not_comparable"
    """A position is missing or has no place in the order: the value is uncertain."""


@dataclass(frozen=True, slots=True)
class StatedPosition:
    """
    The position of one side of a debate.

    Attributes:
        agent: who says it.
        value: a number in the metric's unit, or a rating.
    """

    agent: str
    value: float | str


@dataclass(frozen=True, slots=True)
class ConservativeDefault:
    """
    The default of a debate.

    Attributes:
        position: the most cautious one; None: the value is uncertain.
        rejected: the other positions, in their order.
        direction: the cautious end that the metric declares.
        reason: why.
    """

    position: StatedPosition | None
    rejected: tuple[StatedPosition, ...]
    direction: Cautious | None
    reason: DefaultReason


def cautious_direction(metric: str | None) -> Cautious | None:
    """Return the cautious end of the values of *metric*; None if it declares none."""
    if metric == RATING:
        return "low"
    declared = None if metric is None else metric_of(metric)
    return None if declared is None else declared.cautious


def conservative_default(metric: str | None, positions: Sequence[StatedPosition]) -> ConservativeDefault:
    """
    Return the most cautious of *positions* on *metric*; of equal ones the first.

    Args:
        metric: a name of the registry, or :data:`RATING`; None where the debate names none.
        positions: of all sides. One that cannot be compared leaves the value uncertain, as it may be the cautious one.
    """
    direction = cautious_direction(metric)
    if direction is None:
        return ConservativeDefault(None, tuple(positions), None, DefaultReason.NO_DIRECTION)
    ranks = [_rank(metric, one.value) for one in positions]
    comparable = [rank for rank in ranks if rank is not None]
    if not comparable or len(comparable) < len(ranks):
        return ConservativeDefault(None, tuple(positions), direction, DefaultReason.NOT_COMPARABLE)
    nth = comparable.index(min(comparable) if direction == "low" else max(comparable))
    rejected = (*positions[:nth], *positions[nth + 1 :])
    return ConservativeDefault(positions[nth], rejected, direction, DefaultReason.MOST_CAUTIOUS)


def _rank(metric: str | None, value: float | str) -> float | None:
    """Return the place of *value* in the order of *metric*; None if it has none."""
    if metric == RATING:
        return RATINGS.get(value) if isinstance(value, str) else None
    return None if isinstance(value, str) or not isfinite(value) else value
