"""The cells of a track record against a plain computation, and the worked examples of the specification."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given, settings

from imem.credibility.history import ValidityInterval
from imem.credibility.posterior import decay, years_between
from imem.credibility.publication import ACTOR as PUBLISHER
from imem.credibility.scores.cells import decayed
from imem.credibility.scores.context import ClaimContext, ContextCell, horizon_of, matches
from imem.credibility.settling import ACTOR, alone, recompute_track_record
from imem.credibility.store import TrackRecordKey
from imem.credibility.track_record import dated_records
from imem.credibility.track_steps import ScoredClaim, steps_of
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.kg.asof import AsOf, AsOfClock
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import record_of
from imem.kg.model import AgentCredibility
from tests.credibility.cells import cells_of
from tests.credibility.conftest import HALFLIFE, World, finding, opened, outcome
from tests.credibility.load import day
from tests.credibility.test_incremental import facts
from tests.credibility.test_tracks import HALFLIFE as SHORT
from tests.credibility.test_tracks import histories, spans
from tests.servers import cloned

YEAR = timedelta(days=365.25)
FIRST = datetime(2023, 1, 1, tzinfo=UTC)


@pytest_asyncio.fixture
async def world(light_stack: Any, light_template: str) -> AsyncIterator[World]:
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        async with opened(light_stack.settings, url, admin_url) as made:
            yield made


# Pure


def plain(scores: list[ScoredClaim], clock: AsOfClock, at: datetime) -> dict[ClaimContext, list[float]]:
    """Return weight, successes, squares, observations, right and rows of each cell, from the scores that stand."""
    days: dict[datetime, list[ScoredClaim]] = defaultdict(list)
    for one, score in spans(scores, clock):
        if score.y is not None and one.start <= at and (one.end is None or at < one.end):
            days[score.target_at].append(score)
    found: dict[ClaimContext, list[float]] = defaultdict(lambda: [0.0] * 6)
    for target_at, claims in days.items():
        weight = decay(years_between(target_at, at), SHORT)
        for context in {claim.context for claim in claims}:
            ys = [claim.y or 0 for claim in claims if claim.context == context]
            share, right = len(ys) / len(claims), sum(ys) / len(claims)
            parts = (weight * share, weight * right, (weight * share) ** 2, share, right, len(ys))
            found[context] = [one + other for one, other in zip(found[context], parts, strict=True)]
    return found


@pytest.mark.spec("CR-15")
@settings(max_examples=300, deadline=None)
@given(histories())
def test_cells_are_what_stands(scores: list[ScoredClaim]) -> None:
    """After each change every cell holds the scores of its context that stand, and all together hold the record."""
    for clock in AsOfClock:
        swept = steps_of(scores, clock, SHORT)
        for record in swept.steps:
            newest = {step.cell.context: step for step in swept.cells if step.at <= record.at}
            cells = [decayed(step, record.at, SHORT) for step in newest.values() if step.cell.rows]
            wanted = plain(scores, clock, record.at)
            assert {cell.context for cell in cells} == set(wanted)
            for cell in cells:
                assert list(cell[1:-1]) == pytest.approx(wanted[cell.context], abs=1e-9)
            assert sum(cell.weight for cell in cells) == pytest.approx(record.weight, abs=1e-9)
            assert sum(cell.successes for cell in cells) == pytest.approx(record.successes, abs=1e-9)
            assert sum(cell.observations for cell in cells) == pytest.approx(record.observations, abs=1e-9)
            assert sum(cell.rows for cell in cells) == record.scored


def scored(name: str, known: float, y: int, context: ClaimContext, end: float | None = None) -> ScoredClaim:
    stands = ValidityInterval(day(known), None if end is None else day(end))
    return ScoredClaim(name, day(1), day(0), day(known), 1.0, None, y, None, None, None, stands, stands, context)


def test_a_row_more_of_an_observation_changes_the_shares_of_all() -> None:
    """Two rows are worth a half each, three a third; a cell that loses its last row is empty and has no newest."""
    one, other = ClaimContext("Energy"), ClaimContext("Health")
    scores = [scored("a", 2, 1, one), scored("b", 3, 0, other), scored("c", 4, 1, one, 5)]

    swept = steps_of(scores, AsOfClock.KNOWN, 2.0)

    found = [(step.at, step.cell.context.sector, step.cell.rows, step.cell.observations) for step in swept.cells]
    assert found == [
        (day(2), "Energy", 1, 1.0),
        (day(3), "Energy", 1, 0.5),
        (day(3), "Health", 1, 0.5),
        (day(4), "Energy", 2, pytest.approx(2 / 3)),
        (day(4), "Health", 1, pytest.approx(1 / 3)),
        (day(5), "Energy", 1, pytest.approx(0.5)),
        (day(5), "Health", 1, pytest.approx(0.5)),
    ]
    assert [step.cell.newest_resolved_at for step in swept.cells if step.cell.context == other] == [day(3)] * 3
    (last,) = steps_of([scored("a", 2, 1, one, 4)], AsOfClock.KNOWN, 2.0).cells[1:]
    assert last.cell == ContextCell(one, 0.0, 0.0, 0.0, 0.0, 0.0, 0, None)


def test_matches_and_horizons() -> None:
    """None is a value like others; a horizon at a bound is of the shorter class."""
    some = ClaimContext("Energy", "binary", "week", None, None, "NORMAL")
    assert matches(some, some) == 6
    assert matches(some, some._replace(sector="Health", company_size="small")) == 4
    assert matches(some, ClaimContext()) == 2
    assert [horizon_of(day(0), day(end)) for end in (7, 7.1, 31, 31.1, 366, 366.1)] == [
        "week", "month", "month", "year", "year", "longer",
    ]  # fmt: skip


# In the journal


async def cells(world: World, at: datetime) -> list[ContextCell]:
    asked = [("ann", "flu", AsOf(at, AsOfClock.KNOWN))]
    (found,) = await cells_of(world.database, asked, halflife_years=HALFLIFE, deadline=Deadline.never())
    return found


def claimed(name: str, at: float, happened: int, known: float | None = None) -> list[dict[str, Any]]:
    """Return a claim that it happens, and the answer at the moment *at*, in years from FIRST, or known later."""
    target, subject = FIRST + at * YEAR, {"subject_id": f"market:{name}"}
    return [
        finding(name, FIRST - 2 * YEAR, target, probability=0.9, **subject),
        outcome(f"o-{name}", target if known is None else FIRST + known * YEAR, target, float(happened), **subject),
    ]


@pytest.mark.spec("CR-1", "CR-2", "CR-15")
async def test_the_worked_example(world: World) -> None:
    """x = 1, 0, 1 at 0, 0.5 and 1.25 years with a half-life of 2: S 0.6813, W 2.4195; with a late 0 at 0.25, 0.5272."""
    for name, years, x in (("a", 0.0, 1), ("b", 0.5, 0), ("c", 1.25, 1)):
        await world.say(*claimed(name, years, x))
    await world.settle()
    at = FIRST + 1.25 * YEAR

    (cell,) = await cells(world, at)

    assert cell.context == ClaimContext(None, "binary", "longer")
    assert round(cell.weight, 4) == 2.4195
    assert round(cell.successes / cell.weight, 4) == 0.6813
    assert round(cell.squares, 4) == 2.0151
    assert round(cell.weight**2 / cell.squares, 4) == 2.9052
    assert (cell.observations, cell.right, cell.rows, cell.newest_resolved_at) == (3.0, 2.0, 3, at)

    await world.say(*claimed("late", 0.25, 0, known=1.25))
    await world.settle()

    (cell,) = await cells(world, at)
    assert round(cell.successes / cell.weight, 4) == 0.5272
    assert round(cell.weight, 4) == 3.1266


@pytest.mark.spec("CR-1")
async def test_decay(world: World) -> None:
    """An observation weighs one at its moment, and half of it a half-life later; it never weighs more."""
    await world.say(*claimed("a", 0.0, 1))
    await world.settle()
    wanted = {0.0: 1.0, 0.25: 0.9170, 0.5: 0.8409, 1.0: 0.7071, 2.0: 0.5}
    found = await cells_of(
        world.database, [("ann", "flu", AsOf(FIRST + age * YEAR, AsOfClock.KNOWN)) for age in wanted],
        halflife_years=HALFLIFE, deadline=Deadline.never(),
    )  # fmt: skip
    assert [round(cell.weight, 4) for (cell,) in found] == list(wanted.values())
    assert await cells(world, FIRST - timedelta(microseconds=1)) == []


@pytest.mark.spec("CR-2")
async def test_the_half_life_is_that_of_the_agents_record(world: World) -> None:
    """
    Else the one given; a published score says which was used, and sets none. Stored steps of another half-life are no
    obstacle: the answer is that of a sweep anew.
    """
    for name, years, x in (("a", 0.0, 1), ("b", 0.5, 0)):
        await world.say(*claimed(name, years, x))
    await world.settle()
    at = FIRST + YEAR
    (cell,) = await cells(world, at)
    assert cell.weight == pytest.approx(0.5**0.5 + 0.5**0.25)
    asked = [("ann", "flu", AsOf(at, AsOfClock.KNOWN)), ("bob", "flu", AsOf(at, AsOfClock.KNOWN))]
    (other,), nobody = await cells_of(world.database, asked, halflife_years=1.0, deadline=Deadline.never())
    assert other.weight == pytest.approx(0.5 + 0.5**0.5)
    assert nobody == []

    async def recorded(halflife_years: float, actor: Actor) -> None:
        score = AgentCredibility.Score(sample_size=2, last_updated=day(300), decay_halflife_years=halflife_years)
        said = AgentCredibility(agent_id="ann", domain="flu", score=score)
        entry = entry_of(record_of(said, writer="credibility", known_at=FIRST))
        await world.engine.append([entry], actor=actor, deadline=Deadline.never())

    await recorded(0.25, replace(PUBLISHER, may_import=True))
    assert await cells(world, at) == [cell]

    await recorded(0.5, ACTOR)
    (own,) = await cells(world, at)
    assert own.weight == pytest.approx(0.25 + 0.5)
    async with alone(world.pipelines) as conn:
        await recompute_track_record(conn, TrackRecordKey("ann", "flu"), HALFLIFE)
    assert await world.rows("SELECT DISTINCT halflife_years FROM track_cell") == [{"halflife_years": 0.5}]
    assert await cells(world, at) == [own]


async def test_cells_are_those_of_the_track_record(world: World) -> None:
    """Of many agents and moments at once, on both clocks, each with its own; together they are the track record."""
    await world.say(*facts(4))
    await world.settle()
    moments = [day(number) for number in (16, 25, 33, 60)] + [day(400)]
    for clock in AsOfClock:
        asked = [(name, "flu", AsOf(moment, clock)) for moment in moments for name in ("ann", "bob", "zoe")]
        found = await cells_of(world.database, asked, halflife_years=HALFLIFE, deadline=Deadline.never())
        records, _ = await dated_records(world.database, asked, halflife_years=HALFLIFE, deadline=Deadline.never())
        for (_, record), kept in zip(records, found, strict=True):
            assert sum(cell.weight for cell in kept) == pytest.approx(record.weight, abs=1e-9)
            assert sum(cell.rows for cell in kept) == record.rows
            assert sum(cell.observations for cell in kept) == pytest.approx(record.n, abs=1e-9)
        assert found[-3]
        assert not found[-1]
