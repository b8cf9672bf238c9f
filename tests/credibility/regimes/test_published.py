"""A published score is the whole score, under the regime of its run, and is due as soon as somebody says something."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import prod
from typing import Any

import orjson
import psycopg
import pytest

from imem.credibility.publication import ACTOR, publish_scores
from imem.credibility.scores.reading import AgentScore, agent_scores
from imem.credibility.scores.wilson import wilson
from imem.journal.deadline import Deadline
from imem.journal.statements import sql
from imem.kg.asof import AsOf, dated
from imem.kg.kinds.enums import Regime
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import record_of
from imem.kg.model import AgentCredibility

from ..conftest import HALFLIFE, World, corrected, finding, outcome, reading  # noqa: TID252 - a folder of its own
from .test_runs import BULL, STORM, Provider, detected, outcomes, published, to_yesterday

DAY = datetime(2024, 1, 1, tzinfo=UTC)
NOW = datetime(2024, 6, 1, tzinfo=UTC)


async def told(world: World) -> list[tuple[datetime, dict[str, Any]]]:
    """Return the published scores of ann with when each was recorded, the oldest first."""
    rows = await world.rows(
        "SELECT recorded_at, payload #> '{groups,score}' AS score FROM event"
        " WHERE kind = 'record.AgentCredibility' AND record_key = 'ann/flu' ORDER BY position"
    )
    return [(row["recorded_at"].astimezone(UTC), row["score"]) for row in rows]


async def score(world: World, at: str, regime: str | None = None, halflife_years: float = HALFLIFE) -> AgentScore:
    (found,), _ = await agent_scores(
        world.database, [("ann", "flu")], AsOf(datetime.fromisoformat(at)), context=None, regime=regime,
        halflife_years=halflife_years, deadline=Deadline.after_ms(30_000),
    )  # fmt: skip
    return found


async def due(world: World) -> list[tuple[str, str, bool]]:
    rows = await world.rows("SELECT kind, key, later FROM due_row WHERE queue = 'scores' ORDER BY id")
    return [(row["kind"], row["key"], row["later"]) for row in rows]


async def two_regimes(world: World) -> None:
    """Settle sixty claims that were right in a bull market, and twenty that were wrong in a storm."""
    await world.say(
        reading("bull", DAY - timedelta(days=9), "BULL_HIGH_RATES"),
        reading("storm", DAY + timedelta(days=60) - timedelta(hours=1), "HIGH_VOLATILITY"),
    )
    await outcomes(world, [True] * 60 + [False] * 20)


@pytest.mark.spec("CR-3", "RS-5")
async def test_the_product_is_that_of_the_regime_of_the_run(world: World) -> None:
    """In the regime in which the agent was right it is higher; what was published stays what was true of its day."""
    await two_regimes(world)
    await detected(world, Provider(BULL))
    assert (await published(world))["scores"] == 1
    to_yesterday(world)
    await detected(world, Provider(STORM))
    assert (await published(world))["scores"] == 1

    (first_at, bull), (second_at, storm) = await told(world)
    in_bull = await score(world, bull["last_updated"], Regime.BULL_HIGH_RATES)
    in_storm = await score(world, storm["last_updated"], Regime.HIGH_VOLATILITY)
    assert in_bull.designed.regime_adjustment == pytest.approx(0.7 * 1.0 + 0.3 * 0.75)
    assert in_storm.designed.regime_adjustment == pytest.approx(0.3 * 0.0 + 0.7 * 0.75)
    assert bull["overall_score"] == pytest.approx(in_bull.designed.score, abs=1e-12)
    assert storm["overall_score"] == pytest.approx(in_storm.designed.score, abs=1e-12)
    assert bull["overall_score"] > 1.5 * storm["overall_score"]
    assert (bull["regime"], storm["regime"]) == ("BULL_HIGH_RATES", "HIGH_VOLATILITY")
    runs = await world.rows("SELECT run_id::text AS run FROM regime_run ORDER BY seq")
    assert [bull["regime_run"], storm["regime_run"]] == [row["run"] for row in runs]
    assert bull["posterior_mean"] == pytest.approx(storm["posterior_mean"], abs=1e-6)

    async def as_of(at: datetime) -> float | None:
        values = await dated(world.database, [("AgentCredibility", "ann/flu")], AsOf(at), deadline=Deadline.never())
        found = [record.groups["score"]["overall_score"] for record in values.records.values()]
        return found[0] if found else None

    moments = (first_at - timedelta(microseconds=1), first_at, second_at - timedelta(microseconds=1), second_at)
    assert [await as_of(at) for at in moments] == [
        None, bull["overall_score"], bull["overall_score"], storm["overall_score"],
    ]  # fmt: skip


@pytest.mark.spec("CR-3", "CR-19")
async def test_all_of_a_score_is_published(world: World) -> None:
    """Trend, overrides, contexts and approved corrections beside both scores, as the same read gives them."""
    now = datetime.now(UTC)
    await outcomes(world, [number % 3 > 0 for number in range(60)], first=now - timedelta(days=200))
    overridden = [f"ann-{now - timedelta(days=200 - number):%Y%m%d%H%M%S}" for number in range(20)]
    await world.say(*[override(key, now - timedelta(days=1)) for key in overridden])
    await world.say(bias("b", status="approved"), bias("proposed"))
    await detected(world, Provider(BULL))
    await published(world)

    ((_, said),) = await told(world)
    found = await score(world, said["last_updated"], Regime.BULL_HIGH_RATES)
    assert (said["formula_version"], said["sample_size"], said["rows"]) == ("comprehensive", 60, 60)
    assert said["overall_score"] == pytest.approx(found.designed.score, abs=1e-12)
    assert (said["posterior_mean"], said["posterior_lower"], said["posterior_upper"]) == pytest.approx(
        (found.posterior.mean, found.posterior.lower, found.posterior.upper)
    )
    assert (said["trend_slope"], said["trend_strength"]) == pytest.approx((found.trend.slope, found.trend.r_squared))
    assert said["trend_direction"] == found.trend.direction
    assert said["extrapolated_6mo"] == pytest.approx(found.trend.extrapolated)
    assert said["trend_last_calculated"] == said["last_updated"]
    assert said["override_rate"] == pytest.approx(20 / 60)
    assert said["override_credibility_penalty"] == found.designed.override_penalty == 0.85
    assert said["override_outcome_accuracy"] == found.people.overrides.outcome_accuracy
    assert json_of(said["override_reasons"]) == {"stale_data": 20}
    rate = {"rate": pytest.approx(1 / 3), "overrides": 20, "recommendations": 60}
    assert json_of(said["override_rate_by_context"])["metric_type"] == {"binary": rate}
    part = {"accuracy": pytest.approx(2 / 3), "sample_size": 60}
    assert json_of(said["context_dimensions"])["metric_type"] == {"binary": part}
    assert json_of(said["bias_corrections"]) == {
        "b": {"metric": "close", "kind": "relative", "bias": 0.2, "n": 20},
    }  # fmt: skip
    assert "regime_credibility" not in said


@pytest.mark.spec("CR-3")
async def test_the_stored_factors_multiply_to_the_stored_score(world: World) -> None:
    """Of what was published alone: a product of five, none of which is 1, with the interval of the first."""
    await two_regimes(world)
    now = datetime.now(UTC)
    await outcomes(world, [number % 4 > 0 for number in range(60)], first=now - timedelta(days=200))
    overridden = [f"ann-{now - timedelta(days=200 - number):%Y%m%d%H%M%S}" for number in range(20)]
    await world.say(*[override(key, now - timedelta(days=1)) for key in overridden])
    await detected(world, Provider(BULL))
    await published(world)

    ((_, said),) = await told(world)
    factors = [
        said[name]
        for name in (
            "base_accuracy", "temporal_weight", "regime_adjustment", "trend_adjusted", "override_credibility_penalty",
        )
    ]  # fmt: skip
    assert said["overall_score"] == pytest.approx(prod(factors), abs=1e-9)
    assert all(0.0 < factor < 1.0 for factor in factors)
    interval = wilson(said["base_accuracy"], said["sample_size"])
    assert (said["base_accuracy_lower"], said["base_accuracy_upper"]) == (interval.lower, interval.upper)


@pytest.mark.spec("CR-20")
async def test_without_outcomes_there_is_no_product(world: World) -> None:
    """Nor a trend; the posterior of an agent that always abstained is Jeffreys'."""
    target = DAY + timedelta(days=5)
    await world.say(finding("f", DAY, target, probability=0.5), outcome("o", target + timedelta(days=1), target, 1.0))
    await world.settle()
    await detected(world, Provider(BULL))
    await published(world)

    ((_, said),) = await told(world)
    assert not {"overall_score", "trend_slope", "time_weighted_score", "context_dimensions"} & said.keys()
    assert not {"base_accuracy", "base_accuracy_lower", "base_accuracy_upper", "trend_adjusted"} & said.keys()
    assert (said["sample_size"], said["override_credibility_penalty"]) == (0, 1.0)
    assert said["posterior_mean"] == pytest.approx(0.5)


async def test_a_published_half_life_sets_none(world: World) -> None:
    """What says which half-life was used is no wish for one: both reads follow the setting."""
    await outcomes(world, [True, False, True])
    await detected(world, Provider(BULL))
    await published(world)
    at = datetime.now(UTC).isoformat()

    found = await score(world, at, halflife_years=0.5)
    assert found.record.halflife_years == 0.5
    assert found.weight == pytest.approx(found.record.weight)

    wish = AgentCredibility.Score(sample_size=0, last_updated=DAY, decay_halflife_years=0.25)
    line = record_of(AgentCredibility(agent_id="ann", domain="flu", score=wish), writer="credibility")
    await world.engine.append([entry_of(line)], deadline=Deadline.after_ms(30_000))
    found = await score(world, datetime.now(UTC).isoformat(), halflife_years=0.5)
    assert found.record.halflife_years == 0.25
    assert found.weight == pytest.approx(found.record.weight)


# What makes a score due


def override(key: str, at: datetime, agent: str = "ann") -> dict[str, Any]:
    core = {"id": f"o-{key}", "agent": agent, "domain": "flu", "finding_id": key, "reason": "stale_data"}
    at_text = at.isoformat()
    return {"record": "HumanOverride", "known_at": at_text, "core": {**core, "overridden_at": at_text}}


def bias(key: str, *, status: str = "proposed") -> dict[str, Any]:
    core = {
        "id": key, "agent": "ann", "domain": "flu", "of_metric": "close", "kind": "relative", "bias": 0.2, "n": 20,
        "accuracy_before": 0.1, "accuracy_after": 0.9, "proposed_at": DAY.isoformat(),
    }  # fmt: skip
    state = {"status": status, "decided_at": DAY.isoformat()}
    return {"record": "BiasCorrection", "known_at": DAY.isoformat(), "core": core, "groups": {"state": state}}


@pytest.mark.spec("CR-17")
async def test_what_people_say_makes_the_score_due_at_once(world: World) -> None:
    """An override, its withdrawal, a pin and its end, a bias and what was decided: of that agent and domain alone."""
    await outcomes(world, [True] * 4, first=NOW)
    await outcomes(world, [True] * 4, agent="bob", first=NOW)
    await detected(world, Provider(BULL))
    assert (await published(world))["scores"] == 2
    assert await due(world) == []
    now = datetime.now(UTC)
    of = override(f"ann-{NOW:%Y%m%d%H%M%S}", now - timedelta(days=1))
    pin = {"id": "p", "agent": "ann", "domain": "flu", "score": 0.4, "reason": "Why.", "pinned_at": DAY.isoformat()}
    end = {"end": {"ended_at": NOW.isoformat(), "end_reason": "It is over."}}
    decided = {"state": {"status": "approved", "decided_at": NOW.isoformat()}}
    for line, row in (
        (of, ("HumanOverride", of["core"]["id"])),
        (corrected(of, now, withdrawn=True), ("HumanOverride", of["core"]["id"])),
        ({"record": "CredibilityPin", "core": pin}, ("CredibilityPin", "p")),
        ({"record": "CredibilityPin", "key": "p", "groups": end}, ("CredibilityPin", "p")),
        (bias("b"), ("BiasCorrection", "b")),
        ({"record": "BiasCorrection", "key": "b", "groups": decided}, ("BiasCorrection", "b")),
    ):
        before = len(await told(world))
        await world.say({"known_at": NOW.isoformat(), **line})
        assert [(kind, key) for kind, key, _ in await due(world)] == [row], line
        assert (await published(world))["scores"] == 1, line
        assert len(await told(world)) == before + 1, line
        assert await due(world) == []
        pinned = (await told(world))[-1][1].get("pin")
        held = {"id": "p", "score": 0.4} if line.get("core") == pin else None
        assert (None if pinned is None else json_of(pinned)) == held, line
    assert json_of((await told(world))[-1][1]["bias_corrections"]).keys() == {"b"}


async def test_what_is_said_of_nobody_publishes_nothing(world: World) -> None:
    """An agent without a score has none to publish, and the rows are done all the same."""
    await detected(world, Provider(BULL))
    await world.say(override("f", DAY, agent="nobody"))
    assert [kind for kind, _, _ in await due(world)] == ["HumanOverride"]
    until = Deadline.after_ms(60_000)
    done = await publish_scores(world.pipelines, world.engine, halflife_years=HALFLIFE, until=until)
    assert (done.scores, done.stuck, await due(world)) == (0, 0, [])


@pytest.mark.spec("CR-17")
async def test_a_major_error_is_due_when_it_is_settled(world: World) -> None:
    """A value off by more than 30 % needs no way of its own: settling makes its score due before all that can wait."""
    await detected(world, Provider(BULL))
    question, target = {"subject_id": "company:MU", "metric": "close"}, DAY + timedelta(days=30)
    known = target + timedelta(days=1)
    await world.say(finding("f", DAY, target, value=140.0, **question), outcome("o", known, target, 100.0, **question))
    await world.settle()
    assert await due(world) == [("changed", "ann/flu", False)]
    assert (await published(world))["scores"] == 1
    ((_, said),) = await told(world)
    assert (said["recent_accuracy"], said["overall_score"]) == (0.0, 0.0)


def json_of(value: Any) -> Any:
    """Return a property of JSON, which is stored as its text."""
    return orjson.loads(value) if isinstance(value, str) else value


async def test_half_lives_are_found_past_any_number_of_published_scores(world: World) -> None:
    """A score is published each day, and sets no half-life: what looks for one does not read all of them."""
    await outcomes(world, [True])
    await detected(world, Provider(BULL))
    await published(world)
    world.owner(
        "INSERT INTO record_history (kind, key, grp, order_key, hash, position, known_at, recorded_at, actor, imported)"
        " SELECT kind, key, grp, order_key || n, hash, position, known_at, recorded_at, actor, imported"
        " FROM record_history, generate_series(1, 2000) AS n WHERE kind = 'AgentCredibility' AND grp = 'score'"
    )
    world.owner("ANALYZE record_history")
    with psycopg.connect(world.admin_url) as conn:
        asked = {"agent": "ann", "domain": "flu"}
        plan = [line for (line,) in conn.execute("EXPLAIN " + sql("halflife_of"), asked).fetchall()]
    assert any("halflife_set" in line for line in plan), plan
    assert all(f"actor <> '{ACTOR.id}'" in sql(name) for name in ("halflife_of", "track_records", "cells_as_of"))
