"""How background work leaves processor time to others: it rests between pages, and an import's waits for its events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from imem.jobs.due import next_due
from imem.journal.clock import SystemClock
from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database

LOADING_TIMES: Final = 10.0
"""The longest pause of bulk work while events wait for the graph, as a share of its page's duration: they go first."""

LOADING_S: Final = 45.0
"""How long the first page of an import waits at most for them, in seconds: less than the budget of a run."""

LOADING_POLL_S: Final = 0.25
"""Pause between two looks whether events wait, in seconds."""

LOOK_MS: Final = 10_000.0
"""Timeout of such a look, in milliseconds."""


@dataclass(slots=True)
class Throttle:
    """
    Limits the share of time that the work takes.

    Attributes:
        until: when to stop; a page that has begun is finished.
        rest: the pause after a page, as a share of its duration; 0 for none.
        loading: the longest pause while events wait for the graph, likewise.
    """

    until: Deadline
    rest: float = 0.0
    loading: float = 0.0
    _begun: float = field(default_factory=time.monotonic)

    def over(self) -> bool:
        """Return whether *until* has passed."""
        return self.until.passed

    async def pause(self, journal: Database | None = None) -> None:
        """Pause after a page; called before the next one. *journal* knows whether events wait for the graph."""
        taken_s = time.monotonic() - self._begun
        if self.rest:
            await asyncio.sleep(min(taken_s * self.rest, self.until.left_s()))
        if journal is not None:
            await _wait_for_load(journal, taken_s * self.loading, self.until)
        self._begun = time.monotonic()

    async def pause_before_import(self, journal: Database) -> None:
        """Pause before the first page of an import while its events wait for the graph."""
        if self.loading:
            await _wait_for_load(journal, LOADING_S, self.until)
        self._begun = time.monotonic()


async def _wait_for_load(journal: Database, most_s: float, until: Deadline) -> None:
    over = time.monotonic() + min(most_s, until.left_s())
    while time.monotonic() < over:
        if not (await journal.named("delivery_behind", deadline=Deadline.after_ms(LOOK_MS)))[0]["behind_s"]:
            return
        await asyncio.sleep(LOADING_POLL_S)


async def is_imported(
    journal: Database, queue: str, kinds: Collection[str], least: int, *, within: timedelta = timedelta.max
) -> bool:
    """
    Return whether nothing is due in *queue* but rows of an import, at least so many, the first for less than *within*.

    Raises:
        PostgresUnavailable: retryable.
    """
    async with journal.transaction(Deadline.after_ms(LOOK_MS)) as conn:
        due = await next_due(conn, queue, kinds, least)
    return len(due) == least and due[0].later and SystemClock().now() - due[0].created_at < within
