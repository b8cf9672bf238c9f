"""
One agent at work: its lease, its working memory, and a checkpoint after every subtask.

::

    async with sessions.begin(analysis_id=…, agent_type=…, agent_id=…, subject_id=…, owner=…) as session:
        while (subtask := session.current) is not None:
            await session.memory.set("stage", subtask)
            …
            await session.complete(subtask)

The order of a checkpoint: the memory is read at one moment, under the epoch; the row is committed in Postgres, which
makes it count; then the snapshot, the copy of the row, and the mark in the memory itself are written, each of which
only makes a recovery faster. A crash in between costs that speed and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Self
from uuid import uuid4

import structlog

from cache.client import Client
from cache.document import digest, document_of
from cache.memory import WorkingMemory
from cache.snapshots import SnapshotMeta, SnapshotStore
from cache.state import Meta
from cache.store import WorkingStore
from checkpoints.alarm import AlertAlarm
from checkpoints.definitions import Definitions
from checkpoints.leases import Leases
from checkpoints.metrics import METRICS, Metrics
from checkpoints.model import Checkpoint, Failure, Kind, Lease
from checkpoints.recovery import Recovered, Recovery
from checkpoints.store import Checkpoints
from journal.cancelling import heed_cancellation
from journal.clock import Clock
from journal.database import Database
from journal.deadline import Deadline
from journal.errors import (
    BadInput,
    BudgetExceeded,
    ConsistencyError,
    ImemError,
    LeaseLost,
    NotOpen,
    OutcomeUnknown,
    StatementRejected,
    StoreUnavailable,
)

log = structlog.get_logger()

BUDGET_MS: Final = 10_000
"""How long a checkpoint may take where the call does not say, in milliseconds."""

PROTECT_MS: Final = 1_000
"""How long the snapshot of a checkpoint, and the mark in the memory, may take each, in milliseconds."""

RENEW_EVERY: Final = timedelta(hours=1)
"""How often the expiry of the whole memory is renewed while its agent lives."""

_PROTECT_TROUBLE: Final = (
    StoreUnavailable, BudgetExceeded, OutcomeUnknown, StatementRejected, ConsistencyError, NotOpen, LeaseLost,
)  # fmt: skip
"""What is counted, and not raised, where a checkpoint already stands in Postgres."""


@dataclass(frozen=True, slots=True)
class Desk:
    """
    What sessions work with.

    Attributes:
        leases, checkpoints: in Postgres.
        working, snapshots: in Valkey.
        recovery: brings a memory back.
        clock: for the moments of snapshots.
        metrics: where trouble is counted.
    """

    leases: Leases
    checkpoints: Checkpoints
    working: WorkingStore
    snapshots: SnapshotStore
    recovery: Recovery
    clock: Clock
    metrics: Metrics = METRICS

    @classmethod
    def over(
        cls,
        database: Database,
        working: Client,
        durable: Client,
        definitions: Definitions,
        clock: Clock,
        *,
        recovery: Recovery | None = None,
    ) -> Self:
        """
        Put the parts together over a process's connections.

        Args:
            working, durable: the two Valkeys.
            recovery: instead of the three tiers that tell of their failure by an alert.
        """
        memories, snapshots = WorkingStore(working, clock), SnapshotStore(durable, clock)
        checkpoints = Checkpoints(database, definitions, snapshots)
        return cls(
            Leases(database, definitions),
            checkpoints,
            memories,
            snapshots,
            recovery or Recovery(checkpoints, memories, snapshots, definitions, AlertAlarm(database)),
            clock,
        )

    @asynccontextmanager
    async def begin(
        self,
        *,
        analysis_id: str,
        agent_type: str,
        agent_id: str,
        subject_id: str,
        owner: str,
        agent_config: Mapping[str, Any] | None = None,
        deadline: Deadline | None = None,
    ) -> AsyncIterator[Session]:
        """
        Begin or go on with the work of an agent; give the lease up at the end.

        While the block runs, the lease and the memory's expiry are renewed. Whatever ends it, what was completed is in
        Postgres; a process that is killed leaves a lease that runs out in 30 s.

        Raises:
            LeaseHeld: another process runs the agent; retryable.
            NotResumable: nothing that is stored is what it was; an alert was raised and nothing was started.
            LeaseLost: another process has taken over; the block was cancelled at its next wait.
            BadInput, TransitionRefused: see :meth:`checkpoints.leases.Leases.acquire`.
        """
        lease = await self.leases.acquire(
            analysis_id=analysis_id,
            agent_type=agent_type,
            agent_id=agent_id,
            subject_id=subject_id,
            holder=f"session-{uuid4().hex}",
            owner=owner,
            agent_config=agent_config,
            deadline=deadline or Deadline.after_ms(BUDGET_MS),
        )
        try:
            async with self.leases.kept(lease):
                session = await self.resumed(lease, deadline=deadline)
                async with session.renewed():
                    yield session
        finally:
            with suppress(ImemError):
                await self.leases.release(lease, deadline=Deadline.after_ms(BUDGET_MS))

    async def resumed(self, lease: Lease, *, deadline: Deadline | None = None) -> Session:
        """
        Recover the agent that holds *lease*, and return it at work; the caller keeps the lease alive.

        Raises:
            NotResumable: see :meth:`checkpoints.recovery.Recovery.recover`.
        """
        recovered = await self.recovery.recover(lease, deadline=deadline)
        return Session(self, lease, recovered)


class Session:
    """
    An agent at work; made by :meth:`Desk.begin`.

    Attributes:
        lease: its right to work; everything it writes bears the lease's epoch.
        memory: its working memory.
        recovered: how it came back.
        checkpoint: the latest, from which it would go on.
    """

    def __init__(self, desk: Desk, lease: Lease, recovered: Recovered) -> None:
        self._desk = desk
        self.lease = lease
        self.recovered = recovered
        self.checkpoint = recovered.checkpoint
        self.memory = WorkingMemory(desk.working, recovered.meta)
        # What an earlier version saved: its lists were migrated, and the next save takes them from here.
        self._base: Checkpoint | None = recovered.checkpoint if recovered.migrated else None

    @property
    def pending(self) -> tuple[str, ...]:
        """The subtasks that are left, in their order."""
        return self.checkpoint.pending_subtasks

    @property
    def current(self) -> str | None:
        """What comes next; None when everything is done."""
        return self.checkpoint.current_subtask

    async def complete(
        self,
        subtask: str,
        *,
        interim_results: Mapping[str, Any] | None = None,
        agent_config: Mapping[str, Any] | None = None,
        deadline: Deadline | None = None,
    ) -> Checkpoint:
        """
        Save that *subtask* is completed, with everything in the working memory; return the checkpoint.

        When it returns, a crash at any later moment does not repeat the subtask. Repeating the call is harmless.

        Args:
            subtask: the one that :attr:`current` names.
            interim_results: findings that are not in the graph yet; JSON.

        Raises:
            BadInput: it is not the next subtask.
            StaleEpoch: somebody else has taken over; nothing was saved.
            NotOpen: the server of the working memory has lost writes: leave the session and begin again.
            PostgresUnavailable, BudgetExceeded, ValkeyUnavailable: nothing was saved, so the subtask is not completed;
                retryable.
            OutcomeUnknown: the connection broke before the answer came; repeating the call is safe.
        """
        return await self._save(
            Kind.SUBTASK,
            subtask,
            deadline,
            interim_results=self._interim(interim_results),
            agent_config=self._config(agent_config),
        )

    async def failed(
        self,
        reason: str,
        *,
        details: Mapping[str, Any] | None = None,
        retry_count: int = 0,
        deadline: Deadline | None = None,
    ) -> Checkpoint:
        """
        Save why the subtask under way failed, before the agent shuts down; return the checkpoint.

        Raises: as :meth:`complete`.
        """
        if not reason.strip():
            raise BadInput("reason", "must say why.")
        failure = Failure(reason=reason, details=details, retry_count=retry_count)
        return await self._save(
            Kind.FAILURE,
            self.current,
            deadline,
            failure=failure,
            interim_results=self._interim(None),
            agent_config=self._config(None),
        )

    def _interim(self, given: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Return what the row states; what is not said anew stays."""
        return {**self.checkpoint.interim_results, **(given or {})}

    def _config(self, given: Mapping[str, Any] | None) -> Mapping[str, Any]:
        return self.checkpoint.agent_config if given is None else given

    async def _save(self, kind: Kind, subtask: str | None, deadline: Deadline | None, **content: Any) -> Checkpoint:
        due = deadline or Deadline.after_ms(BUDGET_MS)
        meta, contents = await self._desk.working.read(
            self.lease.agent_id, epoch=self.lease.epoch, least_rev=self.memory.rev, deadline=due
        )
        document = document_of(contents)
        saved = await self._desk.checkpoints.save(
            self.lease,
            kind=kind,
            subtask=subtask,
            document=document,
            digest=digest(contents),
            base=self._base,
            deadline=due,
            **content,
        )
        self.checkpoint, self._base = saved, None
        await self._protect(saved, meta, document)
        return saved

    async def _protect(self, saved: Checkpoint, meta: Meta, document: dict[str, Any]) -> None:
        """Keep the snapshot beside the row, and remember in the memory that it is that of the row."""
        stated = saved.working_memory_hash or ""
        snapshot = SnapshotMeta(
            meta.identity,
            epoch=self.lease.epoch,
            seq=saved.seq,
            checkpoint_id=str(saved.id),
            digest=stated,
            key_count=len(document),
            taken_at=self._desk.clock.now(),
            protects_until=meta.expires_at,
        )
        try:
            await self._desk.snapshots.put(snapshot, document, deadline=Deadline.after_ms(PROTECT_MS))
        except _PROTECT_TROUBLE as error:
            self._note("durable", error)
        try:
            await self._desk.working.mark(
                self.lease.agent_id,
                self.lease.epoch,
                seq=saved.seq,
                digest=stated,
                rev=meta.rev,
                deadline=Deadline.after_ms(PROTECT_MS),
            )
        except _PROTECT_TROUBLE as error:
            self._note("working", error)

    def _note(self, store: str, error: ImemError) -> None:
        self._desk.metrics.save_errors.add(store=store)
        log.warning("checkpoint.not_protected", agent_id=self.lease.agent_id, store=store, reason=str(error))

    @asynccontextmanager
    async def renewed(self, *, every: timedelta = RENEW_EVERY) -> AsyncIterator[None]:
        """Renew the expiry of the memory and of its snapshot while the block runs."""
        beating = asyncio.create_task(self._beat(every.total_seconds()))
        try:
            yield
        finally:
            beating.cancel()
            with suppress(asyncio.CancelledError):
                await beating

    async def _beat(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.renew()
            except ImemError as error:
                # The memory lives for a day yet, and the next beat tries again; that somebody else has taken over, the
                # lease's own beat finds out within seconds.
                log.warning("memory.not_renewed", agent_id=self.lease.agent_id, reason=str(error))
            heed_cancellation()

    async def renew(self, *, deadline: Deadline | None = None) -> None:
        """Renew the expiry of the memory, and have its snapshot live as long."""
        due = deadline or Deadline.after_ms(BUDGET_MS)
        until = await self._desk.working.heartbeat(self.lease.agent_id, self.lease.epoch, deadline=due)
        await self._desk.snapshots.expire(self.lease.agent_id, until, deadline=due)
