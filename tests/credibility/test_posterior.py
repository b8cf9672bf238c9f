"""The decayed Beta posterior: worked examples and properties."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from imem.credibility.posterior import DecayedEvidence, decay, posterior, posteriors


@pytest.mark.parametrize(
    ("age", "weight"), [(0, 1), (0.25, 0.9170), (0.5, 0.8409), (1, 0.7071), (2, 0.5), (4, 0.25), (8, 0.0625), (-1, 1)]
)
def test_decay(age: float, weight: float) -> None:
    assert decay(age, 2.0) == pytest.approx(weight, abs=5e-5)


@pytest.mark.parametrize(
    ("evidence", "mean", "lower", "upper"),
    [
        (DecayedEvidence(9, 12, 15, 20), 0.7446, 0.5481, 0.8992),
        (DecayedEvidence(4, 12, 9, 20), 0.3874, 0.2003, 0.5940),
        (DecayedEvidence(0, 0), 0.5, 0.0015, 0.9985),
    ],
)
def test_worked_examples(evidence: DecayedEvidence, mean: float, lower: float, upper: float) -> None:
    found = posterior(evidence)

    assert (found.mean, found.lower, found.upper) == pytest.approx((mean, lower, upper), abs=5e-5)


@pytest.mark.parametrize(
    ("right", "of", "age", "mean", "half_width"),
    [
        (32, 40, 0, 0.7927, 0.1214),
        (32, 40, 2, 0.7857, 0.1684),
        (32, 40, 6, 0.7500, 0.3031),
        (54, 60, 0, 0.8934, None),
        (33, 60, 0, 0.5492, None),
    ],
)
def test_one_domain_alone_is_jeffreys_and_staleness_widens(
    right: int, of: int, age: float, mean: float, half_width: float | None
) -> None:
    found = posterior(DecayedEvidence(right * decay(age, 2), of * decay(age, 2)))

    assert found.mean == pytest.approx(mean, abs=5e-5)
    if half_width is not None:
        assert found.half_width == pytest.approx(half_width, abs=5e-5)


weights = st.floats(0, 500)
shares = st.floats(0, 1)


@settings(deadline=None)
@given(st.lists(st.tuples(shares, weights, shares, weights), max_size=5))
def test_interval_is_that_of_scipy_and_holds_the_mean(bodies: list[tuple[float, float, float, float]]) -> None:
    evidence = [DecayedEvidence(s * w, w, t * v, v) for s, w, t, v in bodies]

    for one, found in zip(evidence, posteriors(evidence), strict=True):
        expected = [stats.beta.ppf(bound, found.alpha, found.beta) for bound in (0.025, 0.975)]
        assert [found.lower, found.upper] == pytest.approx(expected, abs=1e-9)
        assert 0 <= found.lower <= found.mean <= found.upper <= 1
        assert found.alpha + found.beta == pytest.approx(min(10, 1 + one.outside_weight) + one.weight)


@settings(deadline=None)
@given(shares, st.floats(2, 500), st.floats(0.1, 20))
def test_age_never_narrows(share: float, weight: float, age: float) -> None:
    fresh = posterior(DecayedEvidence(share * weight, weight))
    stale = posterior(DecayedEvidence(share * weight * decay(age, 2), weight * decay(age, 2)))

    assert stale.half_width >= fresh.half_width - 1e-9
