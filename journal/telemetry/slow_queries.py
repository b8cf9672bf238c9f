"""
Logs slow queries at level INFO, and their plans at level DEBUG.

Plans are requested afterwards, in the background, one at a time and at most once a minute for each statement, and only
where DEBUG is logged. A query that timed out is logged like a slow one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog
from prometheus_client import Counter

from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError

log = structlog.get_logger()

SLOW: Final = Counter("slow_queries_total", "Queries that took longer than the bound.", ("store", "statement"))

SLOW_MS: Final = 100.0
"""Duration from which a query is slow by default, in milliseconds."""

PLAN_EVERY_S: Final = 60.0
"""Least time between two plans of one statement, in seconds."""

INTERACTIVE_S: Final = 30.0
"""Statements with a longer budget, in seconds, are background work and never logged as slow."""

Explain = Callable[[], Awaitable[Any]]


class SlowLog:
    """
    Logs the slow queries of one store.

    Attributes:
        store: its name.
        slow_ms: duration from which a query is slow, in milliseconds.
    """

    def __init__(self, store: str, slow_ms: float = SLOW_MS) -> None:
        self.store = store
        self.slow_ms = slow_ms
        self._planned: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None

    def note(
        self, statement: str, begun_s: float, explain: Explain, *, deadline: Deadline, answered: bool = True
    ) -> None:
        """
        Log a query that began at *begun_s* of the monotonic clock and has just ended, if it was slow.

        Args:
            deadline: of the query; one with more than :data:`INTERACTIVE_S` is never slow.
            explain: requests its plan.
            answered: whether there was an answer.
        """
        now_s = time.monotonic()
        took_ms = (now_s - begun_s) * 1000.0
        if took_ms < self.slow_ms or deadline.at_s - begun_s > INTERACTIVE_S:
            return
        SLOW.labels(self.store, statement).inc()
        planned = log.is_enabled_for(logging.DEBUG) and (self._task is None or self._task.done())
        planned = planned and now_s - self._planned.get(statement, float("-inf")) >= PLAN_EVERY_S
        log.info(
            "query.slow",
            store=self.store,
            statement=statement,
            ms=round(took_ms, 1),
            answered=answered,
            planned=planned,
        )
        if planned:
            self._planned[statement] = now_s
            self._task = asyncio.get_running_loop().create_task(self._plan(statement, explain))

    async def close(self) -> None:
        """Cancel a pending plan."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _plan(self, statement: str, explain: Explain) -> None:
        try:
            plan = await explain()
        except ImemError as error:
            log.debug("query.not_planned", store=self.store, statement=statement, reason=str(error))
        else:
            log.debug("query.plan", store=self.store, statement=statement, plan=plan)
