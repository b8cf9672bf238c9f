"""The Wilson interval: worked examples and bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imem.credibility.scores.wilson import wilson


@pytest.mark.spec("CR-10")
@pytest.mark.parametrize(
    ("share", "n", "lower", "upper", "half_width"),
    [
        (0.80, 15, 0.5481, 0.9295, 0.1907),
        (0.55, 15, 0.3149, 0.7647, 0.2249),
        (1, 15, 0.7961, 1, 0.1019),
        (0, 15, 0, 0.2039, 0.1019),
        (0.5, 0, 0, 1, 0.5),
        (3 / 7, 7, 0.1582, None, None),
        (0.45, 100, 0.3561, None, None),
    ],
)
def test_worked_examples(share: float, n: int, lower: float, upper: float | None, half_width: float | None) -> None:
    found = wilson(share, n)

    assert found.lower == pytest.approx(lower, abs=5e-5)
    if upper is not None and half_width is not None:
        assert (found.upper, found.half_width) == pytest.approx((upper, half_width), abs=6e-5)


@pytest.mark.spec("CR-10")
@given(st.floats(0, 1), st.floats(0, 1e9))
def test_it_stays_between_nought_and_one(share: float, n: float) -> None:
    found = wilson(share, n)

    assert 0.0 <= found.lower <= found.upper <= 1.0
    assert found.lower - 1e-9 <= share <= found.upper + 1e-9
