"""
Slow queries, logged at level INFO, and with their plan at level DEBUG.

The plan is asked for afterwards, in the background, one at a time and once a minute for each statement: nobody waits
for it, and a server in trouble is not asked for more. Where DEBUG is not logged, none is asked for. What had no answer
in time is logged like what came late.
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
"""From when on a query is slow, in milliseconds, where the settings do not say."""

PLAN_EVERY_S: Final = 60.0
"""Least time between two plans of one statement, in seconds."""

INTERACTIVE_S: Final = 30.0
"""Work that has more time than any question, in seconds, is batches and plans: nobody waits for each statement."""

Explain = Callable[[], Awaitable[Any]]


class SlowLog:
    """
    Logs what was slow in one store.

    Attributes:
        store: which.
        slow_ms: from when on it is, in milliseconds.
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
        Take note of a query that began at *begun_s* of the monotonic clock and has just ended.

        Args:
            deadline: when it was due; what nobody hurried is not slow.
            explain: asks for its plan.
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

    async def planned(self) -> None:
        """Wait until the plan that is being asked for is logged."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def close(self) -> None:
        """Give up the plan that is being asked for."""
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
