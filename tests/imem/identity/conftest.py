"""A migrated journal of its own for each test, seen as the application, as curators and as the owner, now and later."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest_asyncio

from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.gateway import Gateway
from imem.journal.identity.sessions import Sessions
from imem.journal.identity.tokens import NewToken, Tokens
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from tests.servers import ahead, as_curators, as_pipelines, asked, cloned

ADMIN = Actor("kate", Role.HUMAN_ADMIN)


def soon(ms: float = 30_000) -> Deadline:
    return Deadline.after_ms(ms)


class SteppedTime:
    """A monotonic clock that tests advance."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Office:
    """
    A journal and the ways into it.

    Attributes:
        application, curators: databases under these logins.
        tokens, sessions: as of a command of an admin, under the curators' login.
        admin_url, pipeline_url: of the owner, and of the pipelines.
    """

    url: str
    admin_url: str
    pipeline_url: str
    application: Database
    curators: Database
    tokens: Tokens
    sessions: Sessions

    async def token(self, agent: str = "ann", role: Role = Role.AGENT, **more: Any) -> NewToken:
        return await self.tokens.create(agent, role, **more, deadline=soon())

    def owner(self, query: str, *parameters: Any) -> list[dict[str, Any]]:
        """Return what the owner sees."""
        return asked(self.admin_url, query, parameters)

    def audited(self, *actions: str) -> list[tuple[Any, ...]]:
        """Return actor, action and outcome of the audit's rows about identities, in their order."""
        rows = self.owner(
            "SELECT actor_id, action, outcome FROM memory_access_audit "
            "WHERE resource_type = 'identity' AND (%s OR action = ANY (%s)) ORDER BY id",
            not actions, list(actions),
        )  # fmt: skip
        return [tuple(row.values()) for row in rows]

    @asynccontextmanager
    async def later(self, by: timedelta, *, pipelines: bool = False) -> AsyncIterator[Database]:
        """Lend the database as the application, or the pipelines, whose clock is ahead by so much."""
        url = self.pipeline_url if pipelines else self.url
        opened = Database(url, size=2, options=ahead(self.admin_url, by))
        try:
            yield opened
        finally:
            await opened.close()


@pytest_asyncio.fixture
async def office(light_stack: Any, light_template: str) -> AsyncIterator[Office]:
    settings = light_stack.settings
    with cloned(settings, light_template) as (url, admin_url):
        async with AsyncExitStack() as stack:
            application, curators = Database(url, size=4), Database(as_curators(settings, url), size=4)
            for database in (application, curators):
                stack.push_async_callback(database.close)
            gateway = Gateway(curators, ADMIN)
            yield Office(
                url, admin_url, as_pipelines(settings, url), application, curators, Tokens(gateway), Sessions(gateway)
            )
