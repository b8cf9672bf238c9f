"""How the applier wakes the pipelines: a task by name, seldom, and never in the way of what it does."""

from __future__ import annotations

import asyncio

import structlog
from kombu.exceptions import KombuError

from credibility.tasks import SETTLE
from imem.celery_app import QUEUE, SETTLE_EVERY_S, make_app
from journal.settings import Settings

log = structlog.get_logger()

SETTLING = frozenset(
    {
        "record.Outcome",
        "correct.Outcome",
        "record.Finding",
        "correct.Finding",
        "record.Agent",
        "link.CITES",
    }
)
"""Kinds of events that may make something due."""

APART_S = 2.0
"""Least time between two nudges, in seconds: a load of many batches needs few."""


class Nudge:
    """
    Tells the worker that there may be something to settle; for :class:`kg.applier.Applier`'s *applied*.

    A nudge that fails is dropped: rows say what is due, and beat asks soon.
    """

    def __init__(self, settings: Settings) -> None:
        self._app = make_app(settings)
        self._task: asyncio.Task[None] | None = None
        self._again = False

    async def __call__(self, kinds: frozenset[str]) -> None:
        """Note that events of *kinds* were applied."""
        if SETTLING.isdisjoint(kinds):
            return
        self._again = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._send())

    async def drain(self) -> None:
        """Wait until what was noted is sent, and stop; for the end of a process."""
        if self._task is not None:
            await self._task

    async def _send(self) -> None:
        while self._again:
            self._again = False
            try:
                await asyncio.to_thread(self._app.send_task, SETTLE, queue=QUEUE, retry=False, expires=SETTLE_EVERY_S)
            except (KombuError, OSError) as error:
                log.info("credibility.not_nudged", reason=type(error).__name__)
            if not self._again:
                return
            await asyncio.sleep(APART_S)
