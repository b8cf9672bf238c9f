"""
Audit rows of what agents were shown, written beside the reads.

A read never waits for its row. Rows that Postgres does not take are kept for the next attempt, in this process; a
killed process loses them. The caller has the same record in its answer, and so in the state of its graph.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import structlog

from imem.journal.actors import Actor, ResourceType
from imem.journal.audit import context_of
from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError, OutcomeUnknown
from imem.journal.postgres.database import Database

log = structlog.get_logger()

MOST_WAITING: Final = 1_000
"""Most records kept while Postgres is away; beyond, the oldest are dropped and logged."""

_WRITE_MS: Final = 2_000.0
"""Timeout of writing one row, in milliseconds."""


class SignalAudit:
    """Writes the audit rows of one process and event loop, in order."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: deque[dict[str, Any]] = deque()
        self._writing: asyncio.Task[None] | None = None

    def write(self, actor: Actor, subject_id: str, record: Mapping[str, Any]) -> None:
        """Have *record* written about *subject_id*; waits for nothing."""
        log.info("signals.audit", subject=subject_id, actor=actor.id, record=dict(record))
        if len(self._waiting) >= MOST_WAITING:
            log.warning("signals.audit_dropped", row=self._waiting.popleft())
        self._waiting.append(
            {
                "actor": actor.id,
                "role": actor.role.value,
                "resource_type": ResourceType.GRAPH.value,
                "resource_id": subject_id,
                "action": record["event"],
                "authorized": True,
                "reason": None,
                "context": context_of(actor, **record),
                "outcome": record.get("error_kind") or "granted",
            }
        )
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())

    async def _write(self) -> None:
        try:
            while self._waiting:
                row = self._waiting[0]
                try:
                    await self._database.named("audit", row, deadline=Deadline.after_ms(_WRITE_MS))
                except OutcomeUnknown:
                    log.warning("signals.audit_unknown", subject=row["resource_id"])
                except ImemError as error:
                    if error.retryable:
                        return  # The next record tries again.
                    log.warning("signals.audit_refused", subject=row["resource_id"], reason=str(error))
                if self._waiting and self._waiting[0] is row:
                    self._waiting.popleft()
        finally:
            self._writing = None

    async def close(self) -> None:
        """Write what waits, if Postgres takes it."""
        if self._writing is not None:
            await self._writing
        if self._waiting:
            await self._write()
        if self._waiting:
            log.warning("signals.audit_lost", records=len(self._waiting))
