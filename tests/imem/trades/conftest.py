"""A database for the tests of a file: each test's deployments have names of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest

from imem.journal.settings import Role
from imem.memory import Memory
from imem.postmortem.trades.ledger import TickReceipt
from tests.imem.memory.conftest import MemoryHarness
from tests.servers import cloned, in_database

from .paths import Tick


@pytest.fixture(scope="module")
def harness(light_stack: Any, light_template: str) -> Iterator[MemoryHarness]:
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        addresses = {**in_database(light_stack.settings, url), "neo4j_url": "bolt://127.0.0.1:1"}
        yield MemoryHarness(light_stack.settings.model_copy(update=addresses), admin_url)


@pytest.fixture
def desk() -> str:
    return f"desk-{uuid4().hex[:8]}"


@asynccontextmanager
async def memory_of(harness: MemoryHarness, actor: str = "ann", role: Role = Role.AGENT) -> AsyncIterator[Memory]:
    async with Memory.open(harness.of(actor, role)) as memory:
        yield memory


async def record(memory: Memory, tick: Tick, **named: Any) -> TickReceipt:
    return await memory.trades.record(tick.decision, tick.positions, tick.bars, fees=tick.fees, at=tick.at, **named)
