"""LangGraph's threads beside the saver that LangGraph itself has for Postgres: same server, same states, in turns."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

import psycopg
import pytest
import pytest_asyncio
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg import sql as composed

from imem.langgraph import MemorySaver
from tests.bench.table import Figure, Table, percentile
from tests.langgraph_saver.conftest import Base, base

__all__ = ["base"]

SIZES: Final = {"1 kB": 1_000, "100 kB": 100_000}
TIMES: Final = 60 if os.environ.get("IMEM_BENCH_SCALE") == "tiny" else 400
"""How often each call is measured."""

WARM: Final = 20
"""Calls before that."""

BAR: Final = 1.2
"""How much slower than the peer a call may be at p95."""

LENGTH: Final = 100
"""Checkpoints of the thread whose size is measured."""


@pytest_asyncio.fixture
async def peer(base: Base) -> AsyncIterator[AsyncPostgresSaver]:
    """LangGraph's saver, with tables of its own in a database of its own on the same server."""
    name = f"peer_{uuid4().hex[:8]}"
    with psycopg.connect(base.admin_url, autocommit=True) as conn:
        conn.execute(composed.SQL("CREATE DATABASE {}").format(composed.Identifier(name)))
        async with AsyncPostgresSaver.from_conn_string(other(base.admin_url, name)) as saver:
            await saver.setup()
            yield saver
        conn.execute(composed.SQL("DROP DATABASE {} WITH (FORCE)").format(composed.Identifier(name)))


def other(url: str, name: str) -> str:
    return f"{url.rpartition('/')[0]}/{name}"


@pytest_asyncio.fixture
async def ours(base: Base) -> AsyncIterator[MemorySaver]:
    async with MemorySaver.open(base.settings) as saver:
        yield saver


def words(size: int, salt: int) -> list[dict[str, str]]:
    """Return messages of about *size* bytes together, no two alike."""
    long = 400
    return [
        {"role": "user", "content": f"{salt}/{n} " + "".join(chr(97 + (n * salt + i * i) % 26) for i in range(long))}
        for n in range(max(1, size // (long + 60)))
    ]


def state(step: int, size: int, saver: Any, before: Checkpoint | None) -> tuple[Checkpoint, dict[str, Any]]:
    """Return a checkpoint as a step leaves it, one channel with a new value of that size, and what is new in it."""
    versions = dict(before["channel_versions"]) if before else {}
    highest = max(map(str, versions.values()), default=None)
    new = {name: saver.get_next_version(highest, None) for name in ("messages", "step", "branch:to:node")}
    values = {"messages": words(size, step), "step": step, "branch:to:node": None, "subject": "company:MU"}
    versions |= new | ({} if before else {"subject": new["step"]})
    made: Checkpoint = {
        "v": 4, "id": str(uuid6()), "ts": "2026-01-01T00:00:00+00:00", "channel_values": values,
        "channel_versions": versions, "updated_channels": None,
        "versions_seen": {"node": {"branch:to:node": new["step"]}, "__input__": {}},
    }  # fmt: skip
    return made, new


@dataclass
class Runner:
    """
    One saver at work on one thread.

    Attributes:
        taken_ms: call → how long each took.
    """

    saver: Any
    size: int
    where: RunnableConfig = field(
        default_factory=lambda: RunnableConfig(configurable={"thread_id": f"t-{uuid4()}", "checkpoint_ns": ""})
    )
    before: Checkpoint | None = None
    taken_ms: dict[str, list[float]] = field(default_factory=lambda: {"aput": [], "aput_writes": [], "aget_tuple": []})

    async def timed(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        begun = time.perf_counter()
        result = await call()
        self.taken_ms[name].append((time.perf_counter() - begun) * 1000)
        return result

    async def step(self, n: int) -> None:
        """Put a checkpoint, a task's writes after it, and read it back."""
        made, new = state(n, self.size, self.saver, self.before)
        metadata: Any = {"source": "loop", "step": n, "parents": {}}
        written = [("messages", words(self.size, n + 1)), ("branch:to:node", None)]
        self.where = await self.timed("aput", lambda: self.saver.aput(self.where, made, metadata, new))
        await self.timed("aput_writes", lambda: self.saver.aput_writes(self.where, written, f"task-{n}"))
        place = self.where["configurable"]
        newest: RunnableConfig = {"configurable": {"thread_id": place["thread_id"], "checkpoint_ns": ""}}
        found = await self.timed("aget_tuple", lambda: self.saver.aget_tuple(newest))
        assert found.checkpoint["channel_values"] == made["channel_values"]
        assert len(found.pending_writes) == 2
        self.before = made


@pytest.mark.bench
@pytest.mark.parametrize("data", SIZES)
async def test_calls_beside_langgraphs_own_saver(
    ours: MemorySaver, peer: AsyncPostgresSaver, table: Table, data: str
) -> None:
    """In turns, so that both meet the same machine; one task, one connection each, every commit on disk."""
    runners = {"ours": Runner(ours, SIZES[data]), "peer": Runner(peer, SIZES[data])}
    for n in range(WARM + TIMES):
        if n == WARM:
            for runner in runners.values():
                for taken in runner.taken_ms.values():
                    taken.clear()
        for name in ("ours", "peer") if n % 2 else ("peer", "ours"):
            await runners[name].step(n)

    figures = []
    for call in runners["ours"].taken_ms:
        for share, label in ((0.5, "p50"), (0.95, "p95")):
            mine, floor = (percentile(runner.taken_ms[call], share) for runner in runners.values())
            bar = BAR * floor if label == "p95" else None
            figures.append(
                Figure(name=f"LangGraph {call} {label}", data=data, value=mine, unit="ms", floor=floor, bar=bar)
            )
    table.add(*figures)


@pytest.fixture
def database_size(base: Base) -> Callable[[str, tuple[str, ...]], int]:
    """Measure what tables take on disk, with their indexes, in some database."""

    def measure(name: str, tables: tuple[str, ...]) -> int:
        url = other(base.admin_url, name) if name else base.admin_url
        with psycopg.connect(url, autocommit=True) as conn:
            [size] = conn.execute(
                "SELECT sum(pg_total_relation_size(t.name::regclass)) FROM unnest(%s::text[]) AS t (name)",
                (list(tables),),
            ).fetchone() or (0,)
            return int(size)

    return measure


@pytest.mark.bench
async def test_bytes_of_a_thread(
    ours: MemorySaver, peer: AsyncPostgresSaver, table: Table, database_size: Callable[[str, tuple[str, ...]], int]
) -> None:
    """A thread of a hundred steps, one of its two larger channels never changing: on disk, indexes included."""
    own = tuple(f"langgraph.{name}" for name in ("checkpoint", "blob", "write"))
    theirs = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
    name = peer.conn.info.dbname  # type: ignore[union-attr] # it was made from a URL
    before = database_size("", own), database_size(name, theirs)
    for saver in (ours, peer):
        runner = Runner(saver, SIZES["1 kB"])
        for n in range(LENGTH):
            await runner.step(n)
    mine, floor = database_size("", own) - before[0], database_size(name, theirs) - before[1]

    table.add(
        Figure(
            name="LangGraph bytes a checkpoint",
            data="100 steps",
            value=mine / LENGTH,
            unit="B",
            floor=floor / LENGTH,
            bar=floor / LENGTH,
            note="tables and indexes on disk, with a task's writes after each; 1 kB of messages, another kB of writes",
        )
    )
