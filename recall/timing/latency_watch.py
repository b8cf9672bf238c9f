"""
Timeout rates by type of query, over a minute, with an alert when they are too high.

There is one open alert per type of query across all processes; after it is acknowledged, the next bad minute raises
another. Counting does not block. If Postgres is away the alert is not raised; the next bad minute tries again.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import Final

import structlog

from imem.alerts.store import NewAlert, Severity, raise_alert
from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import id_of, new_id, rows
from imem.recall.metrics import DEPTH, OUTCOMES, TIMEOUT_RATE, TIMEOUTS

log = structlog.get_logger()

KIND: Final = "QUERY_TIMEOUTS"
"""The kind of the alert."""

WINDOW_S: Final = 60.0
"""Length of the window, in seconds."""

MOST_TIMEOUTS: Final = 10
MOST_SHARE: Final = 0.05
"""Timeouts in the window that raise the alert, or share above which it is raised given :data:`ENOUGH` requests."""

ENOUGH: Final = 20

ALERT_INTERVAL_S: Final = 60.0
"""Least time between two alerts about one type from one process, in seconds."""

BUDGET_MS: Final = 2_000
"""Budget for raising an alert, in milliseconds."""


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
        self.alerted_at = float("-inf")
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
        self._database = database
        self._now = now
        self._minutes: dict[str, _Minute] = {}
        self._alerts_under_way: set[asyncio.Task[None]] = set()

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
        if late and bad and now - minute.alerted_at >= ALERT_INTERVAL_S and self._database is not None:
            minute.alerted_at = now
            task = asyncio.get_running_loop().create_task(
                self._raise_alert(self._database, query, len(minute.late), len(minute.asked))
            )
            self._alerts_under_way.add(task)
            task.add_done_callback(self._alerts_under_way.discard)

    async def drain(self) -> None:
        """Wait for alerts being raised."""
        await asyncio.gather(*self._alerts_under_way)

    async def close(self) -> None:
        """Cancel alerts being raised."""
        for task in list(self._alerts_under_way):
            task.cancel()
        await asyncio.gather(*self._alerts_under_way, return_exceptions=True)

    async def _raise_alert(self, database: Database, query: str, late: int, asked: int) -> None:
        about = id_of("timeouts", query)
        payload = {
            "reason": f"{late} of {asked} questions of the type {query} were not answered in time within a minute.",
            "metric": "query_timeout_rate", "query": query, "timeouts": late, "asked": asked,
        }  # fmt: skip
        alert = NewAlert(alert_id=new_id(), kind=KIND, severity=Severity.HIGH, about=about, payload=payload)
        log.warning("recall.timeouts", query=query, timeouts=late, asked=asked)
        try:
            async with database.transaction(Deadline.after_ms(BUDGET_MS)) as conn:
                if not await rows(conn, "open_alert_about", {"about": about}):
                    await raise_alert(conn, alert)
        except ImemError as error:
            log.warning("recall.timeout_alert_failed", query=query, reason=str(error))
