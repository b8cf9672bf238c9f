"""Three tiers: each works without the ones above, says that it did, and nothing is started on what is not proven."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partialmethod
from typing import Any

import pytest
import pytest_asyncio
import redis.asyncio
from psycopg.types.json import Jsonb

from imem.cache import keys
from imem.cache.working.changes import put
from imem.cache.working.state import MemoryIdentity, ms_of
from imem.cache.working.store import WorkingStore
from imem.checkpoints.metrics import CONSISTENCY_ERRORS, TIER_USED
from imem.checkpoints.model import CheckpointKind, SubtaskFailure
from imem.checkpoints.orchestration.definitions import Definitions
from imem.checkpoints.recovery import RecoveryTier
from imem.checkpoints.session import Session
from imem.journal.clock import SystemClock
from imem.journal.errors import BadInput, NotResumable, StaleEpoch
from tests.checkpoints.conftest import World, memory, soon
from tests.checkpoints.recovering import READER, READERS, Alarms, desk_of, identity, known, names, work
from tests.counting import total
from tests.waiting import until


@pytest_asyncio.fixture
async def reader(world: World) -> AsyncIterator[World]:
    """Give a world in which a reader has fetched and then stopped."""
    at_work = replace(world, definitions=READERS)
    async with desk_of(at_work).begin(**names(at_work)) as session:
        await work(session, "fetch")
    yield at_work


async def lose_live(world: World) -> None:
    lease = await world.lease_of("reader")
    assert lease is not None
    await world.memories.clear(world.agent("reader"), lease.epoch, deadline=soon())


async def spoil_live(world: World) -> None:
    """Change a byte behind the scripts' back."""
    await raw(world, "working", "SET", f"L1:{world.agent('reader')}:working:fetch:note", "another")


async def lose_one_key(world: World) -> None:
    await raw(world, "working", "DEL", f"L1:{world.agent('reader')}:working:fetch:set")


async def lose_snapshot(world: World) -> None:
    await world.snapshots.drop(world.agent("reader"), deadline=soon())


async def spoil_snapshot(world: World) -> None:
    body = f"fas:l1_snapshot:{world.agent('reader')}"
    text = await raw(world, "durable", "GET", body)
    assert b'"v"' in text
    await raw(world, "durable", "SET", body, text.replace(b'"v"', b'"w"'))


async def no_meta(world: World) -> None:
    """Put something that is no meta in its place."""
    await raw(world, "working", "SET", f"L1:{world.agent('reader')}:meta", "x")


async def half_a_meta(world: World) -> None:
    await raw(world, "working", "HDEL", f"L1:{world.agent('reader')}:meta", "rev")


async def no_index(world: World) -> None:
    await raw(world, "working", "SET", f"L1:{world.agent('reader')}:keys", "x")


async def no_snapshot(world: World) -> None:
    body = f"fas:l1_snapshot:{world.agent('reader')}"
    await raw(world, "durable", "DEL", body)
    await raw(world, "durable", "RPUSH", body, "x")


async def other_snapshot(world: World) -> None:
    """Put a snapshot there that is whole by its own digest, of the same checkpoint, and holds another memory."""
    found = await world.snapshots.get(world.agent("reader"), deadline=soon())
    assert found is not None
    document, its = memory(another="memory")
    assert await world.snapshots.put(replace(found[0], digest=its, key_count=1), document, deadline=soon())


async def other_live(world: World) -> None:
    """Mark the live memory as that of the newest checkpoint with another digest, and write to it after that."""
    agent_id = world.agent("reader")
    meta = await world.memories.meta(agent_id, deadline=soon())
    assert meta is not None
    _, other = memory(another="memory")
    assert meta.checkpoint_seq is not None
    assert await world.memories.mark(
        agent_id, meta.epoch, seq=meta.checkpoint_seq, digest=other, rev=meta.rev, deadline=soon()
    )
    await world.memories.write(agent_id, meta.epoch, [put("written", "since")], deadline=soon())


async def raw(world: World, server: str, *words: Any) -> Any:
    """Do to a server what no part of the product does."""
    url = getattr(world.settings, f"valkey_{server}_url").get_secret_value()
    async with redis.asyncio.Redis.from_url(url) as bare:
        return await bare.execute_command(*words)  # type: ignore[no-untyped-call]


Damage = Callable[[World], Awaitable[None]]


@pytest.mark.spec("CK-26")
@pytest.mark.parametrize(
    ("damages", "tier"),
    [
        ((), RecoveryTier.LIVE),
        ((lose_live,), RecoveryTier.SECONDARY),
        ((spoil_live,), RecoveryTier.SECONDARY),
        ((lose_live, lose_snapshot), RecoveryTier.POSTGRES),
        ((spoil_live, spoil_snapshot), RecoveryTier.POSTGRES),
        ((lose_one_key, lose_snapshot), RecoveryTier.POSTGRES),
        ((no_meta,), RecoveryTier.SECONDARY),
        ((half_a_meta,), RecoveryTier.SECONDARY),
        ((no_index,), RecoveryTier.SECONDARY),
        ((lose_live, no_snapshot), RecoveryTier.POSTGRES),
        ((other_live,), RecoveryTier.SECONDARY),
        ((lose_live, other_snapshot), RecoveryTier.POSTGRES),
    ],
)
async def test_each_tier_serves_without_those_above(
    reader: World, damages: tuple[Damage, ...], tier: RecoveryTier
) -> None:
    """Whatever is lost or altered, the agent goes on with exactly what it knew, and the answer names who served."""
    before = await known(reader)
    for damage in damages:
        await damage(reader)

    async with desk_of(reader).begin(**names(reader)) as session:
        assert session.recovered.tier is tier
        assert session.current == "read"
        assert await known(reader) == before
        assert await session.memory.get("fetch:raw", raw=True) == b"\x00\xff"
        await work(session, "read")

    assert total(TIER_USED, tier=tier.value) == 1


@pytest.mark.spec("CK-27")
async def test_one_key_of_many_is_missing(reader: World) -> None:
    """The live memory is passed over, with the reason, and another tier gives all of it back."""
    before = await known(reader)
    await lose_one_key(reader)

    async with desk_of(reader).begin(**names(reader)) as session:
        assert session.recovered.tier is RecoveryTier.SECONDARY
        assert "is gone" in session.recovered.refused[RecoveryTier.LIVE]
        assert await known(reader) == before


@pytest.mark.spec("CK-28")
async def test_another_analysis_memory_under_the_same_name_is_refused(reader: World) -> None:
    """What somebody else left under the agent's name is not taken for its own."""
    before = await known(reader)
    await lose_live(reader)
    other = MemoryIdentity(reader.agent("reader"), "analysis:another", "reader")
    await reader.memories.open(other, 99, deadline=soon())

    async with desk_of(reader).begin(**names(reader)) as session:
        assert session.recovered.tier is RecoveryTier.SECONDARY
        assert "another analysis" in session.recovered.refused[RecoveryTier.LIVE]
        assert await known(reader) == before


@pytest.mark.spec("CK-29", "RS-6")
async def test_nothing_is_started_when_nothing_is_left(reader: World) -> None:
    """All three are bad: no session begins, however often it is tried, and one alert stands there."""
    await lose_live(reader)
    await lose_snapshot(reader)
    reader.owner("ALTER TABLE workflow.agent_checkpoints DISABLE TRIGGER USER")
    reader.owner(
        "UPDATE workflow.agent_checkpoints SET working_memory = jsonb_set(working_memory, '{fetch:note,value}', %s)"
        " WHERE kind = 'subtask'",
        Jsonb("another"),
    )
    reader.owner("ALTER TABLE workflow.agent_checkpoints ENABLE TRIGGER USER")
    alarms = Alarms()

    for _ in range(2):
        await raw(reader, "durable", "DEL", f"checkpoint:{reader.analysis}:reader")
        with pytest.raises(NotResumable, match="postgresql_checkpoint: it does not match its digest"):
            async with desk_of(reader, alarms).begin(**names(reader)):
                pytest.fail("it began")

    assert len(alarms.told) == 1
    assert await reader.memories.meta(reader.agent("reader"), deadline=soon()) is None
    assert total(CONSISTENCY_ERRORS, store="postgresql_checkpoint") == 2


@pytest.mark.spec("CK-6")
async def test_of_a_version_that_nobody_understands_somebody_is_told(reader: World) -> None:
    """Nothing starts, and one alert says which program it takes."""
    newer = Definitions.of([READER.model_copy(update={"version": "2"})])
    alarms = Alarms()
    for _ in range(2):
        with pytest.raises(NotResumable, match="version 1"):
            async with desk_of(replace(reader, definitions=newer), alarms).begin(**names(reader)):
                pytest.fail("it began")

    (reasons,) = alarms.told.values()
    assert "no step leads from 1 to 2" in reasons[RecoveryTier.POSTGRES]


async def test_however_many_checkpoints_there_are_the_nearest_boundary_counts(reader: World) -> None:
    """What was completed after a thousand failed attempts is not taken back with the half-done subtask after it."""
    harness, document, its = desk_of(reader), *memory(a="b")
    lease = await reader.acquire("reader")
    for number in range(1_000):
        await reader.save(
            lease,
            "read",
            kind=CheckpointKind.FAILURE,
            document=document,
            digest=its,
            failure=SubtaskFailure(reason=f"{number}"),
        )
    await reader.leases.release(lease, deadline=soon())
    async with harness.begin(**names(reader)) as session:
        await work(session, "read")
        before = await known(reader)
        await session.memory.list("calls").append("half done")
        await session.failed("the endpoint is gone")

    async with harness.begin(**names(reader)) as session:
        assert session.recovered.rolled_back
        assert await known(reader) == before


async def test_an_error_keeps_what_it_was_raised_from(reader: World) -> None:
    """A session adds nothing to what goes wrong in it, and takes nothing away."""
    first = ValueError("first")
    with pytest.raises(KeyError) as raised:
        async with desk_of(reader).begin(**names(reader)):
            raise KeyError("then") from first

    assert raised.value.__cause__ is first


async def test_a_clean_start_has_nothing_to_recover(world: World) -> None:
    """Only the first checkpoint is there: the memory begins empty, whatever lay around."""
    fresh = replace(world, definitions=READERS)
    leftover = identity(fresh)
    await fresh.memories.open(leftover, 1, deadline=soon())

    async with desk_of(fresh).begin(**names(fresh)) as session:
        assert session.recovered.tier is RecoveryTier.CLEAN
        assert await session.memory.len() == 0
        assert session.pending == ("fetch", "read", "rate")


@pytest.mark.parametrize(("subtask", "kept"), [("read", True), ("rate", False)])
async def test_writes_after_the_checkpoint_stay_only_where_they_may_be_repeated(
    reader: World, subtask: str, *, kept: bool
) -> None:
    """A subtask that may be entered again finds what it wrote; another one finds the memory as it was before."""
    harness = desk_of(reader)
    async with harness.begin(**names(reader)) as session:
        if subtask == "rate":
            await work(session, "read")
        before = await known(reader)
        await session.memory.list("calls").append("paid for")

    async with harness.begin(**names(reader)) as session:
        assert session.current == subtask
        assert session.recovered.dirty is kept
        assert session.recovered.tier is (RecoveryTier.LIVE if kept else RecoveryTier.SECONDARY)
        assert await session.memory.contains("calls") is kept
        assert (await known(reader) == before) is not kept


async def test_a_failure_in_the_middle_takes_back_what_may_not_be_repeated(reader: World) -> None:
    """The failure's own row holds the half-done subtask's writes, for whoever looks; the next attempt does not."""
    harness = desk_of(reader)
    async with harness.begin(**names(reader)) as session:
        await work(session, "read")
        before = await known(reader)
        await session.memory.list("calls").append("half done")
        failed = await session.failed("the endpoint is gone")
    assert failed.kind is CheckpointKind.FAILURE
    assert "calls" in failed.working_memory

    async with harness.begin(**names(reader)) as session:
        assert session.recovered.rolled_back
        assert session.recovered.tier is RecoveryTier.POSTGRES
        assert session.current == "rate"
        assert await known(reader) == before
        await work(session, "rate")
        assert session.current is None


@pytest.mark.spec("CK-8")
async def test_whoever_was_presumed_dead_writes_nowhere(reader: World) -> None:
    """The earlier holder wakes up after another has recovered: memory, checkpoint and snapshot refuse it."""
    harness = desk_of(reader)
    first = await reader.acquire("reader", "first")
    slow = await harness.resumed(first)
    await reader.leases.release(first, deadline=soon())
    second = await reader.acquire("reader", "second")
    quick = await harness.resumed(second)
    before = await known(reader)

    with pytest.raises(StaleEpoch):
        await slow.memory.set("late", "word")
    with pytest.raises(StaleEpoch):
        await slow.complete("read")

    assert await known(reader) == before
    assert (await quick.complete("read")).seq == 2


@pytest.mark.spec("CK-14")
async def test_the_snapshot_and_paid_answers_live_as_long_as_the_memory_they_protect(reader: World) -> None:
    """An agent that completes nothing for two weeks: each heartbeat carries them on with the memory."""
    agent_id = reader.agent("reader")
    its = keys.snapshot(agent_id)
    every = [its.body, its.meta, keys.calls(agent_id)]
    async with desk_of(reader).begin(**names(reader)) as session:
        await session.memoize("dear", _paid, durable=True)
        for key in every:
            # As they stand when nothing was saved for long: an hour is left.
            assert await raw(reader, "durable", "PEXPIRE", key, 3_600_000) == 1
        await session.renew()

        meta = await reader.memories.meta(agent_id, deadline=soon())
        assert meta is not None
        assert meta.expires_at is not None
        assert meta.expires_at - SystemClock().now() > timedelta(hours=23)
        ends = {await raw(reader, "durable", "PEXPIRETIME", key) for key in every}
        assert ends == {ms_of(meta.expires_at)}


async def test_a_session_renews_while_it_is_open(reader: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to call anything: its memory and its snapshot are carried on as long as the block runs."""
    monkeypatch.setattr(Session, "renewed", partialmethod(Session.renewed, every=timedelta(milliseconds=1)))
    body = keys.snapshot(reader.agent("reader")).body

    async def carried_on() -> bool:
        return bool(await raw(reader, "durable", "PTTL", body) > 3_600_000)

    async with desk_of(reader).begin(**names(reader)):
        await raw(reader, "durable", "PEXPIRE", body, 3_600_000)
        try:
            await until(carried_on, within_s=20)
        except TimeoutError:
            pytest.fail("nothing was renewed")


async def _paid() -> str:
    return "an answer"


async def test_a_renewal_that_is_refused_is_tried_again(reader: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever refuses it, a clock that is wrong say: the memory lives for a day yet, and the session goes on."""
    renew, beats, again = WorkingStore.heartbeat, [], asyncio.Event()

    async def refused_once(store: WorkingStore, *given: Any, **named: Any) -> datetime:
        beats.append(given)
        if len(beats) == 1:
            raise BadInput("at", "is over by the server's clock.")
        again.set()
        return await renew(store, *given, **named)

    monkeypatch.setattr(WorkingStore, "heartbeat", refused_once)
    async with desk_of(reader).begin(**names(reader)) as session:
        async with session.renewed(every=timedelta(milliseconds=1)):
            await asyncio.wait_for(again.wait(), 20)
        await work(session, "read")
