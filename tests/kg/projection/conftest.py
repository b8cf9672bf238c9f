"""A world to prove things in, and how hard to try."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio
from hypothesis import HealthCheck, settings

from imem.kg import migrations
from imem.kg.engine import Graph
from tests.kg.projection.world import Journal, World

CHAOS = bool(os.environ.get("IMEM_CHAOS"))

PROOFS = settings(
    max_examples=200 if CHAOS else 4,
    deadline=None,
    # The servers are shared by all examples, which begin by emptying them.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
    derandomize=not CHAOS,
    database=None,
)
"""How hard property tests on real servers try: the same few examples in CI, many new ones in the long form."""


@pytest_asyncio.fixture(scope="session")
async def world(stack: Any, template: str) -> AsyncIterator[World]:
    found = stack.settings
    address = (found.neo4j_url, found.neo4j_user, found.neo4j_password.get_secret_value())
    migrations.migrate(*address)
    graph = Graph(*address)
    yield World(found, template, graph)
    await graph.close()


@pytest_asyncio.fixture
async def empty(world: World) -> World:
    """Give the world with an empty graph."""
    await world.wipe()
    return world


@pytest_asyncio.fixture
async def journal(world: World) -> AsyncIterator[Journal]:
    async with world.journal() as lent:
        yield lent
