"""Skill and luck are told apart by the table. Pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imem.kg.kinds.enums import SuccessClass
from imem.postmortem.success import attribute

RETURNS = st.floats(-1, 5)


@pytest.mark.spec("PM-10")
@pytest.mark.parametrize(
    ("stock", "market", "sector", "thesis", "shares", "skill", "found"),
    [
        (0.30, 0.05, 0.08, 0.85, (0.167, 0.100, 0.733), 0.623, "genuine_success"),
        (0.30, 0.10, 0.12, 0.80, (0.333, 0.067, 0.600), 0.480, "partial_success"),
        (0.20, 0.25, 0.25, 0.50, (1.0, 0.0, 0.0), 0.0, "lucky_success"),
        (0.10, -0.05, -0.08, 0.90, (0.0, 0.0, 1.0), 0.900, "genuine_success"),
        (0.02, 0.10, -0.05, 0.90, (0.588, 0.0, 0.412), 0.371, "lucky_success"),
        (0.019, 0.0, 0.0, 0.90, (0.0, 0.0, 1.0), 0.900, "not_assessable"),
    ],
)
def test_the_table_of_successes(  # noqa: PLR0917 - a row of the table
    stock: float, market: float, sector: float, thesis: float, shares: tuple[float, ...], skill: float, found: str
) -> None:
    one = attribute(stock, market, sector, thesis)
    assert (one.market_share, one.sector_share, one.specific_share) == pytest.approx(shares, abs=5e-4)
    assert one.skill_ratio == pytest.approx(skill, abs=5e-4)
    assert one.classification == found
    assert one.market + one.sector + one.specific == pytest.approx(stock)


@pytest.mark.parametrize(("thesis", "found"), [(0.7, "partial_success"), (0.71, "genuine_success")])
def test_a_wrong_thesis_is_no_genuine_success(thesis: float, found: str) -> None:
    assert attribute(0.3, 0.0, 0.0, thesis).classification == found


@pytest.mark.spec("PM-10")
@given(st.tuples(RETURNS, RETURNS, RETURNS), st.floats(0, 1), st.sampled_from([0, 1]))
def test_shares_sum_to_one(returns: tuple[float, float, float], thesis: float, way: int) -> None:
    (stock, market, sector), falls = returns, bool(way)
    one = attribute(stock, market, sector, thesis, falls=falls)
    total = one.market_share + one.sector_share + one.specific_share
    assert total == pytest.approx(1.0, abs=1e-9) or total == 0.0
    assert 0.0 <= one.skill_ratio <= 1.0
    mirrored = attribute(-stock, -market, -sector, thesis, falls=not falls)
    assert mirrored.classification is one.classification
    assert mirrored.skill_ratio == pytest.approx(one.skill_ratio)


def test_a_fall_that_was_expected_is_a_success_of_the_specific_part() -> None:
    """A stock that was passed fell by 30 percent, in a market that rose."""
    one = attribute(-0.30, 0.05, 0.02, 0.9, falls=True)
    assert one.classification is SuccessClass.GENUINE_SUCCESS
    assert [one.market, one.specific] == pytest.approx([-0.05, 0.32])
