"""The steps of a pause and a resume: agents that stop or do not, servers that are away, memories that are proven."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from imem.cache import keys
from imem.cache.working.changes import put
from imem.cache.working.document import contents_of, digest
from imem.cache.working.snapshots import SnapshotMeta, SnapshotStore, SnapshotWrite
from imem.cache.working.state import ExpiryMode
from imem.checkpoints.model import CheckpointKind
from imem.checkpoints.orchestration.definitions import Definitions
from imem.checkpoints.orchestration.orchestrator import CeleryOrchestrator
from imem.journal.clock import SystemClock
from imem.journal.errors import ConsistencyError, NotResumable, StaleEpoch, ValkeyUnavailable

from .world import FOUR, PERSON, World, soon


async def order(world: World, analysis_id: str = "a-1", ms: float = 20_000) -> Any:
    return await world.pauses.pause_analysis(analysis_id, "A look.", by=PERSON, deadline=soon(ms))


async def test_an_agent_at_work_is_waited_for_until_it_stops(world: World) -> None:
    """PAUSING while it runs; once it gives its lease up at a safe point, the next round ends the pause."""
    lease = await world.begin("a-1")

    result = await order(world, ms=3_000)
    assert result.status == "PAUSING"
    assert (await world.pause_row("a-1"))["step"] == 1
    await world.manager.round(deadline=soon())
    assert (await world.pause_row("a-1"))["status"] == "PAUSING"
    await world.complete(lease, world.definitions.of_type("business_research").names[2])
    await world.release(lease)
    await world.manager.round(deadline=soon())

    assert (await world.pause_row("a-1"))["status"] == "PAUSED"
    latest = await world.checkpoints.load("a-1", "business_research", deadline=soon())
    assert latest is not None
    assert (latest.kind, len(latest.completed_subtasks)) == (CheckpointKind.PAUSE, 3)


async def test_an_agent_that_does_not_stop_is_fenced_off(world: World) -> None:
    """When its 60 s are over it is a straggler: neither store takes anything from it any more."""
    lease = await world.begin("a-1")
    await order(world, ms=2_000)
    before = await world.memory(lease)

    await world.later(timedelta(seconds=61))
    # It lives: its heartbeat goes on all the while.
    lease = await world.leases.renew(lease, deadline=soon())
    await world.manager.round(deadline=soon())

    assert (await world.pause_row("a-1"))["status"] == "PAUSED"
    with pytest.raises(StaleEpoch):
        await world.working.write(lease.agent_id, lease.epoch, [put("late", "x")], deadline=soon())
    with pytest.raises(StaleEpoch):
        await world.complete(lease, world.definitions.of_type("business_research").names[2])
    with pytest.raises(StaleEpoch):
        await world.leases.renew(lease, deadline=soon())
    assert await world.memory(lease) == before


@pytest.mark.spec("CK-13", "CK-34")
async def test_paused_means_proven_for_every_begun_agent(world: World) -> None:
    """A pause row of each, the same on the durable server, and every key's expiry at the moment of the pause's end."""
    leases = {}
    for name in FOUR:
        leases[name] = await world.begin("a-1", name, done=0 if name == "strategy_analyst" else 2)
        await world.release(leases[name])

    await order(world)

    pause = (await world.pauses.get_pause_state("a-1", deadline=soon())).pause
    assert pause is not None
    agents = await world.rows("SELECT * FROM workflow.pause_agent_checkpoints ORDER BY agent_type")
    assert [agent["agent_type"] for agent in agents] == sorted(FOUR)
    for agent in agents:
        assert agent["verified_at"] is not None
        assert agent["memory_kept"]
        row = await world.checkpoints.get(agent["checkpoint_id"], deadline=soon())
        assert row is not None
        assert row.l1_snapshot is not None
        assert digest(contents_of(row.l1_snapshot)) == row.l1_snapshot_hash == agent["digest"]
        found = await world.snapshots.get(agent["agent_id"], deadline=soon())
        assert found is not None
        assert (found[0].seq, digest(contents_of(found[1]))) == (row.seq, agent["digest"])
        meta = await world.working.meta(agent["agent_id"], deadline=soon())
        assert meta is not None
        assert meta.mode is ExpiryMode.PAUSED
        assert abs(meta.expires_at - pause.stale_at) < timedelta(seconds=1)
        expiries = {await world.working_redis.pexpiretime(key) for key in await world.keys(agent["agent_id"])}
        assert len(expiries) == 1


async def test_within_a_subtask_the_memory_is_kept_only_if_it_may_be_entered_twice(world: World) -> None:
    """What an unfinished subtask wrote is in the snapshot if it is re-entrant, and rolled back otherwise."""
    definitions = world.definitions
    for analysis_id, reentrant in (("a-1", False), ("a-2", True)):
        lease = await world.begin(analysis_id, stock_id=f"company:{analysis_id}")
        current = definitions.of_type("business_research").names[2]
        await world.write(lease, {"half": "done"})
        await world.release(lease)
        changed = [
            definition.model_copy(
                update={
                    "subtasks": tuple(
                        one.model_copy(update={"reentrant": reentrant and one.name == current})
                        for one in definition.subtasks
                    )
                }
            )
            for definition in definitions.agents.values()
        ]
        object.__setattr__(world.stores, "definitions", type(definitions).of(changed))

        assert (await order(world, analysis_id)).status == "PAUSED"

        found = await world.snapshots.get(lease.agent_id, deadline=soon())
        assert found is not None
        assert (b"half" in contents_of(found[1])) is reentrant
        (agent,) = await world.rows(
            "SELECT source FROM workflow.pause_agent_checkpoints WHERE agent_id = %s", lease.agent_id
        )
        assert agent["source"] == ("working" if reentrant else "checkpoint")


@pytest.mark.spec("CK-35")
@pytest.mark.parametrize("after", [timedelta(hours=18), timedelta(days=7), timedelta(days=13)])
async def test_resumed_long_after_with_its_memory_lost_nothing_repeats(world: World, after: timedelta) -> None:
    """No completed subtask is pending again, and every call that was cached is still there."""
    lease = await world.begin("a-1", done=3)
    await world.write(lease, {"api": {"https://data/q=1": "paid for"}})
    await world.complete(lease, world.definitions.of_type("business_research").names[3])
    await world.release(lease)
    before = await world.memory(lease)
    await order(world)
    await world.working_redis.flushall()
    await world.later(after)

    result = await world.pauses.resume_analysis("a-1", by=PERSON, deadline=soon())

    assert result.status == "RESUMED"
    assert await world.memory(lease) == before
    assert dict(before[b"api"]) == {b"https://data/q=1": b"paid for"}
    again = await world.leases.acquire(
        analysis_id="a-1", agent_type="business_research", agent_id=lease.agent_id, subject_id="company:MU",
        holder="next", owner="tester", deadline=soon(),
    )  # fmt: skip
    latest = await world.checkpoints.load("a-1", "business_research", deadline=soon())
    assert latest is not None
    assert latest.pending_subtasks == world.definitions.of_type("business_research").names[4:]
    assert again.epoch > lease.epoch


@pytest.mark.parametrize("error", [NotResumable, ConsistencyError])
async def test_a_resume_that_finds_nothing_left_ends_the_analysis(world: World, error: type[Exception]) -> None:
    """Never on an empty memory, or an older one: nothing starts, and the analysis has failed."""
    await world.paused("a-1")

    class Nothing:
        async def recover(self, *_: Any, **__: Any) -> Any:
            raise error("Nothing is left.")

    object.__setattr__(world.stores, "recovery", Nothing())
    await world.pauses.resume_analysis("a-1", by=PERSON, deadline=soon())

    state = await world.pauses.get_pause_state("a-1", deadline=soon())
    assert state.outcome == "failed"
    assert await world.rows("SELECT FROM workflow.paused_analyses") == []
    assert world.sent == []
    assert "ANALYSIS_FAILED" in await world.alerts()


@pytest.mark.spec("CK-29")
async def test_a_resume_of_which_nothing_is_left_tells_people_once(world: World) -> None:
    """Every copy is damaged: the analysis ends with the one alert about its agent, in one transaction."""
    lease = await world.paused("a-1")
    for plain in (world.working_redis, world.durable_redis):
        await plain.flushall()
    world.owner("ALTER TABLE workflow.agent_checkpoints DISABLE TRIGGER USER")
    world.owner(
        "UPDATE workflow.agent_checkpoints SET working_memory = jsonb_set(working_memory, '{calls}', 'null'), "
        "l1_snapshot = jsonb_set(l1_snapshot, '{calls}', 'null')"
    )

    await world.pauses.resume_analysis("a-1", by=PERSON, deadline=soon())
    await world.manager.round(deadline=soon())

    state = await world.pauses.get_pause_state("a-1", deadline=soon())
    assert state.outcome == "failed"
    assert sorted(await world.alerts()) == ["AGENT_FAILURE", "ANALYSIS_PAUSED"]
    assert await world.keys(lease.agent_id) == []
    assert world.sent == []


async def test_a_memory_of_another_analysis_is_not_taken_for_the_agents(world: World) -> None:
    """What stands under its id in working memory is somebody else's: the checkpoint counts."""
    lease = await world.begin("a-1")
    await world.release(lease)
    await world.working_redis.hset(f"L1:{lease.agent_id}:meta", "analysis", "elsewhere")

    assert (await order(world)).status == "PAUSED"

    (agent,) = await world.rows("SELECT source FROM workflow.pause_agent_checkpoints")
    assert agent["source"] == "checkpoint"


async def test_a_manager_that_stood_still_does_nothing_more(world: World) -> None:
    """Its transaction is gone, the steps are another's by then, and its late writes to the memories are refused."""
    lease = await world.begin("a-1")
    await world.release(lease)
    stand, go = asyncio.Event(), asyncio.Event()
    hold = CeleryOrchestrator.pause_workflow

    class Slow:
        def __getattr__(self, name: str) -> Any:
            return getattr(world.orchestrator, name)

        async def pause_workflow(self, analysis_id: str, **named: Any) -> None:
            stand.set()
            await go.wait()
            await hold(world.orchestrator, analysis_id, **named)

    kept = world.stores.orchestrator
    object.__setattr__(world.stores, "orchestrator", Slow())
    first = asyncio.create_task(world.saga.advance("a-1", until=soon()))
    result = asyncio.create_task(order(world, ms=15_000))
    await stand.wait()
    object.__setattr__(world.stores, "orchestrator", kept)
    world.owner(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND state = 'idle in transaction'"
    )
    await world.manager.round(deadline=soon())
    assert (await world.pause_row("a-1"))["status"] == "PAUSED"
    resumed = await world.pauses.resume_analysis("a-1", by=PERSON, deadline=soon())
    assert resumed.status == "RESUMED"
    again = await world.leases.acquire(
        analysis_id="a-1", agent_type="business_research", agent_id=lease.agent_id, subject_id="company:MU",
        holder="next", owner="tester", deadline=soon(),
    )  # fmt: skip
    go.set()
    await asyncio.gather(first, result, return_exceptions=True)

    assert (await world.pause_row("a-1"))["status"] == "RESUMED"
    await world.leases.renew(again, deadline=soon())
    assert len(await world.rows("SELECT FROM workflow.agent_checkpoints WHERE kind = 'pause'")) == 1
    meta = await world.working.meta(lease.agent_id, deadline=soon())
    assert meta is not None
    assert meta.mode is not ExpiryMode.PAUSED


@pytest.mark.spec("CK-34")
@pytest.mark.parametrize("column", ["l1_snapshot", "l1_snapshot_hash"])
async def test_a_snapshot_that_is_not_what_its_digest_says_is_never_paused_on(world: World, column: str) -> None:
    """Damaged between its commit and its proof: PAUSING, with the reason, however often it is tried."""
    await world.release(await world.begin("a-1"))
    stop = world.saga.step
    object.__setattr__(world.saga, "drive", _nothing)
    await order(world)
    while not await world.rows("SELECT FROM workflow.pause_agent_checkpoints WHERE checkpoint_id IS NOT NULL"):
        await stop("a-1")
    world.owner("ALTER TABLE workflow.agent_checkpoints DISABLE TRIGGER append_only")
    damage = "jsonb_set(l1_snapshot, '{calls,value,0}', '\"x\"')" if column == "l1_snapshot" else "repeat('0', 64)"
    world.owner(f"UPDATE workflow.agent_checkpoints SET {column} = {damage} WHERE kind = 'pause'")

    for _ in range(3):
        world.owner("UPDATE workflow.paused_analyses SET next_attempt_at = NULL")
        await world.manager.round(deadline=soon())

    row = await world.pause_row("a-1")
    assert (row["status"], row["step"], row["troubles"]) == ("PAUSING", 3, 3)
    assert "does not match its digest" in row["last_trouble"]


@pytest.mark.spec("CK-34")
@pytest.mark.parametrize("damage", ["another byte", "an older one", "gone"])
async def test_a_durable_snapshot_that_is_not_what_was_put_there_is_never_paused_on(world: World, damage: str) -> None:
    """Damaged between its put and its proof: PAUSING, with the reason, until the server keeps what it is given."""
    lease = await world.begin("a-1")
    await world.release(lease)
    its = keys.snapshot(lease.agent_id)

    class Forgetful(SnapshotStore):
        """Whose server does not keep what it was given."""

        async def put(self, meta: SnapshotMeta, document: dict[str, Any], **named: Any) -> SnapshotWrite:
            kept = await super().put(meta, document, **named)
            if damage == "another byte":
                body = await world.durable_redis.get(its.body)
                assert isinstance(body, bytes)
                assert b"cached" in body
                await world.durable_redis.set(its.body, body.replace(b"cached", b"cashed"))
            elif damage == "an older one":
                await world.durable_redis.hincrby(its.meta, "seq", -1)
            else:
                await world.durable_redis.delete(its.body, its.meta)
            return kept

    kept = world.stores.snapshots
    object.__setattr__(world.stores, "snapshots", Forgetful(world.durable_client, SystemClock()))
    await order(world, ms=3_000)
    for _ in range(3):
        world.owner("UPDATE workflow.paused_analyses SET next_attempt_at = NULL")
        await world.manager.round(deadline=soon())
    row = await world.pause_row("a-1")
    assert (row["status"], row["step"]) == ("PAUSING", 3)
    assert row["last_trouble"] == f"The snapshot of {lease.agent_id} is not what was put there."

    object.__setattr__(world.stores, "snapshots", kept)
    world.owner("UPDATE workflow.paused_analyses SET next_attempt_at = NULL")
    await world.manager.round(deadline=soon())

    assert (await world.pause_row("a-1"))["status"] == "PAUSED"


async def _nothing(*_: Any, **__: Any) -> None:
    """Stand for a driver that is killed before its first step."""


async def test_a_resume_by_a_program_of_another_version_tells_people(world: World) -> None:
    """The analysis has failed, nothing starts, and the alert says which version it takes."""
    await world.paused("a-1")
    agents = [one.model_copy(update={"version": "2"}) for one in world.definitions.agents.values()]
    recovery: Any = world.stores.recovery
    recovery._definitions = Definitions.of(agents)

    await world.pauses.resume_analysis("a-1", by=PERSON, deadline=soon())

    state = await world.pauses.get_pause_state("a-1", deadline=soon())
    assert state.outcome == "failed"
    assert world.sent == []
    (alert,) = await world.rows("SELECT severity, payload FROM workflow.alert WHERE kind = 'AGENT_FAILURE'")
    assert alert["severity"] == "CRITICAL"
    assert "is of version 1" in alert["payload"]["reason"]


async def test_a_resume_that_is_taken_back_lets_memories_live_as_long_as_the_pause_again(world: World) -> None:
    """They were restored for an agent at work, for a day; then what should have started it was away."""
    lease = await world.paused("a-1")
    await world.working_redis.flushall()

    class Away:
        def __getattr__(self, name: str) -> Any:
            return getattr(world.orchestrator, name)

        async def resume_workflow(self, *_: Any, **__: Any) -> None:
            raise ValkeyUnavailable("away")

    object.__setattr__(world.stores, "orchestrator", Away())
    await world.pauses.resume_analysis("a-1", by=PERSON, deadline=soon(500))
    for _ in range(4):
        world.owner("UPDATE workflow.paused_analyses SET next_attempt_at = NULL")
        await world.manager.round(deadline=soon())

    pause = (await world.pauses.get_pause_state("a-1", deadline=soon())).pause
    meta = await world.working.meta(lease.agent_id, deadline=soon())
    assert pause is not None
    assert meta is not None
    assert (pause.status, meta.mode) == ("PAUSED", ExpiryMode.PAUSED)
    assert abs(meta.expires_at - pause.stale_at) < timedelta(seconds=1)


async def test_a_memory_that_is_damaged_does_not_keep_an_analysis_from_pausing(world: World) -> None:
    """What stands there is none that a script wrote: the last checkpoint counts."""
    lease = await world.begin("a-1")
    await world.release(lease)
    await world.working_redis.set(f"L1:{lease.agent_id}:meta", "x")

    assert (await order(world)).status == "PAUSED"

    (agent,) = await world.rows("SELECT source FROM workflow.pause_agent_checkpoints")
    assert agent["source"] == "checkpoint"
