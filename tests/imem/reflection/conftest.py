"""A database for the tests of a file, deployments that trade, and the worker that reflects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.memory import Memory
from imem.postmortem.reflection.model_distiller import distillers_of
from imem.postmortem.reflection.pipelines import reflect_due
from imem.postmortem.trades.ledger import TickReceipt
from imem.postmortem.trades.model import Bar, Position, Side, TickDecision
from tests.imem.memory.conftest import MemoryHarness
from tests.servers import as_pipelines, cloned, in_database

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
NEVER = Deadline.never()


@pytest.fixture(scope="module")
def harness(light_stack: Any, light_template: str) -> Iterator[MemoryHarness]:
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        addresses = {**in_database(light_stack.settings, url), "neo4j_url": "bolt://127.0.0.1:1"}
        yield MemoryHarness(light_stack.settings.model_copy(update=addresses), admin_url)


@asynccontextmanager
async def memory_of(harness: MemoryHarness, actor: str = "ann", role: Role = Role.AGENT) -> AsyncIterator[Memory]:
    async with Memory.open(harness.of(actor, role)) as memory:
        yield memory


@dataclass
class Desk:
    """
    A deployment that trades.

    Attributes:
        name, skill: its own in each test.
        ticks: those so far.
    """

    memory: Memory
    name: str = field(default_factory=lambda: f"desk-{uuid4().hex[:8]}")
    skill: str = field(default_factory=lambda: f"skill-{uuid4().hex[:8]}")
    ticks: int = 0

    async def tick(self, *symbols: str, price: str = "100", reason: str = "") -> TickReceipt:
        """Hold a hundred dollars of these symbols, and nothing else, from now on."""
        self.ticks += 1
        return await self.again(*symbols, price=price, reason=reason)

    async def again(self, *symbols: str, price: str = "100", reason: str = "") -> TickReceipt:
        """Send the last tick once more."""
        return await self.memory.trades.record(
            TickDecision(self.name, self.skill, "1", reason),
            [Position(symbol, Side.LONG, Decimal(1)) for symbol in symbols],
            {symbol: Bar(Decimal(price)) for symbol in ("BTC", "ETH")},
            at=BEGIN + timedelta(minutes=self.ticks),
        )

    async def trades(self, count: int, *, exit_price: str = "110", reason: str = "") -> None:
        """Open and close so many trades."""
        for _ in range(count):
            await self.tick("BTC", reason=reason)
            await self.tick(price=exit_price, reason=reason)


@pytest_asyncio.fixture
async def desk(harness: MemoryHarness) -> AsyncIterator[Desk]:
    """Yield a deployment of the agent Ann; what was due before is not."""
    harness.rows("DELETE FROM due_row")
    async with memory_of(harness) as memory:
        yield Desk(memory)


@pytest_asyncio.fixture
async def pipelines(harness: MemoryHarness) -> AsyncIterator[Database]:
    assert harness.settings.postgres_url is not None
    database = Database(as_pipelines(harness.settings, harness.settings.postgres_url.get_secret_value()), size=8)
    yield database
    await database.close()


async def reflect(harness: MemoryHarness, database: Database, **settings: Any) -> Any:
    """Run the pipeline once, as the workers do."""
    return await reflect_due(database, distillers_of(harness.settings.model_copy(update=settings)), until=NEVER)


def queued(harness: MemoryHarness, desk: Desk) -> int:
    """Return how many reflections of a deployment are queued."""
    given = "SELECT count(*) AS n FROM due_row WHERE queue = 'reflection' AND kind = 'Deployment' AND key = %s"
    return int(harness.rows(given, desk.name)[0]["n"])
