"""Forecasts of decisions meet their outcomes, in a journal of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from imem.credibility.forecasts.measures import DeviationClass
from imem.credibility.forecasts.reading import DecisionForecast, forecast_report, forecasts_at
from imem.credibility.forecasts.sessions import checkpoint_at
from imem.credibility.forecasts.states import ForecastState
from imem.credibility.forecasts.tracking import FORECASTS, track_forecasts
from imem.jobs.lifecycle import advance_due
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.kg.asof import AsOf
from imem.kg.kinds.forecasts import Forecast
from tests.servers import ahead

from ..conftest import World, corrected, decision, finding, outcome, text  # noqa: TID252 - a folder of its own

DECIDED = datetime(2026, 1, 5, 15, tzinfo=UTC)
EXPECTED = Forecast.of_return(0.20, low=-0.10, high=0.50)
ENOUGH = Deadline.never()
DAY = timedelta(days=1)


def decided(key: str = "d", at: datetime = DECIDED, forecast: Forecast = EXPECTED, **core: Any) -> dict[str, Any]:
    return decision(key, at, subject_id="company:MU", forecast=forecast.stored(), **core)


def happened(actual: float, days: int = 30, vintage: int = 0, key: str | None = None, **core: Any) -> dict[str, Any]:
    at = checkpoint_at(DECIDED, days)
    return outcome(
        key or f"o-{days}-{vintage}", at + (1 + vintage) * DAY, at, actual, metric="total_return", unit="fraction",
        subject_id="company:MU", decision_id="d", checkpoint=days, period_start=text(DECIDED), vintage=vintage, **core,
    )  # fmt: skip


async def track(world: World, by: timedelta | None = None) -> Mapping[str, Any]:
    """Let the pipelines do what is due, with a clock that is ahead if wanted."""
    pipelines = world.pipelines
    if by is not None:
        pipelines = Database(world.pipeline_url, size=4, options=ahead(world.admin_url, by))
    runtime: Any = SimpleNamespace(database=pipelines, gateway=Gateway(pipelines, world.engine.actor))
    try:
        done = await track_forecasts(runtime, until=ENOUGH)
        while (report := await advance_due(runtime, {FORECASTS.kind: FORECASTS}, until=ENOUGH)).moved:
            assert (report.failed, report.refused) == (0, 0), report
        return done
    finally:
        if pipelines is not world.pipelines:
            await pipelines.close()


async def read(world: World, at: datetime | None = None) -> list[DecisionForecast]:
    moment = at or (await world.database.named("safe_horizon", deadline=ENOUGH))[0]["now"]
    return await forecasts_at(world.database, "d", AsOf(moment), deadline=ENOUGH)


async def stored(world: World) -> list[tuple[int, str, Any]]:
    found = await world.rows("SELECT state, data FROM lifecycle WHERE kind = 'forecast' ORDER BY data ->> 'target_at'")
    return [(row["data"]["days"], row["state"], row["data"].get("verdict")) for row in found]


@pytest.mark.spec("PM-1")
async def test_a_decision_with_a_forecast_gets_four_checkpoints(world: World) -> None:
    now = datetime.now(UTC)
    await world.say(decided(at=now - DAY), decision("silent", DECIDED), decision("mute", DECIDED))
    await track(world)

    rows = await world.rows("SELECT key, state, due_at FROM lifecycle WHERE kind = 'forecast' ORDER BY due_at")
    assert [row["key"] for row in rows] == ["d/30", "d/90", "d/180", "d/365"]
    assert [row["due_at"] for row in rows] == [checkpoint_at(now - DAY, days) for days in (30, 90, 180, 365)]
    assert {row["state"] for row in rows} == {"scheduled"}
    report = await forecast_report(world.database, deadline=ENOUGH)
    assert (report.scheduled, report.measured, report.awaiting_data, report.unmeasurable) == (4, 0, 0, 2)
    assert await track(world) == {}, "nothing is due"


async def test_an_outcome_is_compared_with_what_was_forecast(world: World) -> None:
    await world.say(decided(), happened(0.02), happened(-0.40, 90))
    await track(world)

    first, second, third, last = await read(world)
    assert (first.state, first.actual, first.verdict) == (ForecastState.MEASURED, 0.02, DeviationClass.NONE)
    assert (second.actual, second.verdict, second.accuracy) == (-0.40, DeviationClass.OFF, 0.0)
    assert (third.state, last.state) == (ForecastState.AWAITING_DATA, ForecastState.SCHEDULED)
    assert await stored(world) == [
        (30, "measured", "none"),
        (90, "measured", "off"),
        (180, "awaiting_data", None),
        (365, "scheduled", None),
    ]
    [assessed] = await world.rows(
        "SELECT payload -> 'groups' -> 'assessment' AS found FROM event WHERE record_key = 'o-90-0'"
        " AND payload -> 'groups' ? 'assessment'"
    )
    assert assessed["found"]["deviation"] == pytest.approx(second.deviation)
    report = await forecast_report(world.database, deadline=ENOUGH)
    assert [one.days for one in report.off] == [90]
    assert [one.days for one in report.waiting] == [180]


async def test_a_revision_counts_and_a_withdrawn_outcome_does_not(world: World) -> None:
    await world.say(decided(), happened(0.02))
    await track(world)
    await world.say(happened(-0.40, vintage=1))
    await track(world)
    assert (await stored(world))[0] == (30, "measured", "off")

    await world.say(corrected(happened(-0.40, vintage=1), datetime.now(UTC) - DAY, withdrawn=True))
    await track(world)
    assert (await stored(world))[0] == (30, "measured", "none"), "the older vintage counts again"
    await world.say(corrected(happened(0.02), datetime.now(UTC) - DAY, withdrawn=True))
    await track(world)
    assert (await stored(world))[0] == (30, "awaiting_data", None)
    audited = await world.rows(
        "SELECT action FROM memory_access_audit WHERE request_context ->> 'kind' = 'forecast' AND action <> 'wait'"
        " ORDER BY id"
    )
    assert [row["action"] for row in audited] == ["measure", "measure", "measure", "withdraw"]


async def test_an_answer_as_of_an_earlier_day_has_no_later_outcome(world: World) -> None:
    await world.say(decided(), happened(0.02), happened(-0.40, vintage=1), happened(0.01, 90))
    at = checkpoint_at(DECIDED, 30)
    states = {
        days: [(one.state.value, one.actual) for one in await read(world, at + days * DAY)] for days in (-1, 0, 1, 2)
    }
    rest = [("scheduled", None)] * 3
    assert states == {
        -1: [("scheduled", None), *rest],
        0: [("awaiting_data", None), *rest],
        1: [("measured", 0.02), *rest],
        2: [("measured", -0.40), *rest],
    }
    with pytest.raises(BadInput, match="decision_id"):
        await read(world, DECIDED - DAY)


async def test_checkpoints_after_the_position_was_left_are_counterfactual(world: World) -> None:
    """They are measured all the same; another agent's decision, a hold or one that was not known leaves nothing."""
    left = DECIDED + 100 * DAY
    await world.say(
        decided(stance="long"), happened(0.0, days=180),
        decision("hold", DECIDED + 40 * DAY, subject_id="company:MU", stance="hold"),
        decision("bobs", DECIDED + 50 * DAY, subject_id="company:MU", stance="short", agents_involved=["bob"]),
        decision("other", DECIDED + 60 * DAY, subject_id="company:AMD", stance="avoid"),
        decision("out", left, subject_id="company:MU", stance="none"),
    )  # fmt: skip
    await track(world)
    found = {one.days: one.counterfactual for one in await read(world)}
    assert found == {30: False, 90: False, 180: True, 365: True}
    assert {one.counterfactual for one in await read(world, left - DAY)} == {False}
    [half] = [one for one in await read(world) if one.days == 180]
    assert half.state is ForecastState.MEASURED


async def test_an_outcome_that_does_not_come_is_asked_for_after_a_week(world: World) -> None:
    now = datetime.now(UTC)
    await world.say(decided(at=now - DAY))
    due = checkpoint_at(now - DAY, 30) - now

    async def alerts() -> list[tuple[str, bool]]:
        found = await world.rows("SELECT payload ->> 'reason' AS reason, closed_at IS NULL AS open FROM workflow.alert")
        return [(row["reason"][:14], row["open"]) for row in found]

    await track(world, due + timedelta(minutes=1))
    assert (await stored(world))[0] == (30, "awaiting_data", None)
    for days in range(1, 7):
        await track(world, due + days * DAY + timedelta(minutes=2))
    assert await alerts() == []
    for days in (7, 8, 9):
        await track(world, due + days * DAY + timedelta(minutes=10))
    assert await alerts() == [("The decision d", True)]

    await world.say({**happened(0.02), "known_at": text(now)})
    await track(world)
    assert (await stored(world))[0] == (30, "measured", "none")
    assert await alerts() == [("The decision d", False)]


async def test_what_is_known_only_after_its_checkpoint_is_no_forecast(world: World) -> None:
    line = decided()
    await world.say({**line, "known_at": text(DECIDED + 100 * DAY)}, happened(0.02))
    await track(world)
    assert [days for days, _, _ in await stored(world)] == [180, 365]
    assert [one.days for one in await read(world)] == [180, 365]


async def test_a_decision_moved_to_another_day_has_other_checkpoints(world: World) -> None:
    """What it forecast cannot be changed."""
    now = datetime.now(UTC)
    line = decided(at=now - 40 * DAY)
    await world.say(line)
    await track(world)
    assert (await stored(world))[0] == (30, "awaiting_data", None)
    await world.say(corrected(line, now, decided_at=text(now - 10 * DAY)))
    await track(world)
    assert (await stored(world))[0] == (30, "scheduled", None)
    [row] = await world.rows("SELECT due_at FROM lifecycle WHERE key = 'd/30'")
    assert row["due_at"] == checkpoint_at(now - 10 * DAY, 30)
    with pytest.raises(AssertionError):
        await world.say(corrected(line, now, forecast=Forecast.of_return(0.5).stored()))


async def test_an_agents_own_outcome_measures_nothing(world: World) -> None:
    await world.say(decided())
    line = happened(0.02)
    del line["known_at"]
    await world.say(line, actor=Actor("ann", Role.AGENT))
    await track(world)
    assert (await stored(world))[0] == (30, "awaiting_data", None)
    assert (await read(world))[0].actual is None


async def test_the_outcome_of_a_checkpoint_settles_no_claim(world: World) -> None:
    at = checkpoint_at(DECIDED, 30)
    claim = finding(
        "f", DECIDED, at, subject_id="company:MU", metric="total_return", value=0.02, unit="fraction",
        period_start=text(DECIDED),
    )  # fmt: skip
    await world.say(claim, decided(), happened(0.02))
    await world.settle()
    assert await world.rows("SELECT FROM agent_outcome") == []
    plain = happened(0.02, key="plain")
    for name in ("decision_id", "checkpoint"):
        del plain["core"][name]
    await world.say(plain)
    await world.settle()
    assert len(await world.rows("SELECT FROM agent_outcome")) == 1


async def test_two_workers_measure_once(world: World) -> None:
    await world.say(*(decided(f"d{n}") for n in range(20)), decided(), happened(0.02), happened(-0.4, 90))
    await asyncio.gather(*(track(world) for _ in range(3)))
    assert len(await stored(world)) == 21 * 4
    facts = await world.rows("SELECT FROM event WHERE payload -> 'groups' ? 'assessment'")
    assert len(facts) == 2
