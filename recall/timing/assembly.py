"""
Putting an answer together in time: its sections are due a little before it is.

How much before, the process learns: on an idle machine the rest takes some milliseconds, in a process that is kept
waiting for a processor a few hundred. Sections that are not there when they are due are left behind, not waited for: a
driver that is told to stop takes time for that as well, and nobody is interested in it any more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from imem.journal.deadline import Deadline

T = TypeVar("T")

LEAST_MS: Final = 40.0
LEAST_SHARE: Final = 0.08
"""Kept back from the sections in any case: this share of the budget, and at most so many milliseconds."""

MOST_SHARE: Final = 0.5
"""Largest share of the budget that is kept back."""

DECAY: Final = 0.7
"""What is left of a slow assembly's weight after the next one."""


@dataclass(slots=True)
class AssemblyTime:
    """
    How long the answers of a process have lately taken from when their sections were due.

    Attributes:
        lately_ms: the longest of late, in milliseconds; each new one makes the older ones count less.
    """

    lately_ms: float = 0.0
    _left_behind: set[asyncio.Task[Any]] = field(default_factory=set)

    def reserve_ms(self, budget_ms: float) -> float:
        """Return how long before the answer its sections are due, of a budget, in milliseconds."""
        least = min(LEAST_MS, budget_ms * LEAST_SHARE)
        return min(max(least, self.lately_ms), budget_ms * MOST_SHARE)

    def note(self, since_s: float) -> None:
        """Take note of an answer that is ready now, and whose sections were due at *since_s* of the monotonic clock."""
        self.lately_ms = max((time.monotonic() - since_s) * 1000.0, self.lately_ms * DECAY)

    async def in_time(self, work: Coroutine[Any, Any, T], deadline: Deadline) -> T:
        """
        Return the result of *work*; what is not there by *deadline* is cancelled, and nobody waits until it has ended.

        Raises:
            TimeoutError: it was not there in time.
        """
        task = asyncio.create_task(work)
        try:
            await asyncio.wait([task], timeout=deadline.left_s())
            if not task.done():
                raise TimeoutError
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                self._left_behind.add(task)
                task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._left_behind.discard(task)
        if not task.cancelled():
            task.exception()
