"""
The skill of stated probabilities against a reference, with an interval (docs/explanation/track-records.md). Pure.

Skill is ``1 - A/B``, with A and B the decayed Brier sums of the agent and of the reference on the same claims. Claims
that are true at the same moment move together, so that the spread is that of observations, never of claims: it follows
from the ratio by linearisation (Cochran, *Sampling Techniques*, 3rd ed., section 6.4; for the Brier skill score
Bradley, Schwartz and Hashino 2008), on the scale of its logarithm, since a ratio of errors is skewed, and with
Student's t, since observations are few.

One observation of average size without any skill is added before. It does to the interval what Jeffreys' prior does to
that of the share right: two weeks of good luck are no proof, and the same error twice is no certainty.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from scipy.special import stdtrit

from imem.credibility.posterior import INTERVAL
from imem.credibility.settlement import TOLERANCE

LEAST_OBSERVATIONS = 1.5
"""Effective observations below which there is no spread to estimate: one, or one that outweighs all others."""


class BrierComparison(NamedTuple):
    """
    Decayed sums over observations; of each, *own* and *other* are the Brier sums of the agent and of the reference.

    Attributes:
        own, other: weight times each.
        own_squares, cross, other_squares: squared weight times their products.
    """

    own: float
    other: float
    own_squares: float
    cross: float
    other_squares: float


class Skill(NamedTuple):
    """Skill and its 95 % interval, at most 1; above zero is better than the reference. None: not to be estimated."""

    value: float
    lower: float | None
    upper: float | None


def skill(compared: BrierComparison) -> Skill | None:
    """Return the skill, or None when the reference made no error at all."""
    own, other = max(compared.own, 0.0), compared.other
    if other <= TOLERANCE or compared.other_squares <= 0.0:
        return None
    value = 1.0 - own / other
    # By their part in the reference's error: n equal ones are n.
    effective = other * other / compared.other_squares
    if effective < LEAST_OBSERVATIONS:
        return Skill(value, None, None)
    average = other / effective
    observations = effective + 1.0
    ratio = (own + average) / (other + average)
    added = average * average
    residuals = (
        compared.own_squares + added
        - 2.0 * ratio * (compared.cross + added)
        + ratio * ratio * (compared.other_squares + added)
    )  # fmt: skip
    variance = max(residuals, 0.0) / (other + average) ** 2 * observations / (observations - 1.0)
    spread = float(stdtrit(observations - 1.0, INTERVAL[1])) * math.sqrt(variance) / ratio
    # The observation that was added draws the interval towards zero, never past the skill itself.
    return Skill(value, min(value, 1.0 - ratio * math.exp(spread)), max(value, 1.0 - ratio * math.exp(-spread)))
