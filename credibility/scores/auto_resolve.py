"""
Whether the records of two agents decide between them (credibility-and-contradictions, section 3). Pure.

The same rule is applied on both bases: the posterior, whose interval is that of the score, and the as-designed product,
beside which stands the Wilson interval of its base accuracy. The setting says which verdict is in force.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final, Literal, NamedTuple

import numpy as np

from imem.credibility.posterior import Posterior
from imem.credibility.settlement import TOLERANCE

LEAST_OBSERVATIONS: Final = 15
LEAST_DIFFERENTIAL: Final = 0.25

STALE_AFTER: Final = timedelta(hours=24)
"""Age of a score beyond which it decides nothing."""


class Basis(StrEnum):
    """The score that decides."""

    POSTERIOR = "posterior"
    AS_DESIGNED = "as_designed"


class Reason(StrEnum):
    """Why a comparison ended as it did; all but the first go to a person or to a debate."""

    DIFFERENTIAL = "differential"
    STALE = "stale"
    INSUFFICIENT_SAMPLE = "insufficient_sample"
    MISSING_SCORE = "missing_score"
    INSUFFICIENT_DIFFERENTIAL = "insufficient_differential"
    OVERRIDE_FLAG = "override_flag"


class ScoreEstimate(NamedTuple):
    """A score and the half-width of its interval; None: there is no score."""

    score: float | None
    half_width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """
    One side.

    Attributes:
        n: observations in the context asked about; claims with one ``target_at`` count once.
        posterior, as_designed: its scores.
        override_flag: whether what it wins goes to a person.
        age: age of the scores; zero unless they are stale.
    """

    n: float
    posterior: ScoreEstimate
    as_designed: ScoreEstimate
    override_flag: bool = False
    age: timedelta = timedelta()


class Verdict(NamedTuple):
    """
    The verdict on one basis.

    Attributes:
        basis: the basis.
        resolved: whether it decides.
        winner: whose score is higher, where it decides.
        differential: difference of the scores; None without both.
        threshold: what it must exceed; None without both.
        reason: why.
    """

    basis: Basis
    resolved: bool
    winner: Literal["a", "b"] | None
    differential: float | None
    threshold: float | None
    reason: Reason


class AutoResolution(NamedTuple):
    """
    The verdicts on both bases.

    Attributes:
        effective: the one in force.
        posterior, as_designed: both.
    """

    effective: Verdict
    posterior: Verdict
    as_designed: Verdict


def auto_resolve(a: Contender, b: Contender, basis: Basis = Basis.POSTERIOR) -> AutoResolution:
    """Return whether the scores decide between *a* and *b*; *basis* chooses the verdict in force."""
    verdicts = {one: _verdict(a, b, one) for one in Basis}
    return AutoResolution(verdicts[basis], verdicts[Basis.POSTERIOR], verdicts[Basis.AS_DESIGNED])


def _verdict(a: Contender, b: Contender, basis: Basis) -> Verdict:
    (own, own_width), (other, other_width) = getattr(a, basis), getattr(b, basis)
    differential = threshold = None
    if own is not None and other is not None:
        differential = abs(own - other)
        # In this order it is NaN if a width is: below, conditions to decide hold for numbers alone.
        threshold = max(own_width + other_width, LEAST_DIFFERENTIAL)

    def escalated(reason: Reason) -> Verdict:
        return Verdict(
            basis, resolved=False, winner=None, differential=differential, threshold=threshold, reason=reason
        )

    if max(a.age, b.age) > STALE_AFTER:
        return escalated(Reason.STALE)
    if not all(one.n >= LEAST_OBSERVATIONS - TOLERANCE for one in (a, b)):
        return escalated(Reason.INSUFFICIENT_SAMPLE)
    if own is None or other is None or differential is None or threshold is None:
        return escalated(Reason.MISSING_SCORE)
    if not differential > threshold + TOLERANCE:
        return escalated(Reason.INSUFFICIENT_DIFFERENTIAL)
    if (a if own > other else b).override_flag:
        return escalated(Reason.OVERRIDE_FLAG)
    return escalated(Reason.DIFFERENTIAL)._replace(resolved=True, winner="a" if own > other else "b")


def probability_greater(a: Posterior, b: Posterior) -> float:
    """Return the probability that the share right of *a* exceeds that of *b*; reported, not gating."""
    from scipy.special import betainc, betaincinv  # noqa: PLC0415 - a command that needs no score shall not wait for it

    # The mean of b's distribution function over the quantiles of a: smooth, however much lies at the ends.
    nodes, weights = np.polynomial.legendre.leggauss(200)
    shares = betaincinv(a.alpha, a.beta, (nodes + 1.0) / 2.0)
    return float(np.clip(np.sum(weights * betainc(b.alpha, b.beta, shares)) / 2.0, 0.0, 1.0))
