"""A migrated database of its own for each test, the stores upon it, and time that a test may move."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest_asyncio

from imem.cache.client import Client
from imem.cache.working.document import MemoryEntry, Type, digest, document_of
from imem.cache.working.snapshots import SnapshotStore
from imem.cache.working.store import WorkingStore
from imem.checkpoints.cleanup import Cleanup
from imem.checkpoints.deliverables import Deliverables, ResultChecks, digest_of
from imem.checkpoints.leases import Leases
from imem.checkpoints.metrics import CONSISTENCY_ERRORS, RESTORE_LATENCY, SAVE_ERRORS, SAVE_LATENCY, TIER_USED
from imem.checkpoints.model import AgentLease, Checkpoint, CheckpointKind, Deliverable
from imem.checkpoints.orchestration.definitions import AgentDefinition, Definitions, Location, Subtask
from imem.checkpoints.orchestration.workflows import Workflows
from imem.checkpoints.store import Checkpoints
from imem.journal.clock import SystemClock
from imem.journal.deadline import Deadline
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.journal.texts.json_text import json_text
from tests.servers import asked, cloned

SOON_MS = 20_000
"""A budget that nothing here comes near, in milliseconds."""

FILER = AgentDefinition(
    agent_type="filer",
    subtasks=(
        Subtask(name="fetch", stores=(Location.POSTGRES,)),
        Subtask(name="parse", stores=(Location.GRAPH, Location.MESSAGE)),
        Subtask(name="rank", stores=(Location.CACHE,)),
    ),
)
CLERK = AgentDefinition(agent_type="clerk", subtasks=(Subtask(name="one"), Subtask(name="two")), after=("filer",))
DEFINITIONS = Definitions.of([FILER, CLERK])


def soon() -> Deadline:
    return Deadline.after_ms(SOON_MS)


def memory(**texts: str) -> tuple[dict[str, Any], str]:
    """Return the document and the digest of a working memory with these texts."""
    contents = {name.encode(): MemoryEntry(Type.STRING, (text.encode(),), 86_400_000) for name, text in texts.items()}
    return document_of(contents), digest(contents)


class Payloads(Deliverables):
    """Deliverables, with a short way to store one in Postgres."""

    async def store(self, lease: AgentLease, subtask: str, payload: Any, **named: Any) -> Deliverable:
        text = json_text(payload, "payload")
        content: dict[str, Any] = {"reference": subtask, "digest": digest_of(text), "payload": text}
        return await self.put(lease, subtask, Location.POSTGRES, **content, **named)


async def lease_of(database: Database, analysis: str, agent_type: str) -> AgentLease | None:
    """Return the lease of an agent, held or not; None where it was never run."""
    found = await database.rows(
        "SELECT l.analysis_id, l.agent_type, l.agent_id, a.subject_id, l.holder, l.epoch, l.expires_at "
        "FROM workflow.agent_leases AS l JOIN workflow.analysis AS a USING (analysis_id) "
        "WHERE l.analysis_id = %s AND l.agent_type = %s",
        (analysis, agent_type),
        deadline=soon(),
    )
    return AgentLease(**found[0]) if found else None


@dataclass(frozen=True)
class World:
    """
    The stores upon one database and the three Valkeys.

    Attributes:
        settings: with the addresses of the Valkeys.
        url, admin_url: the database, as the application and as its owner.
        analysis: an id that no other test has; agents are called after it.
    """

    settings: Any
    url: str
    admin_url: str
    database: Database
    durable: Client
    working: Client
    cache: Client
    definitions: Definitions = DEFINITIONS
    analysis: str = field(default_factory=lambda: f"analysis:{uuid4().hex[:12]}")

    @property
    def snapshots(self) -> SnapshotStore:
        return SnapshotStore(self.durable, SystemClock())

    @property
    def memories(self) -> WorkingStore:
        return WorkingStore(self.working, SystemClock())

    @property
    def leases(self) -> Leases:
        return Leases(self.database, self.definitions)

    @property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.database, self.definitions, self.snapshots)

    @property
    def deliverables(self) -> Payloads:
        return Payloads(self.database, self.definitions)

    async def payloads(self) -> dict[tuple[str, str], Any]:
        """Return what Postgres holds of the results: agent type and subtask → payload."""
        found = await self.database.named("payloads_of", {"analysis_id": self.analysis}, deadline=soon())
        return {(row["agent_type"], row["subtask"]): row["payload"] for row in found}

    @property
    def workflows(self) -> Workflows:
        return Workflows(self.database)

    async def fail(self, reason: str = "x") -> None:
        """End this test's analysis as failed."""
        await self.database.commit("analysis_end", {"analysis_id": self.analysis, "reason": reason}, deadline=soon())

    def cleanup(self, *, archive: bool = False) -> Cleanup:
        return Cleanup(
            self.database,
            self.definitions,
            ResultChecks(self.database, self.cache),
            durable=self.snapshots,
            working=self.memories,
            archive=archive,
        )

    @asynccontextmanager
    async def later(self, by: timedelta) -> AsyncIterator[World]:
        """Lend the same world at another time: as the owner, who alone may shift the clock."""
        database = Database(self.admin_url, size=2, options=f"-c imem.clock_shift={by.total_seconds():.0f}s")
        try:
            yield replace(self, database=database)
        finally:
            await database.close()

    async def acquire(self, agent_type: str = "filer", holder: str = "process-1", **named: Any) -> AgentLease:
        """Take the lease of an agent of this test's analysis."""
        asked = {
            "analysis_id": self.analysis,
            "agent_type": agent_type,
            "agent_id": self.agent(agent_type),
            "subject_id": "company:MU",
            "holder": holder,
            "owner": "ann",
            "deadline": soon(),
        }
        return await self.leases.acquire(**{**asked, **named})

    async def lease_of(self, agent_type: str) -> AgentLease | None:
        """Return the lease of an agent of this test's analysis."""
        return await lease_of(self.database, self.analysis, agent_type)

    def agent(self, agent_type: str = "filer") -> str:
        """Return the id of the agent's instance in this test's analysis."""
        return f"{agent_type}-{self.analysis.removeprefix('analysis:')}"

    async def save(self, lease: AgentLease, subtask: str | None, **named: Any) -> Checkpoint:
        """Save a completed subtask, or whatever kind is named."""
        document, its = memory(after=str(subtask))
        asked = {"kind": CheckpointKind.SUBTASK, "document": document, "digest": its, "deadline": soon()}
        return await self.checkpoints.save(lease, subtask=subtask, **{**asked, **named})

    async def load(self, agent_type: str = "filer") -> Checkpoint:
        """Load what must be there."""
        found = await self.checkpoints.load(self.analysis, agent_type, deadline=soon())
        assert found is not None
        return found

    async def rows(self, query: str, *parameters: Any) -> list[Row]:
        return await self.database.rows(query, parameters, deadline=soon())

    async def steps(self, workflow: str = "w", thread: str = "t") -> list[Row]:
        """Return the steps of a thread in the order of their last save."""
        return await self.rows(
            "SELECT step_name, seq, parent_seq, created_at FROM workflow.workflow_checkpoints "
            "WHERE workflow_id = %s AND thread_id = %s ORDER BY seq",
            workflow,
            thread,
        )

    def owner(self, query: str, *parameters: Any) -> None:
        """Change something behind the application's back."""
        asked(self.admin_url, query, parameters)


@asynccontextmanager
async def opened(settings_: Any, url: str, admin_url: str) -> AsyncIterator[World]:
    """Lend a world upon a database that is there."""
    database = Database(url, size=4)
    clients = [
        Client(getattr(settings_, f"valkey_{name}_url").get_secret_value()) for name in ("durable", "working", "cache")
    ]
    try:
        durable, working, cache = clients
        yield World(settings_, url, admin_url, database, durable, working, cache)
    finally:
        await database.close()
        for client in clients:
            await client.close()


@pytest_asyncio.fixture
async def world(light_stack: Any, light_template: str) -> AsyncIterator[World]:
    for metric in (SAVE_LATENCY, SAVE_ERRORS, RESTORE_LATENCY, CONSISTENCY_ERRORS, TIER_USED):
        metric.clear()
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        async with opened(light_stack.settings, url, admin_url) as made:
            yield made
