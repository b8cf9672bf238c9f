"""Parts that several tests put together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from typing import Any

from imem.cache.client import Client
from imem.cache.working.memory import WorkingMemory
from imem.cache.working.store import WorkingStore
from imem.checkpoints.model import AgentLease
from imem.ingest.recorder import Recorder
from imem.journal.actors import Actor
from imem.journal.clock import SystemClock
from imem.journal.deadline import Deadline
from imem.journal.gateway import Gateway
from imem.journal.postgres.rows import json
from imem.journal.settings import Role
from imem.sync.delivery.notices import Notices
from imem.sync.members import SyncMember, members
from imem.sync.snapshots import Snapshots
from imem.sync.synchronizer import FORCE_MS, Synchronizer, SyncResult

from .conftest import SyncHarness, soon

FACILITATOR = Actor("facilitator", Role.DEBATE_FACILITATOR)


def synchronizer(
    harness: SyncHarness, actor: Actor = FACILITATOR, *, memories: WorkingStore | None = None
) -> Synchronizer:
    """Return what synchronises, in the hands of *actor*; *memories* on another server where that is wanted."""
    gateway = Gateway(harness.pipelines if actor.states_for_others else harness.database, actor)
    return Synchronizer(
        harness.database, memories or harness.memories, Recorder(gateway), gateway, notices=Notices(harness.durable)
    )


async def force_sync(
    sync: Synchronizer, agent_ids: Collection[str], *, deadline_ms: float = FORCE_MS
) -> dict[str, SyncResult]:
    """Synchronise the agents of these ids."""
    deadline = Deadline.after_ms(deadline_ms)
    return await sync.synchronize(await members(sync.database, agent_ids, deadline=deadline), deadline=deadline)


def snapshots(harness: SyncHarness, **named: Any) -> Snapshots:
    return Snapshots(harness.database, synchronizer(harness, **named), harness.durable)


def nowhere() -> WorkingStore:
    """Return the memories of a server that is not there."""
    return WorkingStore(Client("redis://127.0.0.1:1/0", name="The working Valkey"), SystemClock())


async def held(harness: SyncHarness, lease: AgentLease) -> WorkingMemory:
    """Return the memory of an agent, in the hands of its holder."""
    meta = await harness.memories.meta(lease.agent_id, deadline=soon())
    assert meta is not None
    return WorkingMemory(harness.memories, meta)


async def member(harness: SyncHarness, name: str = "ann") -> SyncMember:
    return (await members(harness.database, [harness.agent(name)], deadline=soon()))[0]


@asynccontextmanager
async def graph_that_follows(harness: SyncHarness) -> AsyncIterator[None]:
    """Mark what is recorded as applied, as an applier does that has nothing else to do."""

    async def follow() -> None:
        while True:
            statement = (
                "UPDATE delivery SET state = 'applied', applied_at = imem_now() WHERE state = 'pending' RETURNING 1"
            )
            await harness.pipelines.rows(statement, deadline=soon())
            await asyncio.sleep(0.02)

    following = asyncio.create_task(follow())
    try:
        yield
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following


def debate(
    harness: SyncHarness,
    debate_id: str = "d-1",
    challenger: str = "ann",
    challenged: str = "bob",
    *,
    analysis: str | None = None,
) -> None:
    """Open a debate, as a challenge does."""
    data = {"topic": "Margins", "challenger": challenger, "challenged": challenged}
    harness.owner(
        "SELECT open_debate_v1(%s, %s, imem_now() + interval '15 minutes', %s::jsonb, '{}', 'ann', 'agent', '{}')",
        debate_id, analysis or harness.analysis, json(data),
    )  # fmt: skip
