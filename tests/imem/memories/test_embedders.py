"""Memories with an endpoint as embedder that misbehaves, and with a model that changes while they are written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import orjson
import pytest
import pytest_asyncio
from pydantic import SecretStr

from imem.journal.deadline import Deadline
from imem.journal.errors import StatementRejected
from imem.journal.settings import Settings
from imem.kg.similarity.sentence_models import Purpose
from imem.memory import Memory
from imem.recall.answers import Quality
from imem.recall.memories.pipelines import PAGE
from tests.http_server import Answer, Asked, serving
from tests.imem.memories.conftest import Places, make_vectors, memory_of
from tests.imem.memory.conftest import MemoryHarness

BUDGET_MS = 500


def vectors(asked: Asked, dimension: int = 8) -> Answer:
    """Answer each text with the same direction."""
    texts = orjson.loads(asked.body)["input"]
    data = [{"index": number, "embedding": [1.0] + [0.0] * (dimension - 1)} for number in range(len(texts))]
    return Answer(body=orjson.dumps({"data": data}))


@pytest.fixture
def endpoint(harness: MemoryHarness) -> Settings:
    more = {"embedding_url": SecretStr("http://127.0.0.1:1"), "embedding_model": "m", "embedding_dimension": 8}
    return harness.of().model_copy(update=more)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda asked: vectors(asked, 9), "did not answer with 1 vectors of 8 numbers"),
        (lambda _: Answer(silent=True), "not ready in time"),
        (lambda _: Answer(drip=True), "not ready in time"),
        (lambda _: Answer(status=401), "refused with status 401"),
        (lambda _: Answer(body=b"{"), "an answer that cannot be read"),
    ],
    ids=["wrong dimension", "silent", "dripping", "refusing", "broken"],
)
async def test_an_endpoint_that_misbehaves(
    harness: MemoryHarness, endpoint: Settings, answer: object, reason: str
) -> None:
    """Within its time a text is stored without a vector and found by its words, and the answer says why."""
    with serving(answer) as server:  # type: ignore[arg-type]
        asking = endpoint.model_copy(update={"embedding_url": SecretStr(server.url)})
        async with Memory.open(asking) as memory:
            begun = time.monotonic()
            assert (await memory.remember("Margins rise.", deadline_ms=8_000)).waits
            found = await memory.memories.search("Do margins rise?", deadline_ms=BUDGET_MS)
            assert time.monotonic() - begun < 40
        assert [item.content for item in found.items] == ["Margins rise."]
        assert found.quality is Quality.PARTIAL
        assert reason in str(found.reason)
    assert harness.rows("SELECT model, vector FROM recall.memory") == [{"model": None, "vector": None}]


async def test_an_endpoint_that_answers(endpoint: Settings) -> None:
    with serving(vectors) as server:
        asking = endpoint.model_copy(update={"embedding_url": SecretStr(server.url)})
        async with Memory.open(asking) as memory:
            assert not (await memory.remember("Margins rise.")).waits
            [item] = (await memory.memories.search("What goes up?")).items
            assert item.similarity == pytest.approx(1.0)


@pytest_asyncio.fixture
async def ann(harness: MemoryHarness, places: Places) -> AsyncIterator[Memory]:
    del places
    async with memory_of(harness) as memory:
        yield memory


async def test_a_model_changes_while_it_is_written(
    harness: MemoryHarness, ann: Memory, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors of two models are never compared; at the end all are of the new one, those of a late writer too."""
    changed = Places(model_id="another", dimension=32)
    for number in range(20):
        await ann.remember(f"old words {number}, of topic {number * 7919}")
    monkeypatch.setattr("imem.services.embedders.embedder_of", lambda _: changed)
    async with memory_of(harness, "bob") as bob:
        await bob.remember("own words, of topic 1")

        async def write(memory: Memory, who: str) -> None:
            for number in range(20):
                await memory.remember(f"{who} {number}, of topic {number * 104729}", namespace="symbol/MU")

        async def read(memory: Memory) -> None:
            for _ in range(10):
                found = await memory.memories.search("topic words", limit=50, deadline_ms=10_000)
                assert found.items
                of = {row["id"]: row["model_id"] for row in harness.rows(MODELS)}
                mine = "directions" if memory is ann else "another"
                for item in found.items:
                    # One may have been made anew after it was found.
                    assert item.similarity is None or of[item.id] in {mine, "another"}

        await asyncio.gather(
            write(ann, "late"), write(bob, "new"), read(ann), read(bob), make_vectors(harness, changed)
        )
        await make_vectors(harness, changed)
        assert {row["model_id"] for row in harness.rows(MODELS)} == {"another"}
        found = await bob.memories.search("topic words", namespace="symbol/*", limit=50, deadline_ms=10_000)
        assert (found.quality, found.total) == (Quality.EXACT, 40)
    [model] = harness.rows("SELECT model FROM embedding_model WHERE model_id = 'another'")
    named = "SELECT indexname FROM pg_indexes WHERE schemaname = 'recall' AND indexname ~ '_hnsw_' ORDER BY 1"
    assert [row["indexname"] for row in harness.rows(named)] == [
        f"{column}_hnsw_{model['model']}"
        for column in (
            "memory_context_vector", "memory_part_vector", "memory_vector",
            "record_text_context_vector", "record_text_vector",
        )
    ], "those of the old model take neither room nor time any more"  # fmt: skip
    del places


async def test_a_new_model_searches_before_it_wrote(
    harness: MemoryHarness, ann: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is of it yet: all is found by its words, and the answer says that it is not whole."""
    await ann.remember("old words of a topic", namespace="symbol/MU")
    monkeypatch.setattr("imem.services.embedders.embedder_of", lambda _: Places(model_id="another", dimension=32))
    async with memory_of(harness, "bob") as bob:
        found = await bob.memories.search("topic words")
    assert [(item.content, item.similarity) for item in found.items] == [("old words of a topic", None)]
    assert found.quality is Quality.PARTIAL


async def test_a_new_model_refuses_a_text(harness: MemoryHarness, ann: Memory, places: Places) -> None:
    """It has no vector then, neither of the new model nor of the old; all others are made, and the round ends."""
    for number in range(PAGE + 3):
        await ann.remember(f"refused {number}" if number < PAGE else f"accepted {number}")

    class Refusing(Places):
        async def embed(self, texts: Sequence[str], *, deadline: Deadline, purpose: Purpose = Purpose.COMPARE) -> Any:
            if any(text.startswith("refused") for text in texts):
                raise StatementRejected("The endpoint for vectors refused with status 400.")
            return await super().embed(texts, deadline=deadline, purpose=purpose)

    async with asyncio.timeout(60):
        assert await make_vectors(harness, Refusing(model_id="another")) == {"vectors": 3, "more": False}
    assert {row["model_id"] for row in harness.rows(MODELS)} == {"another"}
    del places


MODELS = "SELECT m.id, e.model_id FROM recall.memory AS m JOIN embedding_model AS e ON e.model = m.model"
