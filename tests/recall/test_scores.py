"""Scores of agents: what they are made of, as of any day on both clocks, and what is said when a store is away."""

from __future__ import annotations

from datetime import datetime

import pytest

from imem.credibility.posterior import DecayedEvidence, decay, posterior
from imem.credibility.scores.auto_resolve import Basis, Reason
from imem.credibility.scores.reading import AgentScore
from imem.credibility.scores.wilson import wilson
from imem.journal.errors import BadInput, BudgetExceeded, PostgresUnavailable
from imem.memory import Memory
from imem.recall.answers import Quality
from tests.recall import facts
from tests.recall.conftest import RecallHarness
from tests.recall.facts import Line
from tests.recall.far import Far, far

__all__ = ["far"]

ENOUGH_MS = 30_000
DOMAIN = "flu"


def at(day: float) -> datetime:
    return datetime.fromisoformat(facts.day(day))


def claim(agent: str, week: int, *, right: bool = True, place: int = 0, **core: object) -> list[Line]:
    """Return a claim that is true at the end of a week, made five days before, and its outcome, known a day later."""
    target, subject = facts.day(7 * week), f"market:{agent}-{week}-{place}"
    asked = {"metric": "up", "target_at": target, "subject_id": subject}
    said = {"agent": agent, "domain": DOMAIN, "probability": 0.8, "analysis_id": f"of {subject}", **asked, **core}
    happened = {**asked, "actual": float(right), "observed_at": target, "vintage": 0}
    return [
        facts.finding(f"f/{subject}", 7 * week - 5, **said),
        {**facts.outcome(f"o/{subject}", 7 * week + 1), "core": {**happened, "id": f"o/{subject}"}},
    ]


def season(agent: str, rights: list[bool], first: int = 1) -> list[Line]:
    return [line for week, right in enumerate(rights, first) for line in claim(agent, week, right=right)]


async def score(memory: Memory, agent: str, day: float, **more: object) -> AgentScore:
    table = await memory.credibility([agent], [DOMAIN], as_of=at(day), deadline_ms=ENOUGH_MS, **more)  # type: ignore[arg-type] # given by name
    assert (table.quality, table.stale) == (Quality.EXACT, False)
    return table.items[0]


async def test_a_score_says_what_it_is_made_of(harness: RecallHarness) -> None:
    """Sixteen weeks, twelve of them right; of the last ten eight."""
    rights = [*[True, False] * 2, *[True] * 2, *[True] * 4, False, False, *[True] * 4]
    await harness.know(season("ann", rights))

    found = await score(harness.memory, "ann", 130)

    weights = [decay((130 - 7 * week) / 365.25, 2.0) for week in range(1, 17)]
    right = sum(weight for weight, one in zip(weights, rights, strict=True) if one)
    assert (found.record.n, found.record.rows, found.confidence) == (16, 16, "medium")
    assert found.posterior.mean == pytest.approx(posterior(DecayedEvidence(right, sum(weights))).mean)
    assert found.weight == found.scope_weight == pytest.approx(sum(weights))
    assert found.decayed_accuracy == pytest.approx(right / sum(weights))
    assert found.recent_accuracy == pytest.approx(0.8)
    assert found.designed.overall_accuracy == found.designed.base_accuracy == pytest.approx(12 / 16)
    fade = decay((130 - 113) / 365.25, 2.0)
    assert found.designed.temporal_weight == pytest.approx(fade)
    assert found.designed.score == pytest.approx(0.75 * 0.75 * fade)
    assert found.simple.score == pytest.approx(0.75 * fade)
    assert found.wilson == wilson(0.75, 16)
    assert (found.trend.points, found.trend.current) == (16, 1.0)
    assert found.calibration.stated == pytest.approx(0.8)
    assert found.calibration.realised == pytest.approx(0.75)
    assert found.calibration.observations == 16
    assert found.flags == ()


def reading(name: str, day: float, regime: str) -> Line:
    core = {"id": name, "observed_at": facts.day(day), "regime": regime, "stale": False, "source": "test"}
    return {"record": "RegimeReading", "known_at": facts.day(day), "core": core}


@pytest.mark.spec("CR-6")
async def test_the_product_is_that_of_the_regime_of_the_moment(harness: RecallHarness) -> None:
    """Four right in a bull market, two wrong in a storm: whoever asks, and a context is asked about in its own."""
    regimes = [reading("bull", 0, "BULL_HIGH_RATES"), reading("storm", 25, "HIGH_VOLATILITY")]
    await harness.know([*regimes, *season("ann", [*[True] * 4, *[False] * 2])])

    early, late = [await score(harness.memory, "ann", day) for day in (24, 60)]
    explained = await harness.memory.explain("ann", DOMAIN, as_of=at(60), deadline_ms=ENOUGH_MS)
    calm = await score(harness.memory, "ann", 60, context={"regime": "BULL_HIGH_RATES"})

    assert (early.regime, early.designed.regime_adjustment) == ("BULL_HIGH_RATES", 1.0)
    assert late.regime == "HIGH_VOLATILITY"
    assert late.designed.regime_adjustment == pytest.approx(0.3 * 0.0 + 0.7 * 4 / 6)
    assert explained.score == late
    assert "as designed (comprehensive) in HIGH_VOLATILITY: " in explained.formula[-1]
    assert calm.designed.regime_adjustment == pytest.approx(0.3 * 1.0 + 0.7 * 4 / 6)
    assert (await score(harness.memory, "ann", 60, context={"sector": "Energy"})).regime is None


async def test_claims_of_one_moment_are_one_observation(harness: RecallHarness) -> None:
    """Five places in one week, four right, and another week: two observations, of 0.8 and of 1."""
    places = [line for place in range(5) for line in claim("ann", 1, place=place, right=place > 0)]
    await harness.know([*places, *claim("ann", 2)])

    found = await score(harness.memory, "ann", 20)

    assert (found.record.n, found.record.rows) == (2, 6)
    assert found.designed.overall_accuracy == pytest.approx(0.9)
    assert found.recent_accuracy == pytest.approx(0.9)


async def test_an_explanation_adds_up(harness: RecallHarness) -> None:
    """The weights of the claims are those of the posterior, and the factors multiply to the product."""
    places = [line for place in range(3) for line in claim("ann", 9, place=place, right=place > 0)]
    await harness.know([*season("ann", [True, False, True, True]), *places])

    found = await harness.memory.explain("ann", DOMAIN, as_of=at(80), deadline_ms=ENOUGH_MS)

    assert (found.total, len(found.claims)) == (7, 7)
    assert [one.target_at for one in found.claims] == sorted((one.target_at for one in found.claims), reverse=True)
    weight = sum(one.weight for one in found.claims)
    right = sum(one.weight for one in found.claims if one.right)
    assert weight == pytest.approx(found.score.weight)
    assert posterior(DecayedEvidence(right, weight)).mean == pytest.approx(found.score.posterior.mean)
    assert "as designed (comprehensive)" in found.formula[-1]
    few = await harness.memory.explain("ann", DOMAIN, limit=2, as_of=at(80), deadline_ms=ENOUGH_MS)
    assert (few.total, few.claims) == (7, found.claims[:2])
    nobody = await harness.memory.explain("nobody", DOMAIN, deadline_ms=ENOUGH_MS)
    assert (nobody.total, nobody.score.designed.score) == (0, None)
    assert nobody.formula[-1] == "as designed: no outcomes, no score"


@pytest.mark.spec("CR-20")
async def test_without_outcomes(harness: RecallHarness) -> None:
    found = (await harness.memory.credibility(["nobody"], [DOMAIN], deadline_ms=ENOUGH_MS)).items[0]

    assert (found.designed.score, found.simple.score, found.wilson) == (None, None, None)
    assert (found.posterior.lower, found.posterior.upper) == pytest.approx((0.0015, 0.9985), abs=5e-5)
    assert (found.recent_accuracy, found.decayed_accuracy, found.confidence) == (None, None, "low")


async def test_as_of_a_day_on_both_clocks(harness: RecallHarness) -> None:
    """What became known later does not count then; on the recorded clock nothing counts before it was recorded."""
    await harness.know(season("ann", [True] * 6))

    counts = [(await score(harness.memory, "ann", day)).record.n for day in (7.9, 8, 36, 200)]
    before = await harness.memory.credibility(
        [DOMAIN], [DOMAIN], as_of=at(200), clock="recorded", deadline_ms=ENOUGH_MS
    )
    now = await harness.memory.credibility(clock="recorded", deadline_ms=ENOUGH_MS)

    assert counts == [0, 1, 5, 6]
    assert before.items[0].record.n == 0
    assert [(one.record.agent, one.record.n, one.trend.points) for one in now.items] == [("ann", 6, 6)]


async def test_all_agents_by_domain_and_name(harness: RecallHarness) -> None:
    await harness.know([*season("bob", [True]), *season("ann", [True]), *claim("ann", 3, domain="a domain", place=9)])

    table = await harness.memory.credibility(deadline_ms=ENOUGH_MS)

    assert [(one.record.domain, one.record.agent) for one in table.items] == [
        ("a domain", "ann"), (DOMAIN, "ann"), (DOMAIN, "bob"),
    ]  # fmt: skip
    early = await harness.memory.credibility(as_of=at(5), deadline_ms=ENOUGH_MS)
    assert early.items == []


@pytest.mark.spec("CR-11", "CR-12", "CR-13")
async def test_records_decide(harness: RecallHarness) -> None:
    """Fifteen weeks all right against fifteen all wrong decide, on either basis; fourteen do not."""
    await harness.know([*season("ann", [True] * 15), *season("bob", [False] * 15)])
    ask = {"as_of": at(120), "deadline_ms": ENOUGH_MS}

    found = await harness.memory.auto_resolve("ann", "bob", DOMAIN, **ask)  # type: ignore[arg-type] # given by name
    other = await harness.memory.auto_resolve("bob", "ann", DOMAIN, **ask)  # type: ignore[arg-type] # as above
    early = await harness.memory.auto_resolve("ann", "bob", DOMAIN, as_of=at(100), deadline_ms=ENOUGH_MS)

    assert (found.verdict["resolved"], found.verdict["winner"], found.verdict["basis"]) == (True, "ann", "posterior")
    assert set(found.verdicts) == set(Basis)
    assert other.verdict["winner"] == "ann"
    assert found.probability_greater == pytest.approx(1.0, abs=1e-3)
    assert early.verdict["reason"] is Reason.INSUFFICIENT_SAMPLE
    with pytest.raises(BadInput, match="same agent"):
        await harness.memory.auto_resolve("ann", "ann", DOMAIN)


@pytest.mark.spec("CR-11")
async def test_records_decide_in_the_context_asked_about(harness: RecallHarness) -> None:
    """Observations decide where four of six dimensions match: fifteen of them, not fourteen; thirty others do not."""
    places = [line for place in range(1, 5) for line in claim("ann", 3, place=place)]
    await harness.know([*season("ann", [True] * 30), *season("bob", [False] * 30), *places])
    weekly = {"metric_type": "binary", "time_horizon": "week"}
    elsewhere = {**weekly, "sector": "Energy", "company_size": "small", "growth_stage": "mature"}

    async def asked(context: dict[str, str] | None, day: float = 220) -> tuple[bool, Reason]:
        found = await harness.memory.auto_resolve(
            "ann", "bob", DOMAIN, context=context, as_of=at(day), deadline_ms=ENOUGH_MS
        )
        return found.verdict["resolved"], found.verdict["reason"]

    assert await asked(None) == await asked(weekly) == (True, Reason.DIFFERENTIAL)
    assert await asked(elsewhere) == (False, Reason.INSUFFICIENT_SAMPLE)
    assert await asked(weekly, 7 * 14 + 1) == (False, Reason.INSUFFICIENT_SAMPLE)
    assert await asked(weekly, 7 * 15 + 1) == (True, Reason.DIFFERENTIAL)
    [there] = (await harness.memory.credibility(["ann"], context=elsewhere, as_of=at(220), deadline_ms=ENOUGH_MS)).items
    assert (there.record.n, there.scope_n) == (30, 0.0)


async def test_the_same_question_in_a_context_is_another_question(harness: RecallHarness) -> None:
    """Claims of another sector and size lie outside the scope and are the prior alone: the interval is wider."""
    await harness.know(season("ann", [True] * 15))
    elsewhere = {"sector": "Energy", "company_size": "small", "growth_stage": "mature"}

    [everywhere] = (await harness.memory.credibility(["ann"], as_of=at(120), deadline_ms=ENOUGH_MS)).items
    [there] = (await harness.memory.credibility(["ann"], context=elsewhere, as_of=at(120), deadline_ms=ENOUGH_MS)).items

    assert there.record == everywhere.record
    assert there.posterior.upper - there.posterior.lower > everywhere.posterior.upper - everywhere.posterior.lower


async def test_the_setting_chooses_the_basis(harness: RecallHarness) -> None:
    await harness.know([*season("ann", [True] * 15), *season("bob", [False] * 15)])
    settings = harness.settings.model_copy(update={"auto_resolution_basis": "as_designed"})

    async with Memory.open(settings) as memory:
        found = await memory.auto_resolve("ann", "bob", DOMAIN, deadline_ms=ENOUGH_MS)

    assert found.verdict == found.verdicts[Basis.AS_DESIGNED]


async def test_scores_that_lag_say_so_and_decide_nothing_after_a_day(harness: RecallHarness) -> None:
    """A statement that has waited for settlement for 25 hours: since when is said, and records no longer decide."""
    await harness.know([*season("ann", [True] * 15), *season("bob", [False] * 15)])

    def waits(hours: int) -> None:
        harness.journal.owner(
            "INSERT INTO track_due (agent, domain, since) VALUES ('ann', 'flu', now() - make_interval(hours => %s)) "
            "ON CONFLICT (agent, domain) DO UPDATE SET since = excluded.since",
            hours,
        )

    waits(23)
    table = await harness.memory.credibility(deadline_ms=ENOUGH_MS)
    soon = await harness.memory.auto_resolve("ann", "bob", DOMAIN, deadline_ms=ENOUGH_MS)
    waits(25)
    late = await harness.memory.auto_resolve("ann", "bob", DOMAIN, deadline_ms=ENOUGH_MS)

    assert (table.quality, table.stale, table.reason) == (Quality.PARTIAL, True, "some outcomes are not scored yet")
    assert table.stale_since is not None
    assert soon.verdict["resolved"]
    assert (late.verdict["resolved"], late.verdict["reason"]) == (False, Reason.STALE)


async def test_without_postgres_the_last_answer_is_given_as_stale(far: Far) -> None:
    await far.harness.know(season("ann", [True] * 3))
    tiers = far.memory._stores.tiers
    assert tiers is not None
    tiers.cache_timeout_ms = ENOUGH_MS  # On a busy machine the cache would be late.
    fresh = await far.memory.credibility(["ann"], deadline_ms=ENOUGH_MS)
    explained = await far.memory.explain("ann", DOMAIN, limit=2, deadline_ms=ENOUGH_MS)

    far.stall("postgres")
    found = await far.memory.credibility(["ann"], deadline_ms=5_000)

    assert (found.quality, found.stale, found.stale_since) == (Quality.STALE, True, fresh.as_of)
    assert found.age_s is not None
    assert found.items == fresh.items
    again = await far.memory.explain("ann", DOMAIN, limit=2, deadline_ms=5_000)
    assert (again.quality, again.stale, again.stale_since) == (Quality.STALE, True, explained.as_of)
    assert (again.score, again.claims, again.total) == (explained.score, explained.claims, 3)
    with pytest.raises((PostgresUnavailable, BudgetExceeded)):
        await far.memory.credibility(["bob"], deadline_ms=5_000)
    with pytest.raises((PostgresUnavailable, BudgetExceeded)):
        await far.memory.explain("ann", DOMAIN, limit=3, deadline_ms=5_000)


async def test_wrong_arguments_are_named(harness: RecallHarness) -> None:
    with pytest.raises(BadInput, match=r"context.*'colour' is none of sector"):
        await harness.memory.credibility(context={"colour": "red"})
    with pytest.raises(BadInput, match=r"context.regime: 'BULL' is none of BULL_LOW_RATES"):
        await harness.memory.weights(["ann"], DOMAIN, {"regime": "BULL"})
    for name, value in (("metric_type", "yes"), ("time_horizon", "7d"), ("company_size", "big"), ("growth_stage", "")):
        with pytest.raises(BadInput, match=rf"context.{name}: .* is none of"):
            await harness.memory.auto_resolve("ann", "bob", DOMAIN, context={name: value})
    with pytest.raises(BadInput, match="limit"):
        await harness.memory.explain("ann", DOMAIN, limit=201)
    with pytest.raises(BadInput, match=r"agents.*10,000"):
        await harness.memory.credibility([f"a{n}" for n in range(101)], [f"d{n}" for n in range(101)])
