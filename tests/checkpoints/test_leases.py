"""Who runs an agent: one process at a time, and whoever was taken over from is told apart by its epoch."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from imem.checkpoints.leases import LEASE_TTL
from imem.checkpoints.model import CheckpointKind
from imem.journal.errors import BadInput, LeaseHeld, LeaseLost, StaleEpoch, TransitionRefused

from .conftest import World, memory, soon

SECOND = timedelta(seconds=1)


async def count(world: World) -> list[Any]:
    """Return what an attempt might have left."""
    (row,) = await world.rows(
        "SELECT (SELECT count(*) FROM workflow.analysis) AS analyses, "
        "(SELECT count(*) FROM workflow.agent_instance) AS instances, "
        "(SELECT count(*) FROM workflow.agent_leases) AS leases, "
        "(SELECT count(*) FROM workflow.agent_checkpoints) AS checkpoints"
    )
    return list(row.values())


async def test_the_first_lease_writes_the_start_checkpoint(world: World) -> None:
    lease = await world.acquire(agent_config={"model": "small", "temperature": 0.5})

    assert (lease.epoch, lease.holder, lease.agent_id) == (1, "process-1", world.agent())
    start = await world.load()
    assert (start.seq, start.run, start.kind, start.epoch) == (0, 1, CheckpointKind.START, 1)
    assert start.clean
    assert (start.completed_subtasks, start.pending_subtasks) == ((), ("fetch", "parse", "rank"))
    assert (start.current_subtask, start.progress_pct) == ("fetch", Decimal(0))
    assert (start.working_memory, start.working_memory_hash) == ({}, None)
    assert start.agent_config == {"model": "small", "temperature": 0.5}


async def test_the_holder_keeps_its_lease_and_others_wait(world: World) -> None:
    first = await world.acquire()

    again = await world.acquire()
    assert again.epoch == first.epoch
    assert again.expires_at > first.expires_at
    with pytest.raises(LeaseHeld, match="process-1") as held:
        await world.acquire(holder="process-2")
    assert held.value.retryable
    assert (await world.lease_of("filer")) == again
    assert len(await world.rows("SELECT FROM workflow.agent_checkpoints")) == 1


async def test_a_lease_that_ran_out_is_taken_over_with_a_new_epoch(world: World) -> None:
    """Also by the same process: it may have slept, and whatever it sent before must not count."""
    first = await world.acquire()
    async with world.later(LEASE_TTL - SECOND) as almost:
        with pytest.raises(LeaseHeld):
            await almost.acquire(holder="process-2")
    async with world.later(LEASE_TTL + SECOND) as after:
        second = await after.acquire(holder="process-2")
        with pytest.raises(StaleEpoch):
            await after.leases.renew(first, deadline=soon())
        with pytest.raises(LeaseLost):
            await after.leases.renew(first, deadline=soon())
        await after.leases.renew(second, deadline=soon())
    async with world.later(2 * LEASE_TTL + 2 * SECOND) as later:
        third = await later.acquire(holder="process-2")

    assert [first.epoch, second.epoch, third.epoch] == [1, 2, 3]


async def test_a_lease_that_ran_out_and_that_nobody_took_can_be_renewed(world: World) -> None:
    lease = await world.acquire()
    async with world.later(3 * LEASE_TTL) as later:
        renewed = await later.leases.renew(lease, deadline=soon())
        assert renewed.epoch == lease.epoch
        with pytest.raises(LeaseHeld):
            await later.acquire(holder="process-2")


async def test_a_lease_that_was_given_up_is_free_at_once(world: World) -> None:
    lease = await world.acquire()

    assert await world.leases.release(lease, deadline=soon())
    assert await world.leases.release(lease, deadline=soon()), "twice is once"
    with pytest.raises(StaleEpoch):
        await world.leases.renew(lease, deadline=soon())
    other = await world.acquire(holder="process-2")
    assert other.epoch == 2
    assert not await world.leases.release(lease, deadline=soon())
    assert (await world.lease_of("filer")) == other


async def test_a_clock_that_was_set_back_keeps_nobody_waiting(world: World) -> None:
    """A lease given in the future that is no longer one would otherwise last until then."""
    async with world.later(timedelta(days=3)) as ahead:
        lease = await ahead.acquire()
        assert lease.epoch == 1

    taken = await world.acquire(holder="process-2")

    assert taken.epoch == 2
    async with world.later(-15 * SECOND) as a_little:
        with pytest.raises(LeaseHeld):
            await a_little.acquire(holder="process-3")


async def test_of_many_at_once_one_gets_it(world: World) -> None:
    async def attempt(number: int) -> int | None:
        try:
            return (await world.acquire(holder=f"process-{number}")).epoch
        except LeaseHeld:
            return None

    epochs = await asyncio.gather(*(attempt(number) for number in range(12)))

    assert [epoch for epoch in epochs if epoch] == [1]
    assert await count(world) == [1, 1, 1, 1]
    async with world.later(LEASE_TTL + SECOND) as later:
        taken = await asyncio.gather(
            *(later.acquire(holder=f"late-{number}") for number in range(12)), return_exceptions=True
        )
    assert sum(not isinstance(one, LeaseHeld) for one in taken) == 1


async def test_raising_epochs_fences_off_everybody_at_once_and_once(world: World) -> None:
    """Whoever goes on with a pause after a crash has the same epochs to save with."""
    filer, clerk = await world.acquire("filer"), await world.acquire("clerk")
    await world.leases.release(clerk, deadline=soon())

    fenced = await world.leases.raise_epoch(world.analysis, deadline=soon())

    assert [(one.agent_type, one.epoch, one.holder) for one in fenced] == [("clerk", 2, None), ("filer", 2, None)]
    assert await world.leases.raise_epoch(world.analysis, deadline=soon()) == fenced
    for lost in (filer, clerk):
        with pytest.raises(StaleEpoch):
            await world.leases.renew(lost, deadline=soon())
    document, its = memory(a="b")
    paused = await world.checkpoints.save(
        fenced[1], kind=CheckpointKind.PAUSE, document=document, digest=its, deadline=soon()
    )
    assert (paused.epoch, paused.l1_snapshot) == (2, document)
    resumed = await world.acquire("filer", holder="process-2")
    assert resumed.epoch == 3
    again = await world.leases.raise_epoch(world.analysis, deadline=soon())
    assert [(one.agent_type, one.epoch) for one in again] == [("clerk", 2), ("filer", 4)]


async def test_what_a_pause_says_keeps_agents_from_starting(world: World) -> None:
    """The seam that pauses fill: asked in the transaction that gives the lease."""
    world.owner(
        "CREATE OR REPLACE FUNCTION workflow.block_reason_v1(p_analysis_id text) RETURNS text LANGUAGE sql STABLE "
        "AS $$ SELECT 'paused' $$"
    )

    with pytest.raises(TransitionRefused, match="paused"):
        await world.acquire()

    assert await world.lease_of("filer") is None
    assert await world.checkpoints.load(world.analysis, "filer", deadline=soon()) is None


async def test_an_ended_analysis_is_not_begun_again(world: World) -> None:
    lease = await world.acquire()
    await world.fail("The ticker is gone.")

    with pytest.raises(TransitionRefused, match="failed"):
        await world.acquire("clerk")
    with pytest.raises(StaleEpoch):
        await world.save(lease, "fetch")


async def test_an_instance_is_one_agent_of_one_analysis_and_its_owner_stays(world: World) -> None:
    lease = await world.acquire(owner="ann")
    await world.acquire(owner="bob")

    assert await world.leases.owners({lease.agent_id, "nobody"}, deadline=soon()) == {lease.agent_id: "ann"}
    before = await count(world)
    for named, field in (
        ({"agent_type": "clerk", "agent_id": lease.agent_id}, "agent_id"),
        ({"analysis_id": "another"}, "agent_id"),
        ({"agent_id": "another"}, "agent_id"),
        ({"subject_id": "company:NVDA"}, "subject_id"),
    ):
        with pytest.raises(BadInput) as refused:
            await world.acquire(**{"agent_type": "filer", **named})
        assert refused.value.field == field
    assert await count(world) == before


@pytest.mark.parametrize(
    ("named", "field"),
    [
        ({"agent_id": "a:b"}, "agent_id"),
        ({"agent_id": "a*"}, "agent_id"),
        ({"agent_id": "x" * 65}, "agent_id"),
        ({"agent_type": "astrologer"}, "agent_type"),
        ({"agent_type": "a:b"}, "agent_type"),
        ({"analysis_id": ""}, "analysis_id"),
        ({"analysis_id": "nul\0"}, "analysis_id"),
        ({"analysis_id": "x" * 201}, "analysis_id"),
        ({"subject_id": ""}, "subject_id"),
        ({"holder": ""}, "holder"),
        ({"owner": ""}, "owner"),
        ({"agent_config": {"a": float("nan")}}, "agent_config.a"),
    ],
)
async def test_bad_names_are_refused_by_field(world: World, named: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInput) as refused:
        await world.acquire(**named)

    assert refused.value.field == field
    assert await count(world) == [0, 0, 0, 0]


async def test_a_lease_is_kept_while_the_block_runs(world: World) -> None:
    lease = await world.acquire()
    renewed = asyncio.Event()

    async with world.leases.keep_alive(lease, every_s=0.01):
        async with asyncio.timeout(10):
            while not renewed.is_set():
                current = await world.lease_of("filer")
                assert current is not None
                if current.expires_at > lease.expires_at:
                    renewed.set()

    assert (await world.acquire()).epoch == lease.epoch


async def test_a_block_ends_when_the_lease_is_lost(world: World) -> None:
    """At its next wait, with the one error that says so; its own errors pass unchanged."""
    lease = await world.acquire()

    async def lose() -> None:
        async with world.leases.keep_alive(lease, every_s=0.01):
            await world.leases.raise_epoch(world.analysis, deadline=soon())
            await asyncio.Event().wait()

    with pytest.raises(StaleEpoch):
        await lose()

    other = await world.acquire(holder="process-2")
    with pytest.raises(KeyError, match="mine"):
        async with world.leases.keep_alive(other, every_s=10):
            raise KeyError("mine")
