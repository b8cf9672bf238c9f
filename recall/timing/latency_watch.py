"""
Whether questions are answered in time, by type: counted, and told to people where too many are not.

One type of query has one open alert, however many processes there are; when a person has acknowledged it, the next
minute that is as bad raises another. Counting never waits, and a Postgres that is away costs the telling alone: the
next bad minute tells again.
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
"""Over how long is counted, in seconds."""

MOST_TIMEOUTS: Final = 10
MOST_SHARE: Final = 0.05
"""From so many timeouts in a minute on, or above that share of at least :data:`ENOUGH` questions, people are told."""

ENOUGH: Final = 20

ALERT_INTERVAL_S: Final = 60.0
"""Least time between two tellings of one type by one process, in seconds."""

BUDGET_MS: Final = 2_000
"""How long telling may take, in milliseconds."""


class AnswerSource(StrEnum):
    """How a question was answered."""

    CACHED = "kept"
    """By a kept answer."""
    EXACT = "exact"
    """By L3."""
    STALE = "stale"
    """By an answer of a while ago."""
    REDUCED = "less"
    """By what was made of fewer records."""
    NONE = "none"
    """Not at all."""


_DEPTHS: Final = {AnswerSource.CACHED: 0, AnswerSource.EXACT: 0, AnswerSource.STALE: 1}


class _Minute:
    """The last minute of one type of query, and its metrics, which are dear to look up."""

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
    Counts the questions of one process.

    Args:
        database: where alerts are raised; none raises none.
        now: seconds of a clock that never goes back.
    """

    def __init__(self, database: Database | None = None, *, now: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._now = now
        self._minutes: dict[str, _Minute] = {}
        self._alerts_under_way: set[asyncio.Task[None]] = set()

    def observe(self, query: str, outcome: AnswerSource, *, depth: int | None = None, late: bool = False) -> None:
        """
        Count one question.

        Args:
            depth: how many things that stand in were tried.
            late: whether L3 did not answer in time.
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
        """Wait until what was bad is told."""
        await asyncio.gather(*self._alerts_under_way)

    async def close(self) -> None:
        """End what is being told."""
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
