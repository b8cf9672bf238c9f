"""Processes killed by SIGKILL at every named point: nothing is lost or there twice, nobody is locked for good."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from imem.cache.working.published import item_of, publication
from imem.sync.locks import LOCK_TTL
from imem.sync.snapshots import SnapshotOutcome

from .conftest import Desk, soon
from .killed import POINTS
from .parts import debate, graph_that_follows, held, member, snapshots, synchronizer

TIMEOUT_S = 60
KILLS = 1000 if os.environ.get("IMEM_CHAOS") else 25
KILLED = "-9"


class Lives:
    """The program that dies on demand, and how often it did, by point."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.killed = Counter[str]()

    async def one(self, **told: Any) -> bool:
        """Live one life; return whether it was killed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(told).encode() + b"\n")
        await self.process.stdin.drain()
        ended = (await asyncio.wait_for(self.process.stdout.readline(), TIMEOUT_S)).decode().strip()
        assert ended in {KILLED, "0"}, ended
        self.killed[told["point"]] += ended == KILLED
        return ended == KILLED


@asynccontextmanager
async def lives(desk: Desk) -> AsyncIterator[Lives]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.sync.killed", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    where = {"url": desk.url, "working": url(desk, "working"), "durable": url(desk, "durable")}
    process.stdin.write(json.dumps(where).encode() + b"\n")
    try:
        yield Lives(process)
    finally:
        process.stdin.close()
        await asyncio.wait_for(process.wait(), TIMEOUT_S)


def url(desk: Desk, role: str) -> str:
    return str(getattr(desk.settings, f"valkey_{role}_url").get_secret_value())


def points(operation: str) -> list[str]:
    """Return as many points as there are kills, each in its turn."""
    its = POINTS[operation]
    return [its[number % len(its)] for number in range(KILLS)]


@pytest.mark.longer
@pytest.mark.spec("SY-4")
async def test_pushes_that_are_killed_write_each_item_once(desk: Desk) -> None:
    """Whatever was published is in the journal once, in the order of publishing."""
    memory, published = await held(desk, await desk.begin()), []
    async with lives(desk) as program:
        for number, point in enumerate(points("push")):
            item = item_of(desk.finding(id=f"f-{number:04}"))
            await memory.write(publication(item))
            published.append(item.id)
            await program.one(operation="push", agent_id=desk.agent("ann"), point=point)

    who = await member(desk)
    await synchronizer(desk).push(who, holder=memory, deadline=soon(60_000))

    assert set(program.killed) == set(POINTS["push"])
    assert sum(program.killed.values()) == KILLS
    found = await desk.rows("SELECT event_id FROM event WHERE actor = 'ann' ORDER BY agent_seq")
    assert [row["event_id"] for row in found] == published
    assert await memory.published() == []


@pytest.mark.longer
async def test_routers_that_are_killed_tell_each_agent_each_event_once(desk: Desk) -> None:
    agent_id = (await desk.begin("bob", "business")).agent_id
    told = []
    async with lives(desk) as program:
        for number, point in enumerate(points("route")):
            if number % 2 == 0:
                told.append((await desk.record("ann", importance=0.9)).position)
            await program.one(operation="route", point=point)
            if number % 50 == 49:
                await synchronizer(desk).pull(await member(desk, "bob"), deadline=soon())
                await desk.record("ann", importance=0.9, id=f"f-more-{number}")
                [row] = await desk.rows("SELECT max(position) AS position FROM event")
                told.append(row["position"])
    await desk.router.step()

    rows = await desk.rows("SELECT position, seq FROM workflow.recipient WHERE agent_id = %s ORDER BY seq", agent_id)
    assert [row["position"] for row in rows] == told
    assert [row["seq"] for row in rows] == list(range(1, len(told) + 1))
    unpulled = await desk.rows("SELECT position FROM workflow.recipient WHERE pulled_at IS NULL ORDER BY position")
    waiting = [one.position for one in await desk.notices.waiting(agent_id, deadline=soon())]
    assert set(waiting) >= {row["position"] for row in unpulled}
    assert program.killed.keys() == set(POINTS["route"])


@pytest.mark.longer
async def test_pulls_that_are_killed_bring_everything(desk: Desk) -> None:
    """What counts as pulled lies beside the memory; nothing is missing, nothing is there twice."""
    memory = await held(desk, await desk.begin("bob", "business"))
    keys = []
    async with lives(desk) as program:
        for number, point in enumerate(points("pull")):
            await desk.record("ann", importance=0.9, id=f"f-{number:04}")
            keys.append(f"f-{number:04}")
            await desk.router.step()
            await program.one(operation="pull", agent_id=desk.agent("bob"), point=point)
    await synchronizer(desk).pull(await member(desk, "bob"), deadline=soon())

    assert [one["key"] for one in await memory.knowledge()] == keys[-500:]
    assert await desk.rows("SELECT FROM workflow.recipient WHERE pulled_at IS NULL AND seq IS NOT NULL") == []
    assert await desk.notices.waiting(desk.agent("bob"), deadline=soon()) == []
    assert program.killed.keys() == set(POINTS["pull"])


@pytest.mark.longer
@pytest.mark.spec("SY-10")
async def test_snapshots_that_are_killed_are_whole_or_not_there_and_lock_nobody_for_good(desk: Desk) -> None:
    async with lives(desk) as program, graph_that_follows(desk):
        for number, point in enumerate(points("snapshot")):
            one, other = f"ann{number}", f"bob{number}"
            analysis = f"{desk.analysis}:{number}"
            memory = await held(desk, await desk.begin(one, analysis=analysis))
            await desk.begin(other, "business", analysis=analysis)
            await memory.publish(desk.finding(one, id=f"f-{number}", analysis_id=analysis))
            debate(desk, f"d-{number}", one, other, analysis=analysis)
            await program.one(operation="snapshot", debate_id=f"d-{number}", point=point)
        assert program.killed.keys() == set(POINTS["snapshot"])
        await asyncio.sleep(LOCK_TTL.total_seconds())  # the locks of the dead run out by time alone

        for number in range(KILLS):
            taken = await snapshots(desk).take(f"d-{number}")
            assert taken.outcome is SnapshotOutcome.TAKEN
            found = await snapshots(desk).read(taken.snapshot_id or "", deadline=soon())
            assert [record["node"] for record in found.body["records"]] == [f"Finding/f-{number}"]
    kept = await desk.rows("SELECT debate_id, count(*) AS n FROM workflow.memory_snapshot GROUP BY debate_id")
    assert {row["n"] for row in kept} == {1}
    assert len(kept) == KILLS
    assert len(await desk.rows("SELECT FROM event WHERE kind = 'record.Finding'")) == KILLS
    assert await desk.rows("SELECT FROM agent_cursor WHERE locked_until > imem_now()") == []
