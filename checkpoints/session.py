"""
One agent at work: its lease, its working memory, and a checkpoint after every subtask.

::

    async with sessions.begin(analysis_id=…, agent_type=…, agent_id=…, subject_id=…, owner=…) as session:
        while (subtask := session.current) is not None:
            await session.memory.set("stage", subtask)
            …
            await session.deliver(subtask, postgres=…)
            await session.complete(subtask)

The order of a checkpoint: the memory is read at one moment, under the epoch; the row is committed in Postgres, which
makes it count; then the snapshot, the copy of the row, and the mark in the memory itself are written, each of which
only makes a recovery faster. A crash in between costs that speed and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from types import EllipsisType
from typing import Any, Final, Self, TypeVar
from uuid import UUID, uuid4

import structlog

from imem.cache.client import Client
from imem.cache.working.document import digest, document_of
from imem.cache.working.memory import WorkingMemory
from imem.cache.working.snapshots import SnapshotMeta, SnapshotStore
from imem.cache.working.state import MemoryIdentity, Meta
from imem.cache.working.store import WorkingStore
from imem.checkpoints.incidents.recovery_alerts import RecoveryAlerts
from imem.checkpoints.leases import Leases
from imem.checkpoints.metrics import METRICS, Metrics
from imem.checkpoints.model import AgentLease, Checkpoint, CheckpointKind, Deliverable, SubtaskFailure
from imem.checkpoints.orchestration.definitions import Definitions, Location
from imem.checkpoints.paid_calls import CallOwner, PaidCalls
from imem.checkpoints.recovery import Recovery, RecoveryResult
from imem.checkpoints.result_delivery import NO_RESULT, NoResult, ResultDelivery
from imem.checkpoints.store import Checkpoints
from imem.journal.arguments import checks_arguments
from imem.journal.clock import Clock
from imem.journal.deadline import Deadline
from imem.journal.errors import (
    BadInput,
    BudgetExceeded,
    ConsistencyError,
    ImemError,
    LeaseHeld,
    LeaseLost,
    NotOpen,
    OutcomeUnknown,
    StatementRejected,
    StoreUnavailable,
)
from imem.journal.postgres.cancellation import heed_cancellation
from imem.journal.postgres.database import Database

log = structlog.get_logger()

T = TypeVar("T")

BUDGET_MS: Final = 10_000
"""How long a checkpoint may take where the call does not say, in milliseconds."""

PROTECT_MS: Final = 1_000
"""How long the snapshot of a checkpoint, and the mark in the memory, may take each, in milliseconds."""

POLL_INTERVAL_S: Final = 0.5
"""How often whoever waits for a lease tries to take it, in seconds."""

RENEW_EVERY: Final = timedelta(hours=1)
"""How often the expiry of the whole memory is renewed while its agent lives."""

_PROTECT_ERRORS: Final = (
    StoreUnavailable, BudgetExceeded, OutcomeUnknown, StatementRejected, ConsistencyError, NotOpen, LeaseLost,
)  # fmt: skip
"""What is counted, and not raised, where a checkpoint already stands in Postgres."""


@dataclass(frozen=True, slots=True)
class SessionFactory:
    """
    What sessions work with.

    Attributes:
        leases, checkpoints: in Postgres.
        working, snapshots: in Valkey.
        recovery: brings a memory back.
        delivery: the way of results into their stores.
        clock: for the moments of snapshots.
        metrics: where trouble is counted.
    """

    leases: Leases
    checkpoints: Checkpoints
    working: WorkingStore
    snapshots: SnapshotStore
    recovery: Recovery
    delivery: ResultDelivery
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
        cache: Client | None = None,
        recovery: Recovery | None = None,
    ) -> Self:
        """
        Put the parts together over a process's connections.

        Args:
            working, durable: the two Valkeys.
            cache: the shared cache, if there is one.
            recovery: instead of the three tiers that tell of their failure by an alert.
        """
        memories, snapshots = WorkingStore(working, clock), SnapshotStore(durable, clock)
        checkpoints = Checkpoints(database, definitions, snapshots)
        delivery, alarm = ResultDelivery(database, definitions, clock, cache), RecoveryAlerts(database)
        return cls(
            Leases(database, definitions),
            checkpoints,
            memories,
            snapshots,
            recovery or Recovery(checkpoints, memories, snapshots, definitions, alarm, results=delivery),
            delivery,
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
        wait: Deadline | None = None,
        deadline: Deadline | None = None,
    ) -> AsyncIterator[Session]:
        """
        Begin or go on with the work of an agent; give the lease up at the end.

        While the block runs, the lease and the memory's expiry are renewed. Whatever ends it, what was completed is in
        Postgres; a process that is killed leaves a lease that runs out in 30 s.

        Args:
            wait: until when to wait for a lease that another process has; by default, not at all.
            deadline: when the agent has to be back, the wait included.

        Raises:
            LeaseHeld: another process runs the agent, and still did when *wait* was over; retryable.
            NotResumable: nothing that is stored is what it was; an alert was raised and nothing was started.
            LeaseLost: another process has taken over; the block was cancelled at its next wait.
            BadInput, TransitionRefused: see :meth:`imem.checkpoints.leases.Leases.acquire`.
        """
        async with self.leased(
            analysis_id=analysis_id,
            agent_type=agent_type,
            agent_id=agent_id,
            subject_id=subject_id,
            owner=owner,
            agent_config=agent_config,
            wait=wait,
            deadline=deadline,
        ) as lease:
            session = await self.resumed(lease, deadline=deadline)
            async with session.renewed():
                yield session

    @asynccontextmanager
    async def leased(
        self,
        *,
        analysis_id: str,
        agent_type: str,
        agent_id: str,
        subject_id: str,
        owner: str,
        agent_config: Mapping[str, Any] | None = None,
        wait: Deadline | None = None,
        deadline: Deadline | None = None,
    ) -> AsyncIterator[AgentLease]:
        """
        Take the lease of an agent, keep it while the block runs, and give it up; :meth:`resumed` is the next step.

        Raises:
            LeaseHeld, LeaseLost, BadInput, TransitionRefused: as :meth:`begin`.
        """
        lease = await self._acquired(
            wait,
            deadline,
            analysis_id=analysis_id,
            agent_type=agent_type,
            agent_id=agent_id,
            subject_id=subject_id,
            holder=f"session-{uuid4().hex}",
            owner=owner,
            agent_config=agent_config,
        )
        try:
            async with self.leases.keep_alive(lease):
                yield lease
        finally:
            with suppress(ImemError):
                await self.leases.release(lease, deadline=Deadline.after_ms(BUDGET_MS))

    async def _acquired(self, wait: Deadline | None, deadline: Deadline | None, **asked: Any) -> AgentLease:
        """Take the lease; where another process has it, as soon as that lets go of it or is seen to be gone."""
        while True:
            try:
                return await self.leases.acquire(**asked, deadline=deadline or Deadline.after_ms(BUDGET_MS))
            except LeaseHeld:
                if wait is None or wait.left_s() < POLL_INTERVAL_S:
                    raise
            await asyncio.sleep(POLL_INTERVAL_S)

    async def resumed(self, lease: AgentLease, *, deadline: Deadline | None = None) -> Session:
        """
        Recover the agent that holds *lease*, and return it at work; the caller keeps the lease alive.

        Raises:
            NotResumable: see :meth:`imem.checkpoints.recovery.Recovery.recover`.
        """
        recovered = await self.recovery.recover(lease, deadline=deadline)
        return Session(self, lease, recovered)


@checks_arguments
class Session:
    """
    An agent at work; made by :meth:`SessionFactory.begin`.

    Attributes:
        lease: its right to work; everything it writes bears the lease's epoch.
        memory: its working memory.
        recovered: how it came back.
        checkpoint: the latest, from which it would go on.
    """

    def __init__(self, session_factory: SessionFactory, lease: AgentLease, recovered: RecoveryResult) -> None:
        self._factory = session_factory
        self.lease = lease
        # What was delivered to the cache, which may lose it: the checkpoint keeps it as well. An attempt's deliveries
        # count for the next one under the same lease.
        self._cached: dict[str, Any] = {}
        self._take(recovered)
        identity = MemoryIdentity(lease.agent_id, lease.analysis_id, lease.agent_type)
        self._calls = PaidCalls(CallOwner(identity, recovered.checkpoint.run))

    def _take(self, recovered: RecoveryResult) -> None:
        self.recovered = recovered
        self.checkpoint = recovered.checkpoint
        self.memory = WorkingMemory(self._factory.working, recovered.meta)
        self._lost = recovered.lost
        # What an earlier version saved: its lists were migrated, and the next save takes them from here.
        self._base: Checkpoint | None = recovered.checkpoint if recovered.migrated else None

    async def rollback_to_checkpoint(self, *, deadline: Deadline | None = None) -> None:
        """
        Go back to the newest checkpoint, under the same lease, to try the subtask under way again.

        What the subtask has written goes, unless it may be entered twice. A handle on the memory from before refuses
        nothing: whoever still uses one has to have ended.

        Raises:
            LeaseLost: another process has taken over meanwhile.
            NotResumable: see :meth:`imem.checkpoints.recovery.Recovery.recover`.
        """
        await self._factory.leases.renew(self.lease, deadline=deadline or Deadline.after_ms(BUDGET_MS))
        self._take(await self._factory.recovery.recover(self.lease, deadline=deadline))

    @property
    def pending(self) -> tuple[str, ...]:
        """The subtasks that are left, in their order; those whose results were lost come first."""
        return (*self._lost, *self.checkpoint.pending_subtasks)

    @property
    def lost(self) -> tuple[str, ...]:
        """The subtasks among them that were completed before, and whose results are lost."""
        return self._lost

    @property
    def current(self) -> str | None:
        """What comes next; None when everything is done."""
        return self.pending[0] if self.pending else None

    async def stop_reason(self, *, deadline: Deadline | None = None) -> str | None:
        """
        Return why the agent shall stop, such as that its analysis is being paused; None where it may go on.

        To be asked between two subtasks. An agent that is told a reason leaves the block of its session; one that does
        not within 60 s is fenced off.
        """
        return await self._factory.leases.stop_reason(self.lease, deadline=deadline or Deadline.after_ms(BUDGET_MS))

    async def deliver(
        self,
        subtask: str,
        *,
        postgres: Any = ...,
        graph: str | NoResult | EllipsisType = ...,
        cache: Any = ...,
        message: UUID | str | NoResult | EllipsisType = ...,
        deadline: Deadline | None = None,
    ) -> tuple[Deliverable, ...]:
        """
        Deliver what *subtask* was run for, before it is completed; a rerun replaces it, and the same again is the same.

        Each store that the subtask's definition names wants its result, or ``NO_RESULT``
        (:data:`imem.checkpoints.result_delivery.NO_RESULT`); to others one may be delivered as well. What is not said
        leaves a store alone, so that several calls add up.

        Args:
            postgres: the result itself, as JSON; kept in the row.
            graph: ``CheckpointKind/key`` of a record that the journal knows, such as ``Finding/f-17``.
            cache: the result itself, as JSON; kept in the shared cache for 30 days, and by the checkpoint that
                :meth:`complete` saves, under the subtask's name in ``interim_results``.
            message: the id of an event that the journal holds, such as a receipt's ``event_id``.

        Raises:
            BadInput: no store is named, something does not fit, the journal does not know what is named, or the subtask
                is not the one that :attr:`current` names; names the field.
            StaleEpoch: somebody else has taken over; nothing was written.
            PostgresUnavailable, BudgetExceeded, OutcomeUnknown: repeating the call is safe.
        """
        results = {
            Location.POSTGRES: postgres,
            Location.GRAPH: graph,
            Location.CACHE: cache,
            Location.MESSAGE: message,
        }
        if subtask != self.current:
            raise BadInput("subtask", f"the one that delivers now is {self.current or 'none'}, not {subtask}.")
        due = deadline or Deadline.after_ms(BUDGET_MS)
        delivered = await self._factory.delivery.deliver(self.lease, subtask, results, deadline=due)
        if cache is NO_RESULT:
            self._cached.pop(subtask, None)
        elif cache is not ...:
            self._cached[subtask] = cache
        return tuple(delivered)

    async def memoize(
        self, key: str, call: Callable[[], Awaitable[T]], *, durable: bool = False, deadline: Deadline | None = None
    ) -> T:
        """
        Return the answer of a call that is paid for: made the first time, and remembered from then on.

        The answer stays in working memory whatever becomes of the subtask: when it is tried again, when its process
        dies, when it is paused and the memory's server is lost meanwhile. Several at once under one key make one call.

        What may cost a second call: a process that dies before the answer came; and, unless it is *durable*, the loss
        of the working memory together with this process.

        Args:
            key: names the call and everything that its answer depends on; 1 to 194 characters.
            call: makes it; its answer is text, bytes, or what JSON has a form for, in which it comes back.
            durable: keep the answer on the durable server, too, until a checkpoint holds it: for what is dear.
            deadline: of reading and of keeping each, not of the call.

        Raises:
            UnsupportedType, TooLarge: the answer cannot be kept.
            ValkeyUnavailable, BudgetExceeded, OutcomeUnknown, NotOpen, StaleEpoch: as of every write. An answer that
                came is remembered by this session, and another attempt does not pay again.
        """
        store = self._factory.snapshots if durable else None
        answer: T = await self._calls.memoize(self.memory, key, call, durable=store, deadline=deadline)
        return answer

    async def forget(self, key: str, *, deadline: Deadline | None = None) -> bool:
        """Forget the answer of a call, so that the next one is made; return whether there was one."""
        return await self._calls.forget(self.memory, key, durable=self._factory.snapshots, deadline=deadline)

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

        When it returns, a crash at any later moment does not repeat the subtask. Repeating the call is harmless. Every
        store that the subtask's definition names must have had its result, or ``NO_RESULT``, by :meth:`deliver`.

        Args:
            subtask: the one that :attr:`current` names.
            interim_results: findings that are not in the graph yet; JSON.

        Raises:
            NotDelivered: a store has heard nothing of the subtask in this session; nothing was saved.
            BadInput: it is not the next subtask, or *interim_results* holds its name, where its cached result is kept.
            StaleEpoch: somebody else has taken over; nothing was saved.
            NotOpen: the server of the working memory has lost writes: leave the session and begin again.
            PostgresUnavailable, BudgetExceeded, ValkeyUnavailable: nothing was saved, so the subtask is not completed;
                retryable.
            OutcomeUnknown: the connection broke before the answer came; repeating the call is safe.
        """
        due = deadline or Deadline.after_ms(BUDGET_MS)
        kind = self._kind_of(subtask)
        interim = dict(interim_results or {})
        if subtask in self._cached:
            if subtask in interim:
                raise BadInput(f"interim_results.{subtask}", "is where the result that went to the cache is kept.")
            interim[subtask] = self._cached[subtask]
        if subtask == self.current:
            await self._factory.delivery.require(self.lease, subtask, deadline=due)
        saved = await self._save(
            kind,
            subtask,
            due,
            interim_results=self._interim(interim),
            agent_config=self._config(agent_config),
        )
        self._lost = tuple(name for name in self._lost if name != subtask)
        self._cached.pop(subtask, None)
        return saved

    def _kind_of(self, subtask: str) -> CheckpointKind:
        """Return what completing *subtask* is: the first time, or once more since its result was lost."""
        last = self.checkpoint
        repeated = last.kind is CheckpointKind.RERUN and last.subtask == subtask
        if self._lost and subtask != self._lost[0] and not repeated:
            raise BadInput("subtask", f"{self._lost[0]} has to be run again first: its result is lost.")
        return CheckpointKind.RERUN if self._lost or repeated else CheckpointKind.SUBTASK

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
        failure = SubtaskFailure(reason=reason, details=details, retry_count=retry_count)
        return await self._save(
            CheckpointKind.FAILURE,
            # Of one that is run again only the reason tells: to the row it is completed.
            self.checkpoint.current_subtask,
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

    async def _save(
        self, kind: CheckpointKind, subtask: str | None, deadline: Deadline | None, **content: Any
    ) -> Checkpoint:
        due = deadline or Deadline.after_ms(BUDGET_MS)
        meta, contents = await self._factory.working.read(
            self.lease.agent_id, epoch=self.lease.epoch, least_rev=self.memory.rev, deadline=due
        )
        document = document_of(contents)
        saved = await self._factory.checkpoints.save(
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
        if self._calls.saved(document):
            try:
                await self._factory.snapshots.drop_calls(self.lease.agent_id, deadline=Deadline.after_ms(PROTECT_MS))
            except _PROTECT_ERRORS as error:
                self._note("durable", error)
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
            taken_at=self._factory.clock.now(),
            protects_until=meta.expires_at,
        )
        # Neither waits for the other: two silent servers cost one patience together, answering ones one turn.
        stored = self._factory.snapshots.put(snapshot, document, deadline=Deadline.after_ms(PROTECT_MS))
        marked = self._factory.working.mark(
            self.lease.agent_id,
            self.lease.epoch,
            seq=saved.seq,
            digest=stated,
            rev=meta.rev,
            deadline=Deadline.after_ms(PROTECT_MS),
        )
        ended = await asyncio.gather(stored, marked, return_exceptions=True)
        for store, error in zip(("durable", "working"), ended, strict=True):
            if isinstance(error, _PROTECT_ERRORS):
                self._note(store, error)
            elif isinstance(error, BaseException):
                raise error

    def _note(self, store: str, error: ImemError) -> None:
        self._factory.checkpoints.errors.count(self._factory.metrics.save_errors, error, store=store)
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
        until = await self._factory.working.heartbeat(self.lease.agent_id, self.lease.epoch, deadline=due)
        await self._factory.snapshots.expire(self.lease.agent_id, until, deadline=due)
