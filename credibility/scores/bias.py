"""
Systematic errors of stated values, and corrections of them (credibility-and-contradictions, section 7). Pure.

A bias is estimated on the older claims and tested on the newer ones; what passes is a proposal. It is shown beside a
claim once a person has approved it, and never changes a claim, a score or an outcome.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from statistics import fmean, median
from typing import Final, NamedTuple

from imem.credibility.settlement import TOLERANCE
from imem.kg.kinds.enums import BiasKind

OLDER: Final = 0.70
"""Share of the observations, the older ones, that a bias is estimated on; it is tested on the others."""

SYSTEMATIC: Final = 0.20
"""Share of claims with one type of error, too high or too low, above which it is systematic."""

IMPROVEMENT: Final = 0.10
"""Share of the newer claims that must become right beyond those that become wrong."""

LEAST_OBSERVATIONS: Final = 15
"""Moments (``target_at``) below which nothing is proposed."""


class ValueClaim(NamedTuple):
    """A settled claim of a value, with the relative tolerance within which it is right."""

    target_at: datetime
    predicted: float
    actual: float
    tolerance: float


class BiasProposal(NamedTuple):
    """
    A bias that corrects newer claims it was not estimated on.

    Attributes:
        kind: relative or absolute.
        bias: the median error; above zero: too high.
        n: observations it was estimated on.
        frequency: share of the older claims that are wrong in its direction.
        before, after: share of the newer claims that are right without and with the correction.
    """

    kind: BiasKind
    bias: float
    n: int
    frequency: float
    before: float
    after: float


def corrected(predicted: float, kind: BiasKind, bias: float) -> float:
    """Return a value without its bias."""
    return predicted / (1.0 + bias) if kind is BiasKind.RELATIVE else predicted - bias


def error(predicted: float, actual: float, kind: BiasKind) -> float:
    """Return the error of a value; relative to the size of the outcome, which is then not zero."""
    return (predicted - actual) / abs(actual) if kind is BiasKind.RELATIVE else predicted - actual


def propose(claims: Sequence[ValueClaim]) -> BiasProposal | None:
    """Return the correction that improves the newer claims most; None if none improves them enough."""
    moments = sorted({one.target_at for one in claims})
    if len(moments) < LEAST_OBSERVATIONS:
        return None
    cut = moments[round(len(moments) * OLDER)]
    older = [one for one in claims if one.target_at < cut]
    newer = [one for one in claims if one.target_at >= cut]
    found = [proposal for kind in BiasKind if (proposal := _proposal(kind, older, newer)) is not None]
    return max(found, key=lambda one: one.after, default=None)


def _proposal(kind: BiasKind, older: Sequence[ValueClaim], newer: Sequence[ValueClaim]) -> BiasProposal | None:
    if kind is BiasKind.RELATIVE and any(one.actual <= 0.0 for one in older):
        # Below zero the correction by a share would go the wrong way.
        return None
    bias = median(error(one.predicted, one.actual, kind) for one in older)
    if not math.isfinite(bias):
        # The values lie beyond all measure: a bias of them is no number that could be recorded.
        return None
    wrong = [one for one in older if not _right(one.predicted, one)]
    frequency = sum((one.predicted > one.actual) == (bias > 0.0) for one in wrong) / len(older)
    if frequency <= SYSTEMATIC + TOLERANCE or bias == 0.0 or (kind is BiasKind.RELATIVE and bias <= -1.0 + TOLERANCE):
        return None
    before = fmean(_right(one.predicted, one) for one in newer)
    after = fmean(_right(corrected(one.predicted, kind, bias), one) for one in newer)
    if after - before <= IMPROVEMENT + TOLERANCE:
        return None
    return BiasProposal(kind, bias, len({one.target_at for one in older}), frequency, before, after)


def _right(value: float, claim: ValueClaim) -> bool:
    return abs(value - claim.actual) <= claim.tolerance * abs(claim.actual) + TOLERANCE
