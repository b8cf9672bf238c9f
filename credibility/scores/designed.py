"""
The score as designed: a product of five factors (credibility-and-contradictions, section 2). Pure.

It is kept beside the posterior and shown with every factor; docs/explanation/scores.md says why it does not decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from imem.credibility.posterior import decay
from imem.credibility.scores.context import ClaimContext, ContextCell
from imem.credibility.scores.scope import NO_SHARE, Share, matching, of_regime, share
from imem.credibility.scores.trends import WEEKS, LinearTrend, extrapolated
from imem.credibility.settlement import TOLERANCE
from imem.journal.errors import BadInput

TIERS: Final = ((6, 1.00), (4, 0.70), (2, 0.30))
"""Least matches of six, and the weight of the mean over the outcomes that have them."""

TIER_OUTCOMES: Final = 10
"""Least outcomes of a tier."""

REGIME_OUTCOMES: Final = 50
"""Outcomes of a regime from which its mean outweighs that of the domain."""

BLEND: Final = 0.70
"""Weight of the larger part in blends of two."""

EXPLAINED: Final = 0.3
"""R squared above which a trend counts."""

PENALTIES: Final = ((0.40, 0.70), (0.20, 0.85))
"""Rate of overrides above which the score is multiplied by the second."""


class FormulaVersion(StrEnum):
    """The factors of a score."""

    SIMPLE = "simple"
    """Base accuracy and temporal weight alone: the early delivery stage."""
    COMPREHENSIVE = "comprehensive"


@dataclass(frozen=True, slots=True)
class ContextTier:
    """
    The highest tier of matches with enough outcomes.

    Attributes:
        matches: its least matches; None: no tier has enough.
        weight: of its mean; 0 without a tier.
        accuracy: its mean; None without a tier.
        outcomes: how many observations it has.
    """

    matches: int | None
    weight: float
    accuracy: float | None
    outcomes: float


NO_TIER: Final = ContextTier(None, 0.0, None, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignedScore:
    """
    A score with its factors, all fractions.

    Attributes:
        formula_version: which factors it has.
        score: their product; None without outcomes.
        tier: the context's share in *base_accuracy*.
        overall_accuracy: mean over the domain; None without outcomes.
        base_accuracy, temporal_weight, regime_adjustment, trend_adjusted, override_penalty: the factors; None where
            the formula has no such factor, or there is no outcome.
        regime: the mean of the regime.
        override_rate: rate that the penalty follows from; None without recommendations.
    """

    formula_version: FormulaVersion
    score: float | None = None
    tier: ContextTier = NO_TIER
    overall_accuracy: float | None = None
    base_accuracy: float | None = None
    temporal_weight: float | None = None
    regime: Share = NO_SHARE
    regime_adjustment: float | None = None
    trend_adjusted: float | None = None
    override_rate: float | None = None
    override_penalty: float | None = None

    @property
    def factors(self) -> dict[str, float]:
        """The factors that the score is the product of; empty without a score."""
        names = ("base_accuracy", "temporal_weight", "regime_adjustment", "trend_adjusted", "override_penalty")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def context_tier(cells: Sequence[ContextCell], context: ClaimContext | None) -> ContextTier:
    """Return the highest tier of matches with *context* that holds :data:`TIER_OUTCOMES` observations."""
    if context is None:
        return NO_TIER
    for least, weight in TIERS:
        found = matching(cells, context, least)
        if found.observations >= TIER_OUTCOMES - TOLERANCE:
            return ContextTier(least, weight, found.accuracy, found.observations)
    return NO_TIER


def base_accuracy(tier: ContextTier, overall: float) -> float:
    """Return the blend of the context's mean and that of the domain."""
    return overall if tier.accuracy is None else tier.accuracy * tier.weight + overall * (1.0 - tier.weight)


def temporal_weight(age_years: float, halflife_years: float) -> float:
    """
    Return the factor for the age of the newest resolved outcome.

    Raises:
        BadInput: the outcome lies in the future.
    """
    if age_years < -TOLERANCE:
        raise BadInput("resolved_at", "lies in the future.")
    return decay(age_years, halflife_years)


def regime_adjustment(regime: Share, overall: float) -> float:
    """Return the blend of the regime's mean and that of the domain; the latter where the regime has no outcome."""
    if regime.accuracy is None:
        return overall
    own = BLEND if regime.observations >= REGIME_OUTCOMES - TOLERANCE else 1.0 - BLEND
    return own * regime.accuracy + (1.0 - own) * overall


def trend_adjusted(trend: LinearTrend, overall: float) -> float:
    """Return the latest weekly accuracy, drawn toward the extrapolated one where the trend explains enough."""
    if trend.current is None:
        return overall
    explained = trend.r_squared is not None and trend.r_squared > EXPLAINED + TOLERANCE
    if trend.points < WEEKS or not explained or trend.slope is None:
        return trend.current
    return BLEND * trend.current + (1.0 - BLEND) * extrapolated(trend.current, trend.slope)


def override_penalty(rate: float | None) -> float:
    """Return the factor for a rate of overrides; 1 without recommendations."""
    return next((factor for above, factor in PENALTIES if rate is not None and rate > above + TOLERANCE), 1.0)


def designed_score(
    cells: Sequence[ContextCell],
    context: ClaimContext | None,
    *,
    age_years: float | None,
    halflife_years: float,
    trend: LinearTrend,
    override_rate: float | None,
    regime: str | None = None,
    formula_version: FormulaVersion = FormulaVersion.COMPREHENSIVE,
) -> DesignedScore:
    """
    Return the score of an agent in a domain, in *context* where one is given.

    Args:
        cells: what the agent's outcomes in the domain add up to, by context.
        context: what is asked about; its regime is the one of the regime factor.
        age_years: time since the newest resolved outcome, in years; None without outcomes.
        halflife_years: age at which the temporal weight is a half.
        trend: the trend of its weekly accuracy.
        override_rate: overrides by recommendations in the trailing year; None without recommendations.
        regime: that of the regime factor where no context is asked about.
        formula_version: which factors to multiply.

    Raises:
        BadInput: the newest outcome lies in the future.
    """
    overall = share(cells).accuracy
    if overall is None or age_years is None:
        return DesignedScore(formula_version=formula_version, override_rate=override_rate)
    tier = context_tier(cells, context)
    base, temporal = base_accuracy(tier, overall), temporal_weight(age_years, halflife_years)
    if formula_version is FormulaVersion.SIMPLE:
        return DesignedScore(
            formula_version=formula_version, score=base * temporal, tier=tier, overall_accuracy=overall,
            base_accuracy=base, temporal_weight=temporal, override_rate=override_rate,
        )  # fmt: skip
    in_regime = of_regime(cells, regime if context is None else context.regime)
    adjusted, trended = regime_adjustment(in_regime, overall), trend_adjusted(trend, overall)
    penalty = override_penalty(override_rate)
    return DesignedScore(
        formula_version=formula_version, score=base * temporal * adjusted * trended * penalty, tier=tier,
        overall_accuracy=overall, base_accuracy=base, temporal_weight=temporal, regime=in_regime,
        regime_adjustment=adjusted, trend_adjusted=trended, override_rate=override_rate, override_penalty=penalty,
    )  # fmt: skip
