"""
Beta posterior of an agent's share right over decayed observations (credibility-and-contradictions, section 4). Pure.

If the scope is a whole domain, no evidence lies outside it, and the prior is Jeffreys' Beta(0.5, 0.5). An agent's other
domains are not part of the evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import numpy as np

KAPPA = 10.0
"""Largest number of observations that the evidence outside the scope may count for."""

DAYS_IN_YEAR = 365.25
INTERVAL = (0.025, 0.975)
SECONDS_IN_YEAR = DAYS_IN_YEAR * 24 * 60 * 60


class DecayedEvidence(NamedTuple):
    """
    Decayed sums over observations.

    Attributes:
        successes: sum of weight times mean, inside the scope.
        weight: sum of weights inside the scope.
        outside_successes, outside_weight: likewise for the rest of the domain.
    """

    successes: float
    weight: float
    outside_successes: float = 0.0
    outside_weight: float = 0.0


@dataclass(frozen=True, slots=True)
class Posterior:
    """Parameters, mean and 95 % interval of a share right, as fractions."""

    alpha: float
    beta: float
    mean: float
    lower: float
    upper: float

    @property
    def half_width(self) -> float:
        """Half the width of the interval."""
        return (self.upper - self.lower) / 2


def decay(age_years: float, halflife_years: float) -> float:
    """Return the weight of an observation of that age; 1 at age 0 and before."""
    return float(0.5 ** (max(age_years, 0.0) / halflife_years))


def years_between(earlier: datetime, later: datetime) -> float:
    """Return the years from *earlier* to *later*, of 365.25 days."""
    return (later - earlier).total_seconds() / SECONDS_IN_YEAR


def posteriors(evidence: Sequence[DecayedEvidence]) -> list[Posterior]:
    """Return the posterior of each, in order; vectorised, since one call of the quantile costs as much as many."""
    from scipy.special import betaincinv  # noqa: PLC0415 - a command that needs no score shall not wait for it

    if not evidence:
        return []
    sums = np.asarray(evidence, dtype=float)
    # Rounding may make a decayed sum slightly negative, or larger than its weight.
    weight, outside_weight = np.maximum(sums[:, 1], 0.0), np.maximum(sums[:, 3], 0.0)
    successes = np.clip(sums[:, 0], 0.0, weight)
    outside = (0.5 + np.clip(sums[:, 2], 0.0, outside_weight)) / (1.0 + outside_weight)
    strength = np.minimum(KAPPA, 1.0 + outside_weight)
    alpha = strength * outside + successes
    beta = strength * (1.0 - outside) + weight - successes
    mean = alpha / (alpha + beta)
    lower, upper = (betaincinv(alpha, beta, bound) for bound in INTERVAL)
    return [Posterior(*map(float, row)) for row in zip(alpha, beta, mean, lower, upper, strict=True)]


def posterior(evidence: DecayedEvidence) -> Posterior:
    """Return the posterior of one body of evidence; without any, Jeffreys' Beta(0.5, 0.5)."""
    return posteriors([evidence])[0]
