"""An applier killed between any two steps, again and again, leaves what an undisturbed one leaves."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from kg.hash import graph_hash
from tests.graph_proofs.histories import DAYS
from tests.graph_proofs.world import Journal, Line, World, cut

TOP = Path(__file__).resolve().parents[2]
BATCH = 3
STEPS = 9
"""Steps of one batch of findings: core, two links, applied, commit before and after, mark before and after."""


def finding(number: int) -> Line:
    return {
        "record": "Finding",
        "known_at": DAYS[number % 5],
        "core": {
            "id": f"f{number}",
            "analysis_id": f"a{number % 7}",
            "subject_id": "company:MU",
            "agent": f"agent{number % 3}",
            "domain": "d",
            "statement": "it rises",
        },
    }


@dataclass
class Lives:
    """The program that dies on demand."""

    process: asyncio.subprocess.Process

    async def one(self, steps: int) -> int:
        """Live for so many steps; return how it ended."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{steps}\n".encode())
        await self.process.stdin.drain()
        return int(await asyncio.wait_for(self.process.stdout.readline(), 120))


@asynccontextmanager
async def lives(world: World, journal: Journal) -> AsyncIterator[Lives]:
    found = world.settings
    assert found.neo4j_password is not None
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.graph_proofs.crashing",
        cwd=TOP,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    where = {
        "graph": [found.neo4j_url, found.neo4j_user, found.neo4j_password.get_secret_value()],
        "postgres": journal.url,
        "batch": BATCH,
    }
    assert process.stdin is not None
    process.stdin.write(json.dumps(where).encode() + b"\n")
    try:
        yield Lives(process)
    finally:
        process.stdin.close()
        await process.wait()


def let_go(journal: Journal) -> None:
    """Let the time pass that a dead applier keeps its lease."""
    journal.owner("UPDATE lease SET expires_at = now() - interval '1 second'")


async def whole(world: World) -> bool:
    """Whether every event in the graph is there with all that it writes, and nothing of any other."""
    (row,) = await world.run(
        "MATCH (e:AppliedEvent) WITH count(e) AS events "
        "OPTIONAL MATCH (f:Finding) WHERE f.known_at IS NOT NULL "
        "RETURN events, count(f) AS findings, sum(COUNT { (f)<-[:STATED]-() }) AS stated, "
        "sum(COUNT { (f)<-[:HAS_FINDING]-() }) AS inside"
    )
    return len(set(row.values())) == 1


async def _killed(world: World, journal: Journal, kills: int) -> None:
    rng = random.Random(kills)
    await journal.say(*[finding(number) for number in range(kills * BATCH)])
    events = await journal.events()
    undisturbed = await world.hash_of(*cut(events, 50))
    await world.wipe()
    ends = []
    async with lives(world, journal) as program:
        for _ in range(kills):
            ends.append(await program.one(rng.randint(1, 2 * STEPS - 2)))
            let_go(journal)
            assert await whole(world)
        while await program.one(10**9):
            let_go(journal)
    assert ends.count(-9) >= 0.9 * kills
    assert await journal.rows("SELECT DISTINCT state, attempts FROM delivery") == [{"state": "applied", "attempts": 0}]
    assert await graph_hash(world.graph) == undisturbed


@pytest.mark.spec("GR-5")
async def test_a_hundred_kills(empty: World, journal: Journal) -> None:
    """No event is half applied, lost or counted as refused, and the end is the same."""
    await _killed(empty, journal, 100)


@pytest.mark.spec("GR-5")
@pytest.mark.chaos
async def test_a_thousand_kills(empty: World, journal: Journal) -> None:
    await _killed(empty, journal, 1000)


@pytest.mark.spec("GR-5")
async def test_a_kill_at_every_single_step(empty: World, journal: Journal) -> None:
    """Each step of the first batch in turn; the next life goes on from there."""
    await journal.say(*[finding(number) for number in range(BATCH)])
    undisturbed = await empty.hash_of(await journal.events())
    reached = 0
    async with lives(empty, journal) as program:
        for step in range(1, STEPS + 1):
            await empty.wipe()
            journal.owner("UPDATE delivery SET state = 'pending'")
            let_go(journal)
            reached += await program.one(step) == -9
            assert await whole(empty)
            let_go(journal)
            assert await program.one(10**9) == 0
            assert await graph_hash(empty.graph) == undisturbed
    assert reached >= STEPS - 1
