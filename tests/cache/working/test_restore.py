"""Snapshot, restore, verify: what comes back is what was, or is not used."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given

from imem.cache.keys import working
from imem.cache.working.document import CAP_BYTES, MemoryEntry, Type, contents_of, digest, document_of
from imem.cache.working.memory import WorkingMemory
from imem.cache.working.state import ExpiryMode, MemoryState, ms_of
from imem.cache.working.store import WorkingStore
from imem.journal.errors import ConsistencyError, NotOpen, StaleEpoch, TooLarge

from .conftest import DAY, EXAMPLES, NEVER, World, somebody, url_of
from .strategies import CONTENTS, normal

TOP = Path(__file__).resolve().parents[3]

CONTENT = {
    b"plan": MemoryEntry(Type.STRING, (b"a\0\xff",)),
    b"done": MemoryEntry(Type.LIST, (b"a", b"a")),
    b"rank": MemoryEntry(Type.ZSET, ((b"m", 0.1),)),
}


@pytest.mark.spec("CK-19", "CK-20")
@pytest.mark.longer
@EXAMPLES
@given(contents=CONTENTS)
def test_any_content_is_restored(light_stack: Any, contents: dict[bytes, MemoryEntry]) -> None:
    """All five types with any bytes and scores: written, read back, taken, restored elsewhere, verified throughout."""
    from datetime import UTC, datetime

    from imem.cache.client import Client
    from imem.journal.clock import ManualClock

    async def run() -> None:
        async with Client(url_of(light_stack, "working")) as client:
            store, one, other = WorkingStore(client, ManualClock(datetime.now(UTC))), somebody(), somebody()
            await store.restore(one, contents, digest(contents), 1, 4, deadline=NEVER)
            meta, found = await store.read(one.agent_id, epoch=1, deadline=NEVER)
            assert normal(found) == normal(contents)
            assert (meta.checkpoint_seq, meta.digest, meta.clean, meta.state) == (
                4,
                digest(contents),
                True,
                MemoryState.OPEN,
            )
            again = contents_of(json.loads(json.dumps(document_of(found))))
            await store.expire(one.agent_id, ExpiryMode.PAUSED, deadline=NEVER)
            await store.verify(one.agent_id, digest(contents), key_count=len(contents), epoch=1, deadline=NEVER)
            await store.restore(other, again, digest(contents), 1, 4, deadline=NEVER)
            await store.verify(other.agent_id, digest(contents), deadline=NEVER)
            await store.clear(one.agent_id, 1, deadline=NEVER)
            await store.clear(other.agent_id, 1, deadline=NEVER)

    asyncio.run(run())


async def test_restoring_replaces_everything(world: World) -> None:
    """What was there is gone; everything ends in 24 hours; the holder goes on from there."""
    memory = await world.memory()
    await memory.update({"old": "x", "done": "another type"})
    agent_id = memory.identity.agent_id
    await world.store.expire(agent_id, ExpiryMode.PAUSED, deadline=NEVER)

    meta = await world.store.restore(memory.identity, CONTENT, digest(CONTENT), 2, 7, deadline=NEVER)

    assert (meta.epoch, meta.rev, meta.mode, meta.keys, meta.state) == (2, 2, ExpiryMode.ACTIVE, 3, MemoryState.OPEN)
    assert set(world.expiries(agent_id).values()) == {ms_of(world.clock.now() + DAY)}
    restored = WorkingMemory(world.store, meta)
    assert await restored.items(raw=True) == {"plan": b"a\0\xff", "done": [b"a", b"a"], "rank": {b"m": 0.1}}
    await restored.list("done").append("b")
    with pytest.raises(StaleEpoch):
        await memory.set("old", "y")


@pytest.mark.parametrize("where", ["nothing", "open", "paused"])
async def test_a_wrong_document_touches_nothing(world: World, where: str) -> None:
    """It is compared with its digest before anything is removed."""
    identity = somebody()
    if where != "nothing":
        await (await world.memory(identity)).set("a", "1")
    if where == "paused":
        await world.store.expire(identity.agent_id, ExpiryMode.PAUSED, deadline=NEVER)
    before = world.image(identity.agent_id)
    with pytest.raises(ConsistencyError, match="does not match its digest"):
        await world.store.restore(identity, CONTENT, "0" * 64, 2, 1, deadline=NEVER)
    large = {b"a": MemoryEntry(Type.STRING, (b"x" * CAP_BYTES,))}
    with pytest.raises(TooLarge):
        await world.store.restore(identity, large, digest(large), 2, 1, deadline=NEVER)
    assert world.image(identity.agent_id) == before


async def test_a_restore_asks_for_the_epoch_and_the_owner(world: World) -> None:
    """An earlier holder and another analysis are refused before anything is removed."""
    memory = await world.memory(epoch=5)
    await memory.set("a", "1")
    before = world.image(memory.identity.agent_id)
    with pytest.raises(StaleEpoch, match="epoch 5; this one is 4"):
        await world.store.restore(memory.identity, CONTENT, digest(CONTENT), 4, 1, deadline=NEVER)
    other = replace(memory.identity, analysis_id="another")
    with pytest.raises(NotOpen, match="belongs to"):
        await world.store.restore(other, CONTENT, digest(CONTENT), 9, 1, deadline=NEVER)
    assert world.image(memory.identity.agent_id) == before
    meta = await world.store.restore(other, CONTENT, digest(CONTENT), 1, 1, replace=True, deadline=NEVER)
    assert (meta.identity, meta.epoch, meta.rev) == (other, 1, 1)


# Remains


@asynccontextmanager
async def stopped_before(store: WorkingStore, name: str) -> AsyncIterator[None]:
    """Have *store* stop before it runs the script *name*, as if it had been killed there."""
    original = store._client.run

    class Stopped(Exception):
        pass

    async def run(script: Any, *arguments: Any, **named: Any) -> Any:
        if script.name == name:
            raise Stopped
        return await original(script, *arguments, **named)

    store._client.run = run  # type: ignore[method-assign]
    try:
        with contextlib.suppress(Stopped):
            yield
    finally:
        store._client.run = original  # type: ignore[method-assign]


async def remains(world: World, before: dict[str, Any] | None = None) -> WorkingMemory:
    """Return a memory whose restore stopped half way, held by the epoch that restored."""
    memory = await world.memory()
    await memory.update(before or {"a": "1"})
    async with stopped_before(world.store, "settle"):
        await world.store.restore(memory.identity, CONTENT, digest(CONTENT), 2, 1, deadline=NEVER)
    memory.epoch = 2
    return memory


@pytest.mark.spec("CK-23")
async def test_remains_of_a_restore_are_not_used(world: World) -> None:
    """Every call refuses them, even of their own holder and although all is there; recovery sees what they are."""
    memory = await remains(world)
    agent_id = memory.identity.agent_id
    before = world.image(agent_id)
    for call in (
        memory.get("plan"), memory.set("plan", "x"), memory.items(), memory.keys(), memory.list("done").append("x"),
        memory.pop("plan"), memory.clear(), world.store.heartbeat(agent_id, 2, deadline=NEVER),
        world.store.mark(agent_id, 2, seq=1, digest="0" * 64, rev=1, deadline=NEVER),
        world.store.read(agent_id, epoch=2, deadline=NEVER),
        world.store.verify(agent_id, digest(CONTENT), epoch=2, deadline=NEVER),
        world.store.open(memory.identity, 3, deadline=NEVER),
    ):  # fmt: skip
        with pytest.raises(NotOpen, match="is being restored"):
            await call
    assert world.image(agent_id) == before
    meta = await world.store.meta(agent_id, deadline=NEVER)
    assert meta is not None
    assert meta.state is MemoryState.RESTORING


@pytest.mark.spec("CK-23")
async def test_recovery_goes_on_from_remains(world: World) -> None:
    """A restore with a later epoch takes them over; so does one with the same; or they are cleared, or begun anew."""
    for epoch in (2, 3):
        memory = await remains(world)
        meta = await world.store.restore(memory.identity, CONTENT, digest(CONTENT), epoch, 1, deadline=NEVER)
        assert (meta.state, meta.epoch) == (MemoryState.OPEN, epoch)
        await world.store.verify(memory.identity.agent_id, digest(CONTENT), epoch=epoch, deadline=NEVER)
    memory = await remains(world)
    assert await world.store.clear(memory.identity.agent_id, 2, deadline=NEVER) == 3
    assert world.image(memory.identity.agent_id) == {}
    memory = await remains(world)
    assert (await world.store.open(memory.identity, 3, replace=True, deadline=NEVER)).keys == 0


async def test_what_arrives_otherwise_touches_nothing(world: World) -> None:
    """A leaf that changed on its way: the server notices before it removes anything."""
    memory = await world.memory()
    await memory.set("a", "1")
    before = world.image(memory.identity.agent_id)
    original = world.store._client.run

    async def run(script: Any, keys: Any, arguments: Any, **named: Any) -> Any:
        if script.name == "restore":
            place = arguments.index(b"plan") + 3
            arguments = [*arguments[:place], arguments[place] + b"!", *arguments[place + 1 :]]
        return await original(script, keys, arguments, **named)

    world.store._client.run = run  # type: ignore[method-assign]
    with pytest.raises(ConsistencyError, match="differs from the given one"):
        await world.store.restore(memory.identity, CONTENT, digest(CONTENT), 2, 1, deadline=NEVER)
    assert world.image(memory.identity.agent_id) == before


PUSH: Final = "push(PUTS[kind], key, first, last)"

SPOILED: Final = {
    "a text": ("'SET', key, ARGV[first],", "'SET', key, ARGV[first] .. '!',"),
    "a list": (PUSH, "push(PUTS[kind], key, first, last - (kind == 'list' and 1 or 0))"),
    "a score": (PUSH, f"{PUSH} if kind == 'zset' then redis.call('ZINCRBY', key, 1, ARGV[last]) end"),
    "a field": (PUSH, f"{PUSH} if kind == 'hash' then redis.call('HSET', key, ARGV[first], 'other') end"),
    "a member": (PUSH, f"{PUSH} if kind == 'set' then redis.call('SREM', key, 'a') redis.call('SADD', key, 'x') end"),
    "a key": ("redis.call('PEXPIREAT', index, at)", "redis.call('SREM', index, suffixes[1])"),
    "another key": ("redis.call('PEXPIREAT', index, at)", "redis.call('SADD', index, 'other')"),
}
"""What a server keeps otherwise than it got it → what the script says for that, and what it says instead."""


@pytest.mark.spec("CK-23")
@pytest.mark.parametrize("what", SPOILED)
async def test_what_is_kept_otherwise_is_cleared(world: World, what: str) -> None:
    """A server that does not hold what it was given, of any type: nothing of it is left to be found."""
    memory = await world.memory()
    await memory.set("a", "1")
    original, (said, instead) = world.store._client.run, SPOILED[what]
    contents = {
        **CONTENT,
        b"fields": MemoryEntry(Type.HASH, ((b"a", b"1"), (b"b", b"2"))),
        b"members": MemoryEntry(Type.SET, (b"a", b"b")),
    }

    async def run(script: Any, keys: Any, arguments: Any, **named: Any) -> Any:
        if script.name == "restore":
            assert said.encode() in script.text
            text = script.text.replace(said.encode(), instead.encode())
            sha1 = hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()
            script = replace(script, text=text, sha1=sha1)
        return await original(script, keys, arguments, **named)

    world.store._client.run = run  # type: ignore[method-assign]
    with pytest.raises(ConsistencyError, match="differs from the given one"):
        await world.store.restore(memory.identity, contents, digest(contents), 2, 1, deadline=NEVER)
    left = world.image(memory.identity.agent_id)
    assert all(b":working:" in key for key in left), "neither a meta nor an index that leads to it"
    assert len(left) <= (what == "a key")


@pytest.mark.spec("CK-24")
@pytest.mark.parametrize("first_epoch", [2, 3])
@pytest.mark.parametrize("point", ["restore", "settle"])
async def test_of_two_restorers_one_wins(world: World, first_epoch: int, point: str) -> None:
    """Wherever the other comes in between, the later epoch ends open, and the earlier gets a fencing error."""
    memory = await world.memory()
    await memory.set("a", "1")
    identity, store = memory.identity, world.store
    other = {b"other": MemoryEntry(Type.STRING, (b"x",))}
    chosen = {first_epoch: CONTENT, 5 - first_epoch: other}
    original = store._client.run
    outcomes: dict[int, Any] = {}

    async def restore(epoch: int) -> None:
        try:
            outcomes[epoch] = await store.restore(
                identity, chosen[epoch], digest(chosen[epoch]), epoch, 1, deadline=NEVER
            )
        except StaleEpoch as error:
            outcomes[epoch] = error

    async def run(script: Any, *arguments: Any, **named: Any) -> Any:
        if script.name == point:
            store._client.run = original  # type: ignore[method-assign]
            await restore(5 - first_epoch)
        return await original(script, *arguments, **named)

    store._client.run = run  # type: ignore[method-assign]
    await restore(first_epoch)

    assert len(outcomes) == 2
    winners = [epoch for epoch, outcome in outcomes.items() if not isinstance(outcome, StaleEpoch)]
    # An earlier one that had ended before the later began was taken over, not raced.
    meta = await store.verify(identity.agent_id, digest(chosen[3]), epoch=3, deadline=NEVER)
    assert meta.state is MemoryState.OPEN
    assert winners == [3] or (winners == [2, 3] and (first_epoch, point) == (3, "restore"))


@pytest.mark.spec("CK-24")
async def test_restorers_at_once(world: World) -> None:
    """Ten with epochs of their own, again and again: in the end it is the latest's, open and whole."""
    for _ in range(20):
        identity = somebody()
        contents = {epoch: {**CONTENT, b"whose": MemoryEntry(Type.STRING, (b"%d" % epoch,))} for epoch in range(1, 11)}
        found = await asyncio.gather(
            *(
                world.store.restore(identity, contents[epoch], digest(contents[epoch]), epoch, 1, deadline=NEVER)
                for epoch in (3, 9, 1, 10, 5, 2, 8, 4, 7, 6)
            ),
            return_exceptions=True,
        )
        assert [one for one in found if isinstance(one, BaseException) and not isinstance(one, StaleEpoch)] == []
        await world.store.verify(identity.agent_id, digest(contents[10]), epoch=10, deadline=NEVER)


async def test_the_same_holder_twice(world: World) -> None:
    """Two restores of one epoch: the mark tells them apart, and the earlier does not open what the later wrote."""
    memory = await world.memory()
    store, identity = world.store, memory.identity
    other = {b"other": MemoryEntry(Type.STRING, (b"x",))}
    original = store._client.run

    async def run(script: Any, *arguments: Any, **named: Any) -> Any:
        if script.name == "settle":
            store._client.run = original  # type: ignore[method-assign]
            async with stopped_before(store, "settle"):
                await store.restore(identity, other, digest(other), 1, 1, deadline=NEVER)
        return await original(script, *arguments, **named)

    store._client.run = run  # type: ignore[method-assign]
    with pytest.raises(StaleEpoch):
        await store.restore(identity, CONTENT, digest(CONTENT), 1, 1, deadline=NEVER)
    meta = await store.meta(identity.agent_id, deadline=NEVER)
    assert meta is not None
    assert meta.state is MemoryState.RESTORING


# Comparing


@pytest.mark.spec("CK-20")
async def test_unchanged_content_always_verifies(world: World) -> None:
    """Whatever happens to its expiry, and whatever order a server keeps a set in."""
    memory = await world.memory()
    await memory.update({"s": {str(number) for number in range(600)}, "h": {"a": "b"}, "l": ["x"]})
    agent_id = memory.identity.agent_id
    _, contents = await world.store.read(agent_id, deadline=NEVER)
    wanted = digest(contents)
    for mode in (ExpiryMode.PAUSED, ExpiryMode.RESUMED, ExpiryMode.GATED):
        await world.store.expire(agent_id, mode, deadline=NEVER)
        await world.store.verify(agent_id, wanted, key_count=3, deadline=NEVER)
    members = list(await memory.get("s"))
    await memory.members("s").remove(*members[:300])
    await memory.members("s").add(*members[:300][::-1])
    await world.store.heartbeat(agent_id, 1, deadline=NEVER)
    await world.store.verify(agent_id, wanted, deadline=NEVER)


@pytest.mark.spec("CK-21")
async def test_what_was_changed_does_not_verify(world: World) -> None:
    """Behind the product's back: a byte, a member, a score, an order, a key; and a key that is gone."""
    memory = await world.memory()
    await memory.update({"text": "abc", "l": ["a", "b"], "h": {"f": "v"}, "s": {"m"}})
    await memory.sorted("z").add({"m": 1.0})
    agent_id, its = memory.identity.agent_id, working(memory.identity.agent_id)
    _, contents = await world.store.read(agent_id, deadline=NEVER)
    bare, start = world.bare, its.prefix
    for damage in (
        lambda: bare.setrange(start + b"text", 1, b"B"),
        lambda: bare.append(start + b"text", b"\0"),
        lambda: (bare.rpop(start + b"l"), bare.lpush(start + b"l", b"b")),
        lambda: bare.hset(start + b"h", b"f", b"w"),
        lambda: bare.hset(start + b"h", b"g", b""),
        lambda: bare.sadd(start + b"s", b""),
        lambda: bare.zadd(start + b"z", {b"m": 1.0000000000000002}),
        lambda: (bare.delete(start + b"text"), bare.rpush(start + b"text", b"abc")),
        lambda: bare.delete(start + b"l"),
        lambda: (bare.delete(start + b"l"), bare.srem(its.index, b"l")),
        lambda: (bare.set(start + b"more", b""), bare.sadd(its.index, b"more")),
        lambda: bare.rename(start + b"h", start + b"i"),
    ):
        await world.store.restore(memory.identity, contents, digest(contents), 1, 1, deadline=NEVER)
        await world.store.verify(agent_id, digest(contents), key_count=5, deadline=NEVER)
        damage()
        with pytest.raises(ConsistencyError):
            await world.store.verify(agent_id, digest(contents), deadline=NEVER)


async def test_a_count_that_differs_is_said(world: World) -> None:
    """Before anything is hashed."""
    memory = await world.memory()
    await memory.set("a", "1")
    with pytest.raises(ConsistencyError, match="has 1 keys, not 2"):
        await world.store.verify(memory.identity.agent_id, "0" * 64, key_count=2, deadline=NEVER)


# Beside a writer


@pytest.mark.spec("CK-22")
async def test_a_snapshot_is_a_state_that_really_was(world: World, light_stack: Any) -> None:
    """
    A writer in a process of its own changes several keys at a time, all to one number, and never the same twice: each
    snapshot holds one number, with the revision at which it was written.
    """
    identity = somebody()
    meta = await world.store.open(identity, 1, deadline=NEVER)
    told = {
        "url": url_of(light_stack, "working"),
        "identity": [identity.agent_id, identity.analysis_id, identity.agent_type],
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.cache.working.writer", json.dumps(told), cwd=TOP, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        await process.stdout.readline()
        seen: set[int] = set()
        ends_s = time.monotonic() + 60
        # However slow the writer is beside everything else: so many states of his, and many of them twice.
        while len(seen) < 60:
            assert time.monotonic() < ends_s
            meta, contents = await world.store.read(identity.agent_id, epoch=1, deadline=NEVER)
            found: dict[bytes, Any] = {suffix: entry.leaves for suffix, entry in contents.items()}
            (number,) = {int(leaves[0]) for leaves in (found[b"k%d" % one] for one in range(20))}
            assert found[b"list"] == tuple(b"%d" % one for one in range(number, number + 10))
            assert found[b"hash"] == ((b"number", b"%d" % number),)
            assert number == meta.rev
            seen.add(number)
        process.send_signal(signal.SIGKILL)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
