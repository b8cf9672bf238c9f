"""A journal without a graph, and one with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest_asyncio

from imem.journal.actors import Actor
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.kg.engine import Graph
from imem.kg.projection.applier import Applier
from tests.kg.projection.conftest import empty, journal, world
from tests.kg.projection.world import Journal, Line, NoWakeups
from tests.servers import as_pipelines, cloned

__all__ = ["empty", "journal", "world"]

NOWHERE = "bolt://127.0.0.1:1"


def agent(name: str) -> Actor:
    """Return an agent; its facts are known when it states them."""
    return Actor(name, Role.HUMAN_ADMIN)


def finding(key: str, *, by: str = "bull", importance: float | None = None) -> Line:
    """Return a line of a finding that is known now."""
    core: dict[str, Any] = {
        "id": key, "analysis_id": f"of {by}", "subject_id": f"company:{by.upper()}", "agent": by, "domain": "d",
        "statement": "s",
    }  # fmt: skip
    return {"record": "Finding", "core": core if importance is None else {**core, "importance": importance}}


@asynccontextmanager
async def later(journal: Journal, minutes: float) -> AsyncIterator[Database]:
    """Lend the journal as it is so many minutes from now: the clock is the owner's to shift."""
    database = Database(journal.admin_url, size=4, options=f"-c imem.clock_shift={minutes * 60:.0f}s")
    try:
        yield database
    finally:
        await database.close()


def lame(database: Database, **options: Any) -> Applier:
    """Return an applier that never reaches a graph: it claims, and notes what became of events."""
    return Applier(database, Graph(NOWHERE, "neo4j", "neo4j"), NoWakeups(), **options)


@pytest_asyncio.fixture
async def paper(light_stack: Any, light_template: str) -> AsyncIterator[Journal]:
    """Give a journal of its own without a graph."""
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        pipeline_url = as_pipelines(light_stack.settings, url)
        database = Database(pipeline_url)
        yield Journal(url, admin_url, database, pipeline_url)
        await database.close()


def numbers(keys: Iterator[str] | list[str]) -> list[int]:
    """Return the numbers that keys end with."""
    return [int(key.rpartition("-")[2]) for key in keys]
