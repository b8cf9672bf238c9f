"""How long working memory lives: every key together, by the clock that is handed in."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from imem.cache.keys import snapshot, working
from imem.cache.working import changes
from imem.cache.working.document import digest, document_of
from imem.cache.working.memory import WorkingMemory
from imem.cache.working.snapshots import SnapshotStore
from imem.cache.working.state import ExpiryMode, ms_of
from imem.journal.errors import BadInput, NotOpen, StaleEpoch

from .conftest import DAY, NEVER, World, snapshot_meta, somebody

HOUR = timedelta(hours=1)
FORTNIGHT = 14 * DAY


async def filled(world: World, keys: int = 5) -> WorkingMemory:
    memory = await world.memory()
    await memory.update({f"k{number}": [f"v{number}"] for number in range(keys)})
    return memory


def only(expiries: dict[bytes, int]) -> int:
    """Return the moment at which everything ends; there must be one."""
    assert len(set(expiries.values())) == 1, expiries
    return next(iter(expiries.values()))


@pytest.mark.parametrize(
    ("mode", "at", "expected"),
    [
        (ExpiryMode.ACTIVE, None, DAY),
        (ExpiryMode.GATED, None, FORTNIGHT),
        (ExpiryMode.PAUSED, None, FORTNIGHT),
        (ExpiryMode.RESUMED, None, DAY),
        (ExpiryMode.GATED, 2 * DAY, 2 * DAY),
        (ExpiryMode.EXTENDED, 30 * DAY, 30 * DAY),
    ],
)
async def test_the_table_of_expiries(world: World, mode: ExpiryMode, at: timedelta | None, expected: timedelta) -> None:
    """Each situation has its own, the same for every key of the memory."""
    memory = await filled(world)
    moment = None if at is None else world.clock.now() + at
    ends = await world.store.expire(memory.identity.agent_id, mode, moment, deadline=NEVER)
    assert ends == world.clock.now() + expected
    assert only(world.expiries(memory.identity.agent_id)) == ms_of(ends)
    meta = await world.store.meta(memory.identity.agent_id, deadline=NEVER)
    assert meta is not None
    assert meta.mode == (ExpiryMode.ACTIVE if mode is ExpiryMode.RESUMED else mode)


@pytest.mark.spec("CK-13")
async def test_a_pause_moves_everything_together(world: World) -> None:
    """Whoever looks, while pauses and resumptions follow each other, never sees two moments."""
    memory = await filled(world, keys=40)
    agent_id, its = memory.identity.agent_id, working(memory.identity.agent_id)
    await world.store.expire(agent_id, ExpiryMode.PAUSED, deadline=NEVER)
    every = [its.meta, its.index, *(its.prefix + b"k%d" % number for number in range(40))]
    moving = asyncio.Event()

    async def move() -> None:
        for number in range(200):
            mode = ExpiryMode.PAUSED if number % 2 else ExpiryMode.RESUMED
            await world.store.expire(agent_id, mode, deadline=NEVER)
            world.clock.advance(timedelta(seconds=1))
        moving.set()

    def look() -> set[int]:
        # One transaction: what it sees is one moment.
        with world.bare.pipeline(transaction=True) as pipe:
            for key in every:
                pipe.pexpiretime(key)
            return set(pipe.execute())

    looks = []
    task = asyncio.create_task(move())
    while not moving.is_set():
        looks.append(await asyncio.to_thread(look))
    await task
    assert len(looks) > 20
    assert len({moment for seen in looks for moment in seen}) > 10
    assert [seen for seen in looks if len(seen) != 1] == []


@pytest.mark.spec("CK-13")
async def test_writes_while_paused_keep_the_moment(world: World) -> None:
    """New keys, replaced ones and those that grow end with the rest; so does what a heartbeat renews."""
    memory = await filled(world)
    agent_id = memory.identity.agent_id
    ends = await world.store.expire(agent_id, ExpiryMode.PAUSED, deadline=NEVER)
    assert ends is not None
    world.clock.advance(3 * HOUR)
    await memory.set("new", "x")
    await memory.set("k0", "replaced")
    await memory.write(changes.list_append("k1", ["y"]), changes.list_append("k1", ["z"]), changes.put("k2", "again"))
    await world.store.heartbeat(agent_id, 1, deadline=NEVER)
    await world.store.open(memory.identity, 2, deadline=NEVER)
    assert only(world.expiries(agent_id)) == ms_of(ends)


@pytest.mark.spec("CK-14")
@pytest.mark.parametrize("mode", [ExpiryMode.ACTIVE, ExpiryMode.GATED])
@pytest.mark.parametrize("how", ["heartbeats", "writes"])
async def test_thirty_hours_lose_nothing(world: World, mode: ExpiryMode, how: str) -> None:
    """An agent at work, or waiting for a person: at every hour, every key ends later than the hour."""
    memory = await filled(world)
    agent_id = memory.identity.agent_id
    await world.store.expire(agent_id, mode, deadline=NEVER)
    for hour in range(30):
        world.clock.advance(HOUR + timedelta(seconds=1))
        if how == "writes":
            await memory.set("latest", str(hour))
        else:
            ends = await world.store.heartbeat(agent_id, 1, deadline=NEVER)
            assert only(world.expiries(agent_id)) == ms_of(ends)
        expiries = world.expiries(agent_id)
        assert len(expiries) == 7 + (how == "writes")
        assert min(expiries.values()) > world.now_ms
    expected = DAY if mode is ExpiryMode.ACTIVE else FORTNIGHT - 30 * (HOUR + timedelta(seconds=1))
    assert max(world.expiries(agent_id).values()) == world.now_ms + ms(expected)


async def test_a_write_renews_what_it_touches_and_every_hour_everything(world: World) -> None:
    """What is not touched keeps its moment until the hour is over: no write pays for all keys."""
    memory = await filled(world)
    agent_id, its = memory.identity.agent_id, working(memory.identity.agent_id)
    first = world.now_ms
    world.clock.advance(timedelta(minutes=30))
    await memory.set("k0", "again")
    expiries = world.expiries(agent_id)
    touched = {its.meta, its.index, its.prefix + b"k0"}
    assert {key for key, at in expiries.items() if at == world.now_ms + ms(DAY)} == touched
    assert {at for key, at in expiries.items() if key not in touched} == {first + ms(DAY)}
    world.clock.advance(timedelta(minutes=31))
    await memory.set("k0", "again")
    assert only(world.expiries(agent_id)) == world.now_ms + ms(DAY)


@pytest.mark.spec("CK-15")
async def test_an_extension_reaches_memory_and_snapshot(world: World, snapshots: SnapshotStore, durable: Any) -> None:
    """Both live until the later moment, and the snapshot never less than the memory."""
    memory = await filled(world)
    agent_id = memory.identity.agent_id
    ends = await world.store.expire(agent_id, ExpiryMode.PAUSED, deadline=NEVER)
    _, contents = await world.store.read(agent_id, deadline=NEVER)
    meta = snapshot_meta(memory.identity, world.clock, protects_until=ends)
    assert await snapshots.put(meta, document_of(contents), deadline=NEVER)
    world.clock.advance(10 * DAY)
    until = world.clock.now() + 15 * DAY

    assert await world.store.expire(agent_id, ExpiryMode.EXTENDED, until, deadline=NEVER) == until
    assert await snapshots.expire(agent_id, until, deadline=NEVER)

    assert only(world.expiries(agent_id)) == ms_of(until)
    its = snapshot(agent_id)
    assert {durable.pexpiretime(its.body), durable.pexpiretime(its.meta)} == {ms_of(until)}
    assert await snapshots.expire(agent_id, world.clock.now() + DAY, deadline=NEVER)
    assert {durable.pexpiretime(its.body), durable.pexpiretime(its.meta)} == {ms_of(until)}


@pytest.mark.parametrize(
    ("mode", "at"),
    [
        (ExpiryMode.EXTENDED, None),
        (ExpiryMode.EXTENDED, 30 * DAY + timedelta(seconds=1)),
        (ExpiryMode.PAUSED, timedelta(0)),
        (ExpiryMode.PAUSED, -DAY),
    ],
)
async def test_moments_that_cannot_be_are_refused(world: World, mode: ExpiryMode, at: timedelta | None) -> None:
    """Over, beyond 30 days, or not stated; everything stays as it was."""
    memory = await filled(world)
    before = world.image(memory.identity.agent_id)
    moment = None if at is None else world.clock.now() + at
    with pytest.raises(BadInput) as caught:
        await world.store.expire(memory.identity.agent_id, mode, moment, deadline=NEVER)
    assert caught.value.field == "at"
    with pytest.raises(BadInput, match="zone"):
        await world.store.expire(memory.identity.agent_id, mode, datetime(2026, 1, 1), deadline=NEVER)  # noqa: DTZ001
    assert world.image(memory.identity.agent_id) == before


async def test_expiry_asks_for_the_epoch_where_it_is_given(world: World) -> None:
    """A straggling manager does not undo what a later one did."""
    memory = await filled(world)
    agent_id = memory.identity.agent_id
    await world.store.fence(agent_id, 5, deadline=NEVER)
    before = world.image(agent_id)
    with pytest.raises(StaleEpoch):
        await world.store.expire(agent_id, ExpiryMode.PAUSED, epoch=4, deadline=NEVER)
    with pytest.raises(NotOpen):
        await world.store.expire(agent_id, ExpiryMode.PAUSED, epoch=6, deadline=NEVER)
    assert world.image(agent_id) == before
    assert await world.store.expire(agent_id, ExpiryMode.PAUSED, epoch=5, deadline=NEVER) is not None
    assert await world.store.expire(somebody().agent_id, ExpiryMode.PAUSED, deadline=NEVER) is None


# Clocks that jump


async def test_a_clock_that_jumps_back_ends_nothing(world: World) -> None:
    """Writes and heartbeats keep the later moment; moving the expiry into the server's past is refused."""
    memory = await filled(world)
    agent_id = memory.identity.agent_id
    before = world.expiries(agent_id)
    world.clock.advance(-40 * DAY)
    await memory.set("k0", "again")
    await memory.set("new", "x")
    await world.store.heartbeat(agent_id, 1, deadline=NEVER)
    await world.store.open(memory.identity, 1, deadline=NEVER)
    assert only(world.expiries(agent_id)) == max(before.values())
    image = world.image(agent_id)
    for mode in (ExpiryMode.RESUMED, ExpiryMode.PAUSED):
        with pytest.raises(BadInput, match="is over by the server's clock"):
            await world.store.expire(agent_id, mode, deadline=NEVER)
    assert world.image(agent_id) == image
    with pytest.raises(BadInput, match="Is the clock of this machine right"):
        await world.store.open(somebody(), 1, deadline=NEVER)
    # What would begin anew in the past is refused before what is there is removed.
    with pytest.raises(BadInput, match="Is the clock of this machine right"):
        await world.store.open(memory.identity, 2, replace=True, deadline=NEVER)
    _, contents = await world.store.read(agent_id, deadline=NEVER)
    with pytest.raises(BadInput, match="Is the clock of this machine right"):
        await world.store.restore(memory.identity, contents, digest(contents), epoch=2, seq=1, deadline=NEVER)
    assert world.image(agent_id) == image


async def test_a_clock_that_jumps_ahead_costs_no_key(world: World) -> None:
    """Everything lives longer, and a resumption brings it back."""
    memory = await filled(world)
    world.clock.advance(400 * DAY)
    await memory.set("k0", "again")
    world.clock.advance(-400 * DAY)
    assert await memory.len() == 5
    ends = await world.store.expire(memory.identity.agent_id, ExpiryMode.RESUMED, deadline=NEVER)
    assert only(world.expiries(memory.identity.agent_id)) == ms_of(ends or world.clock.now())


async def test_what_has_ended_is_gone_as_a_whole(world: World) -> None:
    """When its time is over by the server, nothing of a memory is left, and every call says so."""
    memory = await filled(world)
    its = working(memory.identity.agent_id)
    every: Any = world.bare.keys(b"L1:%s:*" % memory.identity.agent_id.encode())
    with world.bare.pipeline(transaction=True) as pipe:
        for key in every:
            pipe.pexpireat(key, 1)
        pipe.execute()
    assert world.bare.exists(its.meta, its.index) == 0
    with pytest.raises(NotOpen, match="does not exist"):
        await memory.get("k0")
    assert (await world.memory(memory.identity)).rev == 0


def ms(span: timedelta) -> int:
    return span // timedelta(milliseconds=1)
