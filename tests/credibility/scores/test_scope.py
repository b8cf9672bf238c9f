"""Sums over context cells, and the posterior of a scope."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imem.credibility.posterior import DecayedEvidence, decay, posterior
from imem.credibility.scores.context import ClaimContext, ContextCell, matches
from imem.credibility.scores.scope import Share, by_dimension, of_regime, scope_evidence, share

ASKED = ClaimContext("tech", "revenue", "1y", "large", "growth", "NORMAL")


def cell(context: ClaimContext, weight: float, successes: float) -> ContextCell:
    return ContextCell(context, weight, successes, weight, weight, successes, round(weight), None)


def test_none_matches_none() -> None:
    assert matches(ClaimContext(), ClaimContext()) == 6
    assert matches(ClaimContext("tech"), ClaimContext()) == 5


@pytest.mark.spec("CR-14")
def test_four_matches_are_inside() -> None:
    """Posteriors A and B of the worked examples, out of cells."""
    near = ASKED._replace(sector="energy", regime="BEAR_LOW_RATES")
    far = near._replace(metric_type=None)
    assert (matches(near, ASKED), matches(far, ASKED)) == (4, 3)
    found = [
        posterior(scope_evidence([cell(ASKED, 5, 2), cell(near, 7, right - 2), cell(far, 20, outside)], ASKED))
        for right, outside in ((9, 15), (4, 9))
    ]

    assert (found[0].alpha, found[0].beta) == pytest.approx((16.3810, 5.6190), abs=5e-5)
    assert [one.mean for one in found] == pytest.approx([0.7446, 0.3874], abs=5e-5)
    assert [(one.lower, one.upper) for one in found] == [
        pytest.approx((0.5481, 0.8992), abs=5e-5),
        pytest.approx((0.2003, 0.5940), abs=5e-5),
    ]
    assert [one.half_width for one in found] == pytest.approx([0.1756, 0.1969], abs=6e-5)


@pytest.mark.spec("CR-14", "CR-20")
def test_without_a_context_all_is_inside_and_nothing_is_jeffreys() -> None:
    assert scope_evidence([cell(ASKED, 3, 2), cell(ClaimContext(), 4, 1)], None) == DecayedEvidence(3, 7)
    nothing = posterior(scope_evidence([], ASKED))
    assert (nothing.lower, nothing.upper) == pytest.approx((0.0015, 0.9985), abs=5e-5)


@pytest.mark.spec("CR-14")
@settings(deadline=None)
@given(st.floats(2, 500), st.floats(0, 1), st.floats(0.1, 20))
def test_ageing_everything_widens_where_nothing_is_outside(weight: float, right: float, age: float) -> None:
    fresh, aged = (
        posterior(scope_evidence([cell(ASKED, weight * fade, weight * fade * right)], ASKED)).half_width
        for fade in (1.0, decay(age, 2.0))
    )

    assert aged > fresh


def test_sums_by_dimension_and_regime() -> None:
    cells = [cell(ASKED, 4, 3), cell(ASKED._replace(sector="energy"), 6, 1), cell(ClaimContext(), 1, 1)]

    assert share(cells).accuracy == pytest.approx(5 / 11)
    assert of_regime(cells, "NORMAL") == Share(10, 4)
    assert of_regime(cells, None) == Share(0, 0)
    assert by_dimension(cells)["sector"] == {"energy": Share(6, 1), "tech": Share(4, 3)}
