"""A database of the test's own, whoever records and searches, and the pipeline that projects texts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from imem.kg.similarity.embedders import Embedder
from imem.recall.search.projection import project_due
from tests.imem.memories.conftest import memory_of, places
from tests.imem.memory.conftest import MemoryHarness, harness
from tests.servers import as_pipelines

__all__ = ["MemoryHarness", "harness", "memory_of", "places"]


async def project(harness: MemoryHarness, embedder: Embedder) -> Any:
    """Run the pipeline once, as the workers do."""
    async with as_worker(harness) as database:
        return await project_due(database, embedder, until=Deadline.never())


@asynccontextmanager
async def as_worker(harness: MemoryHarness) -> AsyncIterator[Database]:
    """Lend the database as the pipelines' role."""
    assert harness.settings.postgres_url is not None
    url = as_pipelines(harness.settings, harness.settings.postgres_url.get_secret_value())
    database = Database(url, size=3)
    try:
        yield database
    finally:
        await database.close()
