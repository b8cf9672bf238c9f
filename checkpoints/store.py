"""
Execution checkpoints: saved after every subtask, before a shutdown on failure, and on a pause.

Postgres is the commit point: a checkpoint counts when its row is committed, under the newest epoch of the agent's lease
and with the next ``seq``. The copy in Valkey is written afterwards, saves a read of the whole row, and is believed only
where Postgres says that it is the latest; a Valkey that is away costs time and is counted.

What a crash leaves: before the commit, the state after the subtask before; afterwards the new one, whether or not the
copy was written. A save whose outcome is unknown may be repeated as it was: it returns the row that is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any, Final, Protocol
from uuid import UUID

from imem.cache.working.snapshots import CheckpointCopy
from imem.checkpoints.incidents.error_watch import ErrorWatch
from imem.checkpoints.metrics import METRICS, LatencyTimer, Metrics
from imem.checkpoints.model import (
    LONGEST_ID,
    AgentLease,
    AnalysisStatus,
    Checkpoint,
    CheckpointKind,
    CheckpointSummary,
    SubtaskFailure,
    checked_text,
)
from imem.checkpoints.orchestration.definitions import Definitions
from imem.checkpoints.save import Save
from imem.checkpoints.statements import call, identity_of, look
from imem.journal.deadline import Deadline
from imem.journal.errors import (
    BudgetExceeded,
    ConsistencyError,
    ImemError,
    OutcomeUnknown,
    StatementRejected,
    StoreUnavailable,
)
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.database import Database

COPY_BUDGET_MS: Final = 250.0
"""How long a save or a load waits for the copy at most, in milliseconds: it is a convenience, not what decides."""

LONGEST_LIST: Final = 1000
"""Checkpoints that one listing returns at most."""

_COPY_ERRORS: Final = (StoreUnavailable, BudgetExceeded, OutcomeUnknown, StatementRejected, ConsistencyError)
"""What is counted where a copy is concerned, and not raised."""


class Copies(Protocol):
    """Copies of the latest checkpoints: :class:`imem.cache.working.snapshots.SnapshotStore` on the durable Valkey."""

    async def put_checkpoint(
        self, analysis_id: str, agent_type: str, *, epoch: int, seq: int, body: bytes, deadline: Deadline
    ) -> bool:
        """Keep a copy, but never over one with a higher (epoch, seq)."""

    async def get_checkpoint(self, analysis_id: str, agent_type: str, *, deadline: Deadline) -> CheckpointCopy | None:
        """Return the copy; None where there is none."""

    async def drop_checkpoint(self, analysis_id: str, agent_type: str, *, deadline: Deadline) -> bool:
        """Remove the copy; return whether there was one."""


class Checkpoints:
    """
    The checkpoints of all agents.

    Args:
        definitions: which agents there are, with their subtasks.
        copies: where copies are kept; none are without.
        metrics: where times and failures are counted.

    Attributes:
        errors: counts what goes wrong, and tells people.
    """

    def __init__(
        self,
        database: Database,
        definitions: Definitions,
        copies: Copies | None = None,
        *,
        metrics: Metrics = METRICS,
    ) -> None:
        self._database = database
        self._definitions = definitions
        self._copies = copies
        self._metrics = metrics
        self._to_postgres = metrics.save_latency.labels(store="postgres")
        self._to_durable = metrics.save_latency.labels(store="durable")
        self.errors = ErrorWatch(database)

    # Saving

    async def save(
        self,
        lease: AgentLease,
        *,
        kind: CheckpointKind,
        subtask: str | None = None,
        document: Mapping[str, Any] | None = None,
        digest: str | None = None,
        interim_results: Mapping[str, Any] | None = None,
        agent_config: Mapping[str, Any] | None = None,
        failure: SubtaskFailure | None = None,
        base: Checkpoint | None = None,
        deadline: Deadline,
        conn: Connection | None = None,
    ) -> Checkpoint:
        """
        Save a checkpoint and return it, with its id and ``seq``.

        Repeating the save that came last returns its row and writes nothing. A lease that ran out and that nobody took
        still saves. With *conn* the row is part of the transaction there; whoever commits it calls :meth:`copy` then.

        Args:
            kind: what for. A *start* begins another run, with nothing done; the first one is written with the lease.
            subtask: completed (``subtask``), or the one that failed (``failure``; None where all were completed):
                always the first pending one. Of a ``rerun``, one that was completed before.
            document, digest: the working memory's typed document and its digest; none for a start.
            interim_results: findings that are not in the graph yet, and deliverables that a cache may lose.
            failure: of a failure, why.
            base: the checkpoint that the run was resumed from, where it had to be migrated
                (:func:`imem.checkpoints.versions.resumable`): its lists count, rather than the stored ones.

        Raises:
            StaleEpoch: somebody else has taken over; neither store was changed.
            BadInput: something does not fit, such as another subtask than the first pending one; names the field.
            PostgresUnavailable, BudgetExceeded: nothing was saved, so that the subtask is not completed; retryable.
            OutcomeUnknown: the connection broke before the answer came; repeating the call is safe.
        """
        wish = Save(
            lease=lease,
            definition=self._definitions.of_type(lease.agent_type),
            kind=kind,
            subtask=subtask,
            document=document,
            digest=digest,
            interim_results=interim_results,
            agent_config=agent_config,
            failure=failure,
            base=base,
        )
        parameters = wish.parameters()
        try:
            with LatencyTimer(self._to_postgres):
                row = (await call(self._database, "save_checkpoint", parameters, deadline=deadline, conn=conn))[0]
        except ImemError as error:
            self.errors.count(self._metrics.save_errors, error, store="postgres")
            raise
        if row["status"] not in {"saved", "repeated"}:
            raise wish.refusal(row)
        saved = wish.saved(row, parameters)
        if conn is None:
            await self.copy(saved, deadline=deadline)
        return saved

    async def copy(self, checkpoint: Checkpoint, *, deadline: Deadline) -> bool:
        """
        Write the copy of a committed checkpoint; return whether it stands. A failure is counted, not raised.

        A copy of a later checkpoint stays.
        """
        if self._copies is None:
            return False
        try:
            with LatencyTimer(self._to_durable):
                return await self._copies.put_checkpoint(
                    checkpoint.analysis_id,
                    checkpoint.agent_type,
                    epoch=checkpoint.epoch,
                    seq=checkpoint.seq,
                    body=checkpoint.body(),
                    deadline=deadline.within_ms(COPY_BUDGET_MS),
                )
        except _COPY_ERRORS as error:
            self.errors.count(self._metrics.save_errors, error, store="durable")
            return False

    # Loading

    # With *conn*, Postgres is read on the connection there, and as its transaction sees it.

    async def load(
        self, analysis_id: str, agent_type: str, *, deadline: Deadline, conn: Connection | None = None
    ) -> Checkpoint | None:
        """
        Return the latest checkpoint of an agent, from the copy where it is the latest; None where there is none.

        Raises:
            PostgresUnavailable, BudgetExceeded: Postgres could not say which is the latest; a copy alone is never
                believed.
        """
        identity, began = identity_of(analysis_id, agent_type), perf_counter()
        rows = await look(self._database, "latest_checkpoint", identity, deadline=deadline, conn=conn)
        if not rows:
            return None
        found, tier = await self._copied(identity, rows[0], deadline), "redis_secondary"
        if found is None:
            found, tier = await self.get(rows[0]["id"], deadline=deadline, conn=conn), "postgresql_checkpoint"
        self._metrics.restore_latency.labels(tier=tier).observe((perf_counter() - began) * 1000.0)
        return found

    async def _copied(self, identity: Mapping[str, str], latest: Row, deadline: Deadline) -> Checkpoint | None:
        """Return the copy if it is of the *latest* checkpoint."""
        if self._copies is None:
            return None
        # At most half of what is left: the row itself has to be read where the copy is not to be had.
        left = deadline.within_ms(min(COPY_BUDGET_MS, deadline.left_ms() / 2))
        try:
            copy = await self._copies.get_checkpoint(**identity, deadline=left)
            if copy is None or copy.seq != latest["seq"]:
                return None
            found = Checkpoint.from_body(copy.body)
        except ConsistencyError as error:
            self.errors.count(self._metrics.consistency_errors, error, store="durable")
            return None
        except _COPY_ERRORS:
            return None
        # An id cannot be that of another row; what may have changed since it was copied is one mark.
        return replace(found, preserve=latest["preserve"]) if found.id == latest["id"] else None

    async def get(
        self, checkpoint_id: UUID, *, deadline: Deadline, conn: Connection | None = None
    ) -> Checkpoint | None:
        """Return one checkpoint, whole, from Postgres; None where there is none."""
        rows = await look(self._database, "checkpoint", {"id": checkpoint_id}, deadline=deadline, conn=conn)
        return Checkpoint.from_row(rows[0]) if rows else None

    async def boundary(
        self, checkpoint: Checkpoint, *, deadline: Deadline, conn: Connection | None = None
    ) -> Checkpoint | None:
        """Return the newest checkpoint before *checkpoint* at the end of a subtask, or at a beginning; None without."""
        parameters = {**identity_of(checkpoint.analysis_id, checkpoint.agent_type), "seq": checkpoint.seq}
        rows = await look(self._database, "boundary_before", parameters, deadline=deadline, conn=conn)
        return Checkpoint.from_row(rows[0]) if rows else None

    async def history(
        self,
        analysis_id: str,
        agent_type: str | None = None,
        *,
        limit: int = LONGEST_LIST,
        deadline: Deadline,
    ) -> list[CheckpointSummary]:
        """
        Return the checkpoints of an analysis, or of one agent in it, oldest first, without what agents then knew.

        Where there are more than *limit*, at most :data:`LONGEST_LIST`, they are the newest.
        """
        parameters = {
            "analysis_id": checked_text("analysis_id", analysis_id, LONGEST_ID),
            "agent_type": agent_type,
            "limit": max(1, min(limit, LONGEST_LIST)),
        }
        rows = await self._database.named("checkpoints_of", parameters, deadline=deadline)
        return [CheckpointSummary.from_row(row) for row in rows]

    async def latest(self, analysis_id: str, *, deadline: Deadline) -> dict[str, CheckpointSummary]:
        """Return where every agent that has begun in the analysis stands, by agent type."""
        parameters = {"analysis_id": checked_text("analysis_id", analysis_id, LONGEST_ID)}
        rows = await self._database.named("latest_of_analysis", parameters, deadline=deadline)
        return {row["agent_type"]: CheckpointSummary.from_row(row) for row in rows}

    async def analysis(self, analysis_id: str, *, deadline: Deadline) -> AnalysisStatus | None:
        """Return what is known about an analysis; None where no agent has begun in it."""
        parameters = {"analysis_id": checked_text("analysis_id", analysis_id, LONGEST_ID)}
        rows = await self._database.named("analysis", parameters, deadline=deadline)
        return AnalysisStatus.from_row(rows[0]) if rows else None

    async def preserve(self, checkpoint_id: UUID, *, preserve: bool = True, deadline: Deadline) -> bool:
        """Exempt a checkpoint from clean-up, or no longer; return whether there is such a one."""
        parameters = {"id": checkpoint_id, "preserve": preserve}
        return bool((await call(self._database, "preserve_checkpoint", parameters, deadline=deadline))[0]["found"])
