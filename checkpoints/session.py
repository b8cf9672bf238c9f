"""
Session: one running agent with its lease, its working memory, and a checkpoint after every subtask.

::

    async with sessions.begin(analysis_id=…, agent_type=…, agent_id=…, subject_id=…, owner=…) as session:
        while (subtask := session.current) is not None:
            await session.memory.set("stage", subtask)
            …
            await session.deliver(subtask, postgres=…)
            await session.complete(subtask)

A checkpoint reads the memory at one moment, under the epoch, and commits the row in Postgres, which makes it valid.
Then it writes the snapshot, the copy of the row, and the mark in the memory, each of which only makes a recovery
faster. A crash in between costs that speed and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from types import EllipsisType
from typing import Any, Final, Self, TypeVar, Unpack
from uuid import UUID, uuid4

import structlog

from imem.cache.client import Client
from imem.cache.working.document import digest, document_of
from imem.cache.working.memory import WorkingMemory
from imem.cache.working.snapshots import SnapshotStore
from imem.cache.working.state import Meta
from imem.cache.working.store import WorkingStore
from imem.checkpoints.leases import LeaseRequest, Leases
from imem.checkpoints.metrics import SAVE_ERRORS
from imem.checkpoints.model import AgentLease, Checkpoint, CheckpointKind, Deliverable, SubtaskFailure, snapshot_of
from imem.checkpoints.orchestration.definitions import Definitions, Location
from imem.checkpoints.paid_calls import CallOwner, PaidCalls
from imem.checkpoints.recovery import Recovery, RecoveryResult
from imem.checkpoints.result_delivery import NO_RESULT, NoResult, ResultDelivery
from imem.checkpoints.store import Checkpoints
from imem.journal.arguments import checks_arguments
from imem.journal.clock import Clock
from imem.journal.deadline import Deadline
from imem.journal.errors import (
    UNANSWERED,
    BadInput,
    ConsistencyError,
    ImemError,
    LeaseHeld,
    LeaseLost,
    NotOpen,
    StatementRejected,
)
from imem.journal.postgres.cancellation import heed_cancellation
from imem.journal.postgres.database import Database
from imem.journal.retry import retry
from imem.journal.texts.spelling import says_nothing

log = structlog.get_logger()

T = TypeVar("T")

BUDGET_MS: Final = 10_000
"""Default timeout of a checkpoint, in milliseconds."""

PROTECT_MS: Final = 1_000
"""Timeout of the snapshot of a checkpoint, and of the mark in the memory, each, in milliseconds."""

POLL_INTERVAL_S: Final = 0.5
"""Interval of attempts while waiting for a lease, in seconds."""

RENEW_EVERY: Final = timedelta(hours=1)
"""Interval at which the expiry of the whole memory is renewed while its agent runs."""

_PROTECT_ERRORS: Final = (
    *UNANSWERED, StatementRejected, ConsistencyError, NotOpen, LeaseLost,
)  # fmt: skip
"""Errors that are counted and ignored once a checkpoint is committed in Postgres."""


@dataclass(frozen=True, slots=True)
class SessionFactory:
    """
    Makes sessions over shared stores.

    Attributes:
        leases, checkpoints: in Postgres.
        working, snapshots: in Valkey.
        recovery: recovers memories.
        delivery: delivers results to their stores.
        clock: for the times of snapshots.
    """

    leases: Leases
    checkpoints: Checkpoints
    working: WorkingStore
    snapshots: SnapshotStore
    recovery: Recovery
    delivery: ResultDelivery
    clock: Clock

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
        Assemble the components over a process's connections.

        Args:
            working, durable: the two Valkeys.
            cache: the shared cache, if there is one.
            recovery: in place of the three tiers with their alert.
        """
        memories, snapshots = WorkingStore(working, clock), SnapshotStore(durable, clock)
        checkpoints = Checkpoints(database, definitions, snapshots)
        delivery = ResultDelivery(database, definitions, clock, cache)
        return cls(
            Leases(database, definitions),
            checkpoints,
            memories,
            snapshots,
            recovery or Recovery(database, checkpoints, memories, snapshots, definitions, results=delivery),
            delivery,
            clock,
        )

    @asynccontextmanager
    async def begin(
        self, *, wait: Deadline | None = None, deadline: Deadline | None = None, **asked: Unpack[LeaseRequest]
    ) -> AsyncIterator[Session]:
        """
        Start or continue an agent; release the lease at the end.

        While the block runs, the lease and the memory's expiry are renewed. Completed subtasks are in Postgres,
        whatever ends the block; a process that is killed leaves a lease that expires in 30 s.

        Args:
            wait: until when to wait for another process's lease; by default, not at all.
            deadline: of acquiring and recovering, the wait included.

        Raises:
            LeaseHeld: another process runs the agent, and still did at the end of *wait*; retryable.
            NotResumable: no stored state is valid; an alert was raised and nothing was started.
            LeaseLost: another process has taken over; the block was cancelled at its next wait.
            BadInput, TransitionRefused: see :meth:`imem.checkpoints.leases.Leases.acquire`.
        """
        async with self.leased(wait=wait, deadline=deadline, **asked) as lease:
            session = await self.resumed(lease, deadline=deadline)
            async with session.renewed():
                yield session

    @asynccontextmanager
    async def leased(
        self, *, wait: Deadline | None = None, deadline: Deadline | None = None, **asked: Unpack[LeaseRequest]
    ) -> AsyncIterator[AgentLease]:
        """
        Acquire the lease of an agent, keep it while the block runs, and release it; :meth:`resumed` is the next step.

        Raises:
            LeaseHeld, LeaseLost, BadInput, TransitionRefused: as :meth:`begin`.
        """
        holder = f"session-{uuid4().hex}"
        # Another process may hold it: retried until *wait*.
        lease = await retry(
            lambda: self.leases.acquire(holder=holder, deadline=deadline or Deadline.after_ms(BUDGET_MS), **asked),
            deadline=wait or Deadline.after_ms(0),
            errors=LeaseHeld,
            first_pause_s=POLL_INTERVAL_S,
            longest_pause_s=POLL_INTERVAL_S,
        )
        try:
            async with self.leases.keep_alive(lease):
                yield lease
        finally:
            with suppress(ImemError):
                await self.leases.release(lease, deadline=Deadline.after_ms(BUDGET_MS))

    async def resumed(self, lease: AgentLease, *, deadline: Deadline | None = None) -> Session:
        """
        Recover the agent that holds *lease*, and return its session; the caller keeps the lease alive.

        Raises:
            NotResumable: see :meth:`imem.checkpoints.recovery.Recovery.recover`.
        """
        recovered = await self.recovery.recover(lease, deadline=deadline)
        return Session(self, lease, recovered)


@checks_arguments
class Session:
    """
    A running agent; made by :meth:`SessionFactory.begin`.

    Attributes:
        lease: its lease; every write has its epoch.
        memory: its working memory.
        recovered: the result of its recovery.
        checkpoint: the latest one.
    """

    def __init__(self, session_factory: SessionFactory, lease: AgentLease, recovered: RecoveryResult) -> None:
        self._factory = session_factory
        self.lease = lease
        # Results delivered to the cache, which may evict them: the checkpoint stores them as well. Deliveries of an
        # attempt count for the next one under the same lease.
        self._cached: dict[str, Any] = {}
        self._take(recovered)
        self._calls = PaidCalls(CallOwner(recovered.checkpoint.identity, recovered.checkpoint.run))

    def _take(self, recovered: RecoveryResult) -> None:
        self.recovered = recovered
        self.checkpoint = recovered.checkpoint
        self.memory = WorkingMemory(self._factory.working, recovered.meta)
        self._lost = recovered.lost
        # A migrated checkpoint: the next save uses its lists.
        self._base: Checkpoint | None = recovered.checkpoint if recovered.migrated else None

    async def rollback_to_checkpoint(self, *, deadline: Deadline | None = None) -> None:
        """
        Roll back to the newest checkpoint, under the same lease, to retry the current subtask.

        The subtask's writes are removed, unless it is reentrant. Handles of the memory from before still work: their
        users must have ended.

        Raises:
            LeaseLost: another process has taken over meanwhile.
            NotResumable: see :meth:`imem.checkpoints.recovery.Recovery.recover`.
        """
        await self._factory.leases.renew(self.lease, deadline=deadline or Deadline.after_ms(BUDGET_MS))
        self._take(await self._factory.recovery.recover(self.lease, deadline=deadline))

    @property
    def pending(self) -> tuple[str, ...]:
        """The remaining subtasks, in order; those whose results are missing come first."""
        return (*self._lost, *self.checkpoint.pending_subtasks)

    @property
    def lost(self) -> tuple[str, ...]:
        """The remaining subtasks that were completed before, and whose results are missing."""
        return self._lost

    @property
    def current(self) -> str | None:
        """The next subtask; None when all are completed."""
        return self.pending[0] if self.pending else None

    async def stop_reason(self, *, deadline: Deadline | None = None) -> str | None:
        """
        Return why the agent must stop, such as a pause of its analysis; None where it may continue.

        To be called between two subtasks. An agent with a reason to stop leaves the block of its session; after 60 s it
        is fenced off.
        """
        due = deadline or Deadline.after_ms(BUDGET_MS)
        return await self._factory.leases.stop_reason(self.lease.analysis_id, deadline=due)

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
        Deliver the result of *subtask*, before it is completed. Idempotent; a rerun replaces it.

        Each store in the subtask's definition needs its result, or ``NO_RESULT``
        (:data:`imem.checkpoints.result_delivery.NO_RESULT`); other stores are optional. A store without an argument is
        not changed, so that several calls add up.

        Args:
            postgres: the result itself, as JSON; stored in the row.
            graph: ``Kind/key`` of a record in the journal, such as ``Finding/f-17``.
            cache: the result itself, as JSON; stored in the shared cache for 30 days, and by the checkpoint of
                :meth:`complete`, under the subtask's name in ``interim_results``.
            message: the id of an event in the journal, such as a receipt's ``event_id``.

        Raises:
            BadInput: no store is given, a result is invalid or not in the journal, or the subtask is not
                :attr:`current`; names the field.
            StaleEpoch: another process has taken over; nothing was written.
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
        Return the answer of a paid call: made the first time, and stored from then on.

        The answer stays in working memory whatever happens to the subtask: a retry, a crash of its process, a pause
        during which the memory's server is lost. Concurrent calls under one key make one call.

        What may cost a second call: a process that dies before the answer came; and, unless it is *durable*, the loss
        of the working memory together with this process.

        Args:
            key: names the call and everything that its answer depends on; 1 to 194 characters.
            call: makes it; its answer is text, bytes, or a JSON value, and is returned in that form.
            durable: store the answer on the durable server, too, until a checkpoint holds it: for expensive calls.
            deadline: of reading and of storing, each; not of the call.

        Raises:
            UnsupportedType, TooLarge: the answer cannot be stored.
            ValkeyUnavailable, BudgetExceeded, OutcomeUnknown, NotOpen, StaleEpoch: as of every write. This session
                keeps the answer, so that another attempt does not pay again.
        """
        store = self._factory.snapshots if durable else None
        answer: T = await self._calls.memoize(self.memory, key, call, durable=store, deadline=deadline)
        return answer

    async def forget(self, key: str, *, deadline: Deadline | None = None) -> bool:
        """Remove the answer of a call, so that the next one is made; return whether there was one."""
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
        Save that *subtask* is completed, with the whole working memory; return the checkpoint.

        Once it returns, no crash repeats the subtask. Idempotent. Every store in the subtask's definition must have its
        result, or ``NO_RESULT``, by :meth:`deliver`.

        Args:
            subtask: the one in :attr:`current`.
            interim_results: findings that are not in the graph yet; JSON.

        Raises:
            NotDelivered: a store lacks a delivery in this session; nothing was saved.
            BadInput: it is not the next subtask, or *interim_results* has its name, where its cached result is stored.
            StaleEpoch: another process has taken over; nothing was saved.
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
        saved = await self._save(kind, subtask, due, interim_results=interim, agent_config=agent_config)
        self._lost = tuple(name for name in self._lost if name != subtask)
        self._cached.pop(subtask, None)
        return saved

    def _kind_of(self, subtask: str) -> CheckpointKind:
        """Return the kind of a checkpoint that completes *subtask*: first, or again after its result was lost."""
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
        Save why the current subtask failed, before the agent stops; return the checkpoint.

        Raises: as :meth:`complete`.
        """
        if says_nothing(reason):
            raise BadInput("reason", "must say why.")
        failure = SubtaskFailure(reason=reason, details=details, retry_count=retry_count)
        return await self._save(
            CheckpointKind.FAILURE,
            # A subtask that is run again is completed in the row: only the reason names it.
            self.checkpoint.current_subtask,
            deadline,
            failure=failure,
        )

    async def _save(
        self,
        kind: CheckpointKind,
        subtask: str | None,
        deadline: Deadline | None,
        *,
        interim_results: Mapping[str, Any] | None = None,
        agent_config: Mapping[str, Any] | None = None,
        failure: SubtaskFailure | None = None,
    ) -> Checkpoint:
        """Save a checkpoint and protect it; *interim_results* update the earlier ones."""
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
            interim_results={**self.checkpoint.interim_results, **(interim_results or {})},
            agent_config=self.checkpoint.agent_config if agent_config is None else agent_config,
            failure=failure,
            base=self._base,
            deadline=due,
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
        """Write the snapshot, and mark in the memory that it has this row's content."""
        snapshot = snapshot_of(saved, taken_at=self._factory.clock.now(), protects_until=meta.expires_at)
        # Concurrently: two unreachable servers cost one timeout, and answering ones one round trip.
        stored = self._factory.snapshots.put(snapshot, document, deadline=Deadline.after_ms(PROTECT_MS))
        marked = self._factory.working.mark(
            self.lease.agent_id,
            self.lease.epoch,
            seq=saved.seq,
            digest=snapshot.digest,
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
        self._factory.checkpoints.errors.count(SAVE_ERRORS, error, store=store)
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
                # The memory lives for a day yet, and the next attempt follows. A takeover is found by the lease's own
                # heartbeat within seconds.
                log.warning("memory.not_renewed", agent_id=self.lease.agent_id, reason=str(error))
            heed_cancellation()

    async def renew(self, *, deadline: Deadline | None = None) -> None:
        """Renew the expiry of the memory, and set its snapshot's to the same."""
        due = deadline or Deadline.after_ms(BUDGET_MS)
        until = await self._factory.working.heartbeat(self.lease.agent_id, self.lease.epoch, deadline=due)
        await self._factory.snapshots.expire(self.lease.agent_id, until, deadline=due)
