"""A write whose way is cut short at any step, again and again, has exactly one effect."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import AbstractAsyncContextManager

import pytest

from imem.journal.gateway import Gateway
from imem.kg.projection.hash import graph_hash
from tests.kg.killed import APPLYING, PUSHING, said
from tests.kg.projection.test_crash import let_go, whole
from tests.kg.projection.world import NEVER, Journal, World
from tests.killed_programs import KilledProgram, killed_program

BATCH = 3


def program(world: World, journal: Journal) -> AbstractAsyncContextManager[KilledProgram]:
    found = world.settings
    assert found.neo4j_password is not None
    assert found.valkey_durable_url is not None
    where = {
        "graph": [found.neo4j_url, found.neo4j_user, found.neo4j_password.get_secret_value()],
        "postgres": journal.pipeline_url,
        "valkey": found.valkey_durable_url.get_secret_value(),
        "batch": BATCH,
    }
    return killed_program("tests.kg.killed", where)


async def _killed(world: World, journal: Journal, kills: int) -> None:
    rng = random.Random(kills)
    steps = [("push", step) for step in PUSHING] + [("apply", step) for step in APPLYING]
    ends: Counter[str] = Counter()
    number = 0
    async with program(world, journal) as process:
        for nth in range(kills):
            what, step = steps[nth % len(steps)]
            if what == "push":
                ends[step] += await process.ended(f"push {step} {number}") == -9
                # The agent cannot know whether it was recorded, and says it again.
                assert await process.ended(f"push never {number}") == 0
                number += 1
                continue
            # Enough for a step of the second batch, and for both lanes.
            for _ in range(2 * BATCH):
                actor, entries = said(number)
                await Gateway(journal.database, actor).append(entries, deadline=NEVER)
                number += 1
            ends[step] += await process.ended(f"apply {step} {rng.randint(1, 2)}") == -9
            let_go(journal)
            assert await whole(world)
        while await process.ended("apply never 1"):
            let_go(journal)
    assert sum(ends.values()) >= 0.9 * kills, ends
    assert all(ends[step] >= kills // len(steps) // 2 for _, step in steps), ends
    events = await journal.events()
    assert sorted(event.key for event in events) == sorted(f"f-{one_}" for one_ in range(number))
    assert await journal.rows("SELECT DISTINCT state, attempts FROM delivery") == [{"state": "applied", "attempts": 0}]
    (marks,) = await world.run("MATCH (e:AppliedEvent) RETURN count(e) AS n, count(DISTINCT e.event_id) AS ids")
    assert marks == {"n": number, "ids": number}
    found = await graph_hash(world.graph)
    assert found == await world.hash_of(events)


@pytest.mark.spec("SY-4")
async def test_a_hundred_kills(empty: World, journal: Journal) -> None:
    """At each step of the way, from the writer's first to the applier's last word; one effect for each event."""
    await _killed(empty, journal, 100)


@pytest.mark.spec("SY-4")
@pytest.mark.chaos
async def test_a_thousand_kills(empty: World, journal: Journal) -> None:
    await _killed(empty, journal, 1000)
