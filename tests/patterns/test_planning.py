"""Definitions of patterns, their cases from settled questions, and what a test of one would take."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput
from imem.patterns.cases import cases
from imem.patterns.definition import FEATURES, NUMBERS, definition_of
from imem.patterns.evidence.holdout import Direction
from imem.patterns.evidence.splits import split
from imem.patterns.planning import plan, smallest_effect
from tests.credibility.conftest import World, finding, market, outcome, world
from tests.patterns.test_splits import DAY, DAY0, case

__all__ = ["world"]

DRIFTED = {"feature": "drift", "comparison": "at_least", "value": 0.2}
LIKELY = {"feature": "forecast", "comparison": "at_least", "value": 0.5}
GIVEN: dict[str, Any] = {
    "name": "Crowds overshoot", "category": "financial", "metric": "up", "reference": "crowd", "condition": [DRIFTED],
    "claim": "lower", "mechanism": "News is overweighted.",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"metric": "no_such"}, "metric"),
        ({"condition": []}, "condition"),
        (
            {"condition": [DRIFTED, LIKELY, DRIFTED | {"comparison": "below"}, LIKELY | {"comparison": "below"}]},
            "condition",
        ),
        ({"condition": [DRIFTED, DRIFTED]}, "condition"),
        ({"condition": [DRIFTED | {"feature": "actual"}]}, "condition.0.feature"),
        ({"condition": [DRIFTED | {"value": "much"}]}, "condition.0.value"),
        ({"condition": [DRIFTED | {"value": float("nan")}]}, "condition.0.value"),
        ({"condition": [DRIFTED | {"comparison": "is"}]}, "condition.0.comparison"),
        ({"condition": [{"feature": "sector", "comparison": "below", "value": "Energy"}]}, "condition.0.comparison"),
        ({"condition": [{"feature": "sector", "comparison": "is", "value": 3.0}]}, "condition.0.value"),
        ({"claim": "sideways"}, "claim"),
        ({"mechanism": " "}, "mechanism"),
        ({"key": "mine"}, "key"),
    ],
)
def test_a_wrong_definition_is_refused_by_its_field(changed: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInput) as refused:
        definition_of(GIVEN | changed)
    assert refused.value.field.startswith(field)


def test_a_key_follows_from_condition_and_claim_alone() -> None:
    """Another name is the same pattern, and so is another order of the condition."""
    atoms = [DRIFTED, LIKELY, {"feature": "sector", "comparison": "is", "value": "Energy"}]
    keys = {
        definition_of(GIVEN | {"condition": list(ordered), "name": f"n{n}", "mechanism": f"m{n}"}).key
        for n, ordered in enumerate(permutations(atoms))
    }
    assert len(keys) == 1
    others: list[dict[str, Any]] = [
        {"claim": "higher"},
        {"metric": "strategic_fit"},
        {"reference": "ann"},
        {"period": "week"},
        {"condition": [LIKELY]},
    ]
    assert len({definition_of(GIVEN | one).key for one in others} | keys) == len(others) + 1


@given(st.dictionaries(st.sampled_from(FEATURES), st.one_of(st.none(), st.floats(-1, 1)), min_size=len(FEATURES)))
def test_what_is_not_known_meets_no_condition(features: dict[str, Any]) -> None:
    found = definition_of(GIVEN | {"condition": [DRIFTED, LIKELY]})
    expected = all(
        features[name] is not None and features[name] >= bound for name, bound in (("drift", 0.2), ("forecast", 0.5))
    )
    assert found.holds({**dict.fromkeys(NUMBERS), **features}) is expected


def said(key: str, day: int, probability: float, subject: str = "company:MU", agent: str = "crowd") -> dict[str, Any]:
    return finding(
        key, DAY0 + day * DAY, DAY0 + 40 * DAY, subject_id=subject, agent=agent, direction="positive", metric="up",
        probability=probability, statement=f"{key}.",
    )  # fmt: skip


async def test_cases_stand_as_the_forecast_was_made(world: World) -> None:
    """One a subject and period, with what was known then; other agents' claims, open questions, later ones: none."""
    over = DAY0 + 41 * DAY
    await world.say(
        said("a1", 1, 0.3), said("a2", 3, 0.6), said("a3", 35, 0.9), said("other", 2, 0.1, agent="ann"),
        said("b1", 4, 0.7, subject="company:AMD"), said("open", 4, 0.7, subject="company:NVDA"),
        outcome("o-MU", over, DAY0 + 40 * DAY, 1.0, subject_id="company:MU"),
        outcome("o-AMD", over + DAY, DAY0 + 40 * DAY, 0.0, subject_id="company:AMD"),
    )  # fmt: skip
    await world.settle()
    drifted = definition_of(GIVEN)
    ever = Deadline.never()
    found = await cases(world.database, drifted, until=over + 2 * DAY, deadline=ever)
    assert [(one.subject, one.period, one.reference, one.outcome, one.matches) for one in found] == [
        ("company:AMD", "2026-01-01", 0.7, 0.0, False),
        ("company:MU", "2026-01-01", 0.3, 1.0, False),
        ("company:MU", "2026-02-01", 0.9, 1.0, True),
    ]
    assert found[1].sd == pytest.approx((0.3 * 0.7) ** 0.5)
    weekly = await cases(world.database, definition_of(GIVEN | {"period": "week"}), until=over, deadline=ever)
    assert [(one.period, one.matches) for one in weekly] == [("2025-12-29", False), ("2026-02-02", True)]
    assert await cases(world.database, drifted, until=over - DAY / 2, deadline=ever) == []
    late = await cases(world.database, drifted, since=DAY0 + 30 * DAY, until=over + DAY, deadline=ever)
    assert [one.reference for one in late] == [0.9]


async def test_questions_of_one_series_are_one_subject(world: World) -> None:
    """Each question is asked once, and errors last from one to the next."""
    over = DAY0 + 41 * DAY
    lines = []
    for number, series in enumerate(("state", "state", "state", None)):
        named = {} if series is None else {"series_id": series}
        lines += [
            market(f"q{number}", DAY0, **named),
            said(f"a{number}", 7 * number + 1, 0.1 * number, subject=f"market:q{number}"),
            outcome(f"o{number}", over, DAY0 + 40 * DAY, 1.0, subject_id=f"market:q{number}"),
        ]
    await world.say(*lines)
    await world.settle()
    asked = definition_of(GIVEN | {"period": "week"})
    found = await cases(world.database, asked, until=over, deadline=Deadline.never())
    assert [(one.subject, one.period) for one in found] == [
        ("market:q3", "2026-01-19"), ("state", "2025-12-29"), ("state", "2026-01-05"), ("state", "2026-01-12"),
    ]  # fmt: skip


@pytest.mark.spec("PV-3")
async def test_a_later_correction_changes_no_case_of_an_earlier_day(world: World) -> None:
    """A poisoned record: what became known after the day is not there as of the day."""
    over = DAY0 + 41 * DAY
    await world.say(said("a1", 1, 0.3), outcome("o", over, DAY0 + 40 * DAY, 1.0, subject_id="company:MU"))
    await world.settle()
    drifted, ever = definition_of(GIVEN), Deadline.never()
    before = await cases(world.database, drifted, until=over, deadline=ever)
    await world.say(outcome("o2", over + DAY, DAY0 + 40 * DAY, 0.0, subject_id="company:MU", vintage=1))
    await world.settle()
    assert await cases(world.database, drifted, until=over, deadline=ever) == before
    after = await cases(world.database, drifted, until=over + DAY, deadline=ever)
    assert [one.outcome for one in after] == [0.0]


def test_a_plan_looks_at_no_outcome_of_validation_and_test() -> None:
    definition = definition_of(GIVEN | {"claim": "higher"})
    found = [case(day, period=f"p{day // 10}", matches=day % 2 == 0) for day in range(100)]
    now = DAY0 + 100 * DAY
    planned = plan(definition, found, now)
    assert (planned.training.matching, planned.validation.matching, planned.test.matching) == (35, 8, 7)
    later = {id(one) for one in (*split(found).validation, *split(found).test)}
    turned = [replace(one, outcome=0.0) if id(one) in later else one for one in found]
    assert plan(definition, turned, now) == planned
    assert planned.hit_rate == 1.0
    assert planned.smallest_effect is None
    assert len(planned.missing) == 4, planned.missing


def test_when_there_can_be_a_verdict() -> None:
    definition = definition_of(GIVEN | {"claim": "higher"})
    now = DAY0 + 400 * DAY
    daily = [case(day, subject=f"s{n}", period=f"p{day // 10}") for day in range(400) for n in range(2)]
    ready = plan(definition, daily, now)
    assert (ready.validation.enough, ready.test.enough, ready.missing, ready.verdict_at) == (True, True, (), now)
    assert ready.smallest_effect == pytest.approx(smallest_effect(ready.test.matching))
    assert smallest_effect(10) == pytest.approx((1.6449 + 0.8416) / 10**0.5, abs=1e-4)
    none = plan(definition, [replace(one, matches=False) for one in daily], now)
    assert (none.verdict_at, none.hit_rate) == (None, None)
    waiting = plan(definition, daily[-60:], now)
    assert waiting.verdict_at is not None
    assert waiting.verdict_at > now + timedelta(days=300), "forty months are needed"


def test_hits_lie_where_the_claim_says() -> None:
    assert (Direction.HIGHER.sign, Direction.LOWER.sign) == (1.0, -1.0)
