"""A database of the test's own, and agents that record and read signals in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.memory import Memory
from imem.recall.signals import AgentSignal
from imem.recall.signals.pipelines import project_due
from tests.imem.memory.conftest import MemoryHarness
from tests.servers import as_pipelines, cloned, in_database

RETENTION = timedelta(days=180)
NEVER = Deadline.never()


@pytest.fixture(scope="module")
def shared(light_stack: Any, light_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryHarness]:
    """Lend one database to all tests of a file: each has agents and subjects of its own."""
    agents: Path = tmp_path_factory.mktemp("signals") / "agents.json"
    agents.write_text('{"agents": []}')
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        addresses = {
            **in_database(light_stack.settings, url),
            "neo4j_url": "bolt://127.0.0.1:1",
            "agents": agents,
            "deadline_ms": 5_000,
            "signals_timeout_ms": 5_000,
        }
        yield MemoryHarness(light_stack.settings.model_copy(update=addresses), admin_url)


@asynccontextmanager
async def memory_of(
    harness: MemoryHarness, actor: str = "ann", role: Role = Role.AGENT, **changes: Any
) -> AsyncIterator[Memory]:
    async with Memory.open(harness.of(actor, role).model_copy(update=changes)) as memory:
        yield memory


@asynccontextmanager
async def pipelines_of(harness: MemoryHarness) -> AsyncIterator[Database]:
    """Open the database as pipelines do."""
    assert harness.settings.postgres_url is not None
    database = Database(as_pipelines(harness.settings, harness.settings.postgres_url.get_secret_value()), size=2)
    try:
        yield database
    finally:
        await database.close()


async def project(harness: MemoryHarness, retention: timedelta = RETENTION) -> Any:
    """Run the pipeline until nothing is due, as the workers do."""
    async with pipelines_of(harness) as database:
        return await project_due(database, retention, until=NEVER)


def applied(harness: MemoryHarness) -> None:
    """Let every event count as applied, so that the safe horizon passes it."""
    harness.rows("UPDATE delivery SET state = 'applied', applied_at = imem_now() WHERE state = 'pending'")


def signal(market: str, agent: str = "ann", **changes: Any) -> AgentSignal:
    given = {"direction": "YES", "fair_probability": 0.62, "confidence": 0.955, "key_drivers": ["Rates", "Jobs"]}
    return AgentSignal(**{"agent_name": agent, "market_id": market, **given, **changes})
