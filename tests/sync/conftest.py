"""Agents at work on a database of the test's own, with the Valkeys of the light stack, and no graph."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest_asyncio

from imem.cache.client import Client
from imem.cache.working.state import MemoryIdentity
from imem.cache.working.store import WorkingStore
from imem.checkpoints.leases import Leases
from imem.checkpoints.model import AgentLease
from imem.checkpoints.orchestration.definitions import AgentDefinition, Definitions, Subtask
from imem.journal.actors import Actor
from imem.journal.clock import SystemClock
from imem.journal.deadline import Deadline
from imem.journal.events.entry import Receipt, Tier
from imem.journal.gateway import Gateway
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import record_of
from imem.kg.model import Finding
from imem.sync.delivery.notices import Notices
from imem.sync.delivery.routing import Router
from tests.servers import as_pipelines, asked, cloned

TYPES = ("valuation", "business", "macro", "strategy", "screening", "risk")
DEFINITIONS = Definitions.of([AgentDefinition(agent_type=name, subtasks=(Subtask(name="only"),)) for name in TYPES])


def soon(ms: float = 20_000) -> Deadline:
    """Return a deadline that nothing here comes near."""
    return Deadline.after_ms(ms)


@dataclass
class SyncHarness:
    """
    Agents in one database.

    Attributes:
        mark: what ids of this test hold, and no other's.
    """

    settings: Any
    url: str
    admin_url: str
    database: Database
    pipelines: Database
    working: Client
    durable: Client
    mark: str = field(default_factory=lambda: uuid4().hex[:8])

    @property
    def memories(self) -> WorkingStore:
        return WorkingStore(self.working, SystemClock())

    @property
    def notices(self) -> Notices:
        return Notices(self.durable)

    @property
    def router(self) -> Router:
        return Router(self.pipelines, self.notices)

    @property
    def analysis(self) -> str:
        return f"analysis:{self.mark}"

    def agent(self, name: str) -> str:
        """Return the id of an agent of this test."""
        return f"{name}-{self.mark}"

    async def begin(
        self,
        name: str = "ann",
        agent_type: str = "valuation",
        *,
        analysis: str | None = None,
        subject: str = "company:MU",
        memory: bool = True,
        owner: str | None = None,
    ) -> AgentLease:
        """Have an agent at work, with an empty memory; its owner is called like it, unless it is said to be another."""
        lease = await Leases(self.database, DEFINITIONS).acquire(
            analysis_id=analysis or self.analysis,
            agent_type=agent_type,
            agent_id=self.agent(name),
            subject_id=subject,
            holder=f"test-{uuid4().hex}",
            owner=owner or name,
            deadline=soon(),
        )
        if memory:
            identity = MemoryIdentity(lease.agent_id, lease.analysis_id, lease.agent_type)
            await self.memories.open(identity, lease.epoch, deadline=soon())
        return lease

    def gateway(self, actor: str = "ann", role: Role = Role.AGENT) -> Gateway:
        return Gateway(self.database, Actor(actor, role))

    def finding(self, actor: str = "ann", **named: Any) -> Finding:
        values = {
            "id": f"f-{uuid4().hex[:12]}", "analysis_id": self.analysis, "subject_id": "company:MU", "agent": actor,
            "domain": "margins", "statement": "Margins widen.", **named,
        }  # fmt: skip
        return Finding(**values)

    async def record(self, actor: str = "ann", *, tier: Tier = Tier.NORMAL, **named: Any) -> Receipt:
        """Have an actor state a finding."""
        entry = entry_of(record_of(self.finding(actor, **named)), tier=tier)
        return (await self.gateway(actor).append([entry], deadline=soon()))[0]

    async def rows(self, query: Any, *parameters: Any) -> list[Row]:
        return await self.database.rows(query, parameters, deadline=soon())

    def owner(self, query: str, *parameters: Any) -> list[dict[str, Any]]:
        """Look, or change something, behind the application's back."""
        return asked(self.admin_url, query, parameters)

    def applied(self) -> None:
        """Say that the graph holds everything, as the applier would."""
        self.owner("UPDATE delivery SET state = 'applied', applied_at = imem_now()")

    @asynccontextmanager
    async def later(self, by: timedelta) -> AsyncIterator[Database]:
        """Lend the database at another time: as the owner, who alone may shift the clock."""
        database = Database(self.admin_url, size=4, options=f"-c imem.clock_shift={by.total_seconds():.0f}s")
        try:
            yield database
        finally:
            await database.close()


@pytest_asyncio.fixture
async def harness(light_stack: Any, light_template: str) -> AsyncIterator[SyncHarness]:
    async with harness_at(light_stack.settings, light_template) as made:
        yield made


@asynccontextmanager
async def harness_at(settings: Any, template: str) -> AsyncIterator[SyncHarness]:
    """Lend a harness on the servers of *settings*, in a database made of *template*."""
    with cloned(settings, template) as (url, admin_url):
        database, pipelines = Database(url, size=12), Database(as_pipelines(settings, url), size=12)
        working = Client(settings.valkey_working_url.get_secret_value(), name="The working Valkey")
        durable = Client(settings.valkey_durable_url.get_secret_value(), name="The durable Valkey")
        try:
            yield SyncHarness(settings, url, admin_url, database, pipelines, working, durable)
        finally:
            await database.close()
            await pipelines.close()
            await working.close()
            await durable.close()
