"""
Working memory at a gate: while an analysis waits for a human, its memories live as long as those of a paused one.

Gates are lifecycle rows (``workflow.gate``). In each round the manager compares them with ``workflow.gate_memory``,
which records the memories with a gate's expiry. When an analysis begins to wait, the memory and snapshot of every agent
that has begun get the gate's expiry; when it continues or ends, each has its 24 hours again. A pause replaces that
expiry by its own, in the transaction that begins it.

A memory that a later holder restored meanwhile has lost the gate's expiry, and so may one on a server that was killed.
So each is checked again when its epoch changes, and every hour in any case, well within the 24 hours.

Before memories are changed, either way, a transaction marks their expiry as unknown; the next one changes them and
records the expiry. A crash in between leaves the mark, and the next round repeats the change.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import structlog

from imem.cache.working.snapshots import SnapshotStore
from imem.cache.working.state import ACTIVE_TTL, LONGEST_TTL, PAUSED_TTL, ExpiryMode
from imem.cache.working.store import WorkingStore
from imem.checkpoints.pauses.rows import open_pause, try_lock_analysis
from imem.journal.clock import Clock
from imem.journal.deadline import Deadline
from imem.journal.errors import UNANSWERED, ImemError
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import execute, rows

log = structlog.get_logger()

RETRY_AFTER: Final = timedelta(hours=1)
"""Interval of checks of a memory at a gate: far less than the lifetime of an active one."""

MEMORY_MS: Final = 3_000
"""Timeout of one call of a Valkey, in milliseconds."""


class GateMemories:
    """
    Sets the expiry of memories by the gates.

    Args:
        database: the rows.
        working, snapshots: the memories, and their copies.
        clock: for expiries.
    """

    def __init__(self, database: Database, working: WorkingStore, snapshots: SnapshotStore, clock: Clock) -> None:
        self._database = database
        self._working = working
        self._snapshots = snapshots
        self._clock = clock

    async def run_due(self, *, limit: int, deadline: Deadline) -> int:
        """
        Give memories of waiting analyses the gate's expiry, and others their own again; return how many analyses.

        Raises:
            PostgresUnavailable, ValkeyUnavailable, BudgetExceeded, OutcomeUnknown: the rest is left to the next round.
        """
        found = await self._database.named(
            "gates_to_look_at", {"again": RETRY_AFTER, "limit": limit}, deadline=deadline
        )
        copies = True
        for row in found:
            try:
                copies = await self._look_at(row["analysis_id"], copies=copies, deadline=deadline)
            except UNANSWERED:
                # Every other memory on the same server would meet it as well.
                raise
            except ImemError as error:
                log.warning("gate_failed", analysis_id=row["analysis_id"], error=error.message)
        return len(found)

    async def _look_at(self, analysis_id: str, *, copies: bool, deadline: Deadline) -> bool:
        """Check one analysis, unless another manager has locked it; return whether the durable server answers."""
        async with self._database.transaction(deadline) as conn:
            analysis = await try_lock_analysis(conn, analysis_id)
            if analysis is None or await open_pause(conn, analysis_id) is not None:
                return copies
            waiting = await rows(conn, "gate_waiting", {"analysis_id": analysis_id})
            if analysis.outcome is not None:
                waiting = []
            about_to = "gate_memories_about_to_wait" if waiting else "gate_memories_about_to_leave"
            if not await execute(conn, about_to, {"analysis_id": analysis_id}):
                if waiting:
                    until = self.lives_until(waiting)
                    return await self._wait(conn, analysis_id, until, copies=copies, deadline=deadline)
                await self._go_on(conn, analysis_id, deadline)
                return copies
        # The mark is committed now.
        return await self._look_at(analysis_id, copies=copies, deadline=deadline)

    def lives_until(self, waiting: Sequence[Row]) -> datetime:
        """
        Return the expiry of memories at gates: that of a pause that began when the last gate opened.

        Where that gate may be answered later, a day after that, for the pause that follows; at least an active memory's
        expiry, and at most the longest one. It is renewed every hour.
        """
        now = self._clock.now()
        if any(gate["due_at"] is None for gate in waiting):
            return now + LONGEST_TTL
        ends: datetime = max(max(gate["opened_at"] + PAUSED_TTL, gate["due_at"] + ACTIVE_TTL) for gate in waiting)
        return min(max(ends, now + ACTIVE_TTL), now + LONGEST_TTL)

    async def _wait(
        self, conn: Connection, analysis_id: str, until: datetime, *, copies: bool, deadline: Deadline
    ) -> bool:
        for agent in await rows(conn, "gate_agents", {"analysis_id": analysis_id}):
            agent_id = agent["agent_id"]
            try:
                await self._working.expire(agent_id, ExpiryMode.GATED, until, deadline=deadline.within_ms(MEMORY_MS))
            except UNANSWERED:
                raise
            except ImemError as error:
                # Such as a server with a wrong clock: a retry within the hour would not help.
                log.warning("memory_not_gated", agent_id=agent_id, error=error.message)
            if copies:
                copies = await self._copy_kept(agent_id, until, deadline)
            values = {"agent_id": agent_id, "epoch": agent["epoch"], "until": until}
            await execute(conn, "gate_memory_kept", values)
        return copies

    async def _copy_kept(self, agent_id: str, until: datetime, deadline: Deadline) -> bool:
        """Extend the expiry of the snapshot; return whether its server answers. It is retried after an hour."""
        try:
            await self._snapshots.expire(agent_id, until, deadline=deadline.within_ms(MEMORY_MS))
        except UNANSWERED as error:
            log.warning("snapshot_not_gated", agent_id=agent_id, error=error.message)
            return False
        return True

    async def _go_on(self, conn: Connection, analysis_id: str, deadline: Deadline) -> None:
        for memory in await rows(conn, "gate_memories", {"analysis_id": analysis_id}):
            try:
                await self._working.expire(
                    memory["agent_id"], ExpiryMode.ACTIVE, deadline=deadline.within_ms(MEMORY_MS)
                )
            except UNANSWERED:
                raise
            except ImemError as error:
                # It keeps the gate's expiry, which is only later.
                log.warning("memory_not_active", agent_id=memory["agent_id"], error=error.message)
        await execute(conn, "gate_memories_left", {"analysis_id": analysis_id})
