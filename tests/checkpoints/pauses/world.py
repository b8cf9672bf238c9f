"""Everything that pauses work on, put together as a process of the product does, and agents to be paused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import psycopg
import redis.asyncio
from psycopg import sql as composed

from imem.cache.client import Client
from imem.cache.working.changes import put
from imem.cache.working.document import digest, document_of
from imem.cache.working.snapshots import SnapshotStore
from imem.cache.working.state import MemoryIdentity
from imem.cache.working.store import WorkingStore
from imem.checkpoints.cleanup import Cleanup
from imem.checkpoints.deliverables import ResultChecks
from imem.checkpoints.incidents.reports import Incidents
from imem.checkpoints.leases import Leases
from imem.checkpoints.model import AgentLease, Checkpoint, CheckpointKind
from imem.checkpoints.orchestration.definitions import Definitions, Location
from imem.checkpoints.orchestration.orchestrator import CeleryOrchestrator, DispatchMessage
from imem.checkpoints.pauses.assembly import PauseServices, assemble
from imem.checkpoints.pauses.batch_runs import BatchRuns, Capacity
from imem.checkpoints.pauses.human_gates import GATES_OF_ANALYSES
from imem.checkpoints.pauses.manager import PauseManager, RoundReport
from imem.checkpoints.pauses.pause_service import PauseService
from imem.checkpoints.pauses.saga import Saga, SagaStores
from imem.checkpoints.result_delivery import ResultDelivery
from imem.checkpoints.store import Checkpoints
from imem.jobs.lifecycle import advance_due
from imem.journal.actors import Actor
from imem.journal.clock import Clock, SystemClock
from imem.journal.deadline import Deadline
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from tests.servers import asked, let_go

from .delivered import results

PERSON = Actor("priya", Role.HUMAN_ADMIN)
FOUR = ("screening", "business_research", "financial_analyst", "strategy_analyst")


def soon(ms: float = 20_000) -> Deadline:
    return Deadline.after_ms(ms)


class Plenty(Capacity):
    """Room for everything, whatever else this machine does."""

    async def short_of(self, _: Connection) -> str | None:
        return None


@dataclass
class World:
    """
    Everything that pauses work on, and a way to have agents in it.

    Attributes:
        sent: the messages that were put on their way.
        shift: what ``imem_now()`` is ahead, for sessions begun from now on.
    """

    url: str
    admin_url: str
    database: Database
    working_client: Client
    durable_client: Client
    working_redis: redis.asyncio.Redis
    durable_redis: redis.asyncio.Redis
    parts: PauseServices
    sent: list[DispatchMessage] = field(default_factory=list)

    @property
    def stores(self) -> SagaStores:
        return self.parts.stores

    @property
    def definitions(self) -> Definitions:
        return self.stores.definitions

    @property
    def leases(self) -> Leases:
        return self.stores.leases

    @property
    def checkpoints(self) -> Checkpoints:
        return self.stores.checkpoints

    @property
    def working(self) -> WorkingStore:
        return self.stores.working

    @property
    def snapshots(self) -> SnapshotStore:
        return self.stores.snapshots

    @property
    def delivery(self) -> ResultDelivery:
        return ResultDelivery(self.database, self.definitions, SystemClock())

    @property
    def orchestrator(self) -> CeleryOrchestrator:
        return self.parts.orchestrator

    @property
    def cleanup(self) -> Cleanup:
        its = ResultChecks(self.database, None)
        return Cleanup(self.database, self.definitions, its, durable=self.snapshots, working=self.working)

    @property
    def saga(self) -> Saga:
        return self.parts.saga

    @property
    def pauses(self) -> PauseService:
        return self.parts.pauses

    @property
    def incidents(self) -> Incidents:
        return self.parts.incidents

    @property
    def batches(self) -> BatchRuns:
        return self.parts.batches

    @property
    def manager(self) -> PauseManager:
        return self.parts.manager

    async def rows(self, query: Any, *parameters: Any) -> list[Row]:
        return await self.database.rows(query, parameters, deadline=soon())

    def owner(self, query: str, *parameters: Any) -> None:
        """Change something behind the application's back."""
        asked(self.admin_url, query, parameters)

    async def begin(
        self, analysis_id: str, agent_type: str = "business_research", *, stock_id: str = "company:MU", done: int = 2
    ) -> AgentLease:
        """Have an agent that has completed so many subtasks, with a memory of them; it still holds its lease."""
        agent_id = f"{agent_type[:20]}-{uuid4().hex[:8]}"
        lease = await self.leases.acquire(
            analysis_id=analysis_id, agent_type=agent_type, agent_id=agent_id, subject_id=stock_id,
            holder=f"test-{uuid4().hex}", owner="tester", deadline=soon(),
        )  # fmt: skip
        await self.working.open(MemoryIdentity(agent_id, analysis_id, agent_type), lease.epoch, deadline=soon())
        for name in self.definitions.of_type(agent_type).names[:done]:
            await self.complete(lease, name)
        return lease

    async def write(self, lease: AgentLease, values: Mapping[str, Any]) -> None:
        changes = [put(name, value) for name, value in values.items()]
        await self.working.write(lease.agent_id, lease.epoch, changes, deadline=soon())

    async def complete(self, lease: AgentLease, subtask: str) -> Checkpoint:
        await self.write(lease, {f"done:{subtask}": "yes", "calls": [subtask, "cached"]})
        said = {Location(name): result for name, result in results(lease.agent_type, subtask).items()}
        if said:
            await self.delivery.deliver(lease, subtask, said, deadline=soon())
        meta, contents = await self.working.read(lease.agent_id, epoch=lease.epoch, deadline=soon())
        found = digest(contents)
        saved = await self.checkpoints.save(
            lease, kind=CheckpointKind.SUBTASK, subtask=subtask, document=document_of(contents), digest=found,
            interim_results={subtask: said.get(Location.CACHE, {"n": 1})}, deadline=soon(),
        )  # fmt: skip
        await self.working.mark(lease.agent_id, lease.epoch, seq=saved.seq, digest=found, rev=meta.rev, deadline=soon())
        return saved

    async def release(self, lease: AgentLease) -> None:
        await self.leases.release(lease, deadline=soon())

    async def paused(self, analysis_id: str, **named: Any) -> AgentLease:
        """Have an analysis with one agent, paused by a person."""
        lease = await self.begin(analysis_id, **named)
        await self.release(lease)
        result = await self.pauses.pause_analysis(analysis_id, "A look at it.", by=PERSON, deadline=soon())
        assert result.status == "PAUSED", result
        return lease

    async def memory(self, lease: AgentLease) -> dict[bytes, Any]:
        _, contents = await self.working.read(lease.agent_id, deadline=soon())
        return {suffix: entry.leaves for suffix, entry in contents.items()}

    async def keys(self, agent_id: str) -> list[str]:
        """Return the keys of an agent's working memory, as they are called on the server."""
        found = await self.working_redis.keys(f"L1:{agent_id}:*")
        return [key.decode() for key in found if isinstance(key, bytes)]

    async def pause_row(self, analysis_id: str) -> Row:
        (row,) = await self.rows(
            "SELECT * FROM workflow.paused_analyses WHERE analysis_id = %s ORDER BY pause_timestamp DESC LIMIT 1",
            analysis_id,
        )
        return row

    async def failure(self) -> Row:
        """Return the one failure that was reported."""
        (row,) = await self.rows("SELECT class, signature, pause_id FROM workflow.agent_failures")
        return row

    async def alerts(self, analysis_id: str | None = None) -> list[str]:
        found = await self.rows(
            "SELECT kind FROM workflow.alert WHERE analysis_id = coalesce(%s, analysis_id) ORDER BY raised_at, kind",
            analysis_id,
        )
        return [row["kind"] for row in found]

    def gate(
        self,
        analysis_id: str = "a-1",
        gate: int = 3,
        state: str = "WAITING_FOR_HUMAN",
        *,
        answer_within: timedelta = timedelta(hours=24),
    ) -> None:
        """Write the row of a gate, as whoever runs one does; of a gate that is there already, its answer."""
        self.owner(
            "INSERT INTO lifecycle (kind, key, about, state, due_at, data) SELECT 'gate', a.id || '/' || a.gate, a.id, "
            "'WAITING_FOR_HUMAN', a.due_at, jsonb_build_object('gate', a.gate, 'stock_id', 'company:MU', 'due_at', "
            "a.due_at) FROM (SELECT %s::text AS id, %s::int AS gate, imem_now() + %s AS due_at) AS a "
            "ON CONFLICT (kind, key) DO NOTHING",
            analysis_id, gate, answer_within,
        )  # fmt: skip
        key = f"{analysis_id}/{gate}"
        if state == "TIMED_OUT":
            self.owner("UPDATE lifecycle SET due_at = imem_now() - interval '1 second' WHERE key = %s", key)
        elif state != "WAITING_FOR_HUMAN":
            self.owner(
                "UPDATE lifecycle SET requested_at = imem_now(), request = jsonb_build_object('state', %s::text, "
                "'actor', 'priya', 'role', 'human_admin', 'reason', NULL) WHERE key = %s",
                state, key,
            )  # fmt: skip

    async def round(self) -> RoundReport:
        """Do what the pipelines do every few seconds: move gates, then give everything else its effect."""
        runtime: Any = SimpleNamespace(database=self.database, gateway=None)
        moved = await advance_due(runtime, {GATES_OF_ANALYSES.kind: GATES_OF_ANALYSES}, until=soon())
        assert (moved.failed, moved.refused) == (0, 0)
        return await self.manager.round(deadline=soon(120_000))

    async def later(self, by: timedelta) -> None:
        """Let the database's clock be ahead by so much, for every session from now on."""
        let_go(self.admin_url)
        with psycopg.connect(self.admin_url, autocommit=True) as conn:
            name = conn.info.dbname
            conn.execute(
                composed.SQL("ALTER DATABASE {} SET imem.clock_shift = {}").format(
                    composed.Identifier(name), composed.Literal(f"{by.total_seconds()} seconds")
                )
            )
            # The application may not shift the clock; in these tests it may.
            conn.execute(
                "CREATE OR REPLACE FUNCTION imem_may_shift_clock() RETURNS boolean LANGUAGE sql AS 'SELECT true'"
            )
            conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()",
                (name,),
            )
        if (pool := self.database._pool._inner) is not None:
            await pool.check()


def make_world(
    settings: Any,
    url: str,
    admin_url: str,
    *,
    pipeline_url: str | None = None,
    clock: Clock | None = None,
    size: int = 12,
) -> World:
    """
    Put everything together, as a process of the product does, with at most *size* connections to Postgres.

    Args:
        pipeline_url: under which role it is, as the workers are; as the application where none is given.
    """
    database = Database(pipeline_url or url, size=size)
    working_client = Client(settings.valkey_working_url.get_secret_value(), name="The working Valkey")
    durable_client = Client(settings.valkey_durable_url.get_secret_value(), name="The durable Valkey")
    sent: list[DispatchMessage] = []

    async def send(message: DispatchMessage) -> None:
        sent.append(message)

    parts = assemble(
        database, working_client, durable_client, Definitions.read(), send, capacity=Plenty(), clock=clock,
    )  # fmt: skip
    return World(
        url, admin_url, database, working_client, durable_client,
        redis.asyncio.Redis.from_url(settings.valkey_working_url.get_secret_value()),
        redis.asyncio.Redis.from_url(settings.valkey_durable_url.get_secret_value()),
        parts, sent,
    )  # fmt: skip


async def close_world(world: World) -> None:
    await world.database.close()
    for client in (world.working_client, world.durable_client):
        await client.close()
    for plain in (world.working_redis, world.durable_redis):
        await plain.aclose()
