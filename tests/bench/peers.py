"""LangGraph's own saver for Postgres, with the states that it and ours are given."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import psycopg
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg import sql as composed

from tests.servers import with_database


@asynccontextmanager
async def peer_on(admin_url: str) -> AsyncIterator[AsyncPostgresSaver]:
    """Lend LangGraph's saver, with tables of its own in a database of its own on the server of *admin_url*."""
    name = f"peer_{uuid4().hex[:8]}"
    with psycopg.connect(admin_url, autocommit=True) as conn:
        conn.execute(composed.SQL("CREATE DATABASE {}").format(composed.Identifier(name)))
        try:
            async with AsyncPostgresSaver.from_conn_string(with_database(admin_url, name)) as saver:
                await saver.setup()
                yield saver
        finally:
            conn.execute(composed.SQL("DROP DATABASE {} WITH (FORCE)").format(composed.Identifier(name)))


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
