"""The first search of a process waits for the encoder: it finds by meaning, as every later one does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pytest

from imem.journal.errors import StoreUnavailable
from imem.kg.similarity.embedders import LocalEmbedder
from imem.kg.similarity.sentence_models import Encode
from imem.memory import Memory
from imem.recall.model import Quality
from tests.imem.search.conftest import MemoryHarness, harness

__all__ = ["harness"]

MS: Final = 1_000
"""The deadline of a search, shorter than loading takes here."""

SEARCHES: Final[dict[str, Callable[[Memory], Awaitable[Any]]]] = {
    "search": lambda memory: memory.search("Is there enough of it?"),
    "search with a deadline": lambda memory: memory.search("Is there enough of it?", deadline_ms=MS),
    "memories": lambda memory: memory.memories.search("Is there enough of it?"),
    "relevant": lambda memory: memory.memories.relevant("Is there enough of it?"),
}


@dataclass
class Model:
    """A sentence model that knows one meaning, and is loaded when a test says so."""

    model_id: str = "one meaning"
    dimension: int = 64
    unrelated: float = 0.0
    languages: frozenset[str] = frozenset({"en"})
    threads: int = 1
    may_load: threading.Event = field(default_factory=threading.Event)
    cannot: bool = False
    asked: int = 0

    def load(self) -> Encode:
        self.asked += 1
        self.may_load.wait()
        if self.cannot:
            raise StoreUnavailable("The encoder cannot be fetched.")
        return lambda *_: np.ones(self.dimension, np.float32)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    """Return the model of every process of the test; each has an encoder of its own."""
    made = Model()
    made.may_load.set()
    monkeypatch.setattr("imem.services.embedders.embedder_of", lambda _: LocalEmbedder(made))
    return made


def settings(harness: MemoryHarness) -> Any:
    return harness.of().model_copy(update={"deadline_ms": MS, "memory_own_similarity": 0.5})


async def remembered(harness: MemoryHarness) -> None:
    async with Memory.open(settings(harness)) as memory:
        await memory.remember("HBM is sold out until 2027.")


async def held_up(search: Awaitable[Any], model: Model) -> Any:
    """Return the answer of a search that began while the model was not loaded, and for longer than its deadline."""
    model.may_load.clear()
    task = asyncio.ensure_future(search)
    early, _ = await asyncio.wait([task], timeout=MS / 1000 * 1.2)
    model.may_load.set()
    answer = await task
    assert not early
    return answer


@pytest.mark.parametrize("name", SEARCHES)
async def test_a_first_search_waits_for_the_encoder(harness: MemoryHarness, model: Model, name: str) -> None:
    """In other words, at the default budget; so does a later one, after the encoder was unloaded as nobody used it."""
    await remembered(harness)
    async with Memory.open(settings(harness)) as memory:
        first = await held_up(SEARCHES[name](memory), model)
        embedder = memory._stores.memories.encoder.embedder
        assert isinstance(embedder, LocalEmbedder)
        embedder._let_go()
        later = await held_up(SEARCHES[name](memory), model)

    for answer in (first, later):
        assert (answer.quality, answer.reason) == (Quality.EXACT, None)
        assert len(answer.items) == 1


async def test_a_memory_can_be_opened_with_its_encoder(harness: MemoryHarness, model: Model) -> None:
    """`warm_up` loads it before the first search, in either form."""
    await remembered(harness)
    asked = model.asked
    async with Memory.open(settings(harness), warm_up=True) as memory:
        assert model.asked == asked + 1
        assert (await memory.search("Is there enough of it?")).quality is Quality.EXACT
        assert model.asked == asked + 1

    def blocking() -> Quality:
        with Memory.sync(settings(harness), warm_up=True) as memory:
            assert model.asked == asked + 2
            return memory.search("Is there enough of it?").quality

    assert await asyncio.to_thread(blocking) is Quality.EXACT


async def test_an_encoder_that_cannot_be_had_is_not_waited_for(
    harness: MemoryHarness, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words alone decide, and the answer says so: whether it cannot be fetched or takes longer than anybody waits."""
    await remembered(harness)
    model.cannot = True
    async with Memory.open(settings(harness)) as memory:
        for _ in range(2):
            found = await memory.search("HBM")
            assert (found.quality, len(found.items)) == (Quality.PARTIAL, 1)
            assert "words alone" in (found.reason or "")
    model.cannot = False
    monkeypatch.setattr("imem.services.connections.LOADING_MS", 50)
    model.may_load.clear()
    try:
        async with Memory.open(settings(harness)) as memory:
            for _ in range(2):
                assert "words alone" in ((await memory.search("HBM")).reason or "")
    finally:
        model.may_load.set()
