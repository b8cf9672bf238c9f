"""
Timeout rates by type of query, over a minute, with an alert when they are too high.

There is one open alert per type of query across all processes; after it is acknowledged, the next bad minute raises
another. Counting does not block. If Postgres is away the alert is not raised; the next bad minute tries again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from imem.journal.postgres.database import Database
from imem.recall.metrics import DEPTH, OUTCOMES, TIMEOUT_RATE, TIMEOUTS
from imem.recall.timing.alerting import BackgroundAlerts

KIND: Final = "QUERY_TIMEOUTS"
"""The kind of the alert."""

WINDOW_S: Final = 60.0
"""Length of the window, in seconds."""

MOST_TIMEOUTS: Final = 10
MOST_SHARE: Final = 0.05
"""Timeouts in the window that raise the alert, or share above which it is raised given :data:`ENOUGH` requests."""

ENOUGH: Final = 20


class AnswerSource(StrEnum):
    """How a request was answered."""

    CACHED = "cached"
    """From the cache."""
    EXACT = "exact"
    """Loaded from L3."""
    STALE = "stale"
    """From an expired cache entry."""
    REDUCED = "reduced"
    """By a fallback retriever."""
    NONE = "none"
    """Not answered: the load and all fallbacks failed."""


_DEPTHS: Final = {AnswerSource.CACHED: 0, AnswerSource.EXACT: 0, AnswerSource.STALE: 1}


class _Minute:
    """The window of one type of query, and its metric children, whose look-up is slow."""

    def __init__(self, query: str) -> None:
        self.asked: deque[float] = deque()
        self.late: deque[float] = deque()
        self.depth = DEPTH.labels(query)
        self.rate = TIMEOUT_RATE.labels(query)
        self.timeouts = TIMEOUTS.labels(query)
        self.outcomes = {outcome: OUTCOMES.labels(query, outcome.value) for outcome in AnswerSource}

    def forget(self, before: float) -> None:
        for times in (self.asked, self.late):
            while times and times[0] < before:
                times.popleft()


class LatencyWatch:
    """
    Counts the requests of one process.

    Args:
        database: where alerts are raised; None raises none.
        now: a monotonic clock, in seconds.
    """

    def __init__(self, database: Database | None = None, *, now: Callable[[], float] = time.monotonic) -> None:
        self._alerts = BackgroundAlerts(database, now=now)
        self._now = now
        self._minutes: dict[str, _Minute] = {}

    def observe(self, query: str, outcome: AnswerSource, *, depth: int | None = None, late: bool = False) -> None:
        """
        Count one request.

        Args:
            depth: fallback depth; None takes that of *outcome*.
            late: whether the load from L3 timed out.
        """
        now, minute = self._now(), self._minutes.get(query)
        if minute is None:
            minute = self._minutes[query] = _Minute(query)
        minute.depth.observe(_DEPTHS.get(outcome, 0) if depth is None else depth)
        minute.outcomes[outcome].inc()
        minute.asked.append(now)
        if late:
            minute.timeouts.inc()
            minute.late.append(now)
        minute.forget(now - WINDOW_S)
        share = len(minute.late) / len(minute.asked)
        minute.rate.set(share)
        bad = len(minute.late) >= MOST_TIMEOUTS or (len(minute.asked) >= ENOUGH and share > MOST_SHARE)
        if late and bad:
            timeouts, asked = len(minute.late), len(minute.asked)
            reason = f"{timeouts} of {asked} questions of the type {query} were not answered in time within a minute."
            payload = {"metric": "query_timeout_rate", "query": query, "timeouts": timeouts, "asked": asked}
            self._alerts.start(KIND, query, reason, payload)

    async def close(self) -> None:
        """Cancel alerts being raised."""
        await self._alerts.close()
