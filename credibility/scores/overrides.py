"""
How often people override an agent, and whether they were right (credibility-and-contradictions, section 2 and 4). Pure.

A rate says nothing about who was right, so that it is shown beside the score. It gates only where the lower end of its
interval is high and the people were mostly right: then what the agent wins goes to a person (``flag``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, NamedTuple

from imem.credibility.scores.wilson import wilson
from imem.credibility.settlement import TOLERANCE

TRAILING: Final = timedelta(days=365)
"""Overrides and recommendations that count."""

FLAG_RATE: Final = 0.20
"""Lower bound of the rate above which wins may go to a person."""

FLAG_ACCURACY: Final = 0.60
"""Share of overrides known to be right above which they do."""

REVIEW_RATE: Final = 0.30
REVIEW_MONTHS: Final = 3
"""Consecutive calendar months above :data:`REVIEW_RATE` after which causes are reviewed."""

REVIEW_CONTEXT: Final = 0.60
REVIEW_CONTEXT_OUTCOMES: Final = 10
REVIEW_ACCURACY: Final = 0.75


class OverrideFact(NamedTuple):
    """
    One override of a recommendation.

    Attributes:
        reason: why, of :class:`~imem.kg.kinds.enums.OverrideReason`.
        right: whether the recommendation turned out wrong; None while that is not known.
    """

    reason: str
    right: bool | None


@dataclass(frozen=True, slots=True)
class OverrideRate:
    """Overridden recommendations, and all."""

    overrides: int
    recommendations: int

    @property
    def rate(self) -> float | None:
        """The share overridden, at most 1; None without recommendations."""
        return min(self.overrides / self.recommendations, 1.0) if self.recommendations else None


NONE: Final = OverrideRate(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverrideFigures:
    """
    Overrides of an agent in a domain in the trailing year.

    Attributes:
        counts: overridden and all recommendations.
        rate, lower: share overridden, and its lower Wilson bound; None without recommendations.
        known, right: overrides whose outcome is known, and those of them that were right.
        outcome_accuracy: *right* by *known*; None without any.
        reasons: number by reason.
        by_context: of settled questions, by dimension and value.
        reviews: why causes are to be reviewed.
        flag: whether what the agent wins goes to a person.
    """

    counts: OverrideRate = NONE
    rate: float | None = None
    lower: float | None = None
    known: int = 0
    right: int = 0
    outcome_accuracy: float | None = None
    reasons: Mapping[str, int] = field(default_factory=dict)
    by_context: Mapping[str, Mapping[str, OverrideRate]] = field(default_factory=dict)
    reviews: tuple[str, ...] = ()
    flag: bool = False


def override_figures(
    facts: Sequence[OverrideFact],
    counts: OverrideRate,
    months: Sequence[OverrideRate] = (),
    by_context: Mapping[str, Mapping[str, OverrideRate]] | None = None,
) -> OverrideFigures:
    """
    Return the figures of the trailing year.

    Args:
        facts: the overrides.
        counts: how many recommendations they overrode, of how many.
        months: counts of the last complete calendar months, the newest last.
        by_context: counts of settled questions by dimension and value.
    """
    known = [one.right for one in facts if one.right is not None]
    rate, contexts = counts.rate, by_context or {}
    lower = None if rate is None else wilson(rate, counts.recommendations).lower
    accuracy = sum(known) / len(known) if known else None
    return OverrideFigures(
        counts=counts,
        rate=rate,
        lower=lower,
        known=len(known),
        right=sum(known),
        outcome_accuracy=accuracy,
        reasons=dict(sorted(Counter(one.reason for one in facts).items())),
        by_context=contexts,
        reviews=tuple(_reviews(accuracy, months, contexts)),
        flag=_above(lower, FLAG_RATE) and _above(accuracy, FLAG_ACCURACY),
    )


def _reviews(
    accuracy: float | None,
    months: Sequence[OverrideRate],
    contexts: Mapping[str, Mapping[str, OverrideRate]],
) -> list[str]:
    found = []
    last = months[-REVIEW_MONTHS:]
    if len(last) == REVIEW_MONTHS and all(_above(one.rate, REVIEW_RATE) for one in last):
        found.append(f"overridden more than {REVIEW_RATE:.0%} in each of {REVIEW_MONTHS} months")
    found += [
        f"overridden {one.rate:.0%} where {dimension} is {value}"
        for dimension, values in contexts.items()
        for value, one in values.items()
        if one.recommendations >= REVIEW_CONTEXT_OUTCOMES
        and one.rate is not None
        and one.rate >= REVIEW_CONTEXT - TOLERANCE
    ]
    if _above(accuracy, REVIEW_ACCURACY):
        found.append(f"{accuracy:.0%} of the overrides were right")
    return found


def _above(value: float | None, threshold: float) -> bool:
    return value is not None and value > threshold + TOLERANCE
