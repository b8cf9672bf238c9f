"""Alerts in a database of the test's own, and its clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest_asyncio

from imem.alerts.notifiers import AlertMessage, Attempt, DeliveryOutcome, Notifier
from imem.alerts.sending import SendReport, send_due
from imem.alerts.store import AGENT_FAILURE, AlertContext, Alerts, NewAlert, Severity, raise_alert
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from tests.servers import as_pipelines, asked, cloned

NEVER = Deadline.never()
PERSON = Actor("ann", Role.HUMAN_ADMIN)


class Collecting:
    """A channel that keeps what it gets."""

    def __init__(self, attempt: Attempt | None = None) -> None:
        self.got: list[AlertMessage] = []
        self.attempt = attempt or Attempt(DeliveryOutcome.DELIVERED)

    async def send(self, notice: AlertMessage, *, deadline: Deadline) -> Attempt:
        deadline.check("a notice")
        self.got.append(notice)
        return self.attempt

    @property
    def types(self) -> list[str]:
        return [notice.type for notice in self.got]


def failure(subject: str = "company:NW", alert_id: UUID | None = None, **more: Any) -> NewAlert:
    situation = AlertContext(
        checkpoint_id=UUID(int=7), progress_pct=40.0, completed=("one", "two"), pending=("three",), phase="valuation",
        day=0, reason="The agent crashed.", agent="valuation",
    )  # fmt: skip
    values: dict[str, Any] = {
        "alert_id": alert_id or uuid4(), "kind": AGENT_FAILURE, "severity": Severity.HIGH, "subject": subject,
        "analysis_id": f"{subject}/1", "about": uuid4(), "payload": situation.to_payload(),
    }  # fmt: skip
    return NewAlert(**{**values, **more})


@dataclass
class AlertHarness:
    """
    A journal with alerts.

    Attributes:
        url, admin_url: the database, as the application and as its owner.
        database, pipelines: as the application, and as the pipelines.
        alerts: what stands there.
    """

    url: str
    admin_url: str
    database: Database
    pipelines: Database
    alerts: Alerts

    async def rows(self, query: str, *parameters: Any) -> list[Row]:
        return await self.database.rows(query, parameters, deadline=NEVER)

    async def one(self, query: str, *parameters: Any) -> Any:
        (row,) = await self.rows(query, *parameters)
        (value,) = row.values()
        return value

    def owner(self, query: str, *parameters: Any) -> None:
        asked(self.admin_url, query, parameters)

    async def say(self, *alerts: NewAlert) -> list[bool]:
        """Raise alerts, each in a transaction of its own."""
        said = []
        for alert in alerts:
            async with self.database.transaction(NEVER) as conn:
                said.append(await raise_alert(conn, alert))
        return said

    @asynccontextmanager
    async def after(self, minutes: float) -> AsyncIterator[Database]:
        """Lend the database so many minutes later; the clock is the owner's to shift."""
        database = Database(self.admin_url, size=4, options=f"-c imem.clock_shift={minutes * 60:.0f}s")
        try:
            yield database
        finally:
            await database.close()

    async def send(self, channels: Mapping[str, Notifier], minutes: float = 0.0) -> SendReport:
        """Plan and send what is due so many minutes from now."""
        async with self.after(minutes) as database:
            return await send_due(database, channels, until=NEVER)


@pytest_asyncio.fixture
async def harness(light_stack: Any, light_template: str) -> AsyncIterator[AlertHarness]:
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        database, pipelines = Database(url, size=8), Database(as_pipelines(light_stack.settings, url), size=2)
        yield AlertHarness(url, admin_url, database, pipelines, Alerts(database))
        await database.close()
        await pipelines.close()
