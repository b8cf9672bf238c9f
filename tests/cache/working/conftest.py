"""Working memories on the servers of the light stack: agents with names of their own, so that tests never meet."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
import redis
from hypothesis import HealthCheck, settings

from imem.cache.client import Client
from imem.cache.keys import working
from imem.cache.working.memory import WorkingMemory
from imem.cache.working.snapshots import SnapshotMeta, SnapshotStore
from imem.cache.working.state import MemoryIdentity, ms_of
from imem.cache.working.store import WorkingStore
from imem.journal.clock import ManualClock
from imem.journal.deadline import Deadline

from .servers import OwnServer, own_server

CHAOS = bool(os.environ.get("IMEM_CHAOS"))

NEVER = Deadline.never()

DAY = timedelta(days=1)

# Servers are shared by the examples of a property; each uses an agent of its own.
settings.register_profile(
    "working",
    max_examples=500 if CHAOS else 50,
    deadline=None,
    derandomize=not CHAOS,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
EXAMPLES = settings.get_profile("working")


def somebody() -> MemoryIdentity:
    """Return an agent that nobody has heard of."""
    return MemoryIdentity(f"agent-{uuid4().hex[:12]}", f"analysis:{uuid4().hex[:8]}", "valuation")


@dataclass
class World:
    """
    The working memories of one server, with a clock that tests move.

    Attributes:
        store: what is under test.
        client: its client.
        bare: the driver's own client to the same server.
        clock: what the store takes for the time.
    """

    store: WorkingStore
    client: Client
    bare: Any
    clock: ManualClock

    async def memory(self, identity: MemoryIdentity | None = None, epoch: int = 1) -> WorkingMemory:
        """Open a memory, a new one by default."""
        return WorkingMemory(self.store, await self.store.open(identity or somebody(), epoch, deadline=NEVER))

    def expiries(self, agent_id: str) -> dict[bytes, int]:
        """Return when each key ends, in milliseconds."""
        its = working(agent_id)
        suffixes: Any = self.bare.smembers(its.index)
        every = [its.meta, its.index, *(its.prefix + suffix for suffix in suffixes)]
        found = {key: int(self.bare.pexpiretime(key)) for key in every}
        return {key: at for key, at in found.items() if key != its.index or suffixes}

    def image(self, agent_id: str) -> dict[bytes, tuple[Any, int]]:
        """Return everything that an agent has on the server, byte for byte, with its expiry."""
        keys: Any = self.bare.keys(b"L1:" + agent_id.encode() + b":*")
        return {key: (self._content(key), int(self.bare.pexpiretime(key))) for key in keys}

    def _content(self, key: bytes) -> Any:
        """Return what a key holds; a dump would do, but that of a set changes with the server's housekeeping."""
        bare = self.bare
        match bare.type(key):
            case b"string":
                return bare.get(key)
            case b"list":
                return bare.lrange(key, 0, -1)
            case b"hash":
                return bare.hgetall(key)
            case b"set":
                return bare.smembers(key)
            case b"zset":
                return bare.zrange(key, 0, -1, withscores=True)
            case other:
                return other, bare.dump(key)

    @property
    def now_ms(self) -> int:
        return ms_of(self.clock.now())


def url_of(stack: Any, role: str) -> str:
    """Return the URL of one of the stack's Valkeys."""
    return str(getattr(stack.settings, f"valkey_{role}_url").get_secret_value())


def bare_client(url: str) -> Any:
    return redis.Redis.from_url(url, protocol=2)


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let calls without a deadline take their time: the machine that runs tests may be busy."""
    monkeypatch.setattr("imem.cache.working.memory.BUDGET_MS", 60_000)


@pytest.fixture
def clock() -> ManualClock:
    """A clock that begins with the servers' time: they do not take ours."""
    return ManualClock(datetime.now(UTC))


@pytest_asyncio.fixture
async def world(light_stack: Any, clock: ManualClock) -> AsyncIterator[World]:
    url = url_of(light_stack, "working")
    with bare_client(url) as bare:
        async with Client(url, name="Valkey (working)") as client:
            yield World(WorkingStore(client, clock), client, bare, clock)


@pytest_asyncio.fixture
async def memory(world: World) -> WorkingMemory:
    return await world.memory()


@pytest_asyncio.fixture
async def snapshots(light_stack: Any, clock: ManualClock) -> AsyncIterator[SnapshotStore]:
    async with Client(url_of(light_stack, "durable"), name="Valkey (durable)") as client:
        yield SnapshotStore(client, clock)


@pytest.fixture
def durable(light_stack: Any) -> Iterator[Any]:
    with bare_client(url_of(light_stack, "durable")) as bare:
        yield bare


@pytest.fixture
def server(tmp_path: Path) -> Iterator[OwnServer]:
    """A server that the test may ill-treat."""
    with own_server(tmp_path) as own:
        yield own


@pytest_asyncio.fixture
async def harsh(server: OwnServer, clock: ManualClock) -> AsyncIterator[World]:
    """A world on a server that the test may ill-treat."""
    with server.bare() as bare:
        async with Client(server.url, name="Valkey (working)") as client:
            yield World(WorkingStore(client, clock), client, bare, clock)


def snapshot_meta(
    identity: MemoryIdentity, clock: ManualClock, *, epoch: int = 1, seq: int = 1, **more: Any
) -> SnapshotMeta:
    """Return what goes with a snapshot."""
    values = {"checkpoint_id": str(uuid4()), "digest": "0" * 64, "key_count": 0, "taken_at": clock.now(), **more}
    return SnapshotMeta(identity, epoch, seq, **values)
