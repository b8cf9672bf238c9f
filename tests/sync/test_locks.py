"""Locks on writers: others are refused by epoch, nobody waits for two at a time, and a dead holder holds nobody."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Collection
from datetime import timedelta

import pytest

from imem.cache.working.published import item_of
from imem.ingest.recorder import Recorder
from imem.journal.deadline import Deadline
from imem.journal.errors import LeaseHeld, LeaseLost, StaleEpoch
from imem.journal.events.entry import AppendStatus
from imem.sync.locks import HeldLocks, WriteLocks, check

from .conftest import SyncHarness, soon


@pytest.mark.spec("SY-10")
async def test_pushes_are_refused_by_epoch_while_locked_and_succeed_after_release(harness: SyncHarness) -> None:
    locks = WriteLocks(harness.database)
    async with locks.held(["ann", "bob"], deadline=soon()) as locked:
        with pytest.raises(LeaseHeld) as refused:
            await harness.record("ann", id="f-1")
        assert refused.value.retryable
        assert (await harness.record("cyd", id="f-2")).durable

        flush = Recorder(harness.gateway("facilitator"))
        [receipt] = await flush(
            [item_of(harness.finding("ann", id="f-3"))], owner="ann", lock_epoch=locked.epochs["ann"], deadline=soon()
        )
        assert receipt.durable

    assert (await harness.record("ann", id="f-1")).durable
    assert await harness.rows("SELECT FROM event WHERE actor = 'ann'") == [{}, {}]


@pytest.mark.spec("SY-10")
async def test_a_lock_runs_out_by_itself(harness: SyncHarness) -> None:
    """Its holder died: nobody is held up for longer than the lock lasts."""
    await WriteLocks(harness.database, timedelta(seconds=2)).acquire(["ann"], deadline=soon())
    with pytest.raises(LeaseHeld):
        await harness.record("ann", id="f-1")

    async with asyncio.timeout(30):
        while True:
            try:
                receipt = await harness.record("ann", id="f-1")
                break
            except LeaseHeld:
                await asyncio.sleep(0.05)
    assert receipt.durable


async def test_a_holder_that_was_taken_for_dead_is_refused(harness: SyncHarness) -> None:
    """Its epoch is over, released or not; nothing that it flushes late gets in, and it freezes nothing."""
    first = await WriteLocks(harness.database, timedelta(0)).acquire(["ann"], deadline=soon())
    second = await WriteLocks(harness.database).acquire(["ann"], deadline=soon())
    late = Recorder(harness.gateway("facilitator"))

    async def flush() -> None:
        item = item_of(harness.finding("ann", id="f-1"))
        await late([item], owner="ann", lock_epoch=first.epochs["ann"], deadline=soon())

    with pytest.raises(StaleEpoch):
        await flush()
    async with harness.database.transaction(soon()) as conn:
        await check(conn, second)
        with pytest.raises(LeaseLost):
            await check(conn, first)
    await WriteLocks(harness.database).release(second)
    with pytest.raises(StaleEpoch):
        await flush()
    assert (await harness.record("ann", id="f-1")).verdict is AppendStatus.NEW


async def test_all_are_locked_or_none(harness: SyncHarness) -> None:
    locks = WriteLocks(harness.database)
    async with locks.held(["bob"], deadline=soon()):
        with pytest.raises(LeaseHeld, match="bob"):
            await locks.acquire(["ann", "bob", "cyd"], deadline=soon(1_000))
        assert (await harness.record("ann")).durable
        assert (await harness.record("cyd")).durable


async def test_a_lock_waits_for_an_append_under_way(harness: SyncHarness) -> None:
    """What began before the lock is committed when the lock is given: it cannot slip in behind the snapshot."""
    async with harness.database.transaction(soon()) as conn:
        await conn.execute("SELECT imem_unlock_writers_v1(ARRAY['ann'], 'nobody')")
    await harness.record("ann")
    async with harness.database.transaction(soon()) as conn:
        # As an append does: the row of its actor, until it commits.
        await conn.execute("SELECT FROM imem_lock_writers_v1(ARRAY['ann'], 'append', interval '0')")
        waiting = asyncio.create_task(WriteLocks(harness.database).acquire(["ann"], deadline=soon()))
        await asyncio.sleep(0.1)
        assert not waiting.done()
    assert (await waiting).epochs.keys() == {"ann"}


@pytest.mark.spec("SY-13")
async def test_overlapping_debates_never_deadlock(harness: SyncHarness) -> None:
    """Twelve debates at a time over five actors, named in every order, each locking forty times; none fails."""
    actors, done = ["ann", "bob", "cyd", "dan", "eve"], Counter[int]()
    inside: set[str] = set()

    async def debate(number: int) -> None:
        draw = random.Random(number)
        for _ in range(40):
            chosen = draw.sample(actors, draw.randint(2, 4))
            async with WriteLocks(harness.database).held(chosen, deadline=soon(60_000)) as locked:
                assert inside.isdisjoint(chosen)
                inside.update(chosen)
                assert set(locked.epochs) == set(chosen)
                await asyncio.sleep(0)
                inside.difference_update(chosen)
            done[number] += 1

    await asyncio.gather(*(debate(number) for number in range(12)))

    assert set(done.values()) == {40}


async def test_writers_and_lockers_at_once_lose_nothing(harness: SyncHarness) -> None:
    """Each append is either refused as locked or durable; what is durable is there, each once."""
    refused, durable = 0, 0

    async def write(number: int) -> None:
        nonlocal refused, durable
        while True:
            try:
                await harness.record("ann", id=f"f-{number}")
            except LeaseHeld:
                refused += 1
                await asyncio.sleep(0.002)
            else:
                durable += 1
                return

    async def lock() -> None:
        for _ in range(10):
            async with WriteLocks(harness.database).held(["ann", "bob"], deadline=soon()):
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.005)

    await asyncio.gather(lock(), *(write(number) for number in range(60)))

    assert durable == 60
    assert len(await harness.rows("SELECT FROM event WHERE actor = 'ann'")) == 60
    assert refused > 0


def test_actors_are_named_in_one_order() -> None:
    assert HeldLocks("h", {"b": 1, "a": 2}).actors == ["a", "b"]


async def test_who_waits_in_vain_is_told_who_holds_a_lock(
    harness: SyncHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the time was over before the database could be asked once more."""
    locks, due = WriteLocks(harness.database), soon(3_000)
    asked, attempt = list[bool](), locks._try_to_acquire

    async def late(actors: Collection[str], holder: str, deadline: Deadline) -> HeldLocks:
        asked.append(True)
        if len(asked) > 1:
            await asyncio.sleep(deadline.left_s())
            deadline.check("a connection")
        return await attempt(actors, holder, deadline)

    async with locks.held(["bob"], deadline=soon()):
        monkeypatch.setattr(locks, "_try_to_acquire", late)
        with pytest.raises(LeaseHeld, match="bob"):
            await locks.acquire(["bob"], deadline=due)
    assert len(asked) == 2
