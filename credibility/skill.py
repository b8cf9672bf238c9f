"""
The skill of stated probabilities against a reference, with an interval (docs/explanation/track-records.md). Pure.

Skill is ``1 - A/B``, with A and B the decayed Brier sums of the agent and of the reference on the same claims. Claims
with the same ``target_at`` are correlated, so the variance is taken over observations, not claims. It is that of a
ratio, by linearisation (Cochran, *Sampling Techniques*, 3rd ed., section 6.4; for the Brier skill score Bradley,
Schwartz and Hashino 2008). The interval is on the scale of the ratio's logarithm, since a ratio of errors is skewed,
and uses Student's t, since observations are few.

One observation of average size without skill is added first. It has the effect on the interval that Jeffreys' prior has
on that of the share right: it keeps the interval of few observations wide.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from imem.credibility.posterior import INTERVAL
from imem.credibility.settlement import TOLERANCE

LEAST_OBSERVATIONS = 1.5
"""Least effective number of observations for an interval; below, one observation outweighs all others."""


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
    """Skill and its 95 % interval, at most 1; above zero is better than the reference. None: not estimable."""

    value: float
    lower: float | None
    upper: float | None


def skill(compared: BrierComparison) -> Skill | None:
    """Return the skill, or None when the reference made no error at all."""
    own, other = max(compared.own, 0.0), compared.other
    if other <= TOLERANCE or compared.other_squares <= 0.0:
        return None
    value = 1.0 - own / other
    # Effective number of observations, weighted by their share of the reference's error.
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
    from scipy.special import stdtrit  # noqa: PLC0415 - a command that needs no score shall not wait for it

    spread = float(stdtrit(observations - 1.0, INTERVAL[1])) * math.sqrt(variance) / ratio
    # The added observation pulls the interval towards zero; it is clamped to contain the skill.
    return Skill(value, min(value, 1.0 - ratio * math.exp(spread)), max(value, 1.0 - ratio * math.exp(-spread)))
