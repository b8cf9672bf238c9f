"""
The end of an analysis, and what goes then.

After success everything goes at once, once every deliverable is confirmed to be there; after failure thirty days later.
Rows that somebody preserved stay, and so do those that an open pause refers to. Rows go first, then the keys in Valkey;
the leases, which say which keys those are, go last, so that a crash or a Valkey that is away leaves work for the next
run and nothing forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from typing import Any, Final, Protocol
from uuid import UUID

from imem.checkpoints.deliverables import DeliverableCheck, Deliverables, lost, undelivered
from imem.checkpoints.model import LONGEST_ID, AnalysisOutcome, CheckpointSummary, checked_text
from imem.checkpoints.orchestration.definitions import Definitions, Location
from imem.checkpoints.statements import call
from imem.checkpoints.store import Checkpoints
from imem.journal.deadline import Deadline
from imem.journal.errors import (
    BadInput,
    BudgetExceeded,
    ConsistencyError,
    OutcomeUnknown,
    StaleEpoch,
    StatementRejected,
    StoreUnavailable,
    TransitionRefused,
)
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.database import Database

KEEP_FAILED: Final = timedelta(days=30)
"""How long the checkpoints of an analysis that failed are kept."""

PAGE: Final = 20
"""Analyses whose rows go in one transaction."""

_STORE_ERRORS: Final = (
    StoreUnavailable, BudgetExceeded, OutcomeUnknown, StatementRejected, StaleEpoch, ConsistencyError,
)  # fmt: skip
"""What keeps a key from being removed today; the next run tries again."""


class DurableCopies(Protocol):
    """What the durable Valkey holds of an agent; :class:`imem.cache.working.snapshots.SnapshotStore`."""

    async def drop_checkpoint(self, analysis_id: str, agent_type: str, *, deadline: Deadline) -> bool:
        """Remove the copy of a checkpoint."""

    async def drop(self, agent_id: str, *, deadline: Deadline) -> bool:
        """Remove the snapshot of an agent's working memory."""


class WorkingMemories(Protocol):
    """What the working Valkey holds of an agent; :class:`imem.cache.working.store.WorkingStore`."""

    async def clear(self, agent_id: str, epoch: int, *, deadline: Deadline) -> int:
        """Remove its working memory."""


@dataclass(frozen=True, slots=True, order=True)
class MissingResult:
    """
    Why an analysis cannot be cleaned up yet: what a resumer has to run again.

    Attributes:
        location: where its result is not; None where the subtask itself is not completed.
    """

    agent_type: str
    subtask: str
    location: Location | None


@dataclass(frozen=True, slots=True)
class CleanupResult:
    """
    What a clean-up of one analysis did.

    Attributes:
        deleted: checkpoints that are gone.
        kept: those left because an open pause refers to them; they go with a later run.
        cleared: whether the keys in Valkey are gone, too; else the next daily run removes them.
        missing: why nothing was deleted.
    """

    deleted: int = 0
    kept: int = 0
    cleared: bool = False
    missing: tuple[MissingResult, ...] = ()


@dataclass(frozen=True, slots=True)
class SweepResult:
    """
    What a daily run did.

    Attributes:
        analyses: how many were looked at because they had ended long enough ago.
        deleted: checkpoints that are gone.
        cleared: analyses whose keys in Valkey are gone.
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
        checks: how each store is asked whether a result is there (:func:`imem.checkpoints.deliverables.checks`).
        durable, working: the Valkeys that hold something of agents; what is not given is not looked at.
        archive: keep a copy of every row that goes, in ``agent_checkpoints_archive``.
    """

    def __init__(
        self,
        database: Database,
        definitions: Definitions,
        checks: Mapping[Location, DeliverableCheck],
        *,
        durable: DurableCopies | None = None,
        working: WorkingMemories | None = None,
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
        End an analysis that succeeded, and remove its checkpoints, its copies, its snapshots and its working memory.

        Every subtask of every agent that has begun must be completed, and every result there: otherwise nothing is
        changed, and the answer names what is missing. Repeating it is harmless, and finishes what a crash left.

        Raises:
            BadInput: no agent has begun in an analysis of that id.
            TransitionRefused: it has failed.
            StoreUnavailable: a store could not say whether a result is there; nothing was changed. Retryable.
        """
        while True:
            deadline.check("the clean-up")
            latest = await self._checkpoints.latest(analysis_id, deadline=deadline)
            found = await self._checkpoints.analysis(analysis_id, deadline=deadline)
            if found is not None and found.outcome is None:
                missing = await self._missing(analysis_id, latest, deadline)
                if missing:
                    return CleanupResult(missing=tuple(sorted(missing, key=str)))
            ending = _ending(analysis_id, AnalysisOutcome.SUCCEEDED, latest=[one.id for one in latest.values()])
            status = await self._end(ending, deadline)
            # Somebody saved in between: what was confirmed is no longer the whole.
            if status != "changed":
                break
        purged = await self._purge(analysis_id, None, deadline)
        deleted, kept = sum(row["deleted"] for row in purged), sum(row["kept"] for row in purged)
        await self._clear(await self._to_clear(analysis_id, None, deadline), deadline)
        ended = await self._checkpoints.analysis(analysis_id, deadline=deadline)
        return CleanupResult(deleted, kept, cleared=ended is not None and ended.cleared_at is not None)

    async def fail_analysis(
        self, analysis_id: str, reason: str, *, deadline: Deadline, conn: Connection | None = None
    ) -> None:
        """
        Say that an analysis has failed for good, and fence off its agents; its checkpoints stay for 30 days.

        Repeating it changes nothing, also not when it failed. With *conn* it is part of the transaction there.

        Raises:
            BadInput: no agent has begun in an analysis of that id.
            TransitionRefused: it has succeeded.
        """
        checked_text("reason", reason, 10_000)
        await self._end(_ending(analysis_id, AnalysisOutcome.FAILED, reason=reason), deadline, conn)

    async def cleanup_failed(self, *, deadline: Deadline) -> SweepResult:
        """
        Remove the checkpoints of analyses that failed 30 days ago, and what earlier runs had to leave of any.

        It ends at *deadline* with what it has done; the next run goes on.
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

    # What is missing

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
        gone = await lost(delivered, self._checks, deadline=deadline)
        return missing | {MissingResult(one.agent_type, one.subtask, one.location) for one in gone}

    # Rows

    async def _end(self, ending: Mapping[str, Any], deadline: Deadline, conn: Connection | None = None) -> str:
        rows = await call(self._database, "end_analysis", ending, deadline=deadline, conn=conn)
        status = str(rows[0]["status"])
        if status == "unknown":
            raise BadInput("analysis_id", f"no agent has begun in {ending['analysis_id']}.")
        if status == "otherwise":
            raise TransitionRefused(f"{ending['analysis_id']} has ended already, and has not {ending['outcome']}.")
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
        """Remove the keys of purged analyses; return of how many they are gone, and of how many they are not."""
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
        """Remove what the Valkeys hold of one agent."""
        if self._durable is not None:
            await self._durable.drop_checkpoint(agent["analysis_id"], agent["agent_type"], deadline=deadline)
            await self._durable.drop(agent["agent_id"], deadline=deadline)
        if self._working is not None:
            await self._working.clear(agent["agent_id"], agent["epoch"], deadline=deadline)


def _ending(
    analysis_id: str, outcome: AnalysisOutcome, *, reason: str | None = None, latest: list[UUID] | None = None
) -> dict[str, Any]:
    """Return how an analysis ends, as parameters."""
    checked_text("analysis_id", analysis_id, LONGEST_ID)
    return {"analysis_id": analysis_id, "outcome": outcome.value, "reason": reason, "latest": latest}
