"""What shapes a pattern never tests it: the parts of cases by time."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imem.patterns.evidence.holdout import Direction, Panel, designed, evidence_of, hit_rate, holdout_p
from imem.patterns.evidence.splits import Case, sizes, split

DAY0 = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def case(
    known: int, *, predicted: int | None = None, subject: str = "s", outcome: float = 1.0, matches: bool = True,
    period: str | None = None,
) -> Case:  # fmt: skip
    """Return a case by days; without a prediction's day it was made a day before."""
    begun = known - 1 if predicted is None else predicted
    return Case(
        subject=subject, period=period or f"p{known}", predicted_at=DAY0 + begun * DAY + DAY / 2,
        known_at=DAY0 + known * DAY, outcome=outcome, reference=0.5, matches=matches, sd=0.5,
    )  # fmt: skip


@pytest.mark.spec("PV-3")
@pytest.mark.parametrize(("n", "parts"), [(200, (140, 30, 30)), (37, (25, 6, 6)), (90, (63, 13, 14))])
def test_parts_have_the_sizes_of_the_specification(n: int, parts: tuple[int, int, int]) -> None:
    first, second = sizes(n)
    assert (first, second - first, n - second) == parts
    # Predicted half a day before its outcome, each case is after all earlier ones.
    found = split([case(day) for day in range(n)])
    assert (len(found.training), len(found.validation), len(found.test)) == parts
    assert found.embargoed == []


CASES = st.lists(
    st.builds(
        lambda known, ahead, subject, hours: replace(
            case(known, predicted=known - ahead, subject=subject), known_at=DAY0 + known * DAY + timedelta(hours=hours)
        ),
        st.integers(0, 40), st.integers(1, 12), st.sampled_from("abc"), st.integers(0, 23),
    ),
    max_size=120,
)  # fmt: skip


@pytest.mark.spec("PV-3")
@pytest.mark.spec("PV-6")
@given(CASES)
def test_parts_follow_each_other_and_share_nothing(cases: list[Case]) -> None:
    """No date is in two parts, and whoever made a forecast in a later part could know all outcomes of the earlier."""
    found = split(cases)
    parts = [found.training, found.validation, found.test]
    assert sorted(map(id, [*parts[0], *parts[1], *parts[2], *found.embargoed])) == sorted(map(id, cases))
    for earlier, later in pairwise(part for part in parts if part):
        assert max(one.known_at for one in earlier) < min(one.known_at for one in later)
        assert max(one.known_at for one in earlier) < min(one.predicted_at for one in later)
    by_date: dict[date, set[int]] = {}
    for number, part in enumerate(parts):
        for one in part:
            by_date.setdefault(one.known_at.date(), set()).add(number)
    assert all(len(numbers) == 1 for numbers in by_date.values())


@pytest.mark.spec("PV-6")
def test_a_case_that_crosses_a_boundary_is_left_out() -> None:
    cases = [case(day) for day in range(20)]
    cases[15] = case(15, predicted=5)
    cases[18] = case(18, predicted=15)
    found = split(cases)
    assert [one.known_at for one in found.embargoed] == [DAY0 + 15 * DAY, DAY0 + 18 * DAY]


@pytest.mark.spec("PV-3")
@given(CASES, st.lists(st.floats(0, 1), min_size=120, max_size=120))
def test_discovery_sees_nothing_of_later_data(cases: list[Case], poison: list[float]) -> None:
    """A later record that says something else changes nothing of the part that a pattern is found in."""

    before = split(cases)
    later = {id(one) for one in (*before.validation, *before.test, *before.embargoed)}
    poisoned = [
        replace(one, outcome=value) if id(one) in later else one for one, value in zip(cases, poison, strict=False)
    ]
    assert split(poisoned).training == before.training
    for direction in Direction:
        assert hit_rate(split(poisoned).training, direction) == hit_rate(before.training, direction)


def test_an_outcome_date_of_many_cases_is_not_cut() -> None:
    cases = [
        *(case(day) for day in range(60)),
        *(case(60, subject=f"m{n}") for n in range(30)),
        *map(case, range(61, 71)),
    ]
    found = split(cases)
    assert len(found.training) == 60, "70 of 100 lies in the date of 60 to 89; its beginning is nearer"
    assert {one.known_at for one in found.validation} == {DAY0 + 60 * DAY}


# The sound test


def world(
    subjects: int, periods: int, *, effect: float = 0.0, drift: float = 0.0, seed: int = 0, gaps: float = 0.0
) -> list[Case]:
    """Return cases with errors that last: each subject has its own, that slowly changes; half of them match."""
    random = np.random.default_rng(seed)
    found = []
    for number in range(subjects):
        own, held = random.normal(0, 1), number % 2 == 0
        for period in range(periods):
            own = 0.9 * own + 0.3 * random.normal()
            if random.random() < gaps:
                continue
            outcome = 0.5 + 0.5 * (own + drift * period + effect * held)
            found.append(case(period, subject=f"s{number}", outcome=outcome, matches=held, period=f"{period:03}"))
    return found


def p_of(cases: list[Case], direction: Direction = Direction.HIGHER, seed: int = 1) -> float:
    return float(holdout_p(cases, [cases], [direction], resamples=499, seed=seed)[0])


def test_an_effect_is_found_in_its_direction() -> None:
    cases = world(30, 12, effect=2.0)
    assert p_of(cases) < 0.01
    assert p_of(cases, Direction.LOWER) > 0.9
    assert p_of(cases) == p_of(cases), "a seed repeats it"


def test_errors_that_last_are_no_effect() -> None:
    """Subjects keep their error from period to period: a test of rows would find what is not there."""
    for gaps in (0.0, 0.3):
        found = [p_of(world(20, 12, seed=seed, drift=0.5, gaps=gaps)) for seed in range(60)]
        assert sum(p < 0.05 for p in found) <= 8, "60 worlds at 5 %: more than 8 has a probability of 0.3 %"
        assert 0.3 < sum(found) / len(found) < 0.7


def test_one_subject_proves_nothing() -> None:
    assert p_of(world(1, 40, effect=5.0)) == 1.0


@settings(max_examples=20)
@given(st.integers(2, 6), st.integers(1, 5), st.floats(0, 0.6), st.integers(0, 99))
def test_a_substitute_is_another_subject_of_the_period(subjects: int, periods: int, gaps: float, seed: int) -> None:
    """In each period the present subjects exchange what they have, so that its sum stays."""

    cases = world(subjects, periods, gaps=gaps, seed=seed)
    if not cases:
        return
    panel = Panel(cases)
    random = np.random.default_rng(seed)
    permutations = random.permuted(np.tile(np.arange(len(panel.subjects)), (7, 1)), axis=1)
    found = panel.substitutes(permutations)
    present = ~np.isnan(panel.residuals)
    for drawn in found:
        for column in range(len(panel.periods)):
            here = np.flatnonzero(present[:, column])
            assert sorted(drawn[here, column]) == list(here)
    if not gaps:
        assert all((drawn == drawn[:, :1]).all() for drawn in found), "a subject keeps its substitute"


def test_how_much_evidence_there_is() -> None:
    cases = world(2, 12)
    assert evidence_of(cases) == (12, 12)
    assert evidence_of(cases).enough
    assert not evidence_of(world(6, 5)).enough, "five periods"
    assert not evidence_of(world(2, 9)).enough, "nine cases"
    assert designed(split(world(2, 60, effect=3.0)), Direction.HIGHER).failure is None
