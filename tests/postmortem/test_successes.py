"""Successes are validated from prices and settled claims, in a journal of the test's own."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from imem.credibility.forecasts.sessions import checkpoint_at
from imem.gates.learning.report import learning_report
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.settings import Role
from imem.kg.kinds.patterns import Pattern
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import groups_of
from tests.credibility.conftest import World, cites, finding, outcome, world
from tests.credibility.prices.desk import DAY, DECIDED, FIRST, Desk, before, benchmarked, closes, decided

__all__ = ["world"]

CLAIMED, TARGET = DECIDED - DAY, DECIDED + 20 * DAY


@pytest.fixture
def desk(world: World, tmp_path: Path) -> Desk:
    return Desk(world, tmp_path)


def claimed(key: str, probability: float, importance: float, decision: str = "d") -> list[dict[str, Any]]:
    """Return a claim that something happens, and that the decision cites it."""
    said = finding(
        key, CLAIMED, TARGET, probability=probability, importance=importance, subject_id=f"market:{key}", metric="up"
    )
    return [said, cites(decision, key, DECIDED)]


def happened(key: str, actual: float = 1.0, vintage: int = 0) -> dict[str, Any]:
    """Return what happened."""
    return outcome(f"{key}-{vintage}", TARGET + DAY, TARGET, actual, subject_id=f"market:{key}", vintage=vintage)


def priced(stock: float, market: float, sector: float) -> list[str]:
    return [
        *before("company:MU", FIRST),
        *closes("company:MU", FIRST, {0: 100, 20: 100 * (1 + stock)}),
        *closes("market:sp500", FIRST, {0: 100, 20: 100 * (1 + market)}),
        *closes("market:semis", FIRST, {0: 100, 20: 100 * (1 + sector)}),
    ]


async def recorded(world: World) -> list[Mapping[str, Any]]:
    found = await world.rows(
        "SELECT kind, payload -> 'core' AS core FROM event WHERE kind LIKE '%%.SuccessValidation' ORDER BY position"
    )
    return [{**row["core"], "event": row["kind"].partition(".")[0]} for row in found]


async def stored(world: World) -> dict[str, Any]:
    """Return all that scores and patterns are: their tables whole, and the records that are no validation."""
    tables = (
        "agent_outcome", "track_step", "track_cell", "observation_step", "track_due", "pattern_epoch", "pattern_value",
    )  # fmt: skip
    found = {one: await world.rows(f"SELECT * FROM {one} AS t ORDER BY t::text") for one in tables}
    found["records"] = await world.rows(
        "SELECT kind, key, grp, position FROM record_head WHERE kind <> 'SuccessValidation' ORDER BY 1, 2, 3"
    )
    return found


@pytest.mark.spec("PM-10")
async def test_from_a_decision_to_its_validation(desk: Desk) -> None:
    """A forecast, time, prices and claims that came true: the first row of the table."""
    world = desk.world
    await world.say(benchmarked(), decided(), *claimed("right", 0.9, 0.85), *claimed("wrong", 0.1, 0.15))
    await world.say(happened("right"), happened("wrong"))
    await world.settle()
    desk.write(*priced(0.30, 0.05, 0.08))
    assert (await desk.run())["recorded"] == 4
    assert {**desk.validated} == {"due": 4, "validated": 4, "corrected": 0, "waiting": 0}

    found = await recorded(world)
    assert sorted(one["checkpoint"] for one in found) == [30, 90, 180, 365]
    one = found[0]
    shares = [one[f"{part}_contribution"] for part in ("market", "sector", "stock_specific")]
    assert shares == pytest.approx([0.167, 0.1, 0.733], abs=5e-4)
    assert sum(shares) == pytest.approx(1, abs=1e-9)
    assert [one[f"{part}_part"] for part in ("market", "sector", "specific")] == pytest.approx([0.05, 0.03, 0.22])
    assert (one["thesis_score"], one["skill_ratio"]) == (0.85, pytest.approx(0.623, abs=5e-4))
    assert (one["classification"], one["decision_id"]) == ("genuine_success", "d")
    await desk.run(timedelta(hours=1, minutes=1))
    assert len(await recorded(world)) == 4, "nothing was doubled"


@pytest.mark.spec("PM-10")
@pytest.mark.parametrize(
    ("returns", "thesis", "found"),
    [
        ((0.30, 0.10, 0.12), 0.80, ("partial_success", 0.480)),
        ((0.20, 0.25, 0.25), 0.50, ("lucky_success", 0.0)),
        ((0.10, -0.05, -0.08), 0.90, ("genuine_success", 0.900)),
        ((0.02, 0.10, -0.05), 0.90, ("lucky_success", 0.371)),
        ((0.019, 0.0, 0.0), 0.90, ("not_assessable", 0.900)),
    ],
)
async def test_the_table_on_records(
    desk: Desk, returns: tuple[float, float, float], thesis: float, found: tuple[str, float]
) -> None:
    await desk.world.say(benchmarked(), decided(), *claimed("right", 0.9, thesis))
    await desk.world.say(*claimed("wrong", 0.1, round(1 - thesis, 2)), happened("right"), happened("wrong"))
    await desk.world.settle()
    desk.write(*priced(*returns))
    await desk.run()
    one = (await recorded(desk.world))[0]
    assert (one["classification"], one["skill_ratio"]) == (found[0], pytest.approx(found[1], abs=5e-4))
    assert 0.0 <= one["skill_ratio"] <= 1.0


@pytest.mark.spec("PM-11")
async def test_a_lucky_success_changes_no_score_and_no_pattern(desk: Desk) -> None:
    world = desk.world
    pattern = {
        "record": "Pattern", "known_at": CLAIMED.isoformat(),
        "core": {"pattern_id": "p", "name": "Momentum", "category": "momentum"},
    }  # fmt: skip
    performance = Pattern.Performance(success_rate=0.5, occurrence_count=4)
    rated = entry_of(groups_of(Pattern, "p", {"performance": performance}, writer="patterns"))
    identified = {
        "link": "IDENTIFIED_PATTERN", "known_at": CLAIMED.isoformat(), "from": {"Analysis": "right/analysis"},
        "to": {"Pattern": "p"}, "props": {},
    }  # fmt: skip
    await world.say(benchmarked(), decided(), *claimed("right", 0.9, 0.5), *claimed("wrong", 0.1, 0.5))
    await world.say(pattern, identified, happened("right"), happened("wrong"))
    await world.engine.append([rated], owner="", deadline=Deadline.never())
    desk.write(*priced(0.20, 0.25, 0.25))
    await desk.run()
    assert desk.validated["waiting"] == 4
    await world.settle()
    before_ = await stored(world)
    assert before_["agent_outcome"]
    assert before_["track_step"]
    await desk.run()
    assert desk.validated["validated"] == 4, "the settlement made them due"
    assert {one["classification"] for one in await recorded(world)} == {"lucky_success"}
    await world.settle()
    assert await stored(world) == before_


@pytest.mark.spec("PM-11")
@pytest.mark.parametrize(
    ("returns", "thesis", "classification", "counted"),
    [
        ((0.30, 0.05, 0.08), 0.85, "genuine_success", (1, 0)),
        ((0.30, 0.10, 0.12), 0.80, "partial_success", (0, 1)),
        ((0.20, 0.25, 0.25), 0.50, "lucky_success", None),
        ((0.01, 0.0, 0.0), 0.90, "not_assessable", None),
    ],
)
async def test_what_a_success_speaks_for(
    desk: Desk,
    returns: tuple[float, float, float],
    thesis: float,
    classification: str,
    counted: tuple[int, int] | None,
) -> None:
    """Who decided, what was cited and came true, patterns and lessons; nothing where it was luck."""
    world = desk.world
    right, cites_right = claimed("right", 0.9, thesis)
    wrong, cites_wrong = claimed("wrong", 0.1, round(1 - thesis, 2))
    right["core"]["agent"], wrong["core"]["agent"] = "bob", "eve"
    pattern = {
        "record": "Pattern", "known_at": CLAIMED.isoformat(),
        "core": {"pattern_id": "p", "name": "Momentum", "category": "momentum"},
    }  # fmt: skip
    cited = cites("d", "right", DECIDED) | {"to": {"Pattern": "p"}}
    await world.say(benchmarked(), decided(), right, cites_right, wrong, cites_wrong, pattern, cited)
    await world.say(happened("right"), happened("wrong"))
    await world.settle()
    desk.write(*priced(*returns))
    await desk.run()
    found = await learning_report(world.database, None, deadline=Deadline.never())
    assert found.successes == {classification: 1}, "one a decision, by its newest checkpoint"
    spoken = {(one.kind, one.key): (one.fully, one.partly) for one in found.reinforced}
    names = [("agent", "ann"), ("agent", "bob"), ("pattern", "p")]
    assert spoken == ({} if counted is None else dict.fromkeys(names, counted))


async def test_without_a_source_of_prices_a_person_states_what_happened(desk: Desk) -> None:
    """The returns of stock, market and sector at a checkpoint are compared and validated as those from prices are."""
    world, at = desk.world, checkpoint_at(DECIDED, 30)
    await world.say(decided(), *claimed("right", 0.9, 0.85), *claimed("wrong", 0.1, 0.15))
    await world.say(happened("right"), happened("wrong"))
    await world.settle()
    stated = outcome(
        "by-hand", datetime.now(UTC), at, 0.30, subject_id="company:MU", metric="total_return", unit="fraction",
        decision_id="d", checkpoint=30, period_start=DECIDED.isoformat(), stock_return=0.30, market_return=0.05,
        sector_return=0.08,
    )  # fmt: skip
    del stated["known_at"]  # It is said now.
    await world.say(stated, actor=Actor("kate", Role.HUMAN_ADMIN))
    report = await desk.run()
    assert report["read"] is False
    [one] = await recorded(world)
    assert (one["checkpoint"], one["outcome_id"], one["classification"]) == (30, "by-hand", "genuine_success")


async def test_without_a_result_a_success_waits_and_a_later_one_corrects_it(desk: Desk) -> None:
    world = desk.world
    await world.say(benchmarked(), decided(), *claimed("right", 0.9, 0.6), *claimed("wrong", 0.1, 0.4))
    desk.write(*priced(0.30, 0.05, 0.08))
    await desk.run()
    assert (desk.validated["validated"], desk.validated["waiting"]) == (0, 4)
    await world.say(happened("right"))
    await world.settle()
    await desk.run()
    assert {(one["thesis_score"], one["event"]) for one in await recorded(world)} == {(1.0, "record")}
    await world.say(happened("wrong"))
    await world.settle()
    await desk.run()
    assert desk.validated["corrected"] == 4
    assert {(one["thesis_score"], one["event"]) for one in (await recorded(world))[4:]} == {(0.6, "correct")}


async def test_a_success_that_prices_take_back_is_none_any_more(desk: Desk) -> None:
    await desk.world.say(benchmarked(), decided(), *claimed("right", 0.9, 1.0), happened("right"))
    await desk.world.settle()
    desk.write(*priced(0.30, 0.05, 0.08))
    await desk.run()
    assert {one["classification"] for one in await recorded(desk.world)} == {"genuine_success"}
    desk.write(*priced(-0.30, 0.05, 0.08))
    # Of the other three the checkpoint is too long ago for a revision.
    assert (await desk.run(timedelta(hours=1, minutes=1)))["revised"] == 1
    assert desk.validated["corrected"] == 1
    found = (await recorded(desk.world))[4:]
    assert {(one["classification"], one["skill_ratio"], one["event"]) for one in found} == {
        ("not_assessable", 0.0, "correct")
    }  # fmt: skip
    await desk.run(timedelta(hours=2, minutes=2))
    assert len(await recorded(desk.world)) == 5, "once"


@pytest.mark.parametrize(
    ("stance", "stock", "count"),
    [("long", -0.3, 0), ("avoid", 0.3, 0), ("avoid", -0.3, 4), ("short", -0.3, 4), ("hold", 0.3, 0), ("none", 0.3, 0)],
)
async def test_only_what_the_stance_expected_is_a_success(desk: Desk, stance: str, stock: float, count: int) -> None:
    await desk.world.say(benchmarked(), decided(stance=stance), *claimed("right", 0.9, 1.0), happened("right"))
    await desk.world.settle()
    desk.write(*priced(stock, -0.05, -0.1))
    await desk.run()
    found = await recorded(desk.world)
    assert len(found) == count
    assert all(one["market_part"] == 0.05 for one in found)


async def test_a_citation_with_hindsight_and_a_market_that_is_unknown_validate_nothing(desk: Desk) -> None:
    said = claimed("right", 0.9, 1.0)
    said[1] = cites("d", "right", TARGET + DAY)
    await desk.world.say(benchmarked(), decided(), *said, happened("right"))
    await desk.world.say(
        decided("plain", subject="company:AMD"), *claimed("other", 0.9, 1.0, "plain"), happened("other")
    )
    await desk.world.settle()
    desk.write(*priced(0.3, 0.05, 0.08), *closes("company:AMD", FIRST, {0: 100, 20: 130}))
    await desk.run()
    assert desk.validated["waiting"] == 4
    assert await recorded(desk.world) == []
    assert datetime.now(UTC) > TARGET
