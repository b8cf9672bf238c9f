"""Servers that are full, silent, gone, back without their last writes, or will not write: each in its own words."""

from __future__ import annotations

import asyncio
import itertools
import random
import shutil
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis.exceptions

from imem.cache import client as client_module
from imem.cache.client import Client
from imem.cache.working.changes import PUBLISHED
from imem.cache.working.document import MemoryEntry, Type, digest, document_of
from imem.cache.working.memory import WorkingMemory
from imem.cache.working.snapshots import SnapshotStore
from imem.cache.working.state import ExpiryMode
from imem.cache.working.store import WorkingStore
from imem.cache.working.values import SortedSet
from imem.journal.clock import ManualClock
from imem.journal.deadline import Deadline
from imem.journal.errors import (
    BudgetExceeded,
    ImemError,
    NotOpen,
    NotRepeatable,
    OutcomeUnknown,
    ServerFull,
    StatementRejected,
    ValkeyUnavailable,
)
from imem.kg.model import Company
from tests.disks import own_disk
from tests.kg.projection.proxy import Proxy
from tests.punctual import STALL_S, Punctual

from .conftest import NEVER, World, snapshot_meta, somebody
from .servers import OwnServer, own_server

LATE_S = 1.5
"""How much later than its deadline a call may end on a busy machine, in seconds."""


def fill(server: Any, room: int) -> None:
    """Leave *room* bytes and then none: what is there is never evicted."""
    server.config_set("maxmemory", int(server.info("memory")["used_memory"]) + room)
    for size in (10_000, 100, 1):
        with suppress(redis.exceptions.OutOfMemoryError):
            for number in itertools.count():
                server.set(f"ballast:{size}:{number}", b"x" * size)
    # Buffers that it lets go a moment later would make room again: far below what the ballast alone takes.
    server.config_set("maxmemory", int(server.info("memory")["used_memory"]) // 2)


@pytest.mark.spec("CK-17")
async def test_a_full_server_refuses_before_it_begins(harsh: World) -> None:
    """Every write is refused with one error and leaves every byte as it was; nothing is evicted."""
    memory = await harsh.memory()
    await memory.update({"a": "1", "l": ["x"], "h": {"f": "v"}})
    agent_id, identity = memory.identity.agent_id, memory.identity
    _, contents = await harsh.store.read(agent_id, deadline=NEVER)
    fill(harsh.bare, 200_000)
    before, count = harsh.image(agent_id), harsh.bare.dbsize()
    content = {b"x": MemoryEntry(Type.STRING, (b"y",))}
    refused: tuple[Callable[[], Awaitable[Any]], ...] = (
        lambda: memory.set("a", "2"),
        lambda: memory.update({"a": "2", "b": "3", "l": ["y"]}),
        lambda: memory.list("l").append("y"),
        lambda: memory.hash("h").increment("n"),
        lambda: memory.setdefault("new", "x"),
        lambda: harsh.store.restore(identity, content, digest(content), 2, 1, deadline=NEVER),
        lambda: harsh.store.open(somebody(), 1, deadline=NEVER),
    )
    for call in refused:
        with pytest.raises(ServerFull, match="no memory left"):
            await call()
    assert (harsh.image(agent_id), harsh.bare.dbsize()) == (before, count)
    assert harsh.bare.info("stats")["evicted_keys"] == 0
    assert await memory.items() == {"a": "1", "l": ["x"], "h": {"f": "v"}}
    assert ServerFull("x").retryable

    # What frees memory, moves expiries or fences is taken all the same.
    await harsh.store.heartbeat(agent_id, 1, deadline=NEVER)
    await harsh.store.expire(agent_id, ExpiryMode.PAUSED, deadline=NEVER)
    await harsh.store.mark(agent_id, 1, seq=1, digest=digest(contents), rev=1, deadline=NEVER)
    assert await memory.pop("a") == "1"
    assert await memory.list("l").pop() == "x"
    assert await memory.hash("h").remove("f") == 1
    await memory.clear()
    await harsh.store.fence(agent_id, 2, deadline=NEVER)
    assert await harsh.store.clear(agent_id, 2, deadline=NEVER) == 0

    harsh.bare.config_set("maxmemory", 0)
    assert (await harsh.store.open(identity, 3, deadline=NEVER)).rev == 0


async def test_a_full_server_takes_no_snapshot(server: OwnServer, clock: ManualClock) -> None:
    """The one that is there stays, whole."""
    with server.bare() as bare:
        async with Client(server.url) as client:
            store, meta = SnapshotStore(client, clock), snapshot_meta(somebody(), clock)
            await store.put(meta, document_of({}), deadline=NEVER)
            await store.put_checkpoint("a", "valuation", epoch=1, seq=1, body=b"{}", deadline=NEVER)
            fill(bare, 100_000)
            with pytest.raises(ServerFull):
                await store.put(meta, document_of({b"a": MemoryEntry(Type.STRING, (b"1",))}), deadline=NEVER)
            with pytest.raises(ServerFull):
                await store.put_checkpoint("a", "valuation", epoch=1, seq=2, body=b"[]", deadline=NEVER)
            found = await store.get(meta.identity.agent_id, deadline=NEVER)
            copy = await store.get_checkpoint("a", "valuation", deadline=NEVER)
            assert (found and found[1], copy and copy.body) == ({}, b"{}")
            assert await store.expire(meta.identity.agent_id, clock.now(), deadline=NEVER)
            assert await store.drop(meta.identity.agent_id, deadline=NEVER)


# Silence


async def timed(call: Awaitable[Any]) -> tuple[ImemError, float]:
    """Return how *call* failed, and after how many seconds."""
    begun = time.monotonic()
    with pytest.raises(ImemError) as caught:
        await call
    return caught.value, time.monotonic() - begun


async def test_a_silent_server_is_left_at_the_deadline(harsh: World, server: OwnServer) -> None:
    """Reads and connections: nothing happened. Writes that were sent: nobody knows. Afterwards all goes on."""
    memory = await harsh.memory()
    await memory.set("a", "1")
    server.signal(signal.SIGSTOP)
    try:
        calls: tuple[tuple[Callable[[Deadline], Awaitable[Any]], type[ImemError]], ...] = (
            (lambda deadline: memory.set("b", "2", deadline=deadline), OutcomeUnknown),
            (lambda deadline: memory.get("a", deadline=deadline), BudgetExceeded),
            # Its connection is given up with the call, and another cannot be made: nothing is sent.
            (lambda deadline: memory.set("b", "2", deadline=deadline), BudgetExceeded),
        )
        for call, expected in calls:
            error, took_s = await timed(call(Deadline.after_ms(200)))
            assert type(error) is expected
            assert 0.19 < took_s < 0.2 + LATE_S
        # Its kernel takes connections in its name; nobody answers on them.
        async with Client(server.url) as stranger:
            store = WorkingStore(stranger, harsh.clock)
            error, took_s = await timed(store.open(somebody(), 1, deadline=Deadline.after_ms(200)))
            assert type(error) in {BudgetExceeded, ValkeyUnavailable}
            assert took_s < 0.2 + LATE_S
    finally:
        server.signal(signal.SIGCONT)
    assert await memory.get("a", deadline=NEVER) == "1"
    await memory.set("b", "3", deadline=NEVER)
    assert await memory.items() == {"a": "1", "b": "3"}


@pytest.mark.spec("RS-1")
async def test_a_server_that_stops_under_load_holds_nobody_up_and_loses_nothing(
    harsh: World, server: OwnServer
) -> None:
    """Silent for five seconds amid writes: each ends by its deadline, and what was said to stand is there."""
    memory = await harsh.memory()
    acknowledged, in_time = set[str](), Punctual()

    async def write(key: str) -> None:
        with in_time.within(0.3), suppress(BudgetExceeded, OutcomeUnknown, ValkeyUnavailable):
            await memory.set(key, "x", deadline=Deadline.after_ms(300))
            acknowledged.add(key)

    stops, goes_on = 10, 10 + round(STALL_S * 10)
    try:
        async with asyncio.TaskGroup() as load:
            for nth in range(goes_on + 10):
                if nth == stops:
                    server.signal(signal.SIGSTOP)
                if nth == goes_on:
                    server.signal(signal.SIGCONT)
                load.create_task(write(f"key{nth}"))
                await asyncio.sleep(0.1)  # The rate of the load.
    finally:
        server.signal(signal.SIGCONT)
    assert in_time.late_s < LATE_S
    assert acknowledged <= set(await memory.items(deadline=NEVER))
    assert len(acknowledged) >= 10
    assert len(acknowledged) < goes_on, "it was silent"


async def test_background_work_does_not_wait_for_ever(
    harsh: World, server: OwnServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a deadline there is a limit all the same."""
    memory = await harsh.memory()
    monkeypatch.setattr(client_module, "BACKGROUND_TIMEOUT_S", 0.2)
    server.signal(signal.SIGSTOP)
    try:
        error, _ = await timed(memory.set("a", "1", deadline=NEVER))
        assert type(error) is OutcomeUnknown
        error, _ = await timed(memory.get("a", deadline=NEVER))
        assert type(error) is ValkeyUnavailable
    finally:
        server.signal(signal.SIGCONT)


async def test_all_slots_taken_is_no_outcome(harsh: World, server: OwnServer) -> None:
    """Who waited for a connection until the deadline knows that nothing was sent."""
    async with Client(server.url, size=1) as narrow:
        store = WorkingStore(narrow, harsh.clock)
        memory = WorkingMemory(store, await store.open(somebody(), 1, deadline=NEVER))
        server.signal(signal.SIGSTOP)
        try:
            hold_context = asyncio.create_task(memory.get("a", deadline=Deadline.after_ms(1000)))
            await asyncio.sleep(0)
            error, _ = await timed(memory.set("a", "1", deadline=Deadline.after_ms(100)))
            assert type(error) is BudgetExceeded
        finally:
            server.signal(signal.SIGCONT)
        assert await hold_context is None
        assert await memory.items(deadline=NEVER) == {}


# Gone, and back


async def restarted(server: OwnServer) -> None:
    """Start *server* again, and let the program hear that its connections are gone, as it would by itself."""
    server.start()
    await asyncio.sleep(0.01)


async def test_a_server_that_is_gone(harsh: World, server: OwnServer) -> None:
    """Nothing was written where nothing could be sent; the same client goes on when it is back."""
    memory = await harsh.memory()
    await memory.set("a", "1")
    server.flush()
    server.kill()
    async with Client(server.url) as stranger:
        with pytest.raises(ValkeyUnavailable, match="cannot be reached"):
            await WorkingStore(stranger, harsh.clock).open(somebody(), 1, deadline=NEVER)
    for _ in range(3):
        with pytest.raises((ValkeyUnavailable, OutcomeUnknown)):
            await memory.set("a", "2")
    await restarted(server)
    assert await memory.items(deadline=NEVER) == {"a": "1"}
    await memory.set("a", "3", deadline=NEVER)


ONCE_MORE: dict[str, tuple[Callable[[WorkingMemory], Awaitable[Any]], bool]] = {
    "set": (lambda m: m.set("text", "b"), True),
    "setdefault": (lambda m: m.setdefault("new", "b"), True),
    "delete": (lambda m: m.delete("text"), True),
    "update": (lambda m: m.update({"text": "b", "new": "c"}), True),
    "clear": (lambda m: m.clear(), True),
    "list.set": (lambda m: m.list("list").set(0, "b"), True),
    "hash.put": (lambda m: m.hash("hash").put({"b": "2"}), True),
    "hash.remove": (lambda m: m.hash("hash").remove("a"), True),
    "members.add": (lambda m: m.members("set").add("b"), True),
    "members.remove": (lambda m: m.members("set").remove("a"), True),
    "sorted.add": (lambda m: m.sorted("sorted").add({"b": 2.0}), True),
    "sorted.remove": (lambda m: m.sorted("sorted").remove("a"), True),
    "publish": (lambda m: m.publish(Company(ticker="MU")), True),
    "pop": (lambda m: m.pop("text"), False),
    "increment": (lambda m: m.increment("number"), False),
    "list.append": (lambda m: m.list("list").append("z"), False),
    "list.prepend": (lambda m: m.list("list").prepend("z"), False),
    "list.pop": (lambda m: m.list("list").pop(), False),
    "list.pop_first": (lambda m: m.list("list").pop_first(), False),
    "list.trim": (lambda m: m.list("list").trim(1, -1), False),
    "list.remove": (lambda m: m.list("list").remove("a", 1), False),
    "hash.increment": (lambda m: m.hash("hash").increment("a"), False),
    "sorted.increment": (lambda m: m.sorted("sorted").increment("a"), False),
}
"""Every method that writes, and whether repeating it leaves what doing it once does."""


@pytest.mark.parametrize("name", ONCE_MORE)
async def test_what_is_retryable_leaves_the_same_when_it_is_repeated(
    harsh: World, server: OwnServer, name: str
) -> None:
    """An unknown outcome that is retryable leaves, repeated, what once would; another says that it is not."""
    call, repeatable = ONCE_MORE[name]
    held: dict[str, Any] = {"text": "a", "number": "1", "list": ["a", "a", "c"], "hash": {"a": "1"}, "set": {"a"}}
    proxy = Proxy("127.0.0.1", server.port)
    await proxy.listen()
    try:
        async with Client(f"redis://127.0.0.1:{proxy.port}/0") as client:
            store = WorkingStore(client, harsh.clock)
            lost, kept = [WorkingMemory(store, await store.open(somebody(), 1, deadline=NEVER)) for _ in range(2)]
            for memory in (lost, kept):
                await memory.update({**held, "sorted": SortedSet({"a": 1.0})})
            await call(kept)
            mark = lost.identity.agent_id.encode()
            proxy.cut_on = lambda data: mark in data
            with pytest.raises(OutcomeUnknown) as unknown:
                await call(lost)
            proxy.cut_on = lambda _: False
            assert (unknown.value.retryable, isinstance(unknown.value, NotRepeatable)) == (repeatable, not repeatable)

            await call(lost)
            there = [
                {key: value for key, value in (await one.items()).items() if key != PUBLISHED} for one in (lost, kept)
            ]
            assert (there[0] == there[1]) is repeatable or name == "pop"
    finally:
        await proxy.refuse()


async def test_a_connection_that_breaks_before_the_answer(harsh: World, server: OwnServer) -> None:
    """The write happened, and its caller is told that nobody knows; setting the same again is safe."""
    proxy = Proxy("127.0.0.1", server.port)
    await proxy.listen()
    try:
        async with Client(f"redis://127.0.0.1:{proxy.port}/0") as client:
            store = WorkingStore(client, harsh.clock)
            memory = WorkingMemory(store, await store.open(somebody(), 1, deadline=NEVER))
            await memory.set("a", "1")
            proxy.cut_on = lambda data: b"the lost one" in data
            with pytest.raises(OutcomeUnknown, match="broke before it confirmed"):
                await memory.set("a", "the lost one")
            proxy.cut_on = lambda data: b"look again" in data
            with pytest.raises(ValkeyUnavailable):
                await memory.get("look again")
            proxy.cut_on = lambda _: False
            assert (memory.rev, await memory.get("a")) == (1, "the lost one")
            await memory.set("a", "the lost one")
            assert memory.rev == 3
    finally:
        await proxy.refuse()


async def test_lost_writes_are_noticed(harsh: World, server: OwnServer, tmp_path: Path) -> None:
    """A server that comes back behind what it acknowledged is refused by whoever knows, for reads as for writes."""
    memory = await harsh.memory()
    await memory.set("a", "1")
    server.flush()
    folder = server.folder / "appendonlydir"
    shutil.copytree(folder, tmp_path / "earlier")
    await memory.set("a", "2")
    await memory.set("b", "3")
    server.kill()
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "earlier", folder)
    await restarted(server)

    calls: tuple[Callable[[], Awaitable[Any]], ...] = (
        lambda: memory.get("a"),
        lambda: memory.set("a", "4"),
        memory.items,
        memory.len,
        lambda: memory.list("l").append("x"),
    )
    for call in calls:
        with pytest.raises(NotOpen, match="is at revision 1, behind what was acknowledged: the server has lost writes"):
            await call()
    with pytest.raises(NotOpen):
        await harsh.store.mark(memory.identity.agent_id, 1, seq=1, digest="0" * 64, rev=3, deadline=NEVER)
    found = await harsh.memory(memory.identity, epoch=2)
    assert await found.items() == {"a": "1"}


@pytest.mark.parametrize("kills", [12, pytest.param(200, marks=pytest.mark.chaos)])
async def test_acknowledged_writes_outlive_the_server(harsh: World, server: OwnServer, kills: int) -> None:
    """
    Killed again and again while it writes batches: every batch is whole; what was acknowledged is there, or its holder
    is told that it is not (the server may write to its file up to two seconds late, while the disk is busy).
    """
    memory = await harsh.memory()
    chance, acknowledged = random.Random(5), 0
    torn = unnoticed = written = 0

    async def write() -> None:
        nonlocal acknowledged
        while True:
            number = memory.rev + 1
            await memory.update({f"k{one}": str(number) for one in range(8)}, deadline=NEVER)
            acknowledged = number

    for _ in range(kills):
        task = asyncio.create_task(write())
        await asyncio.sleep(chance.random() * 0.05)
        server.kill()
        found = (await asyncio.gather(task, return_exceptions=True))[0]
        assert isinstance(found, OutcomeUnknown | ValkeyUnavailable), found
        server.start()
        meta, contents = await harsh.store.read(memory.identity.agent_id, deadline=NEVER)
        numbers = {entry.leaves for entry in contents.values()}
        try:
            await memory.get("k0", deadline=NEVER)
        except NotOpen:
            assert meta.rev < acknowledged
        else:
            unnoticed += meta.rev < acknowledged
        torn += numbers not in (set(), {(b"%d" % meta.rev,)})
        memory = await harsh.memory(memory.identity, epoch=meta.epoch + 1)
        acknowledged = memory.rev
        written += acknowledged
    assert (unnoticed, torn) == (0, 0)
    assert written > 20


# Servers that will not write


async def test_a_full_disk(clock: ManualClock, tmp_path: Path) -> None:
    """A server that cannot append refuses writes until it can; reads go on."""
    with own_disk(tmp_path / "disk", 8) as disk, own_server(disk.folder) as server:
        async with Client(server.url) as client:
            store = WorkingStore(client, clock)
            memory = WorkingMemory(store, await store.open(somebody(), 1, deadline=NEVER))
            disk.fill(server.pid)
            with pytest.raises(ValkeyUnavailable, match="cannot write to its disk"):
                await asyncio.gather(*(memory.set("a", "x" * 6_000, deadline=NEVER) for _ in range(2_000)))
            written = await memory.get("a", deadline=NEVER)
            assert written
            disk.make_room(server.pid)
            for _ in range(600):
                with suppress(ValkeyUnavailable):
                    await memory.set("a", "there is room again", deadline=NEVER)
                    break
                await asyncio.sleep(0.01)
            assert await memory.get("a", deadline=NEVER) == "there is room again"


async def test_a_wrong_password(tmp_path: Path, clock: ManualClock) -> None:
    """It is not a server that is down."""
    with own_server(tmp_path) as server:
        with server.bare() as bare:
            bare.config_set("requirepass", "right")
        for url in (server.url, server.url.replace("//", "//:wrong@")):
            async with Client(url) as client:
                with pytest.raises(ValkeyUnavailable, match="refused the password"):
                    await WorkingStore(client, clock).open(somebody(), 1, deadline=NEVER)


async def test_a_replica_takes_no_writes(harsh: World) -> None:
    """After a failover the URL may point at the wrong one."""
    memory = await harsh.memory()
    await memory.set("a", "1")
    harsh.bare.config_set("replica-serve-stale-data", "yes")
    harsh.bare.replicaof("127.0.0.1", 1)
    with pytest.raises(ValkeyUnavailable, match="is a replica, which takes no writes"):
        await memory.set("a", "2")
    assert await memory.get("a") == "1"
    harsh.bare.config_set("replica-serve-stale-data", "no")
    with pytest.raises(ValkeyUnavailable, match="has lost its primary"):
        await memory.get("a")


async def again_and_again(memory: WorkingMemory) -> None:
    while True:
        await memory.get("a", deadline=NEVER)


async def test_a_server_busy_with_somebody_elses_script(harsh: World, server: OwnServer) -> None:
    """It says so, and nothing was written."""
    memory = await harsh.memory()
    harsh.bare.config_set("busy-reply-threshold", 1)

    def forever() -> None:
        with server.bare() as other, suppress(redis.exceptions.ResponseError):
            other.eval("while true do end", 0)

    running = asyncio.create_task(asyncio.to_thread(forever))
    try:
        with pytest.raises(ValkeyUnavailable, match="is busy with a script that does not end"):
            await again_and_again(memory)
    finally:
        harsh.bare.script_kill()
        await running
    assert await memory.get("a") is None


async def test_a_user_who_may_not(harsh: World, server: OwnServer) -> None:
    """An access list that lacks what is needed is a mistake, not an outage; neither to connect, nor to run a script."""
    identity = somebody()
    async with Client(server.url.replace("//", "//guest:secret@")) as client:
        store = WorkingStore(client, harsh.clock)
        for allowed in ("+hello", "+client", "+client"):
            harsh.bare.execute_command("ACL", "SETUSER", "guest", "on", ">secret", "~L1:*", allowed)
            with pytest.raises(StatementRejected, match="does not allow"):
                await store.open(identity, 1, deadline=NEVER)
        harsh.bare.execute_command("ACL", "SETUSER", "guest", "+@all")
        assert (await store.open(identity, 1, deadline=NEVER)).rev == 0


async def test_scripts_that_the_server_forgot_are_sent_again(harsh: World) -> None:
    """After a restart or a flush of its scripts."""
    memory = await harsh.memory()
    await memory.set("a", "1")
    harsh.bare.script_flush()
    await memory.set("a", "2")
    harsh.bare.script_flush()
    assert await memory.get("a") == "2"
