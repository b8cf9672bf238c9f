"""
Recovery of an agent's working memory in three tiers: exactly the newest checkpoint's state, or no start and an alert.

The lease is acquired first, so that an earlier holder can no longer write. Then each tier is tried in turn; the first
that is verified is used:

1. the live working memory, if it is that of the newest checkpoint, whole, and either equal to its snapshot or
   written by a reentrant subtask;
2. the snapshot on the durable server, if it is of the newest checkpoint;
3. the newest checkpoint's own row in Postgres.

A tier is verified by digest, against the newest row in Postgres, which is authoritative. An older state is never
resumed, and neither is an empty one, except by an agent without a completed subtask.

A checkpoint saved in the middle of a subtask (a failure, or a pause that could not wait) also holds that subtask's
writes. If the subtask is not reentrant, the memory is rolled back to the end of the subtask before.

The answers of this run's paid calls are kept in any case (:mod:`imem.checkpoints.paid_calls`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final
from uuid import UUID, uuid5

import structlog

from imem.alerts.store import AGENT_FAILURE, AlertContext, NewAlert, Severity, raise_alert
from imem.cache.working.document import Contents, MemoryEntry, contents_of, digest, same
from imem.cache.working.snapshots import SnapshotStore
from imem.cache.working.state import MemoryIdentity, MemoryState, Meta
from imem.cache.working.store import WorkingStore
from imem.checkpoints.metrics import CONSISTENCY_ERRORS, RESTORE_LATENCY, TIER_USED
from imem.checkpoints.model import AgentLease, Checkpoint, CheckpointKind
from imem.checkpoints.orchestration.definitions import Definitions
from imem.checkpoints.paid_calls import CallOwner, calls_in, joined, live_calls, without_calls
from imem.checkpoints.result_delivery import ResultDelivery
from imem.checkpoints.store import Checkpoints
from imem.checkpoints.versions import MIGRATIONS, CheckpointMigrations, resumable
from imem.journal.deadline import Deadline
from imem.journal.errors import (
    BudgetExceeded,
    ConsistencyError,
    NotOpen,
    NotResumable,
    OutcomeUnknown,
    StatementRejected,
    ValkeyUnavailable,
)
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.database import Database

log = structlog.get_logger()

RECOVERY_TIMEOUT_MS: Final = 30_000
"""Default timeout of a recovery, in milliseconds."""

SECONDARY_SHARE: Final = 0.4
"""Share of the remaining time that the second tier may take: the third must be tried as well."""


_UNRECOVERABLE: Final = UUID("6f1c9a52-58f3-5f0c-9c1f-2f4f4e4cb0a1")
"""Namespace of the ids of alerts: the same checkpoint always gives the same one."""


class RecoveryTier(StrEnum):
    """The store that served a recovery; the names are used by metrics and answers."""

    CLEAN = "clean_start"
    """Nothing was completed yet: the memory begins empty."""
    LIVE = "l1_existing"
    SECONDARY = "redis_secondary"
    POSTGRES = "postgresql_checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryResult:
    """
    The result of a recovery.

    Attributes:
        tier: the store that served.
        checkpoint: the newest one, migrated to the present program; its ``current_subtask`` comes next.
        meta: state of the working memory.
        dirty: whether it holds writes after the checkpoint, of a reentrant subtask.
        rolled_back: whether writes of a subtask that is not reentrant were left out.
        migrated: whether *checkpoint* was saved by an earlier version of the program.
        lost: completed subtasks whose results are missing, in order; they are run again before all others.
        refused: why each earlier tier was rejected.
    """

    tier: RecoveryTier
    checkpoint: Checkpoint
    meta: Meta
    dirty: bool = False
    rolled_back: bool = False
    migrated: bool = False
    lost: tuple[str, ...] = ()
    refused: Mapping[RecoveryTier, str]

    @property
    def seq(self) -> int:
        """Number of the checkpoint."""
        return self.checkpoint.seq

    @property
    def verified(self) -> bool:
        """Whether a digest verified all of it: not for an empty memory, or with later writes."""
        return self.tier is not RecoveryTier.CLEAN and not self.dirty


class Unrecoverable(NotResumable):
    """
    No tier holds the state of the newest checkpoint, or its version cannot be migrated.

    Attributes:
        checkpoint: the newest one.
        reasons: why each tier was rejected.
    """

    def __init__(self, message: str, *, mend: str, checkpoint: Checkpoint, reasons: Mapping[RecoveryTier, str]) -> None:
        super().__init__(message, mend=mend)
        self.checkpoint = checkpoint
        self.reasons = reasons

    def alert(self) -> NewAlert:
        """Return its alert: one for each checkpoint."""
        why = "; ".join(f"{tier.value}: {reason}" for tier, reason in self.reasons.items())
        situation = AlertContext(
            checkpoint_id=self.checkpoint.id,
            progress_pct=float(self.checkpoint.progress_pct),
            completed=self.checkpoint.completed_subtasks,
            pending=self.checkpoint.pending_subtasks,
            reason=f"Its knowledge cannot be restored from any tier: {why}",
            agent=self.checkpoint.agent_type,
        )
        return NewAlert(
            alert_id=uuid5(_UNRECOVERABLE, str(self.checkpoint.id)),
            kind=AGENT_FAILURE,
            severity=Severity.CRITICAL,
            subject=self.checkpoint.subject_id,
            analysis_id=self.checkpoint.analysis_id,
            payload=situation.to_payload(),
        )


class _TierRejected(Exception):
    """A tier is rejected; the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecoveryTarget:
    """
    The state to recover.

    Attributes:
        latest: the newest checkpoint, with which tiers are compared.
        of: the checkpoint of the memory; an earlier one where a subtask's writes are left out.
        present: *latest*, migrated to the present program.
        again: completed subtasks that have to be run again.
    """

    lease: AgentLease
    identity: MemoryIdentity
    latest: Checkpoint
    of: Checkpoint
    present: Checkpoint
    again: tuple[str, ...]

    @property
    def rolled_back(self) -> bool:
        return self.of is not self.latest

    @property
    def migrated(self) -> bool:
        return self.present is not self.latest


class Recovery:
    """
    Recovers an agent's working memory.

    Args:
        database: where the alert of an unrecoverable agent is raised.
        checkpoints: Postgres, which is authoritative.
        working: the working memories.
        snapshots: the copies of newest snapshots.
        definitions: which subtasks are reentrant.
        results: finds completed subtasks that have to be run again; without it, there are none.
    """

    def __init__(
        self,
        database: Database,
        checkpoints: Checkpoints,
        working: WorkingStore,
        snapshots: SnapshotStore,
        definitions: Definitions,
        *,
        results: ResultDelivery | None = None,
        migrations: CheckpointMigrations = MIGRATIONS,
    ) -> None:
        self._database = database
        self._checkpoints = checkpoints
        self._working = working
        self._snapshots = snapshots
        self._definitions = definitions
        self._results = results
        self._migrations = migrations

    async def recover(
        self, lease: AgentLease, *, deadline: Deadline | None = None, conn: Connection | None = None
    ) -> RecoveryResult:
        """
        Recover the working memory of the agent that holds *lease*.

        A crash at any point leaves a memory that the next recovery verifies or replaces.

        Args:
            conn: reads Postgres on this connection. No alert is raised then for :class:`Unrecoverable`: the owner of
                the transaction calls :meth:`raise_alert`.

        Raises:
            Unrecoverable: no tier holds the state of the newest checkpoint, or its version cannot be migrated. One
                alert was raised; nothing was started.
            StaleEpoch: another process has taken over meanwhile.
            PostgresUnavailable, ValkeyUnavailable: the newest checkpoint or the working server cannot be reached;
                retryable; nothing was started.
        """
        deadline = deadline or Deadline.after_ms(RECOVERY_TIMEOUT_MS)
        try:
            return await self._recovered(lease, deadline, conn)
        except Unrecoverable as nothing:
            if conn is None:
                await self.raise_alert(nothing, deadline=deadline)
            raise

    async def raise_alert(self, nothing: Unrecoverable, *, deadline: Deadline, conn: Connection | None = None) -> None:
        """Raise the one alert about an unrecoverable agent; with *conn*, as the last statement of its transaction."""
        if conn is not None:
            await raise_alert(conn, nothing.alert())
            return
        async with self._database.transaction(deadline) as own:
            await raise_alert(own, nothing.alert())

    async def _recovered(self, lease: AgentLease, deadline: Deadline, conn: Connection | None) -> RecoveryResult:
        begun = time.monotonic()
        target = await self._wanted(lease, deadline, conn)
        refused: dict[RecoveryTier, str] = {}
        if target.of.clean:
            served, meta, dirty = RecoveryTier.CLEAN, await self._begun(target, deadline), False
        else:
            served, meta, dirty = await self._from_tiers(target, refused, deadline, conn)
        recovered = RecoveryResult(
            tier=served,
            checkpoint=target.present,
            meta=meta,
            dirty=dirty,
            rolled_back=target.rolled_back,
            migrated=target.migrated,
            lost=target.again,
            refused=refused,
        )
        tier = recovered.tier.value
        TIER_USED.labels(tier=tier).inc()
        RESTORE_LATENCY.labels(tier=tier).observe((time.monotonic() - begun) * 1000.0)
        log.info(
            "recovery.done", agent_id=lease.agent_id, analysis_id=lease.analysis_id, tier=recovered.tier.value,
            seq=recovered.seq, keys=recovered.meta.keys, rolled_back=recovered.rolled_back,
            refused={tier.value: why for tier, why in recovered.refused.items()},
        )  # fmt: skip
        return recovered

    async def _wanted(self, lease: AgentLease, deadline: Deadline, conn: Connection | None) -> _RecoveryTarget:
        latest = await self._checkpoints.load(lease.analysis_id, lease.agent_type, deadline=deadline, conn=conn)
        if latest is None:
            raise NotResumable(
                f"{lease.agent_type} has no checkpoint in the analysis {lease.analysis_id}.",
                mend="Acquiring its lease writes the first one.",
            )
        try:
            present = resumable(latest, self._definitions, self._migrations)
        except NotResumable as error:
            raise Unrecoverable(
                error.message, mend=error.mend, checkpoint=latest, reasons={RecoveryTier.POSTGRES: error.message}
            ) from error
        again: tuple[str, ...] = ()
        # With *conn* the agent starts later, and checks its results then.
        if self._results is not None and conn is None:
            again = await self._results.lost_results(present, lease.epoch, deadline=deadline)
        return _RecoveryTarget(
            lease=lease,
            identity=latest.identity,
            latest=latest,
            of=await self._boundary(latest, again, deadline, conn),
            present=present,
            again=again,
        )

    def _reentrant(self, checkpoint: Checkpoint, again: tuple[str, ...]) -> bool:
        """Whether the next subtask is reentrant."""
        names = _next(checkpoint, again)
        # All subtasks that may have written since: one that is run again, or the current one.
        return bool(names) and all(self._definitions.reentrant(checkpoint.agent_type, name) for name in names)

    async def _boundary(
        self, latest: Checkpoint, again: tuple[str, ...], deadline: Deadline, conn: Connection | None
    ) -> Checkpoint:
        """Return *latest*, or the checkpoint before it whose memory has no writes of an unfinished subtask."""
        whole = latest.kind in {CheckpointKind.START, CheckpointKind.SUBTASK, CheckpointKind.RERUN} or not _next(
            latest, again
        )
        if whole or self._reentrant(latest, again):
            return latest
        before = await self._checkpoints.boundary(latest, deadline=deadline, conn=conn)
        if before is None or before.working_memory_hash == latest.working_memory_hash or _adds_calls(before, latest):
            return latest
        return before

    async def _from_tiers(
        self, target: _RecoveryTarget, refused: dict[RecoveryTier, str], deadline: Deadline, conn: Connection | None
    ) -> tuple[RecoveryTier, Meta, bool]:
        """Return the first tier that is verified, and its memory; note in *refused* why earlier ones are not."""
        postgres = partial(self._postgres, conn=conn)
        tiers = (
            (RecoveryTier.LIVE, self._live),
            (RecoveryTier.SECONDARY, self._secondary),
            (RecoveryTier.POSTGRES, postgres),
        )
        for tier, attempt in tiers:
            try:
                meta, dirty = await attempt(target, deadline)
            except _TierRejected as reason:
                refused[tier] = str(reason)
            except (ConsistencyError, StatementRejected) as error:
                # A server rejects a script on a key of another type: another program wrote it. A rejection by Postgres
                # or the working server does not show that the state is lost.
                if tier is RecoveryTier.POSTGRES and isinstance(error, StatementRejected):
                    raise
                refused[tier] = error.message
                self._checkpoints.errors.count(CONSISTENCY_ERRORS, error, store=tier.value)
            else:
                return tier, meta, dirty
        why = "; ".join(f"{tier.value}: {reason.rstrip('.')}" for tier, reason in refused.items())
        whose = f"{target.lease.agent_id} is what it was at checkpoint {target.latest.seq}"
        raise Unrecoverable(
            f"No stored state of {whose} can be used: {why}.",
            mend="Nothing was started, and an alert was raised.",
            checkpoint=target.latest,
            reasons=refused,
        )

    async def _live(self, target: _RecoveryTarget, deadline: Deadline) -> tuple[Meta, bool]:
        """Verify the working memory, fenced by the new epoch."""
        agent_id, latest = target.lease.agent_id, target.latest
        _refuse_what_is_left_out(target)
        _refuse_another(target, await self._working.meta(agent_id, deadline=deadline))
        try:
            await self._working.open(target.identity, target.lease.epoch, deadline=deadline)
            meta, contents = await self._working.read(agent_id, epoch=target.lease.epoch, deadline=deadline)
        except NotOpen as error:
            raise _TierRejected(error.message) from error
        found = digest(contents)
        if found == meta.digest == latest.working_memory_hash:
            return meta, False
        if meta.digest != latest.working_memory_hash:
            raise ConsistencyError("its snapshot is not that of the newest checkpoint")
        if meta.clean:
            raise ConsistencyError("it does not match its digest, though nobody wrote to it")
        if not self._reentrant(latest, target.again):
            names = " or ".join(_next(latest, target.again)) or "a program that had completed"
            raise _TierRejected(f"it holds writes of {names}, which may not be entered twice")
        return meta, True

    async def _secondary(self, target: _RecoveryTarget, deadline: Deadline) -> tuple[Meta, bool]:
        _refuse_what_is_left_out(target)
        try:
            found = await self._snapshots.get(
                target.lease.agent_id, deadline=deadline.within_ms(deadline.left_ms() * SECONDARY_SHARE)
            )
        except (ValkeyUnavailable, BudgetExceeded, OutcomeUnknown) as error:
            raise _TierRejected(error.message) from error
        if found is None:
            raise _TierRejected("there is no snapshot")
        meta, document = found
        if meta.identity != target.identity:
            raise _TierRejected("the snapshot is of another analysis or agent type")
        if meta.seq != target.latest.seq:
            raise _TierRejected(f"the snapshot is of checkpoint {meta.seq}, not {target.latest.seq}")
        contents, its_digest = _proven(document, meta.digest, target.latest.working_memory_hash)
        return await self._restored(target, contents, its_digest, deadline)

    async def _postgres(
        self, target: _RecoveryTarget, deadline: Deadline, *, conn: Connection | None
    ) -> tuple[Meta, bool]:
        row = await self._checkpoints.get(target.of.id, deadline=deadline, conn=conn)
        if row is None:
            raise _TierRejected("its row is gone")
        try:
            contents, its_digest = _proven(row.l1_snapshot, row.l1_snapshot_hash, row.working_memory_hash)
        except ConsistencyError:
            contents, its_digest = _proven(row.working_memory, row.working_memory_hash, row.working_memory_hash)
        if target.migrated:
            contents = contents_of(resumable(row, self._definitions, self._migrations).working_memory)
            its_digest = digest(contents)
        return await self._restored(target, contents, its_digest, deadline)

    async def _begun(self, target: _RecoveryTarget, deadline: Deadline) -> Meta:
        """Start with an empty memory and the answers of paid calls."""
        calls = await self._calls(target, {}, deadline)
        if calls:
            meta, _ = await self._restored(target, {}, digest({}), deadline)
            return meta
        return await self._working.open(target.identity, target.lease.epoch, replace=True, deadline=deadline)

    async def _calls(self, target: _RecoveryTarget, base: Contents, deadline: Deadline) -> dict[bytes, MemoryEntry]:
        """
        Return the answers of paid calls to restore together with *base*.

        They are in the live memory, and in the newest checkpoint where the rest of it is left out.
        """
        owner, latest, calls = CallOwner(target.identity, target.latest.run), target.latest, {}
        if target.rolled_back:
            with suppress(ConsistencyError):
                calls = calls_in(latest.contents(), owner)
        live = await live_calls(
            self._working, owner, target.lease.epoch, latest.seq, {**base, **calls}, deadline=deadline
        )
        return {**calls, **live}

    async def _restored(
        self, target: _RecoveryTarget, contents: Contents, its_digest: str, deadline: Deadline
    ) -> tuple[Meta, bool]:
        calls = await self._calls(target, contents, deadline)
        whole = joined(contents, calls)
        if calls:
            log.info("recovery.calls_kept", agent_id=target.lease.agent_id, calls=len(calls))
        meta = await self._working.restore(
            target.identity,
            whole,
            digest(whole),
            target.lease.epoch,
            target.latest.seq,
            marked=its_digest,
            # Whatever is there belongs to an earlier holder.
            replace=True,
            deadline=deadline,
        )
        return meta, False


def _next(checkpoint: Checkpoint, again: tuple[str, ...]) -> tuple[str, ...]:
    """Return the subtasks that may be running after *checkpoint*: those run again, and the next pending one."""
    return again if checkpoint.current_subtask is None else (*again, checkpoint.current_subtask)


def _refuse_what_is_left_out(target: _RecoveryTarget) -> None:
    """Reject a tier that only holds the newest checkpoint's memory, where another one is wanted."""
    if target.rolled_back:
        raise _TierRejected("it holds writes of a subtask that may not be entered twice")
    if target.migrated:
        raise _TierRejected("it is of an earlier version")


def _refuse_another(target: _RecoveryTarget, meta: Meta | None) -> None:
    """Reject a working memory that is not that of the newest checkpoint."""
    if meta is None:
        raise _TierRejected("it is gone")
    if meta.identity != target.identity:
        raise _TierRejected("it is of another analysis or agent type")
    if meta.state is not MemoryState.OPEN:
        raise _TierRejected("a restore into it was never finished")
    if meta.checkpoint_seq != target.latest.seq:
        raise _TierRejected(f"it follows checkpoint {meta.checkpoint_seq}, not {target.latest.seq}")


def _adds_calls(before: Checkpoint, latest: Checkpoint) -> bool:
    """Whether *latest* adds nothing but answers of paid calls to *before*."""
    owner = CallOwner(latest.identity, latest.run)
    try:
        one, other = (without_calls(contents_of(found.working_memory), owner) for found in (before, latest))
    except ConsistencyError:
        return False
    return same(one, other)


def _proven(document: Any, stated: str | None, expected: str | None) -> tuple[Contents, str]:
    """
    Return the contents of *document*, and their digest, if it matches both the stored and the expected one.

    Raises:
        ConsistencyError: it does not match.
    """
    if stated is None:
        raise ConsistencyError("it has no digest")
    contents = contents_of(document)
    found = digest(contents)
    if found != stated or (expected is not None and found != expected):
        raise ConsistencyError("it does not match its digest")
    return contents, found
