"""Whether records decide between two agents, on both bases."""

from __future__ import annotations

from datetime import timedelta
from math import isfinite, nan
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imem.credibility.posterior import DecayedEvidence, Posterior, posterior, posteriors
from imem.credibility.scores.auto_resolve import (
    AutoResolution,
    Basis,
    Contender,
    Reason,
    ScoreEstimate,
    auto_resolve,
    probability_greater,
)
from imem.credibility.scores.wilson import wilson

A, B = (posterior(DecayedEvidence(*sums)) for sums in ((9, 12, 15, 20), (4, 12, 9, 20)))


def of(body: Posterior) -> ScoreEstimate:
    return ScoreEstimate(body.mean, body.half_width)


def side(
    posterior: float | None, half_width: float = 0.1, *, designed: float | None = 0.5, n: float = 40, **more: object
) -> Contender:
    estimates = {"posterior": ScoreEstimate(posterior, half_width), "as_designed": ScoreEstimate(designed, 0.1)}
    return Contender(n=n, **estimates, **more)  # type: ignore[arg-type]


def resolved(a: ScoreEstimate, b: ScoreEstimate, n: float = 40) -> AutoResolution:
    return auto_resolve(Contender(n=n, posterior=a, as_designed=a), Contender(n=n, posterior=b, as_designed=b))


@pytest.mark.spec("CR-14")
def test_a_against_b() -> None:
    found = resolved(of(A), of(B)).effective

    assert (found.differential, found.threshold) == pytest.approx((0.3571, 0.3724), abs=6e-5)
    assert (found.resolved, found.reason) == (False, Reason.INSUFFICIENT_DIFFERENTIAL)
    assert probability_greater(A, B) == pytest.approx(0.9933, abs=5e-5)


@pytest.mark.spec("CR-14")
def test_54_of_60_against_33_of_60() -> None:
    a, b = (of(posterior(DecayedEvidence(right, 60))) for right in (54, 33))

    found = resolved(a, b).effective

    assert (found.differential, found.threshold) == pytest.approx((0.3443, 0.25), abs=5e-5)
    assert (found.resolved, found.winner) == (True, "a")


def test_wilson_threshold_at_fifteen() -> None:
    a, b = (ScoreEstimate(p, wilson(p, 15).half_width) for p in (0.80, 0.55))

    found = resolved(a, b, n=15).effective

    assert found.threshold == pytest.approx(0.4156, abs=6e-5)
    assert not found.resolved


@pytest.mark.spec("CR-11")
@pytest.mark.parametrize(("few", "reason"), [(14, Reason.INSUFFICIENT_SAMPLE), (15, Reason.DIFFERENTIAL)])
def test_fourteen_observations_never_decide(few: float, reason: Reason) -> None:
    for a, b in ((side(0.9, n=few), side(0.2)), (side(0.9), side(0.2, n=few))):
        assert auto_resolve(a, b).effective.reason is reason


@pytest.mark.spec("CR-12")
@pytest.mark.parametrize(("gap", "decides"), [(0.4, False), (0.4 + 1e-10, False), (0.4001, True), (0.39, False)])
def test_more_than_the_threshold_decides(gap: float, *, decides: bool) -> None:
    found = auto_resolve(side(0.2 + gap, 0.25), side(0.2, 0.15)).effective

    assert found.threshold == pytest.approx(0.4)
    assert found.resolved is decides


@pytest.mark.spec("CR-11", "CR-12")
@pytest.mark.parametrize(
    "other",
    [side(nan), side(0.2, nan), side(0.2, n=nan), side(0.2, designed=nan), side(nan, nan, designed=nan, n=nan)],
    ids=["score", "half-width", "n", "designed", "all"],
)  # fmt: skip
def test_what_is_no_number_decides_nothing(other: Contender) -> None:
    sides = (side(0.9, designed=0.9), other)
    for found in (auto_resolve(*sides), auto_resolve(*sides[::-1])):
        wrong = [one for one in found[1:] if not isfinite(sum(getattr(other, one.basis)) + other.n)]
        assert wrong
        assert not any(one.resolved for one in wrong)


estimates = st.builds(ScoreEstimate, st.none() | st.floats(0, 1), st.floats(0, 0.5))
contenders = st.builds(
    Contender, n=st.floats(0, 40), posterior=estimates, as_designed=estimates, override_flag=st.booleans(),
    age=st.sampled_from([timedelta(), timedelta(hours=25)]),
)  # fmt: skip


@pytest.mark.spec("CR-12")
@settings(deadline=None)
@given(contenders, contenders, st.sampled_from(Basis))
def test_swapping_the_sides_swaps_the_winner_alone(a: Contender, b: Contender, basis: Basis) -> None:
    found, swapped = auto_resolve(a, b, basis), auto_resolve(b, a, basis)
    other: dict[Literal["a", "b"] | None, Literal["a", "b"] | None] = {"a": "b", "b": "a", None: None}

    for one, two in zip(found, swapped, strict=True):
        assert one == two._replace(winner=other[two.winner])


@pytest.mark.spec("CR-13")
def test_both_verdicts_stand_and_the_setting_chooses() -> None:
    a, b = side(0.9, designed=0.3), side(0.3, designed=0.8)
    found = {basis: auto_resolve(a, b, basis) for basis in Basis}

    assert (found[Basis.POSTERIOR].effective.winner, found[Basis.AS_DESIGNED].effective.winner) == ("a", "b")
    assert found[Basis.POSTERIOR][1:] == found[Basis.AS_DESIGNED][1:]


@pytest.mark.spec("CR-20")
def test_without_a_score_nothing_is_decided() -> None:
    found = auto_resolve(side(0.9, designed=None), side(0.2), Basis.AS_DESIGNED)

    assert found.effective.reason is Reason.MISSING_SCORE
    assert found.posterior.resolved


@pytest.mark.spec("CR-18")
def test_what_a_flagged_agent_wins_goes_to_a_person() -> None:
    flagged = side(0.9, override_flag=True)

    assert auto_resolve(flagged, side(0.2)).effective.reason is Reason.OVERRIDE_FLAG
    assert auto_resolve(flagged, side(0.2)).effective.winner is None
    assert auto_resolve(side(0.2, override_flag=True), side(0.9)).effective.winner == "b"


def test_scores_older_than_a_day_decide_nothing() -> None:
    stale, fresh = (side(0.9, age=timedelta(hours=hours)) for hours in (24.1, 24.0))

    assert auto_resolve(stale, side(0.2)).effective.reason is Reason.STALE
    assert auto_resolve(fresh, side(0.2)).effective.resolved


@pytest.mark.spec("CR-22")
def test_equal_agents_are_seldom_decided_between() -> None:
    """Two agents that are right 85 of 100 times, 30 observations each: the posterior decides once in fifty or less."""
    n, drawn = 30, np.random.default_rng(7).binomial(30, 0.85, size=(20_000, 2))
    bodies = posteriors([DecayedEvidence(right, n) for right in range(n + 1)])
    shares = [right / n for right in range(n + 1)]
    sides = [
        Contender(n=n, posterior=of(body), as_designed=ScoreEstimate(share**3, wilson(share, n).half_width))
        for body, share in zip(bodies, shares, strict=True)
    ]
    decides = np.array([[[v.resolved for v in auto_resolve(a, b)[1:]] for b in sides] for a in sides])

    by_posterior, by_product = decides[drawn[:, 0], drawn[:, 1]].mean(axis=0)

    assert by_posterior < 0.02
    assert by_product == pytest.approx(0.189, abs=0.02)
