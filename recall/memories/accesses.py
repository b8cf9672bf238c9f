"""
Counting of how often memories are found, without a write on a read.

A process adds up in memory and writes in batches: after :data:`FLUSH_S` at the latest, and when it closes. A batch that
cannot be written is kept for the next. A process that is killed loses what it had not written.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Final
from uuid import UUID

import structlog

from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError, OutcomeUnknown
from imem.journal.postgres.database import Database

log = structlog.get_logger()

FLUSH_S: Final = 15.0
"""Longest time for which a count is only in memory, in seconds, while Postgres answers."""

_WRITE_MS: Final = 2_000.0
"""Timeout of writing a batch, in milliseconds."""


class AccessCounter:
    """Counts accesses of one process and event loop."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._counts: Counter[UUID] = Counter()
        self._flushing: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def count(self, ids: Iterable[UUID]) -> None:
        """Count one access of each of *ids*; waits for nothing."""
        self._counts.update(ids)
        if self._counts and self._flushing is None:
            self._flushing = asyncio.create_task(self._flush_later())

    async def _flush_later(self) -> None:
        while self._counts:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), FLUSH_S)
            await self.flush()
            if self._closing.is_set():
                break
        self._flushing = None

    async def flush(self) -> None:
        """Write what was counted; what Postgres does not take is kept."""
        counts, self._counts = self._counts, Counter()
        if not counts:
            return
        given = {"ids": list(counts), "counts": list(counts.values())}
        try:
            await self._database.commit("count_accesses", given, deadline=Deadline.after_ms(_WRITE_MS))
        except OutcomeUnknown:
            # Written or not: once more would count twice.
            log.warning("memories.counts_unknown", memories=len(counts))
        except ImemError as error:
            log.warning("memories.counts_kept", memories=len(counts), reason=str(error))
            self._counts.update(counts)

    async def close(self) -> None:
        """Write what was counted, and stop."""
        self._closing.set()
        if self._flushing is not None:
            await self._flushing
        # What was counted while that wrote.
        await self.flush()
