"""The miner: what it looks at, what it proposes, and that it sees nothing of later data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from imem.patterns.cases import FeaturedCase, featured
from imem.patterns.definition import FEATURES, MOST_ATOMS, Period
from imem.patterns.evidence.holdout import Direction, hit_rate
from imem.patterns.evidence.splits import split
from imem.patterns.mining import LEAST_OCCURRENCES, Mined, SearchSpace, mine
from tests.patterns.test_splits import DAY, DAY0, case


def featured_cases(*, subjects: int = 20, periods: int = 30, effect: float = 0.0, seed: int = 0) -> list[FeaturedCase]:
    """Return cases of events; where the sector is Energy and the forecast high, they happen more often by *effect*."""
    random = np.random.default_rng(seed)
    found = []
    for number in range(subjects):
        sector = ("Energy", "Retail", None)[number % 3]
        for period in range(periods):
            stated, drift = float(random.uniform(0.05, 0.95)), float(random.normal(0, 0.1))
            chance = stated + effect * (sector == "Energy" and stated >= 0.5)
            outcome = float(random.random() < chance)
            one = replace(
                case(period, subject=f"s{number}", outcome=outcome, period=f"{period:03}"),
                reference=stated, sd=(stated * (1 - stated)) ** 0.5,
            )  # fmt: skip
            known = {"sector": sector, "forecast": stated, "drift": drift if period else None}
            found.append(FeaturedCase(one, {**dict.fromkeys(FEATURES), **known}))
    return found


def mined(cases: Sequence[FeaturedCase]) -> Mined:
    return mine(cases, metric="up", reference="crowd", category="financial", period=Period.WEEK)


def test_an_effect_is_proposed_first() -> None:
    found = mined(featured_cases(subjects=60, effect=0.5))
    best = found.proposals[0]
    assert best.claim is Direction.HIGHER
    assert {"sector", "forecast"} <= {atom.feature for atom in best.condition}
    assert best.words.startswith("Where sector is Energy and forecast at least 0.")
    assert (best.metric, best.reference, best.category, best.period) == ("up", "crowd", "financial", Period.WEEK)
    assert len({one.key for one in found.proposals}) == len(found.proposals)
    assert "None is known" in best.mechanism


def test_a_run_says_how_much_it_looked_at() -> None:
    cases = featured_cases()
    found, training = mined(cases), split([one.case for one in cases]).training
    assert found.training == len(training)
    assert len(found.proposals) < found.search_space
    assert found.expected == pytest.approx(0.02275 * found.search_space, rel=1e-3)


def test_a_run_is_repeated_exactly_whatever_the_order_of_cases() -> None:
    cases = featured_cases(effect=0.3)
    assert mined(cases[::-1]) == mined(cases) == mined(cases)


def test_conditions_are_bounded_and_each_set_of_cases_is_looked_at_once() -> None:
    features = [one.features for one in featured_cases()]
    space = SearchSpace(features)
    assert len({held.tobytes() for held in space.held}) == len(space.conditions)
    assert all(1 <= len(condition) <= MOST_ATOMS for condition in space.conditions)
    assert space.held.sum(axis=1).min() >= LEAST_OCCURRENCES
    for condition, held in zip(space.conditions, space.held, strict=True):
        assert [all(atom.holds(one) for atom in condition) for one in features] == held.tolist()
    few = SearchSpace(features, most=30)
    assert few.conditions == space.conditions[: len(few.conditions)]
    assert len(few.conditions) <= 30


@pytest.mark.parametrize("cases", [[], featured_cases(subjects=1, periods=4)])
def test_too_few_cases_propose_nothing(cases: list[FeaturedCase]) -> None:
    assert (mined(cases).proposals, mined(cases).search_space) == ((), 0)


def test_an_outcome_that_is_not_finite_proposes_nothing() -> None:
    cases = featured_cases(effect=0.5)
    cases[0] = FeaturedCase(replace(cases[0].case, outcome=float("nan")), cases[0].features)
    assert mined(cases).proposals == ()


def test_what_is_proposed_holds_in_training() -> None:
    """By its hit rate as designed, or by its residuals."""
    cases = featured_cases(effect=0.5)
    known = {id(one.case): one.features for one in cases}
    training = split([one.case for one in cases]).training
    for one in mined(cases).proposals:
        held = [replace(found, matches=one.holds(known[id(found)])) for found in training]
        rate = hit_rate(held, one.claim)
        assert rate is not None
        gains = [one.claim.sign * (found.outcome - found.reference) for found in held if found.matches]
        assert len(gains) >= LEAST_OCCURRENCES
        assert rate >= 0.7 or sum(gains) > 0.0


@pytest.mark.spec("PV-3")
@settings(max_examples=8, deadline=None, phases=(Phase.generate,))
@given(st.integers(0, 99), st.lists(st.floats(-5, 5), min_size=8, max_size=8))
def test_a_poisoned_later_record_changes_no_proposal(seed: int, poison: list[float]) -> None:
    """Outcomes, forecasts and features of all later cases say something else, and as much is proposed."""
    cases = featured_cases(subjects=9, periods=15, effect=0.3, seed=seed)
    training = {id(one) for one in split([one.case for one in cases]).training}
    assert 0 < len(training) < len(cases)

    def poisoned(number: int, one: FeaturedCase) -> FeaturedCase:
        if id(one.case) in training:
            return one
        value = poison[number % len(poison)]
        changed = replace(one.case, outcome=value, reference=-value, sd=abs(value) + 1.0, subject=f"other{number % 3}")
        return FeaturedCase(changed, {**one.features, "forecast": value, "drift": -value, "sector": f"{value}"})

    assert mined([poisoned(number, one) for number, one in enumerate(cases)]) == mined(cases)


def test_a_row_becomes_a_case_with_its_features() -> None:
    row: dict[str, Any] = {
        **dict.fromkeys(FEATURES), "subject_id": "company:MU", "period": DAY0, "predicted_at": DAY0,
        "known_at": DAY0 + DAY, "stated": 0.8, "happened": 1, "error": -0.2, "drift": 0.1, "sector": "Energy",
    }  # fmt: skip
    found = featured(row)
    assert (found.case.outcome, found.case.reference, found.case.matches) == (1.0, 0.8, False)
    assert {name: value for name, value in found.features.items() if value is not None} == {
        "sector": "Energy", "forecast": 0.8, "drift": 0.1,
    }  # fmt: skip
