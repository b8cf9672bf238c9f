"""Cases are ordered by their deviation, or by their impact. Pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imem.postmortem.cases.priorities import Impact

A = Impact(deviation=3.5, loss_usd=50_000, portfolio_share=0.05, sector_failures=1)
B = Impact(deviation=7.0, loss_usd=3_000, portfolio_share=0.005)


@pytest.mark.spec("PM-9")
def test_each_policy_has_its_order() -> None:
    assert [A.score, B.score] == pytest.approx([76.76, 33.57], abs=0.01)
    assert A.score > B.score, "by impact A comes first"
    assert B.deviation > A.deviation, "by deviation B does"


@given(st.floats(0, 1e9), st.floats(0, 1e15), st.floats(0, 100), st.integers(0, 10_000))
def test_an_impact_lies_between_0_and_100(deviation: float, loss: float, share: float, failures: int) -> None:
    one = Impact(deviation=deviation, loss_usd=loss, portfolio_share=share, sector_failures=failures)
    assert 0.0 <= one.score <= 100.0 + 1e-9


def test_without_a_loss_its_factor_is_nothing() -> None:
    assert Impact(deviation=0.5).score == pytest.approx(12.5)
    assert Impact(deviation=0.5, loss_usd=999).score == pytest.approx(12.5)
