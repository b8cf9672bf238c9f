"""
Reserve for assembling an answer: its sections are due some time before it is.

The process measures how much: some milliseconds on an idle machine, a few hundred when it competes for a processor.
A section that misses its deadline is cancelled without awaiting the cancellation, since a driver needs time to cancel.
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
"""Least reserve: this share of the budget, at most this many milliseconds."""

MOST_SHARE: Final = 0.5
"""Largest reserve, as a share of the budget."""

DECAY: Final = 0.7
"""Factor by which the longest time decays with each later assembly."""


@dataclass(slots=True)
class AssemblyTime:
    """
    Decaying maximum of the time from the sections' deadline to the answer.

    Attributes:
        lately_ms: that maximum, in milliseconds.
    """

    lately_ms: float = 0.0
    _left_behind: set[asyncio.Task[Any]] = field(default_factory=set)

    def reserve_ms(self, budget_ms: float) -> float:
        """Return how long before the answer its sections are due, in milliseconds."""
        least = min(LEAST_MS, budget_ms * LEAST_SHARE)
        return min(max(least, self.lately_ms), budget_ms * MOST_SHARE)

    def note(self, since_s: float) -> None:
        """Record an answer that is ready now; its sections were due at *since_s* on the monotonic clock."""
        self.lately_ms = max((time.monotonic() - since_s) * 1000.0, self.lately_ms * DECAY)

    async def in_time(self, work: Coroutine[Any, Any, T], deadline: Deadline) -> T:
        """
        Return the result of *work*; at *deadline* it is cancelled, without awaiting its end.

        Raises:
            TimeoutError: *work* did not finish in time.
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
