"""Whether a claim was right: rules and worked examples."""

from __future__ import annotations

from datetime import UTC, datetime
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imem.credibility.settlement import Claim, brier, judge, log_score
from imem.kg.kinds.metrics import Metric, metric_of

NOW = datetime(2026, 6, 1, tzinfo=UTC)
probabilities = st.floats(0, 1)


def metric(name: str) -> Metric:
    found = metric_of(name)
    assert found is not None
    return found


def claim(probability: float | None = None, direction: str | None = None, value: float | None = None) -> Claim:
    return Claim("ann", "flu", NOW, probability, direction, value)


@pytest.mark.parametrize(
    ("probability", "actual", "y"),
    [
        (0.9, 1.0, 1),
        (0.9, 0.0, 0),
        (0.1, 0.0, 1),
        (0.1, 1.0, 0),
        (0.5, 1.0, None),
        (0.5 + 1e-12, 0.0, None),
        (0.51, 1, 1),
    ],
)
def test_binary_is_right_on_the_side_of_what_happened(probability: float, actual: float, y: int | None) -> None:
    judged = judge(metric("up"), claim(probability), actual)

    assert judged is not None
    assert judged.y == y
    assert (judged.brier is None) == (y is None)
    assert judged.happened == actual


def test_an_outcome_that_is_neither_yes_nor_no_settles_no_binary_claim() -> None:
    assert judge(metric("up"), claim(0.9), 0.4) is None


@pytest.mark.parametrize(
    ("direction", "actual", "y"),
    [
        ("positive", 0.01, 1),
        ("positive", -0.01, 0),
        ("negative", -0.01, 1),
        ("negative", 0.01, 0),
        ("positive", 0.0, 0),
        ("negative", 0.0, 0),
        ("neutral", 0.3, None),
    ],
)
def test_direction_is_read_against_the_sign(direction: str, actual: float, y: int | None) -> None:
    judged = judge(metric("return_5s"), claim(direction=direction), actual)

    assert judged is not None
    assert judged.y == y
    assert judged.brier is None


@pytest.mark.parametrize(
    ("name", "value", "actual", "y"),
    [
        ("revenue", 115.0, 100.0, 1),
        ("revenue", 115.1, 100.0, 0),
        ("close", 120.0, 100.0, 1),
        ("close", 79.9, 100.0, 0),
        ("eps", -1.1, -1.0, 1),
        ("eps", 0.1, 0.0, 0),
    ],
)
def test_value_is_right_inside_the_tolerance(name: str, value: float, actual: float, y: int) -> None:
    judged = judge(metric(name), claim(value=value), actual)

    assert judged is not None
    assert judged.y == y


@pytest.mark.parametrize("name", ["up", "return_1s", "close"])
def test_a_claim_without_what_the_metric_reads_is_none(name: str) -> None:
    assert judge(metric(name), claim(), 1.0) is None


def test_worked_example_of_proper_scores() -> None:
    forecasts = [(0.9, 1), (0.7, 1), (0.6, 0), (0.2, 0)]
    mean = fmean(brier(p, y) for p, y in forecasts)

    assert mean == pytest.approx(0.1250, abs=5e-5)
    assert 1 - mean / fmean(brier(0.5, y) for _, y in forecasts) == pytest.approx(0.5)
    assert fmean(log_score(p, y) for p, y in forecasts) == pytest.approx(0.4004, abs=5e-5)


@settings(deadline=None)
@given(probabilities, st.integers(0, 1))
def test_scores_are_bounded_and_mirror(probability: float, happened: int) -> None:
    assert 0 <= brier(probability, happened) <= 1
    assert 0 < log_score(probability, happened) <= 6.91
    assert brier(probability, happened) == pytest.approx(brier(1 - probability, 1 - happened))


@settings(deadline=None)
@given(st.floats(0, 1).filter(lambda p: abs(p - 0.5) > 1e-6), st.integers(0, 1))
def test_exactly_one_side_is_right(probability: float, happened: int) -> None:
    yes, no = (judge(metric("up"), claim(p), float(happened)) for p in (probability, 1 - probability))

    assert yes is not None
    assert no is not None
    assert {yes.y, no.y} == {0, 1}
