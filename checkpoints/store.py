"""
Execution checkpoints: saved after every subtask, before a shutdown on failure, and on a pause.

Postgres is the commit point: a checkpoint is valid when its row is committed, under the newest epoch of the agent's
lease and with the next ``seq``. The copy in Valkey is written afterwards; it saves reading the whole row, and is used
only where Postgres confirms that it is the latest. Errors of Valkey are counted.

A crash before the commit leaves the previous checkpoint; after it the new one, with or without the copy. A save whose
outcome is unknown may be repeated: it returns the row that is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any, Final
from uuid import UUID

from imem.cache.working.snapshots import SnapshotStore
from imem.checkpoints.incidents.error_watch import ErrorWatch
from imem.checkpoints.metrics import CONSISTENCY_ERRORS, RESTORE_LATENCY, SAVE_ERRORS, SAVE_LATENCY, latency_of
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
from imem.checkpoints.statements import call, identity_of
from imem.journal.deadline import Deadline
from imem.journal.errors import (
    UNANSWERED,
    ConsistencyError,
    ImemError,
    StatementRejected,
)
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.database import Database

COPY_BUDGET_MS: Final = 250.0
"""Longest wait of a save or a load for the copy, in milliseconds; the copy is never authoritative."""

LONGEST_LIST: Final = 1000
"""Checkpoints of one listing at most."""

_COPY_ERRORS: Final = (*UNANSWERED, StatementRejected, ConsistencyError)
"""Errors of a copy that are counted and not raised."""


class Checkpoints:
    """
    The checkpoints of all agents.

    Args:
        definitions: agents with their subtasks.
        copies: where copies are stored; None for no copies.

    Attributes:
        errors: counts errors and raises alerts.
    """

    def __init__(
        self,
        database: Database,
        definitions: Definitions,
        copies: SnapshotStore | None = None,
    ) -> None:
        self._database = database
        self._definitions = definitions
        self._copies = copies
        self._to_postgres = SAVE_LATENCY.labels(store="postgres")
        self._to_durable = SAVE_LATENCY.labels(store="durable")
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
        version: str | None = None,
        deadline: Deadline,
        conn: Connection | None = None,
    ) -> Checkpoint:
        """
        Save a checkpoint and return it, with its id and ``seq``.

        Repeating the last save returns its row and writes nothing. A lease that has expired without a successor still
        saves. With *conn* the row is part of its transaction; the caller calls :meth:`copy` after the commit.

        Args:
            kind: its reason. A *start* begins another run, with nothing completed; the first one is written with the
                lease.
            subtask: the completed one (``subtask``), or the failed one (``failure``; None where all were completed):
                always the first pending one. For a ``rerun``, one that was completed before.
            document, digest: the working memory's typed document and its digest; None for a start.
            interim_results: findings that are not in the graph yet, and deliverables that a cache may evict.
            failure: the reason, for a failure.
            base: the checkpoint from which the run was resumed, where it was migrated
                (:func:`imem.checkpoints.versions.resumable`): its lists are used instead of the stored ones.
            version: of the agent's program, for a pause, which must not depend on its definition.

        Raises:
            StaleEpoch: another process has taken over; neither store was changed.
            BadInput: an argument is invalid, such as another subtask than the first pending one; names the field.
            PostgresUnavailable, BudgetExceeded: nothing was saved, so that the subtask is not completed; retryable.
            OutcomeUnknown: the connection broke before the answer came; repeating the call is safe.
        """
        names: tuple[str, ...] = ()
        if version is None:
            definition = self._definitions.of_type(lease.agent_type)
            version, names = definition.version, definition.names
            if subtask is not None:
                definition.subtask(subtask)
        wish = Save(
            lease=lease,
            version=version,
            names=names,
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
            with latency_of(self._to_postgres):
                row = (await call(self._database, "save_checkpoint", parameters, deadline=deadline, conn=conn))[0]
        except ImemError as error:
            self.errors.count(SAVE_ERRORS, error, store="postgres")
            raise
        if row["status"] not in {"saved", "repeated"}:
            raise wish.refusal(row)
        saved = wish.saved(row, parameters)
        if conn is None:
            await self.copy(saved, deadline=deadline)
        return saved

    async def copy(self, checkpoint: Checkpoint, *, deadline: Deadline) -> bool:
        """
        Write the copy of a committed checkpoint; return whether it was stored. Errors are counted, not raised.

        The copy of a later checkpoint is kept.
        """
        if self._copies is None:
            return False
        try:
            with latency_of(self._to_durable):
                return await self._copies.put_checkpoint(
                    checkpoint.analysis_id,
                    checkpoint.agent_type,
                    epoch=checkpoint.epoch,
                    seq=checkpoint.seq,
                    body=checkpoint.body(),
                    deadline=deadline.within_ms(COPY_BUDGET_MS),
                )
        except _COPY_ERRORS as error:
            self.errors.count(SAVE_ERRORS, error, store="durable")
            return False

    # Loading

    # With *conn*, Postgres is read on that connection, in its transaction.

    async def load(
        self, analysis_id: str, agent_type: str, *, deadline: Deadline, conn: Connection | None = None
    ) -> Checkpoint | None:
        """
        Return the latest checkpoint of an agent, from the copy where that is the latest; None where there is none.

        Raises:
            PostgresUnavailable, BudgetExceeded: Postgres could not be read; the copy alone is never used.
        """
        identity, began = identity_of(analysis_id, agent_type), perf_counter()
        rows = await call(self._database, "latest_checkpoint", identity, writes=False, deadline=deadline, conn=conn)
        if not rows:
            return None
        found, tier = await self._copied(identity, rows[0], deadline), "redis_secondary"
        if found is None:
            found, tier = await self.get(rows[0]["id"], deadline=deadline, conn=conn), "postgresql_checkpoint"
        RESTORE_LATENCY.labels(tier=tier).observe((perf_counter() - began) * 1000.0)
        return found

    async def _copied(self, identity: Mapping[str, str], latest: Row, deadline: Deadline) -> Checkpoint | None:
        """Return the copy if it is of the *latest* checkpoint."""
        if self._copies is None:
            return None
        # At most half of what is left: without the copy the row itself has to be read.
        left = deadline.within_ms(min(COPY_BUDGET_MS, deadline.left_ms() / 2))
        try:
            copy = await self._copies.get_checkpoint(**identity, deadline=left)
            if copy is None or copy.seq != latest["seq"]:
                return None
            found = Checkpoint.from_body(copy.body)
        except ConsistencyError as error:
            self.errors.count(CONSISTENCY_ERRORS, error, store="durable")
            return None
        except _COPY_ERRORS:
            return None
        # Rows are immutable, except for ``preserve``.
        return replace(found, preserve=latest["preserve"]) if found.id == latest["id"] else None

    async def get(
        self, checkpoint_id: UUID, *, deadline: Deadline, conn: Connection | None = None
    ) -> Checkpoint | None:
        """Return one checkpoint, whole, from Postgres; None where there is none."""
        asked = {"id": checkpoint_id}
        rows = await call(self._database, "checkpoint", asked, writes=False, deadline=deadline, conn=conn)
        return Checkpoint.from_row(rows[0]) if rows else None

    async def boundary(
        self, checkpoint: Checkpoint, *, deadline: Deadline, conn: Connection | None = None
    ) -> Checkpoint | None:
        """Return the newest checkpoint before *checkpoint* that ends a subtask or starts a run; None without one."""
        parameters = {**identity_of(checkpoint.analysis_id, checkpoint.agent_type), "seq": checkpoint.seq}
        rows = await call(self._database, "boundary_before", parameters, writes=False, deadline=deadline, conn=conn)
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
        Return the checkpoints of an analysis, or of one agent in it, oldest first, without documents.

        Of more than *limit*, at most :data:`LONGEST_LIST`, the newest are returned.
        """
        parameters = {
            "analysis_id": checked_text("analysis_id", analysis_id, LONGEST_ID),
            "agent_type": agent_type,
            "limit": max(1, min(limit, LONGEST_LIST)),
        }
        rows = await self._database.named("checkpoints_of", parameters, deadline=deadline)
        return [CheckpointSummary.from_row(row) for row in rows]

    async def latest(self, analysis_id: str, *, deadline: Deadline) -> dict[str, CheckpointSummary]:
        """Return the latest checkpoint of every agent that has begun in the analysis, by agent type."""
        parameters = {"analysis_id": checked_text("analysis_id", analysis_id, LONGEST_ID)}
        rows = await self._database.named("latest_of_analysis", parameters, deadline=deadline)
        return {row["agent_type"]: CheckpointSummary.from_row(row) for row in rows}

    async def analysis(self, analysis_id: str, *, deadline: Deadline) -> AnalysisStatus | None:
        """Return the status of an analysis; None where no agent has begun in it."""
        parameters = {"analysis_id": checked_text("analysis_id", analysis_id, LONGEST_ID)}
        rows = await self._database.named("analysis", parameters, deadline=deadline)
        return AnalysisStatus.from_row(rows[0]) if rows else None

    async def preserve(self, checkpoint_id: UUID, *, preserve: bool = True, deadline: Deadline) -> bool:
        """Exempt a checkpoint from clean-up, or end that; return whether it exists."""
        parameters = {"id": checkpoint_id, "preserve": preserve}
        return bool((await call(self._database, "preserve_checkpoint", parameters, deadline=deadline))[0]["found"])
