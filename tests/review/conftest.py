"""Review tasks in a database of the test's own, a roster, and the two roles."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest_asyncio

from imem.alerts.store import raise_alert
from imem.jobs.lifecycle import AdvanceReport, advance_due
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.review import inbox
from imem.review.admission import Reviewer
from imem.review.kinds import Task, TaskKind
from imem.review.tasks import TASKS, open_task
from tests.review.figures import FIGURE, KINDS, Figures
from tests.servers import ahead, as_pipelines, asked, cloned

ADMIN = Actor("ann", Role.HUMAN_ADMIN)
EVE = Actor("eve", Role.REVIEWER)


def soon(ms: float = 30_000) -> Deadline:
    return Deadline.after_ms(ms)


@dataclass
class Office:
    """
    A journal with review tasks.

    Attributes:
        database: as the pipelines; *application*: as the application.
    """

    pipeline_url: str
    admin_url: str
    database: Database
    application: Database
    gateway: Any = None
    task_kinds: Any = field(default_factory=lambda: KINDS)

    async def rows(self, query: str, *parameters: Any) -> list[Row]:
        return await self.database.rows(query, parameters, deadline=soon())

    async def reviewer(self, person: str, *, removed: bool = False, **entry: Any) -> None:
        reviewer = Reviewer(person=person, **entry)
        await inbox.set_reviewer(self.application, KINDS, reviewer, removed=removed, by=ADMIN, deadline=soon())

    async def open(
        self, task_id: str, rank: int = 1, metric: str = "revenue", of: TaskKind[Any, Figures] = FIGURE
    ) -> Task[Figures]:
        runtime: Any = self
        package = Figures(metric=metric, values=(9.53, 95.3))
        async with self.database.transaction(soon()) as conn:
            task, effects = await open_task(
                runtime, conn, of, package, task_id=task_id, rank=rank, analysis_id="a-1", subject_ids=["company:MU"]
            )
            for alert in effects.alerts:
                await raise_alert(conn, alert)
        return task

    async def task(self, task_id: str) -> Task[Figures]:
        return await inbox.read_task(self.application, KINDS, task_id, deadline=soon())

    async def answer(self, task_id: str, action: str = "choose", *, by: Actor = ADMIN, **more: Any) -> Task[Any]:
        if action == "choose":
            more.setdefault("fields", {"value": 9.53})
        return await inbox.answer_task(self.application, KINDS, task_id, action, by=by, **more, deadline=soon())

    async def advance(self) -> AdvanceReport:
        runtime: Any = self
        return await advance_due(runtime, {TASKS.kind: TASKS}, until=soon())

    async def applied(self) -> list[tuple[str, str, str]]:
        found = await self.rows("SELECT task_id, action, said FROM applied ORDER BY id")
        return [(row["task_id"], row["action"], row["said"]) for row in found]

    @asynccontextmanager
    async def later(self, by: timedelta) -> AsyncIterator[None]:
        """Let the clock of both roles be ahead by so much."""
        before = self.database, self.application
        options = ahead(self.admin_url, by)
        self.database = Database(self.pipeline_url, size=4, options=options)
        self.application = Database(self.pipeline_url, size=4, options=options)
        yield
        await self.database.close()
        await self.application.close()
        self.database, self.application = before


@pytest_asyncio.fixture
async def office(light_stack: Any, light_template: str) -> AsyncIterator[Office]:
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        pipeline_url = as_pipelines(light_stack.settings, url)
        asked(
            admin_url,
            "CREATE TABLE applied (id bigserial PRIMARY KEY, task_id text, action text, said text); "
            "GRANT ALL ON applied, applied_id_seq TO PUBLIC",
        )
        made = Office(pipeline_url, admin_url, Database(pipeline_url, size=8), Database(url, size=8))
        yield made
        await made.database.close()
        await made.application.close()
