"""Lifecycle rows in a database of the test's own, under the role of pipelines, and a kind of row to move."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest_asyncio

from imem.jobs.lifecycle import AdvanceReport, Effects, LifecycleRow, advance_due, request_transition
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from tests.jobs.questions import QUESTIONS, Question, answer_or_close
from tests.servers import ahead, as_pipelines, asked, cloned

PERSON = Actor("ann", Role.HUMAN_ADMIN)


def soon(ms: float = 30_000) -> Deadline:
    return Deadline.after_ms(ms)


@dataclass
class Desk:
    """
    A journal with lifecycle rows.

    Attributes:
        database: as the pipelines; *application*: as the application.
        steps: keys whose step began, in order.
        failing: keys whose step fails; *locked*: keys of which something else is locked.
    """

    url: str
    pipeline_url: str
    admin_url: str
    database: Database
    application: Database
    gateway: Any = None
    steps: list[str] = field(default_factory=list)
    failing: set[str] = field(default_factory=set)
    locked: set[str] = field(default_factory=set)

    def open(self, key: str, due: str | None = "1 hour", kind: str = "question") -> None:
        asked(
            self.admin_url,
            "INSERT INTO lifecycle (kind, key, about, state, due_at) VALUES (%s, %s, 'a-1', 'OPEN', imem_now() + %s)",
            (kind, key, due),
        )

    async def rows(self, query: str, *parameters: Any) -> list[Row]:
        return await self.database.rows(query, parameters, deadline=soon())

    async def row(self, key: str) -> LifecycleRow:
        [found] = await self.rows("SELECT * FROM lifecycle WHERE key = %s", key)
        return LifecycleRow.of(found)

    async def advance(self) -> AdvanceReport:
        async def step(_: Desk, conn: Connection, row: LifecycleRow, now: datetime) -> Effects | None:
            self.steps.append(row.key)
            if row.key in self.locked:
                return None
            effects = await answer_or_close(self, conn, row, now)
            if row.key in self.failing:
                raise ValueError("The step is broken.")
            return effects

        runtime: Any = self
        return await advance_due(runtime, {"question": QUESTIONS.stepping(step)}, until=soon())

    async def answer(self, key: str, after: Question = Question.ANSWERED, **more: Any) -> LifecycleRow | None:
        version = (await self.row(key)).version
        return await request_transition(
            self.application, "question", key, version, after, by=PERSON, reason="So it is.", **more, deadline=soon()
        )

    @asynccontextmanager
    async def later(self, by: timedelta) -> AsyncIterator[None]:
        """Let the pipelines' clock be ahead by so much."""
        before = self.database
        self.database = Database(self.pipeline_url, size=4, options=ahead(self.admin_url, by))
        yield
        await self.database.close()
        self.database = before


@pytest_asyncio.fixture
async def desk(light_stack: Any, light_template: str) -> AsyncIterator[Desk]:
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        pipeline_url = as_pipelines(light_stack.settings, url)
        made = Desk(url, pipeline_url, admin_url, Database(pipeline_url, size=8), Database(url, size=8))
        yield made
        await made.database.close()
        await made.application.close()
