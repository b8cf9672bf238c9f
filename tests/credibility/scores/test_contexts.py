"""The context of a claim: what could be known when it was made, on both clocks, and what a late word of it changes."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import pytest
import pytest_asyncio

from imem.credibility.reconcile import reconcile
from imem.credibility.scores.context import ClaimContext, ContextCell
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.gateway import Gateway
from imem.journal.settings import Role
from imem.kg.asof import AsOf, AsOfClock
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import record_of
from imem.kg.model import Company
from tests.credibility.cells import cells_of
from tests.credibility.conftest import HALFLIFE, World, company, corrected, finding, market, opened, outcome, reading
from tests.credibility.load import day
from tests.credibility.test_incremental import facts, steps_stored
from tests.servers import cloned

MU = {"subject_id": "company:MU"}
BINARY = ClaimContext(None, "binary", "week")


@pytest_asyncio.fixture
async def world(light_stack: Any, light_template: str) -> AsyncIterator[World]:
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        async with opened(light_stack.settings, url, admin_url) as made:
            yield made


async def contexts(world: World) -> dict[str, ClaimContext]:
    """Return the context of each claim on the known clock as it stands last."""
    found = await world.rows(
        "SELECT finding_id, sector, metric_type, time_horizon, company_size, growth_stage, regime FROM agent_outcome"
        " WHERE known_at IS NOT NULL AND superseded_known_at IS NULL ORDER BY finding_id"
    )
    return {row.pop("finding_id"): ClaimContext(**row) for row in found}


async def now(world: World) -> datetime:
    (row,) = await world.rows("SELECT imem_now() AS now")
    moment: datetime = row["now"]
    return moment


async def recorded(world: World, at: datetime) -> set[ClaimContext]:
    """Return the contexts in which the agent has evidence as of a moment of the recorded clock."""
    asked = [("ann", "flu", AsOf(at, AsOfClock.RECORDED))]
    (found,) = await cells_of(world.database, asked, halflife_years=HALFLIFE, deadline=Deadline.never())
    return {cell.context for cell in found}


async def test_what_could_be_known_when_the_claim_was_made(world: World) -> None:
    """Of the subject the last statement before the claim, of the readings the latest; later ones change nothing."""
    await world.say(
        company("MU", day(1), sector="Technology", size_class="large", growth_stage="mature"),
        company("MU", day(3), sector="Semiconductors"),
        market("q", day(1), sector="Health"),
        reading("r1", day(1), "NORMAL"),
        reading("r2", day(3), "HIGH_VOLATILITY"),
        # Known later than the next, and of an earlier moment: never in force.
        reading("r0", day(2.5), "BEAR_LOW_RATES", day(0.5)),
    )
    for name, made in (("before", 0.5), ("early", 2), ("late", 3)):
        await world.say(finding(name, day(made), day(20), probability=0.8, **MU))
    await world.say(
        outcome("o", day(21), day(20), 1.0, **MU),
        finding("flu", day(2), day(5), probability=0.8),
        outcome("p", day(6), day(5), 1.0),
    )
    await world.settle()

    assert await contexts(world) == {
        "before": ClaimContext(None, "binary", "month"),
        "early": ClaimContext("Technology", "binary", "month", "large", "mature", "NORMAL"),
        "late": ClaimContext("Semiconductors", "binary", "month", None, None, "HIGH_VOLATILITY"),
        "flu": ClaimContext("Health", "binary", "week", None, None, "NORMAL"),
    }


async def test_corrections_and_withdrawals(world: World) -> None:
    """A corrected sector and a withdrawn reading count from when they could be known."""
    question, first = market("q", day(1), sector="Health"), reading("r1", day(1), "NORMAL")
    second = reading("r2", day(2), "HIGH_VOLATILITY")
    await world.say(question, first, second)
    await world.say(corrected(question, day(4), sector="Energy"), corrected(second, day(4), withdrawn=True))
    await world.say(corrected(first, day(5), regime="BULL_LOW_RATES"))
    for made in (1, 3, 4, 5):
        await world.say(finding(f"f{made}", day(made), day(6), probability=0.8))
    await world.say(outcome("o", day(7), day(6), 1.0))
    await world.settle()

    assert [(found.sector, found.regime) for found in (await contexts(world)).values()] == [
        ("Health", "NORMAL"), ("Health", "HIGH_VOLATILITY"), ("Energy", "NORMAL"), ("Energy", "BULL_LOW_RATES"),
    ]  # fmt: skip


async def test_a_late_word_changes_the_context_from_then_on(world: World) -> None:
    """On the known clock it always was so; on the recorded clock it is so from when it was recorded on."""
    await world.say(finding("f", day(3), day(5), probability=0.8), outcome("o", day(6), day(5), 1.0))
    await world.settle()
    before = await now(world)
    assert await contexts(world) == {"f": BINARY}

    await world.say(market("q", day(2), sector="Health"))
    assert (await world.settle()).scores == 2
    between = await now(world)
    await world.say(reading("r1", day(1), "NORMAL"))
    assert (await world.settle()).scores == 2
    after = await now(world)

    assert await contexts(world) == {"f": BINARY._replace(sector="Health", regime="NORMAL")}
    assert await recorded(world, before) == {BINARY}
    assert await recorded(world, between) == {BINARY._replace(sector="Health")}
    assert await recorded(world, after) == {BINARY._replace(sector="Health", regime="NORMAL")}
    report = await reconcile(world.pipelines, world.engine, halflife_years=HALFLIFE)
    assert report.differing == 0


async def test_what_is_known_now_settles_nothing_anew(world: World) -> None:
    """Neither a new reading nor a new description touches claims that were made before."""
    await world.say(finding("f", day(3), day(5), probability=0.8), outcome("o", day(6), day(5), 1.0))
    await world.say(reading("r1", day(1), "NORMAL"), reading("r3", day(4), "NORMAL"))
    await world.settle()
    await world.say(reading("r2", day(2), "HIGH_VOLATILITY"))
    assert (await world.settle()).scores == 2
    stored = await steps_stored(world)

    await world.say(reading("r4", day(10), "BEAR_LOW_RATES"), market("q", day(4), sector="Health"))
    # Of an earlier moment than one that was known.
    await world.say(reading("r0", day(2), "BEAR_HIGH_RATES", day(1.5)))
    done = await world.settle()

    assert (done.due, done.scores) == (3, 0)
    assert await steps_stored(world) == stored


async def test_no_agent_moves_a_context(world: World) -> None:
    """What an agent says of its subject without the import right counts for nothing, before its claim too."""
    said = record_of(Company(ticker="MU", profile=Company.Profile(sector="Where I am right")))
    await Gateway(world.database, Actor("ann", Role.AGENT)).append([entry_of(said)], deadline=Deadline.never())
    world.owner(
        "SET session_replication_role = replica;"
        " UPDATE record_history SET known_at = '2026-01-02T00:00Z' WHERE kind = 'Company'"
    )
    await world.say(finding("f", day(3), day(5), probability=0.8, **MU), outcome("o", day(6), day(5), 1.0, **MU))
    await world.settle()
    assert await contexts(world) == {"f": BINARY}

    await world.say(company("MU", day(2), sector="Semiconductors"))
    await world.settle()
    assert await contexts(world) == {"f": BINARY._replace(sector="Semiconductors")}


@pytest.mark.spec("CR-15")
@pytest.mark.parametrize("seed", range(3))
async def test_the_order_of_arrival_is_nothing_to_the_known_clock(
    light_stack: Any, light_template: str, seed: int
) -> None:
    """The same statements in another order, settled at other moments: scores, steps and cells are the same."""
    found = []
    for order, size in enumerate((3, 7, 1000)):
        lines = facts(seed)
        random.Random(order).shuffle(lines)
        lines.sort(key=lambda line: "correct" in line)
        with cloned(light_stack.settings, light_template) as (url, admin_url):
            async with opened(light_stack.settings, url, admin_url) as world:
                while lines:
                    await world.say(*lines[:size])
                    lines = lines[size:]
                    await world.settle()
                stored = [step for step in await steps_stored(world) if step["clock"] == "known"]
                found.append((stored, await contexts(world)))
    assert found[0] == found[1] == found[2]
    assert len(set(found[0][1].values())) >= 4


async def seen(world: World, moments: list[datetime], clock: AsOfClock) -> list[list[ContextCell]]:
    asked = [(name, "flu", AsOf(at, clock)) for at in moments for name in ("ann", "bob", "base")]
    return await cells_of(world.database, asked, halflife_years=HALFLIFE, deadline=Deadline.never())


@pytest.mark.parametrize("seed", range(2))
async def test_no_look_ahead(world: World, seed: int) -> None:
    """What is recorded later changes no earlier answer on the recorded clock, what is known later none on the known."""
    lines = sorted(facts(seed), key=lambda line: ("correct" in line, line["known_at"]))
    noted: list[tuple[datetime, list[list[ContextCell]]]] = []

    async def say(part: list[dict[str, Any]]) -> None:
        for place in range(0, len(part), 9):
            await world.say(*part[place : place + 9])
            await world.settle()
            at = await now(world)
            noted.append((at, await seen(world, [at], AsOfClock.RECORDED)))

    days = [day(number / 2) for number in range(30, 51)]
    await say([line for line in lines if line["known_at"] <= days[-1].isoformat()])
    before = await seen(world, days, AsOfClock.KNOWN)
    await say([line for line in lines if line["known_at"] > days[-1].isoformat()])

    assert any(len(cells) > 1 for cells in before)
    assert await seen(world, days, AsOfClock.KNOWN) == before
    for at, cells in noted:
        assert await seen(world, [at], AsOfClock.RECORDED) == cells
    assert len({str(cells) for _, cells in noted}) > 3
