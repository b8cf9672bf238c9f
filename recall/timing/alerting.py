"""Alerts raised in the background, one open for each matter; counting does not wait for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

import structlog

from imem.alerts.store import NewAlert, Severity, raise_once
from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError
from imem.journal.events.ids import id_of, new_id
from imem.journal.postgres.database import Database

log = structlog.get_logger()

ALERT_INTERVAL_S: Final = 60.0
"""Least time between two alerts about one matter from one process, in seconds."""

BUDGET_MS: Final = 2_000
"""Budget for raising an alert, in milliseconds."""


class BackgroundAlerts:
    """
    Raises alerts of one process; after one is acknowledged, the next bad minute raises another.

    If Postgres is away the alert is not raised; the next bad minute tries again.

    Args:
        database: where alerts are raised; None raises none.
        now: a monotonic clock, in seconds.
    """

    def __init__(self, database: Database | None, *, now: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._now = now
        self._started_s: dict[UUID, float] = {}
        self._under_way: set[asyncio.Task[None]] = set()

    def start(self, kind: str, about: str, reason: str, payload: Mapping[str, Any]) -> None:
        """Start raising an alert of *kind* about *about*, unless this process did so within the last minute."""
        matter, now = id_of(kind, about), self._now()
        if self._database is None or now - self._started_s.get(matter, float("-inf")) < ALERT_INTERVAL_S:
            return
        self._started_s[matter] = now
        task = asyncio.get_running_loop().create_task(
            self._raise(self._database, kind, matter, {"reason": reason, **payload})
        )
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def close(self) -> None:
        """Cancel alerts being raised."""
        for task in list(self._under_way):
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _raise(self, database: Database, kind: str, matter: UUID, payload: Mapping[str, Any]) -> None:
        alert = NewAlert(alert_id=new_id(), kind=kind, severity=Severity.HIGH, about=matter, payload=dict(payload))
        log.warning("recall.alert", kind=kind, **payload)
        try:
            async with database.transaction(Deadline.after_ms(BUDGET_MS)) as conn:
                await raise_once(conn, alert)
        except ImemError as error:
            log.warning("recall.alert_failed", kind=kind, reason=str(error))
