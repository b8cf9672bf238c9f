"""Synchronising and snapshots with an applier at work and a real graph behind: what is promised is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest
import pytest_asyncio

from imem.journal.errors import LeaseHeld
from imem.kg.projection.applier import Applier
from imem.kg.projection.plan_warming import AWAITED, warm_writing
from imem.sync.snapshots import SnapshotOutcome
from imem.sync.synchronizer import SyncResult, SyncState
from tests.kg.lanes.test_order import at_work
from tests.kg.projection.conftest import empty, world
from tests.kg.projection.world import NoWakeups, World
from tests.waiting import until

from .conftest import SyncHarness, harness_at, soon
from .parts import debate, force_sync, held, snapshots, synchronizer

__all__ = ["empty", "world"]


@pytest_asyncio.fixture
async def whole(empty: World) -> AsyncIterator[SyncHarness]:
    """Agents at work, and an applier that writes what they say into an empty graph; planned as its process does."""
    await warm_writing(empty.graph, AWAITED[:1])
    async with (
        harness_at(empty.settings, empty.template) as harness,
        at_work(Applier(harness.pipelines, empty.graph, NoWakeups())),
    ):
        yield harness


async def synchronized(harness: SyncHarness, *names: str) -> Mapping[str, SyncResult]:
    """Synchronise agents until nobody is behind: a busy machine may take longer than one call has."""
    async with asyncio.timeout(60):
        while True:
            done = await force_sync(synchronizer(harness), [harness.agent(name) for name in names])
            if {one.state for one in done.values()} == {SyncState.SYNCHRONIZED}:
                return done


async def test_what_is_synchronised_is_in_the_graph_and_with_the_others(whole: SyncHarness, empty: World) -> None:
    """By the time at which the call says so, not a moment later."""
    ann, bob = await held(whole, await whole.begin()), await held(whole, await whole.begin("bob", "business"))
    await ann.publish(whole.finding("ann", id="f-a", importance=0.9))
    await bob.publish(whole.finding("bob", id="f-b", importance=0.9))

    await synchronized(whole, "ann", "bob")

    nodes = [await empty.node("Finding", key) for key in ("f-a", "f-b")]
    assert [node["agent"] for node in nodes if node is not None] == ["ann", "bob"]
    assert [one["key"] for one in await ann.knowledge()] == ["f-b"]
    assert [one["key"] for one in await bob.knowledge()] == ["f-a"]


@pytest.mark.spec("SY-3")
@pytest.mark.spec("SY-10")
async def test_a_snapshot_and_the_graph_hold_the_same_while_everybody_writes(whole: SyncHarness, empty: World) -> None:
    """Both sides write, are synchronised and locked at once. Nothing is lost, doubled, or another in the graph."""
    ann = await held(whole, await whole.begin())
    await whole.begin("bob", "business")
    await whole.begin("cyd", "macro")
    debate(whole)
    agents = [whole.agent(name) for name in ("ann", "bob", "cyd")]
    acknowledged: list[int] = []
    over = asyncio.Event()

    async def write(name: str) -> None:
        while not over.is_set():
            try:
                receipt = await whole.record(name, id=f"{name}-{len(acknowledged)}", statement=f"{len(acknowledged)}")
                acknowledged.append(receipt.position or 0)
            except LeaseHeld:
                pass
            await asyncio.sleep(0.01)

    async def has_begun() -> bool:
        return len(acknowledged) > 4

    writing = [asyncio.create_task(write(name)) for name in ("ann", "bob")]
    await until(has_begun)
    await ann.publish(whole.finding("ann", id="published", statement="Before the challenge."))
    taken, synced = await asyncio.gather(snapshots(whole).take("d-1"), force_sync(synchronizer(whole), agents))
    over.set()
    await asyncio.gather(*writing)
    await synchronized(whole, "ann", "bob", "cyd")

    assert taken.outcome is SnapshotOutcome.TAKEN
    # Whom the lock met is told to come again; nobody was waited for in vain.
    assert all(one.state is not SyncState.FAILED or one.retryable for one in synced.values())
    body = (await snapshots(whole).read(taken.snapshot_id or "", deadline=soon())).body
    assert taken.degraded == bool(body["not_in_graph"])
    records = {one["key"]: one for one in body["records"] if one["kind"] == "Finding"}
    assert records["published"]["content"]["core"]["statement"] == "Before the challenge."
    assert {one["version"] for one in records.values()} >= {at for at in acknowledged if at <= body["upto"]}
    for key, one in records.items():
        node = await empty.node("Finding", key)
        assert node is not None
        assert (node["position"], node["statement"]) == (one["version"], one["content"]["core"]["statement"])
    rows = await whole.rows("SELECT position, state FROM delivery ORDER BY position")
    assert {row["state"] for row in rows} == {"applied"}
    marks = await empty.run("MATCH (e:AppliedEvent) RETURN e.position AS position ORDER BY position")
    assert [mark["position"] for mark in marks] == [row["position"] for row in rows]
    assert set(acknowledged) <= {row["position"] for row in rows}
