"""A quarter's number and a year's, and one in dollars and one in euros, are told apart wherever they end on one day."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from imem.recall.model import ClaimSummary, ReviewedDecision, SettledFinding
from tests.recall import facts
from tests.recall.conftest import RecallHarness
from tests.recall.facts import TARGET_DAY, Line, day
from tests.recall.pages import AT, analysis, briefing, finding, part, record

QUARTER: dict[str, Any] = {
    "metric": "revenue",
    "unit": "USD",
    "period_start": "2026-01-01T00:00:00Z",
    "target_at": AT.isoformat(),
}
YEAR = QUARTER | {"period_start": "2025-06-01T00:00:00Z"}

OF_QUARTER = '"revenue" ("USD"), 2026-01-01 to 2026-06-01 12:00'
OF_YEAR = '"revenue" ("USD"), 2025-06-01 to 2026-06-01 12:00'


def newest(*findings: SettledFinding, **core: Any) -> str:
    return part(briefing(analysis(0, *findings, **core)).to_markdown(), "Newest analysis")


def test_numbers_of_two_periods_are_no_consensus() -> None:
    """Each has its median, and each line says of which it is; what most claims are about is named once."""
    found = newest(
        *(finding(f"q{n}", value=value, **QUARTER) for n, value in enumerate((10.0, 12.0, 14.0))),
        *(finding(f"y{n}", value=value, **YEAR) for n, value in enumerate((40.0, 50.0))),
    )
    assert f"- Most claims are about {OF_QUARTER}." in found
    assert "- Consensus: 3 findings give a value: median 12, mean 12, from 10 to 14." in found
    assert f"- Consensus: 2 findings give a value of {OF_YEAR}: median 45, mean 45, from 40 to 50." in found
    assert '- "q0": 10 "USD"; "What q0 says."' in found
    assert '- "y0": 40 "USD" on "revenue", 2025-06-01 to 2026-06-01 12:00; "What y0 says."' in found


def test_numbers_in_two_units_are_no_consensus() -> None:
    """Nor is one of which nobody said the unit."""
    euros = QUARTER | {"unit": "EUR"}
    bare = {name: one for name, one in QUARTER.items() if name != "unit"}
    found = newest(
        finding("a", value=10.0, **QUARTER), finding("b", value=12.0, **QUARTER), finding("c", value=9.0, **euros),
        finding("d", value=8.0, **bare),
    )  # fmt: skip
    assert "2 findings give a value: median 11" in found
    assert '1 finding gives a value of "revenue" ("EUR"), 2026-01-01 to 2026-06-01 12:00: 9.' in found
    assert '1 finding gives a value of "revenue", 2026-01-01 to 2026-06-01 12:00: 8.' in found


def test_a_unit_that_follows_from_the_metric_is_the_same_stated_or_not() -> None:
    """And is told of a value; of a return it goes without saying."""
    close: dict[str, Any] = {"metric": "close", "target_at": AT.isoformat()}
    found = newest(finding("a", value=10.0, **close), finding("b", value=12.0, unit="USD", **close))
    assert 'Most claims are about "close" ("USD") at 2026-06-01 12:00.' in found
    assert "2 findings give a value: median 11" in found
    assert '- "a": 10 "USD";' in found
    side: dict[str, Any] = {"metric": "return_1s", "target_at": AT.isoformat(), "direction": "positive"}
    assert 'Most claims are about "return_1s" at 2026-06-01 12:00: return' in newest(finding("a", **side))


def test_the_metric_and_its_day_are_named_once() -> None:
    """A number that is no claim is not taken for one of those that are."""
    claim: dict[str, Any] = {"metric": "up", "target_at": AT.isoformat()}
    found = newest(finding("a", probability=0.4, **claim), finding("b", probability=0.6, **claim))
    assert found.count('"up"') == 1
    assert found.count("2026-06-01 12:00") == 2, "the title has the analysis's own day"
    assert "Consensus: 2 findings give a probability: median 0.50, mean 0.50, from 0.40 to 0.60." in found
    beside = newest(finding("a", probability=0.4, **claim), finding("b", probability=0.6))
    assert "Consensus: 1 finding gives a probability: 0.40." in beside
    assert "Consensus: 1 finding gives a probability without a metric: 0.60." in beside


def test_an_outcome_of_a_decision_names_its_period() -> None:
    item = analysis(0, action="Buy")
    outcome = record("Outcome", "o", 0, actual=44.0, **YEAR)
    taken = ReviewedDecision(decision=item.decisions[0].decision, outcomes=[outcome])
    found = briefing(item.model_copy(update={"decisions": [taken]})).to_markdown()
    assert f"→ no verdict; {OF_YEAR}, was 44" in found


def test_what_came_of_claims_names_their_period() -> None:
    """In the line of the history and in what was settled last."""
    claims = ClaimSummary(
        claims=1, settled=1, right=1, wrong=0, right_agents=["ann"], metric="revenue", unit="USD",
        period_start=AT - timedelta(days=365), target_at=AT, actual=44.0, settled_at=AT,
    )  # fmt: skip
    found = briefing(analysis(0, claims=claims)).to_markdown()
    about = '"revenue" ("USD"), 2025-06-01 12:00 to 2026-06-01 12:00, was 44'
    assert f"→ {about}, 1 of 1 claim right" in part(found, "History")
    assert f'Last settled: the analysis of 2026-06-01 12:00, {about}: 1 right ("ann").' in found


def test_a_mind_has_changed_where_it_speaks_of_as_long_a_period() -> None:
    """What was said of the year before is not compared with what is said of the quarter now; nor dollars with euros."""
    before = analysis(
        92,
        finding("ann", 92, direction="negative", **QUARTER | {"period_start": "2025-12-01T00:00:00Z"}),
        finding("ann", 92, direction="positive", **YEAR), finding("bob", 92, direction="negative", **YEAR),
        finding("eve", 92, direction="negative", **QUARTER | {"unit": "EUR"}),
    )  # fmt: skip
    quarter = QUARTER | {"period_start": "2025-12-02T00:00:00Z"}
    now = analysis(
        0, finding("ann", direction="positive", **quarter), finding("ann", direction="positive", **YEAR),
        finding("bob", direction="positive", **quarter), finding("eve", direction="positive", **quarter),
    )  # fmt: skip
    found = part(briefing(now, before).to_markdown(), "What changed")
    about = '"revenue" ("USD"), 2025-12-02 to 2026-06-01 12:00'
    assert f'- 1 of 1 agent changed: "ann" on {about} negative → positive.' in found


def revenue(key: str, value: float, days: float, **core: Any) -> Line:
    about = {"metric": "revenue", "unit": "USD", "period_start": day(TARGET_DAY - days), "target_at": day(TARGET_DAY)}
    line = facts.finding(key, 1, value=value, analysis_id="a0", subject_id="company:T0", **{**about, **core})
    return {**line, "core": {name: one for name, one in line["core"].items() if one is not None}}


def revenue_was(key: str, actual: float, days: float) -> Line:
    about = {"metric": "revenue", "unit": "USD", "period_start": day(TARGET_DAY - days), "vintage": 0}
    return facts.outcome(key, 4, subject_id="company:T0", actual=actual, **about)


@pytest.mark.parametrize(
    ("other", "metric"),
    [
        ({}, "revenue"),
        ({"period_start": day(TARGET_DAY - 365)}, None),
        ({"unit": "EUR"}, None),
        ({"unit": None}, None),
    ],
    ids=["one question", "two periods", "two units", "a unit that is not stated"],
)
async def test_claims_of_an_analysis_have_one_number_where_they_ask_one_question(
    harness: RecallHarness, other: dict[str, Any], metric: str | None
) -> None:
    """The day on which two periods end is not what they are about."""
    await harness.know(
        [
            facts.company("T0", 0), facts.analysis("a0", 1), revenue("f0", 12.0, 90), revenue("f4", 13.0, 90, **other),
            revenue_was("o0", 12.5, 90),
        ]
    )  # fmt: skip
    (item,) = (await harness.memory.history("T0")).items
    assert item.claims is not None
    assert (item.claims.claims, item.claims.metric) == (2, metric)
    told = (item.claims.unit, item.claims.period_start, item.claims.target_at, item.claims.actual)
    if metric is None:
        assert told == (None, None, None, None)
    else:
        period = [facts.START + timedelta(days=number, hours=12) for number in (TARGET_DAY - 90, TARGET_DAY)]
        assert told == ("USD", *period, 12.5)
