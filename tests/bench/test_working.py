"""Working memory beside the bare driver on the same servers: one key at a time, and all of it at once."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import orjson
import pytest
import pytest_asyncio
import redis.asyncio

from imem.cache.client import Client
from imem.cache.working.document import CAP_BYTES, Contents, contents_of, digest, document_of, size_of
from imem.cache.working.memory import WorkingMemory
from imem.cache.working.snapshots import SnapshotMeta, SnapshotStore
from imem.cache.working.state import MemoryIdentity
from imem.cache.working.store import WorkingStore
from imem.cache.working.values import SortedSet, entry_of
from imem.journal.clock import SystemClock
from imem.journal.deadline import Deadline
from imem.journal.settings import Settings
from imem.local.supervisor import LocalStack
from tests.bench.table import Figure, Table, percentile
from tests.conftest import settings_for, temporary_home

pytestmark = pytest.mark.bench

NEVER: Final = Deadline.never()

COUNTS: Final = {"full": {"calls": 4_000, "whole": 200}, "tiny": {"calls": 200, "whole": 10}}

SHARE_BAR: Final = 1.5
"""How much longer a get or a set may take than the bare driver's, at p95."""

TEXTS: Final = "100 keys / 100 KB, texts"
"""A memory of texts alone; the others are of all five types, with items of 50 bytes."""

SIZES: Final = {
    "10 keys / 10 KB": (10, 10_000),
    TEXTS: (100, 100_000),
    "100 keys / 100 KB": (100, 100_000),
    "800 keys / 800 KB": (800, 800_000),
}
"""Sets of data → keys and bytes; the cap itself comes beside them."""


@dataclass(frozen=True, slots=True)
class Bench:
    """
    What is measured with.

    Attributes:
        store, snapshots: ours.
        working, durable: the bare driver, on the same two servers.
    """

    store: WorkingStore
    snapshots: SnapshotStore
    working: redis.asyncio.Redis
    durable: redis.asyncio.Redis


@pytest.fixture(scope="module")
def servers() -> Iterator[Settings]:
    """Start the three Valkeys alone."""
    with temporary_home() as home, LocalStack(settings_for(home), servers={"valkey"}, workers=False) as stack:
        yield stack.settings


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Bench]:
    assert settings.valkey_working_url is not None
    assert settings.valkey_durable_url is not None
    working, durable = (url.get_secret_value() for url in (settings.valkey_working_url, settings.valkey_durable_url))
    clock = SystemClock()
    async with (
        Client(working) as ours,
        Client(durable) as ours_durable,
        redis.asyncio.Redis.from_url(working) as bare,
        redis.asyncio.Redis.from_url(durable) as bare_durable,
    ):
        yield Bench(WorkingStore(ours, clock), SnapshotStore(ours_durable, clock), bare, bare_durable)


@pytest_asyncio.fixture
async def bench(servers: Settings) -> AsyncIterator[Bench]:
    async with opened(servers) as made:
        yield made


async def timed(call: Callable[[], Awaitable[Any]]) -> float:
    """Return how long *call* took, in milliseconds."""
    begun = time.perf_counter()
    await call()
    return (time.perf_counter() - begun) * 1000


@pytest.mark.parametrize("size", [100, 1_000])
async def test_one_key_at_a_time(bench: Bench, table: Table, size: int) -> None:
    """A get and a set with every check, index, revision and expiry, beside a bare GET and SET of the same bytes."""
    memory = WorkingMemory(
        bench.store, await bench.store.open(MemoryIdentity(f"bench-{size}", "bench", "valuation"), 1, deadline=NEVER)
    )
    keys, text = [f"key {number}" for number in range(100)], "x" * size
    for key in keys:
        await memory.set(key, text)
        await bench.working.set(f"bare:{key}", text)
    taken: dict[str, list[float]] = {name: [] for name in ("get", "set", "bare get", "bare set")}
    count = COUNTS[table.scale]["calls"]
    for nth in range(count + 100):
        key = keys[nth % len(keys)]
        calls: list[tuple[str, Callable[[], Awaitable[Any]]]] = [
            ("get", lambda key=key: memory.get(key)),  # type: ignore[misc]
            ("bare get", lambda key=key: bench.working.get(f"bare:{key}")),  # type: ignore[misc]
            ("set", lambda key=key: memory.set(key, text)),  # type: ignore[misc]
            ("bare set", lambda key=key: bench.working.set(f"bare:{key}", text)),  # type: ignore[misc]
        ]
        # Whoever comes first pays for what the loop has to do besides.
        for name, call in calls if nth % 2 else calls[::-1]:
            took = await timed(call)
            if nth >= 100:
                taken[name].append(took)
    assert await memory.get(keys[0]) == text
    data = f"{size:,} bytes"
    note = "100 keys in turn, through WorkingMemory; floor: redis-py with hiredis, GET or SET, on the same server"
    for name, share, bar in (
        ("get", 0.50, None), ("get", 0.95, None), ("set", 0.50, None), ("set", 0.95, 1.0), ("set", 0.99, 5.0),
    ):  # fmt: skip
        ours, floor = percentile(taken[name], share), percentile(taken[f"bare {name}"], share)
        end = f"p{share:.0%}".rstrip("%")
        table.add(
            Figure(name=f"working {name} {end}", data=data, value=ours, unit="ms", floor=floor, bar=bar, note=note)
        )
    for name in ("get", "set"):
        share_of = percentile(taken[name], 0.95) / percentile(taken[f"bare {name}"], 0.95)
        table.add(
            Figure(
                name=f"working {name} p95, of the floor", data=data, value=share_of, unit="×", floor=1, bar=SHARE_BAR
            )
        )


def texts(keys: int, size_bytes: int) -> Contents:
    """Return a memory of texts."""
    chance = random.Random(keys)
    return {
        f"key {number}".encode(): entry_of(
            "key", f"{chance.getrandbits(4 * (size_bytes // keys)):0{size_bytes // keys}x}"
        )
        for number in range(keys)
    }


def content(keys: int, size_bytes: int) -> Contents:
    """Return a memory of all five types: of ten keys six texts, a list, a hash, a set and a sorted set."""
    chance, each = random.Random(keys), size_bytes // keys
    found = {}
    for number in range(keys):
        parts = [f"{chance.getrandbits(200):050x}" for _ in range(max(1, each // 50))]
        value: Any = "".join(parts)
        match number % 10:
            case 6:
                value = parts
            case 7:
                value = dict(zip(parts[::2], [*parts[1::2], ""], strict=False))
            case 8:
                value = set(parts)
            case 9:
                value = SortedSet({part: chance.random() for part in parts})
        found[f"key {number}".encode()] = entry_of("key", value)
    return found


@dataclass(slots=True)
class Whole:
    """Milliseconds that each whole operation took."""

    snapshot: list[float]
    restore: list[float]
    bare_snapshot: list[float]
    bare_restore: list[float]


async def whole(bench: Bench, contents: Contents, count: int) -> Whole:
    """Take and restore snapshots of *contents*, ours and bare ones in turn."""
    identity = MemoryIdentity(f"whole-{len(contents)}-{size_of(contents)}", "bench", "valuation")
    wanted, meta = digest(contents), await bench.store.open(identity, 1, deadline=NEVER)
    await bench.store.restore(identity, contents, wanted, 1, 1, deadline=NEVER)
    texts = {f"bare:{number}": b"".join(entry.flat()) for number, entry in enumerate(contents.values())}
    taken = Whole([], [], [], [])

    async def snapshot() -> None:
        read, found = await bench.store.read(identity.agent_id, epoch=1, deadline=NEVER)
        its = digest(found)
        kept = SnapshotMeta(identity, 1, 1, "c", its, len(found), SystemClock().now(), read.expires_at)
        # As a session does it: both at once.
        stored, _ = await asyncio.gather(
            bench.snapshots.put(kept, document_of(found), deadline=NEVER),
            bench.store.mark(identity.agent_id, 1, seq=1, digest=its, rev=read.rev, deadline=NEVER),
        )
        assert stored

    async def restore() -> None:
        found = await bench.snapshots.get(identity.agent_id, deadline=NEVER)
        assert found is not None
        await bench.store.restore(identity, contents_of(found[1]), found[0].digest, 1, 1, deadline=NEVER)

    async def bare_snapshot() -> None:
        found: Any = await bench.working.mget(list(texts))
        body = orjson.dumps([text.decode() for text in found])
        await bench.durable.set("bare:body", body)

    async def bare_restore() -> None:
        body: Any = await bench.durable.get("bare:body")
        found = orjson.loads(body)
        async with bench.working.pipeline(transaction=True) as pipe:
            for key, text in zip(texts, found, strict=True):
                pipe.set(key, text)
            await pipe.execute()

    await bench.working.mset(texts)
    for nth in range(count + 3):
        for call, times in (
            (snapshot, taken.snapshot), (restore, taken.restore),
            (bare_snapshot, taken.bare_snapshot), (bare_restore, taken.bare_restore),
        ):  # fmt: skip
            took = await timed(call)
            if nth >= 3:
                times.append(took)
    await bench.store.verify(identity.agent_id, wanted, key_count=meta.keys or len(contents), deadline=NEVER)
    return taken


@pytest.mark.spec("CK-25")
@pytest.mark.parametrize("data", [*SIZES, "the cap, 8 MiB"])
async def test_all_of_it_at_once(bench: Bench, table: Table, data: str) -> None:
    """
    A snapshot from the working to the durable server and back, proven on both ways.

    100 keys and 100 KB have bars: each within 100 ms, and both together within 10 ms at p95.
    """
    made = texts if data == TEXTS else content
    contents = made(*SIZES[data]) if data in SIZES else content(2000, CAP_BYTES * 100 // 133)
    assert size_of(contents) <= CAP_BYTES
    asked = data.startswith("100 keys / 100 KB")
    count = COUNTS[table.scale]["whole"]
    taken = await whole(bench, contents, count if size_of(contents) < 200_000 else max(5, count // 20))
    both = [one + other for one, other in zip(taken.snapshot, taken.restore, strict=True)]
    bare = [one + other for one, other in zip(taken.bare_snapshot, taken.bare_restore, strict=True)]
    label = f"{data} ({size_of(contents):,} counted)"
    note = (
        "read, digest, document, put, mark / get, document, digest, restore, read back, digest, open; floor: MGET and "
        "SET, GET and SET of each key as one text, JSON between them, nothing compared"
    )
    table.add(
        Figure(
            name="working snapshot p95", data=label, value=percentile(taken.snapshot, 0.95), unit="ms",
            floor=percentile(taken.bare_snapshot, 0.95), bar=100 if asked else None, note=note,
        ),
        Figure(
            name="working restore p95", data=label, value=percentile(taken.restore, 0.95), unit="ms",
            floor=percentile(taken.bare_restore, 0.95), bar=100 if asked else None, note=note,
        ),
        Figure(
            name="working snapshot + restore p95", data=label, value=percentile(both, 0.95), unit="ms",
            floor=percentile(bare, 0.95), bar=10 if asked else None, note=note,
        ),
    )  # fmt: skip
