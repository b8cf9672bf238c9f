"""How neighbours of a cell differ, and that neither the order of arrival nor later points change a pair."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imem.credibility.disputes.cells import (
    Pair,
    Point,
    differ,
    difference_of,
    is_power_of_ten,
    pairs_of,
    runs_of,
    spread,
)
from imem.kg.kinds.enums import DataDifference as Difference

START = datetime(2020, 1, 1, tzinfo=UTC)


def point(
    value: float, day: int = 0, source: str = "SEC_EDGAR", *, unit: str = "USD", places: int | None = None
) -> Point:
    at = START + timedelta(days=day)
    return Point(f"{source}/{day}", value, source, f"{source}/{day}", at, at, unit, places)


@pytest.mark.parametrize(
    ("a", "b", "unit", "expected"),
    [
        (100.0, 100.0, "USD", Difference.AGREEMENT),
        (1000.0, 1001.0, "USD", Difference.AGREEMENT),
        (0.0, 0.0, "USD", Difference.AGREEMENT),
        (95.3, 94.8, "USD", Difference.DISAGREEMENT),
        (0.0, 5.0, "USD", Difference.DISAGREEMENT),
        (461509000.0, 459000000.0, "USD", Difference.DISAGREEMENT),
        (3439000.0, 3400000.0, "USD", Difference.ROUNDING),
        (0.24, 0.244, "pure", Difference.ROUNDING),
        (870000.0, 1000000.0, "USD", Difference.DISAGREEMENT),
        (0.0004, 0.0005, "pure", Difference.AGREEMENT),
        (0.0004, 0.0006, "pure", Difference.DISAGREEMENT),
        (0.0004, 0.0006, "USD", Difference.DISAGREEMENT),
        (5.0, -5.0, "USD", Difference.SIGN),
        (9.53, 95.3, "USD", Difference.SCALE),
        (9.53, 9530.0, "USD", Difference.SCALE),
        (9.53, 96.2, "USD", Difference.SCALE),
        (9.53, 96.4, "USD", Difference.DISAGREEMENT),
        (2.0, 20.0, "shares", Difference.SCALE),
        (11.89, 2.97, "USD/shares", Difference.SPLIT),
        (6_617_483_000.0, 945_355_000.0, "shares", Difference.SPLIT),
        (11.89, 2.97, "USD", Difference.DISAGREEMENT),
        (11.89, -2.97, "USD/shares", Difference.DISAGREEMENT),
    ],
)  # fmt: skip
def test_how_two_sources_differ(a: float, b: float, unit: str, expected: Difference) -> None:
    """The same, whichever became known first; only what is left over at the end is a disagreement."""
    one, other = point(a, unit=unit), point(b, 1, "Bloomberg", unit=unit)
    assert difference_of(one, other) is expected
    assert difference_of(other, one) is expected
    later = point(b, 1, unit=unit)
    restated = Difference.RESTATEMENT if expected is Difference.DISAGREEMENT else expected
    assert difference_of(one, later) is restated


def test_the_example_of_the_specification_is_a_contradiction() -> None:
    assert spread(95.3, 94.8) == pytest.approx(0.0052, abs=5e-5)
    assert Pair(point(95.3), point(94.8, 1, "Bloomberg"), Difference.DISAGREEMENT).contradicts
    assert not differ(1000.0, 999.0), "exactly 0.001 is not more"
    assert differ(1000.0, 998.9)


@pytest.mark.parametrize(
    ("a", "places_a", "b", "places_b", "rounded"),
    [
        (1234567.0, 0, 1_000_000.0, -6, True),
        (1234567.0, 0, 1_000_000.0, -5, False),
        (1234567.0, None, 1_000_000.0, -6, True),
        (1.5, 1, 2.0, 0, True),
        (1.49, 2, 2.0, 0, False),
        (2.0, 0, 2.4, 0, False),
    ],
)
def test_stated_decimals_decide_what_is_a_rounding(
    a: float, places_a: int | None, b: float, places_b: int | None, *, rounded: bool
) -> None:
    found = difference_of(point(a, places=places_a), point(b, 1, places=places_b))
    assert (found is Difference.ROUNDING) is rounded


@pytest.mark.parametrize(("a", "b"), [(1e-300, 1e300), (5e-324, 1.7e308), (-1.7e308, 1.7e308), (1e-320, 2e-320)])
def test_extreme_values_are_compared(a: float, b: float) -> None:
    for unit in ("USD", "USD/shares", "pure"):
        assert difference_of(point(a, unit=unit), point(b, 1, unit=unit)) in Difference
    assert not is_power_of_ten(0.0, b)


VALUES = st.sampled_from([100.0, 100.05, 105.0, 1000.0, -100.0, 50.0])
POINTS = st.lists(
    st.builds(point, VALUES, st.integers(0, 6), st.sampled_from(["SEC_EDGAR", "Bloomberg", "News"])),
    max_size=9,
    unique_by=lambda one: one.key,
)


@given(POINTS, st.randoms(use_true_random=False))
def test_the_order_of_arrival_makes_no_difference(points: list[Point], random: object) -> None:
    shuffled = list(points)
    random.shuffle(shuffled)  # type: ignore[attr-defined] # Hypothesis types it so
    assert pairs_of(shuffled) == pairs_of(points)


@given(POINTS)
def test_pairs_are_those_of_a_plain_list_of_values(points: list[Point]) -> None:
    """Equal neighbours collapse: there is a pair wherever the value changes, in the order of knowledge."""
    ordered = sorted(points, key=lambda one: (one.known_at, one.filed_at, one.source, one.document, one.key))
    changes = [(one.value, other.value) for one, other in pairwise(ordered) if one.value != other.value]
    found = pairs_of(points)
    assert [(pair.a.value, pair.b.value) for pair in found] == changes
    assert sum(len(run) for run in runs_of(points)) == len(points)
    assert len({pair.id for pair in found}) == len(found)


@given(POINTS, st.integers(0, 6))
def test_what_is_known_later_changes_no_earlier_pair(points: list[Point], day: int) -> None:
    until = START + timedelta(days=day)
    then = pairs_of(one for one in points if one.known_at <= until)
    assert pairs_of(points)[: len(then)] == then


def test_a_point_between_two_separates_them() -> None:
    first, last = point(100.0), point(105.0, 9)
    between = point(110.0, 5, "Bloomberg")
    [pair] = pairs_of([first, last])
    assert pair.id not in {one.id for one in pairs_of([first, between, last])}


def test_the_same_source_stands_for_equal_values() -> None:
    """A source that restates what others repeated restates its own document."""
    [pair] = pairs_of([point(100.0, 0, "Bloomberg"), point(100.0, 1), point(110.0, 2)])
    assert (pair.a.source, pair.difference) == ("SEC_EDGAR", Difference.RESTATEMENT)
