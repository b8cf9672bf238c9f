"""A database of the test's own, an embedder that is told where texts lie, and whoever remembers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.kg.similarity.embedders import Vectors, unit
from imem.kg.similarity.sentence_models import Purpose
from imem.memory import Memory
from imem.recall.memories.pipelines import embed_due
from tests.imem.memory.conftest import MemoryHarness, harness
from tests.kg.similarity.conftest import Directions
from tests.servers import as_pipelines

__all__ = ["harness"]

NEVER = Deadline.never()


@dataclass
class Places(Directions):
    """
    An embedder that is told the cosine of a text with one direction; others point anywhere.

    Attributes:
        cosines: text → its cosine with the direction of all that are placed.
        asked: the purposes that it was asked for.
    """

    cosines: dict[str, float] = field(default_factory=dict)
    asked: list[Purpose] = field(default_factory=list)

    async def embed(self, texts: Sequence[str], *, deadline: Deadline, purpose: Purpose = Purpose.COMPARE) -> Vectors:
        self.asked.append(purpose)
        return await super().embed(texts, deadline=deadline, purpose=purpose)

    def _vector(self, text: str) -> Any:
        if text not in self.cosines:
            return self._noise(text)
        found, cosine = np.zeros(self.dimension), self.cosines[text]
        found[0], found[1] = cosine, (1 - cosine**2) ** 0.5
        return unit([found])[0]


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Places:
    """Return the embedder that every memory of the test uses."""
    made = Places()
    monkeypatch.setattr("imem.services.embedders.embedder_of", lambda _: made)
    return made


@asynccontextmanager
async def memory_of(harness: MemoryHarness, actor: str = "ann", role: Role = Role.AGENT) -> AsyncIterator[Memory]:
    async with Memory.open(harness.of(actor, role).model_copy(update={"deadline_ms": 30_000})) as memory:
        yield memory


async def make_vectors(harness: MemoryHarness, embedder: Places) -> Any:
    """Run the pipeline once, as the workers do."""
    return await round_of(harness, embed_due, embedder)


async def round_of(harness: MemoryHarness, step: Callable[..., Awaitable[Any]], *given: Any) -> Any:
    """Run a step of a pipeline once, as the workers do."""
    assert harness.settings.postgres_url is not None
    url = as_pipelines(harness.settings, harness.settings.postgres_url.get_secret_value())
    database = Database(url, size=2)
    try:
        return await step(database, *given, until=NEVER)
    finally:
        await database.close()
