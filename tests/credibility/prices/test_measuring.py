"""Forecasts of returns are measured by prices, in a journal of the test's own."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from math import log
from pathlib import Path

import pytest

from imem.credibility.forecasts.reading import forecast_report, forecasts_at
from imem.credibility.forecasts.sessions import checkpoint_at, session_from
from imem.journal.actors import Actor
from imem.journal.settings import Role
from imem.kg.asof import AsOf

from ..conftest import World, corrected  # noqa: TID252 - a folder of its own
from .desk import DAY, ENOUGH, FIRST, Desk, before, benchmarked, closes, decided


@pytest.fixture
def desk(world: World, tmp_path: Path) -> Desk:
    return Desk(world, tmp_path)


async def test_a_checkpoint_is_measured_with_its_benchmarks_and_volatility(desk: Desk) -> None:
    await desk.world.say(benchmarked(), decided())
    desk.write(
        *before("company:MU", FIRST),
        *closes("company:MU", FIRST, {0: 100, 20: 104, 80: 130}),
        *closes("market:sp500", FIRST, {0: 5000, 25: 5100}),
    )
    report = await desk.run()
    assert {**report} == {"read": True, "recorded": 4, "revised": 0, "missing": 0}

    first = (await desk.outcomes())[0]
    assert (first["actor"], first["decision_id"], first["checkpoint"]) == ("import:prices", "d", 30)
    assert (first["actual"], first["stock_return"], first["market_return"]) == (0.04, 0.04, 0.02)
    assert "sector_return" not in first, "no price is no return of zero"
    assert first["vintage"] == 0
    assert first["source"] == "prices.csv"
    assert first["volatility"] == pytest.approx(log(1.016) * 20**0.5, rel=0.01)
    now = datetime.now(UTC)
    one, two, *_ = await forecasts_at(desk.world.database, "d", AsOf(now), deadline=ENOUGH)
    assert (one.actual, one.volatility, one.verdict) == (0.04, first["volatility"], "noise")
    assert (two.actual, two.verdict) == (0.30, "off")
    assert first["known"] == one.target_at, "known from the close on, as of a day"
    report_ = await forecast_report(desk.world.database, deadline=ENOUGH)
    assert (report_.measured, [found.days for found in report_.off]) == (4, [90])


async def test_without_prices_checkpoints_wait(desk: Desk) -> None:
    """Neither a source that is away nor a bad row nor a missing price is taken for a return."""
    assert await desk.run() == {}, "without forecasts nothing is read"
    await desk.world.say(decided(), decided("other", subject="company:AMD"))
    report = await desk.run()
    assert report["read"] is False
    assert report["missing"] == 8
    desk.write("company:MU,2025-01-06,0,,,,")
    assert await desk.run() == {}, "it was asked within the hour"
    report = await desk.run(timedelta(hours=1, minutes=1))
    assert report["refused"] == 1
    assert "company:MU is left out: row 1.close" in report["reason"]
    bad = "company:AMD,2025-01-06,0,,,,"
    desk.write(*closes("company:MU", FIRST, {0: 100}, days=40), bad)
    report = await desk.run(timedelta(hours=2, minutes=2))
    assert (report["read"], report["recorded"], report["missing"]) == (True, 1, 7), "the others' prices count"
    assert "company:AMD is left out" in report["reason"]
    states = await desk.world.rows("SELECT state, count(*) AS n FROM lifecycle WHERE kind = 'forecast' GROUP BY 1")
    assert {row["state"]: row["n"] for row in states} == {"measured": 1, "awaiting_data": 7}


async def test_prices_are_read_when_a_checkpoint_is_over(desk: Desk) -> None:
    now = datetime.now(UTC)
    await desk.world.say(decided(at=now - DAY))
    first = session_from(now - DAY)
    desk.write(*closes("company:MU", first, {0: 100, 20: 110}, days=40))
    assert (await desk.run())["recorded"] == 0
    assert await desk.run() == {}
    [row] = await desk.world.rows("SELECT due_at FROM lifecycle WHERE key = 'd/30'")
    over = row["due_at"] - now
    assert (await desk.run(over - timedelta(minutes=5)))["recorded"] == 0
    report = await desk.run(over + timedelta(minutes=5))
    assert report["recorded"] == 1
    assert (await desk.outcomes())[0]["actual"] == 0.1


async def test_a_revision_is_a_new_vintage_and_what_a_person_says_stands(desk: Desk) -> None:
    at = datetime.now(UTC) - 200 * DAY
    await desk.world.say(decided(at=at))
    first, end = session_from(at), checkpoint_at(at, 30).date()
    flat = closes("company:MU", first, {0: 100}, days=(end - first).days + 1)
    desk.write(*flat)
    await desk.run()
    assert await desk.run(timedelta(hours=1, minutes=1)) == {"read": True, "recorded": 0, "revised": 0, "missing": 2}

    said_at = datetime.now(UTC) - DAY
    desk.write(*flat, f"company:MU,{end},140,,,{said_at.isoformat()},")
    report = await desk.run(timedelta(hours=2, minutes=2))
    assert (report["recorded"], report["revised"]) == (1, 1)
    assert [(one["vintage"], one["actual"]) for one in await desk.outcomes()] == [(0, 0.0), (1, 0.4)]
    assert (await desk.outcomes())[1]["known"] == said_at
    await desk.world.say(benchmarked())
    market = closes("market:sp500", first, {0: 7}, days=50)
    desk.write(*flat, f"company:MU,{end},140,,,{said_at.isoformat()},", *market)
    assert (await desk.run(timedelta(hours=3, minutes=3)))["revised"] == 1, "the market became known"

    core = {name: value for name, value in (await desk.outcomes())[2].items() if name not in {"known", "actor"}}
    by_hand = Actor("kate", Role.HUMAN_ADMIN, may_import=True)
    now = datetime.now(UTC).isoformat()
    fixed = {"correct": "Outcome", "known_at": now, "core": {**core, "actual": 0.3}, "reason": "A slip."}
    await desk.world.say(fixed, actor=by_hand)
    assert (await desk.run(timedelta(hours=4, minutes=4)))["revised"] == 0, "what a person corrected stands"
    said = {**core, "actual": 0.2, "id": "by-hand", "vintage": 3}
    await desk.world.say({"record": "Outcome", "known_at": now, "core": said}, actor=by_hand)
    desk.write(*closes("company:MU", first, {0: 50, 20: 10}, days=50))
    assert (await desk.run(timedelta(hours=5, minutes=5)))["revised"] == 0


async def test_what_was_withdrawn_is_not_recorded_again(desk: Desk) -> None:
    await desk.world.say(decided())
    desk.write(*closes("company:MU", FIRST, {0: 100}, days=32))
    await desk.run()
    core = {name: value for name, value in (await desk.outcomes())[0].items() if name not in {"known", "actor"}}
    said = {"record": "Outcome", "core": core}
    await desk.world.say(corrected(said, datetime.now(UTC) - timedelta(seconds=1), withdrawn=True))
    report = await desk.run(timedelta(hours=1, minutes=1))
    assert report["recorded"] == 0
    assert len(await desk.outcomes()) == 1


async def test_the_end_of_trading_closes_later_checkpoints(desk: Desk) -> None:
    now = datetime.now(UTC)
    await desk.world.say(decided(at=now - 100 * DAY))
    first = session_from(now - 100 * DAY)
    rows = closes("company:MU", first, {0: 100}, days=50)
    last = rows[-1].split(",")[1]
    desk.write(*rows[:-1], f"company:MU,{last},0,,,,true")
    report = await desk.run()
    assert (report["recorded"], report["missing"]) == (4, 0)
    outcomes = await desk.outcomes()
    assert [(one["actual"], one.get("delisted")) for one in outcomes[-3:]] == [(-1.0, True)] * 3
    assert [one.get("delisted") for one in outcomes if one["checkpoint"] == 30] == [None]
    states = await desk.world.rows("SELECT DISTINCT state FROM lifecycle WHERE kind = 'forecast'")
    assert [row["state"] for row in states] == ["measured"]


async def test_two_workers_and_thousands_of_checkpoints_record_each_once(desk: Desk) -> None:
    await desk.world.say(*(decided(f"d{n}") for n in range(300)))
    desk.write(*closes("company:MU", FIRST, {0: 100, 20: 104}))
    await asyncio.gather(desk.run(), desk.run())
    assert len(await desk.outcomes()) == 1200
    assert len({one["id"] for one in await desk.outcomes()}) == 1200
