"""What runs by itself: one router of several, and the rounds that beat asks for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from imem.cache.client import Client
from imem.jobs.fallback_rounds import fallback_rounds
from imem.jobs.runtime import slot
from imem.journal.actors import Actor
from imem.journal.events.entry import Tier
from imem.journal.settings import Role
from imem.sync.delivery.notices import Notices
from imem.sync.delivery.pusher import PushState
from imem.sync.delivery.routing import Router
from imem.sync.gates import GateSync
from imem.sync.pipelines import FLUSH, SYNC_GATES, TAKE_SNAPSHOTS
from imem.sync.snapshots import Snapshots
from imem.workers.celery_app import make_app
from imem.workers.pipelines import PIPELINES
from tests.servers import in_database
from tests.workers import process

from .conftest import SyncHarness, soon
from .parts import debate, graph_that_follows, held, member, synchronizer
from .test_gates import opens


class WakeupSource:
    """Wakes fifty times a second."""

    async def wait(self) -> None:
        await asyncio.sleep(0.02)


@asynccontextmanager
async def running(router: Router) -> AsyncIterator[None]:
    task = asyncio.create_task(router.run(WakeupSource()))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await router.stop()


async def arrives(harness: SyncHarness, agent_id: str, position: int | None, within_s: float = 10) -> float:
    """Wait until a notice is there; return after how many seconds."""
    began = time.monotonic()
    async with asyncio.timeout(within_s):
        while True:
            waiting = await harness.notices.waiting(agent_id, deadline=soon())
            if position in {one.position for one in waiting}:
                return time.monotonic() - began
            await asyncio.sleep(0.01)


@pytest.mark.spec("SY-7")
async def test_a_notice_that_is_critical_for_the_system_arrives_within_two_seconds(harness: SyncHarness) -> None:
    """With a full queue, a router that runs, and normal events waiting to be routed."""
    agent_id = (await harness.begin("bob", "business")).agent_id
    for _ in range(40):
        await harness.record("ann", importance=0.9)
    async with running(harness.router):
        change = await harness.record("zed", tier=Tier.SYSTEM_CRITICAL)
        assert await arrives(harness, agent_id, change.position) < 2.0


async def test_of_several_routers_one_routes_and_another_takes_over(harness: SyncHarness) -> None:
    agent_id = (await harness.begin("bob", "business")).agent_id
    first, second = harness.router, harness.router
    async with running(second):
        async with running(first):
            for _ in range(3):
                receipt = await harness.record("ann", importance=0.9)
                await arrives(harness, agent_id, receipt.position)
        receipt = await harness.record("ann", importance=0.9)
        await arrives(harness, agent_id, receipt.position)

    rows = await harness.rows("SELECT seq FROM workflow.recipient WHERE agent_id = %s ORDER BY seq", agent_id)
    assert [row["seq"] for row in rows] == [1, 2, 3, 4]


async def test_queues_that_are_away_hold_no_routing_up(harness: SyncHarness) -> None:
    await harness.begin("bob", "business")
    await harness.record("ann", importance=0.9)
    away = Router(harness.database, Notices(Client("redis://127.0.0.1:1/0")))

    assert await away.step() == 1
    assert len(await harness.rows("SELECT FROM workflow.recipient WHERE notified_at IS NULL")) == 1
    await harness.router.step()
    assert len(await harness.rows("SELECT FROM workflow.recipient WHERE notified_at IS NOT NULL")) == 1


async def test_the_appliers_process_routes_also_while_the_graph_is_away(harness: SyncHarness, tmp_path: Path) -> None:
    """And lets its lease go when it is told to stop."""
    agent_id = (await harness.begin("bob", "business")).agent_id
    given = {**in_database(harness.settings, harness.url), "neo4j_url": "bolt://127.0.0.1:1", "home": tmp_path}
    async with process("applier", harness.settings.model_copy(update=given)):
        receipt = await harness.record("ann", importance=0.9)
        await arrives(harness, agent_id, receipt.position, within_s=60)

    assert await harness.rows("SELECT FROM lease WHERE name = 'router' AND expires_at > imem_now()") == []


# Celery


class Runtime:
    """A worker process's, with the loop of the test."""

    def __init__(self, harness: SyncHarness) -> None:
        self.database = harness.database
        self.synchronizer = synchronizer(harness)
        self.gate_sync = GateSync(harness.database, self.synchronizer)
        self.snapshots = Snapshots(harness.pipelines, self.synchronizer, harness.durable)
        self._loop = asyncio.get_running_loop()

    def run(self, work: Callable[[], Awaitable[Any]]) -> Any:
        async def call() -> Any:
            return await work()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(30)


async def test_a_round_looks_after_gates(harness: SyncHarness) -> None:
    await harness.begin()
    opens(harness, timedelta(minutes=10))
    try:
        slot.install(Runtime(harness))
        async with graph_that_follows(harness):
            assert await asyncio.to_thread(SYNC_GATES.run) == {"gates": 1}
            assert await asyncio.to_thread(SYNC_GATES.run) == {"gates": 0}
    finally:
        slot.install(None)


async def test_a_round_takes_the_snapshots_of_debates(harness: SyncHarness) -> None:
    """What both sides have published is flushed; a side that was never begun has nothing to flush."""
    memory = await held(harness, await harness.begin())
    await memory.publish(harness.finding("ann", id="f-1"))
    debate(harness, "d-1", "ann", "zed")
    try:
        slot.install(Runtime(harness))
        assert [await asyncio.to_thread(TAKE_SNAPSHOTS.run) for _ in range(2)] == [{"snapshots": 1}, {"snapshots": 0}]
    finally:
        slot.install(None)

    [row] = await harness.rows("SELECT participants, body FROM workflow.memory_snapshot")
    assert row["participants"] == [harness.agent("ann"), "zed"]
    assert "Finding/f-1" in row["body"]


async def test_what_is_published_is_pushed_in_the_background(harness: SyncHarness) -> None:
    """Once; what only its owner may state is tried once and left to it, and no denial is written again."""
    memory = await held(harness, await harness.begin())
    await memory.publish(harness.finding("ann", id="f-1"))
    await memory.publish(harness.finding("somebody-else", id="f-2"))
    try:
        slot.install(Runtime(harness))
        for _ in range(3):
            assert await asyncio.to_thread(FLUSH.run) == {"items": 1}
    finally:
        slot.install(None)

    assert [row["record_key"] for row in await harness.rows("SELECT record_key FROM event")] == ["f-1"]
    # One for the batch, one for the item itself.
    assert len(await harness.rows("SELECT FROM memory_access_audit WHERE NOT authorized")) == 2
    person = synchronizer(harness, Actor("ann", Role.HUMAN_ADMIN))
    done = await person.push(await member(harness), holder=memory, deadline=soon())
    assert [(one.key, one.state) for one in done] == [("f-1", PushState.DURABLE), ("f-2", PushState.DURABLE)]
    assert await memory.published() == []


@pytest.mark.parametrize(("priority", "every_s"), [(True, 5.0), (False, 300.0)])
def test_it_comes_without_the_broker_as_well(
    light_stack: Any, monkeypatch: Any, *, priority: bool, every_s: float
) -> None:
    """From the worker's own processes, when nobody has asked for twice as long as beat takes."""
    settings = light_stack.settings.model_copy(update={"sync_priority": priority})
    rounds = {one.name: one for one in fallback_rounds(PIPELINES, settings)}
    began = time.monotonic()
    for name, after_s in ((FLUSH.name, every_s), (SYNC_GATES.name, 60.0)):
        rounds[name].note()
        for late, overdue in ((1.9, False), (2.1, True)):
            monkeypatch.setattr(time, "monotonic", lambda late=late, after_s=after_s: began + late * after_s + 0.01)
            assert rounds[name].overdue is overdue
        monkeypatch.undo()
    assert (rounds[FLUSH.name].work, rounds[SYNC_GATES.name].work) == (FLUSH.run, SYNC_GATES.run)


@pytest.mark.spec("SY-16")
@pytest.mark.parametrize(("priority", "every_s"), [(True, 5.0), (False, 300.0)])
def test_beat_asks_for_it(light_stack: Any, *, priority: bool, every_s: float) -> None:
    """What is published is pushed within seconds, or in the cycle where tiers do not count."""
    settings = light_stack.settings.model_copy(update={"sync_priority": priority})
    schedule = make_app(settings).conf.beat_schedule

    for pipeline, seconds in ((SYNC_GATES, 60.0), (FLUSH, every_s)):
        entry = schedule[pipeline.name]
        assert (entry["task"], entry["schedule"], entry["options"]["expires"]) == (pipeline.name, seconds, seconds)
