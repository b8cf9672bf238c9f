"""A settler killed before any of its statements loses nothing and does nothing twice."""

from __future__ import annotations

import os
from typing import Any

import pytest

from imem.credibility.reconcile import reconcile
from tests.killed_programs import printed
from tests.servers import cloned

from .conftest import HALFLIFE, World, agent, corrected, market, opened, outcome, reading
from .killed_at_points import POINTS
from .load import day, lines

DECISIONS = 8
KILLS = 125 if os.environ.get("IMEM_CHAOS") else 5
"""Kills at each named point; in the long form a thousand in all."""


async def killed(world: World, program: str, *given: str) -> int:
    """Run a program whose settlers are killed until one ends by itself; return how many were."""
    lines = (world.pipeline_url, *given)
    out = await printed(f"tests.credibility.{program}", given="".join(f"{line}\n" for line in lines))
    return int(out)


async def settled(world: World) -> None:
    """Assert that nothing is due, and that a full recomputation finds what stands."""
    assert await world.rows("SELECT FROM due_row WHERE queue = 'credibility' UNION ALL SELECT FROM track_due") == []
    report = await reconcile(world.pipelines, world.engine, halflife_years=HALFLIFE)
    assert (report.differing, report.questions) == (0, DECISIONS)


async def test_killed_before_every_statement(world: World) -> None:
    """One settler after the other dies a statement later than the one before; in the end all is as if none had."""
    await world.say(*lines(DECISIONS))

    assert await killed(world, "killed") >= 20

    stated = await world.rows(
        "SELECT record_key, known_at, payload -> 'groups' -> 'outcome' ->> 'outcome' AS outcome FROM event "
        "WHERE kind = 'record.Decision' AND actor = 'credibility' ORDER BY record_key, known_at"
    )
    assert [(row["record_key"], row["known_at"], row["outcome"]) for row in stated] == [
        (f"d-{number}", day(5 + number + after), outcome)
        for number in range(DECISIONS)
        for after, outcome in ((1, "success"), (90, "failure"))
    ]
    (count,) = await world.rows("SELECT count(*) AS scores FROM agent_outcome WHERE known_at IS NOT NULL")
    assert count["scores"] == DECISIONS * 3 * 2
    await settled(world)


def later() -> list[dict[str, Any]]:
    """Return what is recorded when half is settled: contexts, another baseline, revisions, a correction."""
    described = [market(f"{number}", day(0), sector="Health") for number in range(0, DECISIONS, 2)]
    regimes = [reading("r0", day(0), "NORMAL"), reading("r1", day(0.5), "HIGH_VOLATILITY")]
    revised = [
        outcome(f"o2-{number}", day(200 + number), day(5 + number), 1.0, vintage=2, subject_id=f"market:{number}")
        for number in range(0, DECISIONS, 3)
    ]
    taken_back = outcome("o1-1", day(96), day(6), 0.0, vintage=1, subject_id="market:1")
    return [
        agent("bob", day(0), "baseline"),
        *described,
        *regimes,
        *revised,
        corrected(taken_back, day(150), withdrawn=True),
    ]


@pytest.mark.longer
@pytest.mark.spec("CR-15", "PF-10")
async def test_killed_at_every_point(world: World, stack: Any, template: str) -> None:
    """What stands is what one undisturbed computation of all statements makes of them, to 1e-9."""
    await world.say(*lines(DECISIONS))
    await world.settle()
    await world.say(*later())

    assert await killed(world, "killed_at_points", str(KILLS)) == len(POINTS) * KILLS

    await settled(world)
    with cloned(stack.settings, template) as (url, admin_url):
        async with opened(stack.settings, url, admin_url) as undisturbed:
            await undisturbed.say(*lines(DECISIONS), *later())
            await undisturbed.settle()
            wanted = await known(undisturbed)
    found = await known(world)
    assert len(wanted) > 100
    assert {row["sector"] for row in wanted if "sector" in row} == {"Health", None}
    assert [list(row) for row in found] == [list(row) for row in wanted]
    for one, other in zip(found, wanted, strict=True):
        for name, value in one.items():
            assert value == (pytest.approx(other[name], abs=1e-9) if isinstance(value, float) else other[name]), name


async def known(world: World) -> list[dict[str, Any]]:
    """Return scores, track records, contexts and observations on the known clock, and the verdicts."""
    return [
        *await world.rows(
            "SELECT finding_id, vintage, revision, outcome_id, agent, y, brier, reference, error, peer_loss, sector,"
            " regime, known_at, superseded_known_at FROM agent_outcome WHERE known_at IS NOT NULL"
            " ORDER BY finding_id, vintage, revision"
        ),
        *await world.rows("SELECT * FROM track_step WHERE clock = 'known' ORDER BY agent, domain, at"),
        *await world.rows("SELECT * FROM track_cell WHERE clock = 'known' ORDER BY agent, domain, at, context"),
        *await world.rows(
            "SELECT * FROM observation_step WHERE clock = 'known' ORDER BY agent, domain, at, target_at, context"
        ),
        *await world.rows(
            "SELECT record_key, known_at, payload #>> '{groups,outcome,outcome}' AS outcome FROM event"
            " WHERE kind = 'record.Decision' AND actor = 'credibility' ORDER BY record_key, known_at, position"
        ),
    ]
