"""
Cleanup: ends analyses and removes their checkpoints, copies and memories.

After success everything is removed at once, provided that every deliverable is confirmed; after failure thirty days
later. Preserved rows stay, and so do rows that an open pause refers to. Rows are removed first, then the keys in
Valkey. The leases, which name those keys, are removed last: after a crash, or without Valkey, the next run finds what
is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from typing import Final
from uuid import UUID

from imem.cache.working.snapshots import SnapshotStore
from imem.cache.working.store import WorkingStore
from imem.checkpoints.deliverables import Deliverables, ResultChecks, undelivered
from imem.checkpoints.model import LONGEST_ID, AnalysisOutcome, CheckpointSummary, checked_text
from imem.checkpoints.orchestration.definitions import Definitions, Location
from imem.checkpoints.statements import call
from imem.checkpoints.store import Checkpoints
from imem.journal.deadline import Deadline
from imem.journal.errors import (
    UNANSWERED,
    BadInput,
    ConsistencyError,
    StaleEpoch,
    StatementRejected,
    TransitionRefused,
)
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database

KEEP_FAILED: Final = timedelta(days=30)
"""How long the checkpoints of an analysis that failed are kept."""

PAGE: Final = 20
"""Analyses whose rows are removed in one transaction."""

_STORE_ERRORS: Final = (
    *UNANSWERED, StatementRejected, StaleEpoch, ConsistencyError,
)  # fmt: skip
"""Errors that leave a key for the next run."""


@dataclass(frozen=True, slots=True, order=True)
class MissingResult:
    """
    A result without which an analysis cannot be cleaned up; its subtask has to be run again.

    Attributes:
        location: the store that lacks the result; None where the subtask is not completed.
    """

    agent_type: str
    subtask: str
    location: Location | None


@dataclass(frozen=True, slots=True)
class CleanupResult:
    """
    The result of cleaning up one analysis.

    Attributes:
        deleted: removed checkpoints.
        kept: checkpoints that an open pause refers to; a later run removes them.
        cleared: whether the keys in Valkey were removed too; otherwise the next daily run removes them.
        missing: why nothing was deleted.
    """

    deleted: int = 0
    kept: int = 0
    cleared: bool = False
    missing: tuple[MissingResult, ...] = ()


@dataclass(frozen=True, slots=True)
class SweepResult:
    """
    The result of a daily run.

    Attributes:
        analyses: purged analyses.
        deleted: removed checkpoints.
        cleared: analyses whose keys in Valkey were removed.
        waiting: analyses whose keys could not be removed today.
    """

    analyses: int = 0
    deleted: int = 0
    cleared: int = 0
    waiting: int = 0


class Cleanup:
    """
    Ends analyses and removes what they leave.

    Args:
        checks: confirms results.
        durable, working: the two Valkeys.
        archive: copy every removed row to ``agent_checkpoints_archive``.
    """

    def __init__(
        self,
        database: Database,
        definitions: Definitions,
        checks: ResultChecks,
        durable: SnapshotStore,
        working: WorkingStore,
        *,
        archive: bool = False,
    ) -> None:
        self._database = database
        self._definitions = definitions
        self._checks = checks
        self._durable = durable
        self._working = working
        self._archive = archive
        self._checkpoints = Checkpoints(database, definitions)
        self._deliverables = Deliverables(database, definitions)

    async def cleanup_success(self, analysis_id: str, *, deadline: Deadline) -> CleanupResult:
        """
        End an analysis that succeeded; remove its checkpoints, copies, snapshots and working memories.

        Every subtask of every agent that has begun must be completed, and every result confirmed: otherwise nothing is
        changed, and the answer names what is missing. Idempotent; a repeat finishes what a crash left.

        Raises:
            BadInput: no agent has begun in an analysis of that id.
            TransitionRefused: it has failed.
            StoreUnavailable: a store could not be checked; nothing was changed. Retryable.
        """
        while True:
            deadline.check("the clean-up")
            latest = await self._checkpoints.latest(analysis_id, deadline=deadline)
            found = await self._checkpoints.analysis(analysis_id, deadline=deadline)
            if found is not None and found.outcome is None:
                missing = await self._missing(analysis_id, latest, deadline)
                if missing:
                    return CleanupResult(missing=tuple(sorted(missing, key=str)))
            status = await self._end(analysis_id, [one.id for one in latest.values()], deadline)
            # A checkpoint was saved in between: check again.
            if status != "changed":
                break
        purged = await self._purge(analysis_id, None, deadline)
        deleted, kept = sum(row["deleted"] for row in purged), sum(row["kept"] for row in purged)
        await self._clear(await self._to_clear(analysis_id, None, deadline), deadline)
        ended = await self._checkpoints.analysis(analysis_id, deadline=deadline)
        return CleanupResult(deleted, kept, cleared=ended is not None and ended.cleared_at is not None)

    async def cleanup_failed(self, *, deadline: Deadline) -> SweepResult:
        """
        Remove the checkpoints of analyses that failed 30 days ago, and what earlier runs had to leave.

        It stops at *deadline*; the next run continues.
        """
        analyses = deleted = 0
        after: str | None = None
        while not deadline.passed:
            rows = await self._purge(None, after, deadline)
            analyses += len(rows)
            deleted += sum(row["deleted"] for row in rows)
            if len(rows) < PAGE:
                break
            after = rows[-1]["analysis_id"]
        cleared, waiting = await self._clear_all(deadline)
        return SweepResult(analyses, deleted, cleared, waiting)

    # Missing results

    async def _missing(
        self, analysis_id: str, latest: Mapping[str, CheckpointSummary], deadline: Deadline
    ) -> set[MissingResult]:
        """Return what is not completed, was never delivered, or is not where it was delivered."""
        delivered = await self._deliverables.of(analysis_id, deadline=deadline)
        missing = {
            MissingResult(agent_type, subtask, None)
            for agent_type, one in latest.items()
            for subtask in one.pending_subtasks
        }
        for agent_type, one in latest.items():
            never = undelivered(self._definitions.of_type(agent_type), one.completed_subtasks, delivered)
            missing |= {MissingResult(agent_type, subtask, location) for subtask, location in never}
        gone = await self._checks.lost(delivered, deadline=deadline)
        return missing | {MissingResult(one.agent_type, one.subtask, one.location) for one in gone}

    # Rows

    async def _end(self, analysis_id: str, latest: list[UUID], deadline: Deadline) -> str:
        checked_text("analysis_id", analysis_id, LONGEST_ID)
        ending = {"analysis_id": analysis_id, "outcome": AnalysisOutcome.SUCCEEDED.value, "reason": None}
        rows = await call(self._database, "end_analysis", {**ending, "latest": latest}, deadline=deadline)
        status = str(rows[0]["status"])
        if status == "unknown":
            raise BadInput("analysis_id", f"no agent has begun in {analysis_id}.")
        if status == "otherwise":
            raise TransitionRefused(f"{analysis_id} has ended already, and has not succeeded.")
        return status

    async def _purge(self, analysis_id: str | None, after: str | None, deadline: Deadline) -> list[Row]:
        parameters = {
            "analysis_id": analysis_id,
            "after": after,
            "limit": PAGE,
            "keep_failed": KEEP_FAILED,
            "archive": self._archive,
        }
        return await call(self._database, "purge_checkpoints", parameters, deadline=deadline)

    # Keys

    async def _to_clear(self, analysis_id: str | None, after: str | None, deadline: Deadline) -> list[Row]:
        parameters = {"analysis_id": analysis_id, "after": after, "limit": PAGE}
        return await self._database.named("agents_to_clear", parameters, deadline=deadline)

    async def _clear_all(self, deadline: Deadline) -> tuple[int, int]:
        """Remove the keys of purged analyses; return for how many it succeeded, and for how many not."""
        cleared = waiting = 0
        after: str | None = None
        while not deadline.passed and (rows := await self._to_clear(None, after, deadline)):
            done, left = await self._clear(rows, deadline)
            cleared, waiting = cleared + done, waiting + left
            after = rows[-1]["analysis_id"]
        return cleared, waiting

    async def _clear(self, agents: list[Row], deadline: Deadline) -> tuple[int, int]:
        cleared = waiting = 0
        for analysis_id, its in groupby(agents, key=lambda row: str(row["analysis_id"])):
            try:
                for agent in its:
                    await self._forget(agent, deadline)
            except _STORE_ERRORS:
                waiting += 1
                continue
            await call(self._database, "cleared", {"analysis_id": analysis_id}, deadline=deadline)
            cleared += 1
        return cleared, waiting

    async def _forget(self, agent: Row, deadline: Deadline) -> None:
        """Remove the keys of one agent from both Valkeys."""
        await self._durable.drop_checkpoint(agent["analysis_id"], agent["agent_type"], deadline=deadline)
        await self._durable.drop(agent["agent_id"], deadline=deadline)
        await self._working.clear(agent["agent_id"], agent["epoch"], deadline=deadline)
