"""Overrides: rates, who was right, reviews, and the flag that gates."""

from __future__ import annotations

import pytest

from imem.credibility.scores.overrides import OverrideFact, OverrideRate, override_figures


def facts(right: int, wrong: int, unknown: int = 0) -> list[OverrideFact]:
    known = [*[True] * right, *[False] * wrong, *[None] * unknown]
    return [OverrideFact("stale_data" if place % 2 else "flawed_logic", one) for place, one in enumerate(known)]


def test_accuracy_is_of_those_whose_outcome_is_known() -> None:
    found = override_figures(facts(3, 1, unknown=6), OverrideRate(10, 40))

    assert (found.rate, found.outcome_accuracy) == (0.25, 0.75)
    assert found.reasons == {"flawed_logic": 5, "stale_data": 5}
    assert found.reviews == ()


def test_without_recommendations_there_is_no_rate() -> None:
    found = override_figures([], OverrideRate(0, 0))

    assert (found.rate, found.lower, found.outcome_accuracy, found.flag) == (None, None, None, False)


@pytest.mark.spec("CR-18")
@pytest.mark.parametrize(
    ("overridden", "of", "right", "wrong", "flag"),
    [
        (3, 7, 3, 0, False),  # Lower bound 0.1582.
        (45, 100, 45, 0, True),  # Lower bound 0.3561.
        (45, 100, 6, 4, False),  # Exactly 0.60 is not above it.
        (45, 100, 7, 4, True),
        (45, 100, 0, 0, False),
    ],
)
def test_the_flag_takes_a_certain_rate_and_people_who_were_right(
    overridden: int, of: int, right: int, wrong: int, *, flag: bool
) -> None:
    found = override_figures(facts(right, wrong, overridden - right - wrong), OverrideRate(overridden, of))

    assert found.flag is flag


def test_reviews() -> None:
    months = [OverrideRate(2, 10), *[OverrideRate(4, 10)] * 3]
    contexts = {"sector": {"energy": OverrideRate(6, 10), "tech": OverrideRate(9, 9)}}

    found = override_figures(facts(4, 1), OverrideRate(14, 40), months, contexts)

    assert found.reviews == (
        "overridden more than 30% in each of 3 months",
        "overridden 60% where sector is energy",
        "80% of the overrides were right",
    )
    calm = override_figures(facts(3, 1), OverrideRate(14, 40), [*months, OverrideRate(3, 10)], {})
    assert calm.reviews == ()
