"""The score as designed: worked examples, boundaries, and that its factors multiply to it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imem.credibility.posterior import decay
from imem.credibility.scores.context import ClaimContext, ContextCell
from imem.credibility.scores.designed import (
    ContextTier,
    DesignedScore,
    FormulaVersion,
    base_accuracy,
    context_tier,
    designed_score,
    override_penalty,
    regime_adjustment,
    temporal_weight,
    trend_adjusted,
)
from imem.credibility.scores.scope import Share
from imem.credibility.scores.trends import LinearTrend
from imem.journal.errors import BadInput

ASKED = ClaimContext("tech", "revenue", "1y", "large", "growth", "NORMAL")
NO_TREND = LinearTrend(0, None, None, None, None, None)


def like(matches: int) -> ClaimContext:
    """Return a context with so many matches with the one asked about; the regime is the first to differ."""
    return ClaimContext(*ASKED[:matches], *("other" for _ in ASKED[matches:]))


def cell(context: ClaimContext, observations: float, right: float) -> ContextCell:
    return ContextCell(context, observations, right, observations, observations, right, round(observations), None)


def trend(points: int = 52, r_squared: float = 0.81, current: float = 0.89, slope: float = 0.24) -> LinearTrend:
    return LinearTrend(points, current, slope, r_squared, None, None)


def scored(cells: list[ContextCell], context: ClaimContext | None = ASKED, **more: object) -> DesignedScore:
    given = {"age_years": 0.0, "halflife_years": 2.0, "trend": NO_TREND, "override_rate": None, **more}
    return designed_score(cells, context, **given)  # type: ignore[arg-type] # given by name


@pytest.mark.spec("CR-1")
@pytest.mark.parametrize(
    ("age", "weight"), [(0.25, 0.9170), (0.5, 0.8409), (1, 0.7071), (2, 0.5), (4, 0.25), (8, 0.0625)]
)
def test_temporal_weight(age: float, weight: float) -> None:
    assert temporal_weight(age, 2.0) == pytest.approx(weight, abs=5e-5)


@pytest.mark.spec("CR-1")
@given(st.floats(0, 40), st.floats(0.01, 40), st.floats(0.1, 10))
def test_decay_begins_at_one_and_falls(age: float, more: float, halflife: float) -> None:
    assert decay(0.0, halflife) == 1.0
    assert decay(age + more, halflife) < decay(age, halflife)


def test_an_outcome_of_the_future_is_refused() -> None:
    with pytest.raises(BadInput, match="resolved_at"):
        temporal_weight(-0.001, 2.0)


@pytest.mark.spec("CR-3")
def test_each_factor() -> None:
    tier = ContextTier(4, 0.70, 0.86, 20)

    assert base_accuracy(tier, 0.78) == pytest.approx(0.8360, abs=5e-5)
    assert temporal_weight(0.25, 2.0) == pytest.approx(0.9170, abs=5e-5)
    assert [regime_adjustment(Share(n, 0.68 * n), 0.78) for n in (50, 49, 0)] == pytest.approx([0.71, 0.75, 0.78])
    assert trend_adjusted(trend(), 0.78) == pytest.approx(0.9080)


@pytest.mark.spec("CR-3")
def test_the_product_and_the_simple_form() -> None:
    """The example of the specification out of cells: 0.86 in context, 0.78 in all, 0.68 in the regime."""
    cells = [
        cell(ASKED._replace(regime="OTHER"), 50, 43),
        cell(like(0)._replace(regime="NORMAL"), 50, 34),
        cell(like(0), 100, 79),
    ]

    def of(version: FormulaVersion) -> DesignedScore:
        return scored(cells, age_years=0.25, trend=trend(), override_rate=0.3, formula_version=version)

    found, simple = of(FormulaVersion.COMPREHENSIVE), of(FormulaVersion.SIMPLE)

    assert found.tier == ContextTier(4, 0.70, 0.86, 50)
    assert found.overall_accuracy == pytest.approx(0.78)
    assert found.factors == pytest.approx(
        {
            "base_accuracy": 0.8360,
            "temporal_weight": 0.9170,
            "regime_adjustment": 0.7100,
            "trend_adjusted": 0.9080,
            "override_penalty": 0.85,
        },
        abs=5e-5,
    )
    assert found.score == pytest.approx(0.4201, abs=5e-5)
    assert (found.formula_version, simple.formula_version) == ("comprehensive", "simple")
    assert simple.score == pytest.approx(0.7666, abs=5e-5)
    assert set(simple.factors) == {"base_accuracy", "temporal_weight"}


@pytest.mark.spec("CR-3")
def test_scale_collapses() -> None:
    """Nine tenths in each of three factors are three quarters."""
    found = scored([cell(ASKED, 100, 90)], trend=trend(52, 0.0, 0.9))

    assert found.score == pytest.approx(0.7290)


cells_ = st.lists(
    st.builds(
        lambda matches, observations, share: cell(like(matches), observations, observations * share),
        st.integers(0, 6), st.floats(0.1, 80), st.floats(0, 1),
    ), min_size=1, max_size=6,
)  # fmt: skip


@pytest.mark.spec("CR-3")
@settings(deadline=None)
@given(cells_, st.floats(0, 20), st.floats(0, 1), st.sampled_from(FormulaVersion), st.floats(0, 1))
def test_the_breakdown_multiplies_to_the_score(
    cells: list[ContextCell], age: float, rate: float, version: FormulaVersion, current: float
) -> None:
    found = scored(
        cells, age_years=age, override_rate=rate, formula_version=version, trend=trend(52, 0.5, current, 0.1)
    )

    assert found.score is not None
    assert math.prod(found.factors.values()) == pytest.approx(found.score, abs=1e-9)


@pytest.mark.spec("CR-4")
@pytest.mark.parametrize(
    ("rate", "factor"), [(None, 1.0), (0.2, 1.0), (0.1 + 0.1, 1.0), (0.21, 0.85), (0.4, 0.85), (0.41, 0.7), (1.0, 0.7)]
)
def test_override_penalty(rate: float | None, factor: float) -> None:
    assert override_penalty(rate) == factor


@pytest.mark.spec("CR-5")
@pytest.mark.parametrize(("points", "r_squared", "moved"), [(52, 0.3, False), (51, 0.9, False), (52, 0.31, True)])
def test_trend_counts_from_52_weeks_and_beyond_r_squared(points: int, r_squared: float, *, moved: bool) -> None:
    assert (trend_adjusted(trend(points, r_squared, 0.5), 0.78) != 0.5) is moved


def test_without_a_week_the_trend_is_overall() -> None:
    assert trend_adjusted(NO_TREND, 0.78) == 0.78


@pytest.mark.spec("CR-6")
def test_without_outcomes_of_the_regime_the_domain_stands() -> None:
    found = scored([cell(like(5), 20, 16)])

    assert found.regime_adjustment == found.overall_accuracy == pytest.approx(0.8)


@pytest.mark.spec("CR-9")
@pytest.mark.parametrize(("matches", "weight"), [(6, 1.0), (5, 0.7), (4, 0.7), (3, 0.3), (2, 0.3), (1, 0.0), (0, 0.0)])
def test_a_tier_takes_ten_outcomes(matches: int, weight: float) -> None:
    nine, ten = ([cell(like(matches), n, 5)] for n in (9, 10))

    assert context_tier(nine, ASKED).weight == 0.0
    assert context_tier(ten, ASKED).weight == weight


@pytest.mark.spec("CR-9")
def test_shares_that_add_up_to_ten_are_ten() -> None:
    assert context_tier([cell(ASKED, 0.1, 0.1)] * 100, ASKED).weight == 1.0
    assert context_tier([cell(ASKED, 9.9, 0.1)], ASKED).weight == 0.0


def test_the_highest_tier_counts_and_includes_the_closer_ones() -> None:
    cells = [cell(ASKED, 6, 6), cell(like(5), 5, 0)]

    assert context_tier(cells, ASKED) == ContextTier(4, 0.7, 6 / 11, 11)
    assert context_tier(cells, None).weight == 0.0


@pytest.mark.spec("CR-20")
def test_without_outcomes_there_is_no_score() -> None:
    found = scored([], age_years=None)

    assert found.score is None
    assert found.factors == {}
