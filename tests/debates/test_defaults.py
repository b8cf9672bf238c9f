"""The most cautious position of a debate, and whether a changed value matters."""

from __future__ import annotations

from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imem.debates.defaults import (
    RATING,
    RATINGS,
    ConservativeDefault,
    DefaultReason,
    StatedPosition,
    conservative_default,
)
from imem.debates.impact import Impact, impact
from imem.kg.kinds.metrics import Metric, metrics, prefer

ENDS = {
    "price_target": "low", "close": "low", "revenue": "low", "eps": "low", "free_cash_flow": "low",
    "risk": "high", "volatility": "high", "total_debt": "high", "net_debt": "high",
}  # fmt: skip


def default(metric: str | None, *values: float | str) -> ConservativeDefault:
    return conservative_default(metric, [StatedPosition(f"agent{nth}", value) for nth, value in enumerate(values)])


@pytest.mark.spec("DB-7")
@given(metric=st.sampled_from(sorted(ENDS)), values=st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=6))
def test_the_default_is_the_most_cautious_value(metric: str, values: list[float]) -> None:
    """No other position lies further toward the declared end, and none is lost."""
    found = default(metric, *values)

    assert found.position is not None
    assert found.position.value == (min(values) if ENDS[metric] == "low" else max(values))
    assert sorted([found.position.value, *(one.value for one in found.rejected)]) == sorted(values)
    assert (found.direction, found.reason) == (ENDS[metric], DefaultReason.MOST_CAUTIOUS)


@pytest.mark.spec("DB-7")
@given(st.lists(st.sampled_from(sorted(RATINGS)), min_size=1, max_size=6))
def test_the_default_rating_is_the_lowest(ratings: list[str]) -> None:
    found = default(RATING, *ratings)

    order = ["strong_sell", "sell", "hold", "buy", "strong_buy"]
    assert found.position is not None
    assert found.position.value == min(ratings, key=order.index)


@pytest.mark.spec("DB-7")
def test_every_ordered_metric_declares_its_end() -> None:
    """The table above names a metric of each declaration that has a direction."""
    ordered = [metric for metric in metrics() if metric.cautious is not None]

    assert ordered
    for metric in ordered:
        ends = {end for name, end in ENDS.items() if metric.matches(name)}
        assert ends == {metric.cautious}


@pytest.mark.parametrize("metric", [None, "up", "return_1s", "strategic_entry", "no_such_metric"])
def test_without_a_direction_the_value_is_uncertain(metric: str | None) -> None:
    found = default(metric, 1.0, 2.0)

    assert (found.position, found.direction, found.reason) == (None, None, DefaultReason.NO_DIRECTION)
    assert len(found.rejected) == 2


@pytest.mark.parametrize(
    ("metric", "values"),
    [("price_target", ("a lot", 5.0)), ("risk", (nan, 0.2)), (RATING, ("buy", "yes")), (RATING, ())],
)
def test_what_cannot_be_compared_leaves_the_value_uncertain(metric: str, values: tuple[float | str, ...]) -> None:
    """A position without a place in the order may be the most cautious one."""
    found = default(metric, *values)

    assert (found.position, found.reason) == (None, DefaultReason.NOT_COMPARABLE)


def test_a_file_of_metrics_may_declare_another_end() -> None:
    try:
        prefer([Metric("^price_target$", "value", tolerance=0.1, cautious="high")])
        assert default("price_target", 5.0, 7.0).position == StatedPosition("agent1", 7.0)
    finally:
        prefer([])


@pytest.mark.parametrize(
    ("metric", "before", "after", "rerun"),
    [
        ("price_target", 100.0, 111.0, True),
        ("price_target", 100.0, 109.0, False),
        ("price_target", 100.0, 110.0, False),
        ("price_target", 100.0, 89.0, True),
        ("confidence", 0.70, 0.85, False),
        ("confidence", 0.70, 0.86, True),
        ("risk", 0.30, 0.40, False),
        ("risk", 0.30, 0.19, True),
        ("revenue", -50.0, -56.0, True),
        ("revenue", 0.0, 0.0, False),
        ("revenue", 0.0, 0.001, True),
        ("revenue", 10.0, nan, True),
        (RATING, "hold", "hold", False),
        (RATING, "hold", "sell", True),
    ],
)
def test_impact_of_a_change(metric: str, before: float | str, after: float | str, rerun: bool) -> None:  # noqa: FBT001
    assert impact(metric, before, after).rerun is rerun


def test_impact_states_change_and_threshold() -> None:
    assert impact("price_target", 50.0, 60.0) == pytest.approx(Impact(0.2, 0.10, rerun=True))
    assert impact("confidence", 0.5, 0.4) == pytest.approx(Impact(0.1, 0.15, rerun=False))
