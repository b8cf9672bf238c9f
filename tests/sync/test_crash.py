"""Processes killed by SIGKILL at every named point: nothing is lost or there twice, nobody is locked for good."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from imem.cache.working.published import item_of, publication
from imem.sync.locks import LOCK_TTL
from imem.sync.snapshots import SnapshotOutcome
from tests.killed_programs import KilledProgram, killed_program

from .conftest import SyncHarness, soon
from .killed import POINTS
from .parts import debate, graph_that_follows, held, member, snapshots, synchronizer

KILLS = 1000 if os.environ.get("IMEM_CHAOS") else 25
KILLED = -signal.SIGKILL


class KillCounter:
    """Runs the program that is killed at a given point, and counts how often it was, by point."""

    def __init__(self, program: KilledProgram) -> None:
        self._program = program
        self.killed = Counter[str]()

    async def run_once(self, **told: Any) -> bool:
        """Run once; return whether it was killed."""
        ended = await self._program.ended(json.dumps(told))
        assert ended in {KILLED, 0}, ended
        self.killed[told["point"]] += ended == KILLED
        return ended == KILLED


@asynccontextmanager
async def counted(harness: SyncHarness) -> AsyncIterator[KillCounter]:
    where = {"url": harness.url, "working": url(harness, "working"), "durable": url(harness, "durable")}
    async with killed_program("tests.sync.killed", where) as program:
        yield KillCounter(program)


def url(harness: SyncHarness, role: str) -> str:
    return str(getattr(harness.settings, f"valkey_{role}_url").get_secret_value())


def points(operation: str) -> list[str]:
    """Return as many points as there are kills, each in its turn."""
    its = POINTS[operation]
    return [its[number % len(its)] for number in range(KILLS)]


@pytest.mark.longer
@pytest.mark.spec("SY-4")
async def test_pushes_that_are_killed_write_each_item_once(harness: SyncHarness) -> None:
    """Whatever was published is in the journal once, in the order of publishing."""
    memory, published = await held(harness, await harness.begin()), []
    async with counted(harness) as program:
        for number, point in enumerate(points("push")):
            item = item_of(harness.finding(id=f"f-{number:04}"))
            await memory.write(publication(item))
            published.append(item.id)
            await program.run_once(operation="push", agent_id=harness.agent("ann"), point=point)

    who = await member(harness)
    await synchronizer(harness).push(who, holder=memory, deadline=soon(60_000))

    assert set(program.killed) == set(POINTS["push"])
    assert sum(program.killed.values()) == KILLS
    found = await harness.rows("SELECT event_id FROM event WHERE actor = 'ann' ORDER BY agent_seq")
    assert [row["event_id"] for row in found] == published
    assert await memory.published() == []


@pytest.mark.longer
async def test_routers_that_are_killed_tell_each_agent_each_event_once(harness: SyncHarness) -> None:
    agent_id = (await harness.begin("bob", "business")).agent_id
    told = []
    async with counted(harness) as program:
        for number, point in enumerate(points("route")):
            if number % 2 == 0:
                told.append((await harness.record("ann", importance=0.9)).position)
            await program.run_once(operation="route", point=point)
            if number % 50 == 49:
                await synchronizer(harness).pull(await member(harness, "bob"), deadline=soon())
                await harness.record("ann", importance=0.9, id=f"f-more-{number}")
                [row] = await harness.rows("SELECT max(position) AS position FROM event")
                told.append(row["position"])
    await harness.router.step()

    rows = await harness.rows("SELECT position, seq FROM workflow.recipient WHERE agent_id = %s ORDER BY seq", agent_id)
    assert [row["position"] for row in rows] == told
    assert [row["seq"] for row in rows] == list(range(1, len(told) + 1))
    unpulled = await harness.rows("SELECT position FROM workflow.recipient WHERE pulled_at IS NULL ORDER BY position")
    waiting = [one.position for one in await harness.notices.waiting(agent_id, deadline=soon())]
    assert set(waiting) >= {row["position"] for row in unpulled}
    assert program.killed.keys() == set(POINTS["route"])


@pytest.mark.longer
async def test_pulls_that_are_killed_bring_everything(harness: SyncHarness) -> None:
    """What counts as pulled lies beside the memory; nothing is missing, nothing is there twice."""
    memory = await held(harness, await harness.begin("bob", "business"))
    keys = []
    async with counted(harness) as program:
        for number, point in enumerate(points("pull")):
            await harness.record("ann", importance=0.9, id=f"f-{number:04}")
            keys.append(f"f-{number:04}")
            await harness.router.step()
            await program.run_once(operation="pull", agent_id=harness.agent("bob"), point=point)
    await synchronizer(harness).pull(await member(harness, "bob"), deadline=soon())

    assert [one["key"] for one in await memory.knowledge()] == keys[-500:]
    assert await harness.rows("SELECT FROM workflow.recipient WHERE pulled_at IS NULL AND seq IS NOT NULL") == []
    assert await harness.notices.waiting(harness.agent("bob"), deadline=soon()) == []
    assert program.killed.keys() == set(POINTS["pull"])


@pytest.mark.longer
@pytest.mark.spec("SY-10")
async def test_snapshots_that_are_killed_are_whole_or_not_there_and_lock_nobody_for_good(harness: SyncHarness) -> None:
    async with counted(harness) as program, graph_that_follows(harness):
        for number, point in enumerate(points("snapshot")):
            one, other = f"ann{number}", f"bob{number}"
            analysis = f"{harness.analysis}:{number}"
            memory = await held(harness, await harness.begin(one, analysis=analysis))
            await harness.begin(other, "business", analysis=analysis)
            await memory.publish(harness.finding(one, id=f"f-{number}", analysis_id=analysis))
            debate(harness, f"d-{number}", one, other, analysis=analysis)
            await program.run_once(operation="snapshot", debate_id=f"d-{number}", point=point)
        assert program.killed.keys() == set(POINTS["snapshot"])
        await asyncio.sleep(LOCK_TTL.total_seconds())  # the locks of the dead run out by time alone

        for number in range(KILLS):
            taken = await snapshots(harness).take(f"d-{number}")
            assert taken.outcome is SnapshotOutcome.TAKEN
            found = await snapshots(harness).read(taken.snapshot_id or "", deadline=soon())
            assert [record["node"] for record in found.body["records"]] == [f"Finding/f-{number}"]
    kept = await harness.rows("SELECT debate_id, count(*) AS n FROM workflow.memory_snapshot GROUP BY debate_id")
    assert {row["n"] for row in kept} == {1}
    assert len(kept) == KILLS
    assert len(await harness.rows("SELECT FROM event WHERE kind = 'record.Finding'")) == KILLS
    assert await harness.rows("SELECT FROM agent_cursor WHERE locked_until > imem_now()") == []
