"""Rules of critical patterns, of the archive of each pattern, and of its fit to a change of regime. No I/O."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from imem.kg.kinds.enums import PatternStatus

NO_ARCHIVE, TIER_1, TIER_2 = 0, 1, 2

RETENTION_YEARS: Final = {TIER_1: 7, TIER_2: 10}
"""Tier → calendar years for which its archive is kept at least."""

TOLERANCE: Final = 1e-9
"""By how much a value must pass a strict limit: products of decimals are not exact in floating point."""

LATE_STATUSES: Final = frozenset(
    {
        PatternStatus.HUMAN_APPROVED, PatternStatus.ACTIVE, PatternStatus.PROBATIONARY,
        PatternStatus.ACTIVE_FROM_ARCHIVE,
    }
)  # fmt: skip
"""Statuses after which the evidence of a deprecated pattern is kept whole."""

CONFIDENT, IMPORTANT, VALIDATED = 0.7, 0.5, 3
CRITICAL_SCORE: Final = 2

LEAST_CONFIDENCE, LEAST_SCORE = 0.6, 0.7
"""Filters of a change of regime: at least this confidence, and a score above this."""

DAYS_PER_YEAR: Final = 365.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Criticality:
    """
    How critical a pattern is.

    Attributes:
        score: 0 to 4, one point for each condition.
        critical: whether its evidence deserves a full archive.
    """

    score: int
    critical: bool


def impact_of(position_usd: float | None, allocation_pct: float | None = None) -> float | None:
    """Return the impact, 0 to 1, of a position in USD and its share of the portfolio in percent; None if unknown."""
    known = [value / full for value, full in ((position_usd, 100_000.0), (allocation_pct, 20.0)) if value is not None]
    return min(1.0, max(known)) if known else None


def criticality_of(*, used: bool, confidence: float | None, impact: float | None, validations: int) -> Criticality:
    """
    Return how critical a pattern is.

    Args:
        used: whether an investment decision cites it.
        confidence, impact: 0 to 1; an unknown one scores nothing.
        validations: how many of its tests have ended.
    """
    points = (
        used,
        confidence is not None and confidence > CONFIDENT + TOLERANCE,
        impact is not None and impact > IMPORTANT + TOLERANCE,
        validations >= VALIDATED,
    )
    return Criticality(score=sum(points), critical=used or sum(points) >= CRITICAL_SCORE)


def tier_of(*, critical: bool, validated: bool, ended_late: bool) -> int:
    """
    Return the tier that a pattern's evidence deserves.

    Args:
        critical: see :func:`criticality_of`.
        validated: whether one of its tests was passed.
        ended_late: whether it is deprecated and had been approved, active or on probation.
    """
    if critical or ended_late:
        return TIER_2
    return TIER_1 if validated else NO_ARCHIVE


def regime_score(
    *,
    triggers: Collection[str],
    tags: Collection[str],
    confidence: float,
    accuracy: float,
    deprecated_at: datetime,
    now: datetime,
) -> float:
    """
    Return how well an archived pattern fits a change of regime, 0 to 1.

    Args:
        triggers: tags of the change; at least one.
        tags: of the pattern.
    """
    match = len(set(triggers) & set(tags)) / len(set(triggers))
    years = (now - deprecated_at).total_seconds() / 86_400 / DAYS_PER_YEAR
    return score_of(match, confidence, accuracy, years)


def score_of(match: float, confidence: float, accuracy: float, years: float) -> float:
    """Return the score of a match of tags, confidence, accuracy, and the years since the deprecation."""
    return 0.40 * match + 0.30 * confidence + 0.20 * accuracy + 0.10 * max(0.0, 1.0 - years / 10.0)


def qualifies(confidence: float, score: float) -> bool:
    """Return whether a change of regime may bring a pattern of such confidence and score back."""
    return confidence >= LEAST_CONFIDENCE - TOLERANCE and score > LEAST_SCORE + TOLERANCE
