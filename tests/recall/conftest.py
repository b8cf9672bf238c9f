"""A memory over a journal of the test's own and a graph that is empty when it begins."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest_asyncio
from redis.asyncio import Redis

from imem.cache.client import Client
from imem.cache.keys import APPLIER_HEARTBEAT
from imem.cache.tiers.invalidation import InvalidationPublisher, ProjectionInvalidator
from imem.credibility.settled_links import SettledBy
from imem.credibility.settling import settle_due
from imem.journal.deadline import Deadline
from imem.journal.gateway import Gateway
from imem.journal.settings import Settings
from imem.kg.projection.plan_warming import warm
from imem.kg.similarity.index import SimilarTo, update
from imem.memory import Memory
from tests.kg.draining import drain
from tests.kg.projection.conftest import empty, journal, world
from tests.kg.projection.world import Journal, Line, World, importer
from tests.kg.similarity.conftest import Directions
from tests.servers import in_database
from tests.telling import publishing_heartbeat

__all__ = ["empty", "journal", "world"]


@dataclass
class RecallHarness:
    """
    Facts are stated, applied and settled, and then asked for.

    Attributes:
        world: the servers.
        journal: the journal.
        memory: what is asked.
        settings: by which another memory can be opened.
        told: tells of what is applied; none where nobody does, so that nothing is kept.
    """

    world: World
    journal: Journal
    memory: Memory
    settings: Settings
    told: ProjectionInvalidator | None = None

    async def know(self, lines: Sequence[Line], source: str = "test") -> None:
        """State facts as an import and let every pipeline finish."""
        receipts = await self.journal.say(*lines, actor=importer(source))
        assert not any(receipt.verdict.refused for receipt in receipts), [one.verdict for one in receipts]
        await self.work()

    async def work(self) -> None:
        """Apply and settle what is due."""
        gateway = Gateway(self.journal.database, importer())
        hooks = {} if self.told is None else {"written": self.told.written, "derived": self.told.derived}
        derivers = {"settled_by": SettledBy(), "similar_to": SimilarTo()}
        applier = self.world.applier(self.journal, derivers=derivers, **hooks)
        await drain(applier)
        await update(self.journal.database, Directions(), until=Deadline.never(), loading=0.0)
        await settle_due(self.journal.database, gateway, halflife_years=2.0, until=Deadline.never())
        await drain(applier)
        await applier.stop()
        # The server plans anew once a graph has outgrown its plans; in the product the applier's process sees to it.
        await warm(self.world.graph)


def settings_of(world: World, journal: Journal, **changes: Any) -> Settings:
    """Return settings for the journal, with *changes*."""
    return world.settings.model_copy(
        update={**in_database(world.settings, journal.url), "deadline_ms": 30_000, **changes}
    )


@pytest_asyncio.fixture
async def harness(empty: World, journal: Journal) -> AsyncIterator[RecallHarness]:
    settings = settings_of(empty, journal)
    async with Memory.open(settings) as memory:
        yield RecallHarness(empty, journal, memory, settings)


@asynccontextmanager
async def patient(settings: Settings) -> AsyncIterator[Memory]:
    """Open a memory that gives its caches the time that a busy machine takes."""
    async with Memory.open(settings) as memory:
        tiers = memory._stores.tiers
        assert tiers is not None
        assert tiers.shared is not None
        tiers.cache_timeout_ms = tiers.shared.budget_ms = tiers.shared.write_timeout_ms = 2_000.0
        yield memory


@pytest_asyncio.fixture
async def telling(empty: World, journal: Journal) -> AsyncIterator[RecallHarness]:
    """Lend a harness whose changes are notified, so that answers are kept; at first none is."""
    settings = settings_of(empty, journal)
    assert settings.valkey_durable_url is not None
    assert settings.valkey_cache_url is not None
    for url in (settings.valkey_durable_url, settings.valkey_cache_url):
        async with Redis.from_url(url.get_secret_value()) as bare:
            await bare.flushall()
    async with Client(settings.valkey_durable_url.get_secret_value()) as client, patient(settings) as memory:
        # A busy machine may not come to repeat its word for a while.
        publisher = InvalidationPublisher(client, lambda: True, heartbeat_ttl_s=60.0)
        try:
            async with publishing_heartbeat(publisher):
                yield RecallHarness(
                    empty, journal, memory, settings, ProjectionInvalidator(journal.database, publisher)
                )
        finally:
            # It would hold for whoever comes next, too: nothing is kept for a harness that nobody notifies.
            async with Redis.from_url(settings.valkey_durable_url.get_secret_value()) as bare:
                await bare.delete(APPLIER_HEARTBEAT)
