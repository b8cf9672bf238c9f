"""The Brier skill and its interval: worked examples, and how often the interval holds the truth."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from imem.credibility.skill import BrierComparison, Skill, skill

Days = list[tuple[float, float]]


def compared(days: Days, weights: list[float] | None = None) -> BrierComparison:
    """Return the sums over observations, each of which is the Brier sums of the agent and of the reference."""
    weights = weights or [1.0] * len(days)
    each = [(weight, own, other) for weight, (own, other) in zip(weights, days, strict=True)]
    return BrierComparison(
        math.fsum(w * own for w, own, _ in each),
        math.fsum(w * other for w, _, other in each),
        math.fsum((w * own) ** 2 for w, own, _ in each),
        math.fsum(w * w * own * other for w, own, other in each),
        math.fsum((w * other) ** 2 for w, _, other in each),
    )


def found(days: Days, weights: list[float] | None = None) -> Skill:
    result = skill(compared(days, weights))
    assert result is not None
    return result


def test_worked_example() -> None:
    """Four observations of one size, and the one without skill that is added: the formula by hand."""
    days = [(0.10, 0.25), (0.30, 0.25), (0.05, 0.25), (0.15, 0.25)]
    all_five = [*days, (0.25, 0.25)]
    ratio = sum(own for own, _ in all_five) / 1.25
    variance = sum((own - ratio * other) ** 2 for own, other in all_five) / 1.25**2 * 5 / 4
    spread = float(stats.t.ppf(0.975, 4)) * math.sqrt(variance) / ratio

    result = found(days)

    assert result.value == pytest.approx(1 - 0.6 / 1.0)
    assert result.lower == pytest.approx(1 - ratio * math.exp(spread))
    assert result.upper == pytest.approx(1 - ratio * math.exp(-spread))


def test_what_cannot_be_estimated_is_none() -> None:
    """A reference without error is nothing to compare with; one observation has no spread, nor one beside a crumb."""
    assert skill(compared([(0.2, 0.0)])) is None
    assert skill(BrierComparison(0.0, 0.0, 0.0, 0.0, 0.0)) is None
    assert found([(0.1, 0.2)]) == (0.5, None, None)
    assert found([(0.1, 0.2), (0.1, 0.2)], [1.0, 0.001])[1:] == (None, None)
    assert None not in found([(0.1, 0.2), (0.1, 0.2)])


def test_the_same_error_twice_is_no_certainty() -> None:
    """Without any spread, and without any error at all, the interval is that of few observations, and narrows."""
    for own in (0.0, 0.04):
        widths = []
        for n in (2, 5, 20, 200):
            result = found([(own, 0.25)] * n)
            assert result.lower is not None
            assert result.upper is not None
            assert result.lower < result.value <= result.upper <= 1
            widths.append(result.upper - result.lower)
        assert widths == sorted(widths, reverse=True)
        assert widths[1] > 0.2
        assert widths[-1] < 0.05


@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(st.floats(0, 50), st.floats(0.001, 50), st.floats(0.001, 1)), min_size=1, max_size=12))
def test_the_interval_holds_the_skill(days: list[tuple[float, float, float]]) -> None:
    """Whatever the sums, and however uneven: finite, around the skill, and never above 1."""
    result = found([(own, other) for own, other, _ in days], [weight for _, _, weight in days])
    if result.lower is None or result.upper is None:
        return
    assert math.isfinite(result.lower)
    assert result.lower <= result.value <= result.upper <= 1


def simulated(chance: Any, count: int, claims: int, together: float, sharpness: float) -> Days:
    """
    Return observations of claims of which a share *together* of the surprise is common to all.

    The agent sees a signal, and states a probability that is too extreme the further *sharpness* is above one; the
    reference says a half.
    """
    signal = chance.normal(size=(count, claims))
    shock = chance.normal(size=(count, 1)) * math.sqrt(together)
    noise = chance.normal(size=(count, claims)) * math.sqrt(1 - together)
    happened = (signal + shock + noise > 0).astype(float)
    own = (stats.norm.cdf(sharpness * signal) - happened) ** 2
    other = (0.5 - happened) ** 2
    return list(zip(own.sum(axis=1).tolist(), other.sum(axis=1).tolist(), strict=True))


@pytest.mark.parametrize(("claims", "together"), [(1, 0.0), (20, 0.3)])
@pytest.mark.parametrize("sharpness", [0.7, 2.5])
@pytest.mark.parametrize("count", [3, 8, 28])
def test_coverage(count: int, sharpness: float, claims: int, together: float) -> None:
    """Nineteen of twenty intervals hold the truth, from three observations on, also where claims move together."""
    chance = np.random.default_rng([count, claims, int(sharpness * 10)])
    own, other = (sum(column) for column in zip(*simulated(chance, 20_000, claims, together, sharpness), strict=True))
    truth = 1 - own / other
    runs = 300
    held = 0
    for _ in range(runs):
        result = found(simulated(chance, count, claims, together, sharpness))
        assert result.lower is not None
        assert result.upper is not None
        held += result.lower <= truth <= result.upper
    # 0.95 less three standard errors of 300 runs, and what few observations of a skewed ratio cost.
    assert held / runs > 0.90
