"""Probation and decay, by the numbers of their specification."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imem.kg.kinds.enums import PatternStatus
from imem.patterns.evidence.watching import (
    Counts,
    Health,
    ProbationEnd,
    boschloo_p,
    decay,
    probation_end,
    required_occurrences,
)


@pytest.mark.spec("PV-26")
@pytest.mark.parametrize(
    ("initial", "occurrences", "required"),
    [(0.8, 4, 2), (0.8, 3, 3), (0.79, 9, 3), (0.75, 9, 3), (0.7499, 9, 5), (0.78, 4, 3), (0.9, 4, 2)],
)
def test_how_many_occurrences_a_probation_asks_for(initial: float, occurrences: int, required: int) -> None:
    assert required_occurrences(initial, occurrences) == required


@pytest.mark.spec("PV-26")
@pytest.mark.parametrize(
    ("required", "new", "updated", "extensions", "end"),
    [
        (3, 3, 0.71, 0, "pass"),
        (3, 3, 0.70, 0, "reject"),
        (3, 3, 0.702, 0, "pass"),
        (3, 3, None, 0, "reject"),
        (3, 2, 0.9, 0, "extend"),
        (3, 2, 0.9, 1, "extend"),
        (3, 2, 0.9, 2, "reject"),
        (3, 1, 0.9, 0, "reject"),
        (2, 1, 0.9, 0, "extend"),
        (5, 2, 0.9, 0, "reject"),
        (5, 3, 0.9, 0, "extend"),
    ],
)
def test_the_deadline_of_a_probation(required: int, new: int, updated: float | None, extensions: int, end: str) -> None:
    assert probation_end(required=required, new=new, initial=0.78, updated=updated, extensions=extensions) == end


@pytest.mark.spec("PV-26")
@given(st.integers(0, 9), st.floats(0, 1), st.floats(0, 1), st.integers(2, 9))
def test_a_third_extension_is_impossible(new: int, initial: float, updated: float, extensions: int) -> None:
    for required in (2, 3, 5):
        end = probation_end(required=required, new=new, initial=initial, updated=updated, extensions=extensions)
        assert end is not ProbationEnd.EXTEND


@pytest.mark.spec("PV-29")
def test_nine_of_fifteen_is_not_below_four_fifths_of_three_quarters() -> None:
    found = decay(Counts(9, 15), Counts(15, 20))
    assert (found.designed, found.sound, found.p) == (Health.PROBATION, Health.WATCH, None)
    assert found.status is None


def test_decay_beyond_doubt_and_within_it() -> None:
    found = decay(Counts(21, 40), Counts(15, 20))
    assert (found.ratio, found.p) == pytest.approx((0.7, 0.049), abs=5e-4)
    assert (found.designed, found.sound) == (Health.DEPRECATED, Health.PROBATION)
    assert found.status is PatternStatus.PROBATIONARY
    assert not found.alarming, "a fall of 30 % is not above it"

    sure = decay(Counts(5, 40), Counts(30, 40))
    assert (sure.sound, sure.status, sure.alarming) == (Health.DEPRECATED, PatternStatus.DEPRECATED, True)
    few = decay(Counts(0, 9), Counts(40, 40))
    assert few.p is not None
    assert (few.p < 0.0125, few.sound) == (True, Health.PROBATION)


@pytest.mark.parametrize(
    ("window", "baseline", "health"),
    [
        (Counts(17, 20), Counts(20, 20), Health.HEALTHY),
        (Counts(84, 100), Counts(100, 100), Health.WATCH),
        (Counts(0, 0), Counts(10, 10), Health.UNKNOWN),
        (Counts(3, 4), Counts(0, 9), Health.UNKNOWN),
        (Counts(3, 4), Counts(0, 0), Health.UNKNOWN),
    ],
)
def test_how_a_pattern_fares(window: Counts, baseline: Counts, health: Health) -> None:
    assert decay(window, baseline).sound is health


@settings(max_examples=25)
@given(st.integers(1, 12), st.integers(1, 12), st.data())
def test_a_better_window_is_never_more_significant(n: int, m: int, data: st.DataObject) -> None:
    k, j = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, m))
    assert boschloo_p(Counts(k, n), Counts(j, m)) <= boschloo_p(Counts(k + 1, n), Counts(j, m)) + 1e-6
