"""The process itself: a worker on a real broker, with the encoder that is here, compares what is new in a minute."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from pydantic import SecretStr

from imem.kg.pipelines import REBUILD_SIMILAR, SIMILAR
from imem.workers.applier import TaskRequester
from imem.workers.celery_app import make_app
from tests.credibility.test_workers import empty
from tests.encoders import LOCAL
from tests.kg.similarity.conftest import SimilarityHarness, analysis, company
from tests.servers import in_database
from tests.waiting import until
from tests.workers import process

TEXTS = (
    "Demand for memory chips stays strong and the maker's margin widens.",
    "The chip maker's margin grows while demand for memory is high.",
    "Chip demand remains firm; margins of memory makers improve.",
    "A drought lowers the river and the dam's power falls short.",
)


@pytest.fixture
async def broker(light_stack: Any) -> AsyncIterator[redis.asyncio.Redis]:
    client = redis.asyncio.Redis.from_url(light_stack.settings.valkey_durable_url.get_secret_value())
    await empty(client)
    yield client
    await empty(client)
    await client.aclose()


@pytest.mark.spec("PF-9")
@pytest.mark.usefixtures("broker")
async def test_a_worker_finds_what_is_new_within_a_minute(
    harness: SimilarityHarness, light_stack: Any, home: Path
) -> None:
    """Asked by the applier, it makes the vectors and puts the new one into the lists of the others as well."""
    given = {"home": home, **in_database(light_stack.settings, harness.url), "neo4j_url": "bolt://127.0.0.1:1"}
    settings = light_stack.settings.model_copy(update={**given, "neo4j_password": SecretStr("none")})
    app = make_app(settings)
    await harness.say(
        *(company(f"C{number}", sector="tech") for number in range(4)),
        *(analysis(f"a{number}", f"company:C{number}", text) for number, text in enumerate(TEXTS[1:], 1)),
    )

    async def compared() -> bool:
        return not await harness.rows("SELECT FROM due_row WHERE queue = 'similar' LIMIT 1")

    async with process("celery", settings):
        app.send_task(SIMILAR.name, ignore_result=True)
        await until(compared)
        begun = time.monotonic()
        await harness.say(analysis("a0", "company:C0", TEXTS[0]))
        requester = TaskRequester(app, SIMILAR, settings)
        requester.applied(frozenset({"record.Analysis"}))
        asking = asyncio.create_task(requester.run())
        await until(compared)
        asking.cancel()
        assert time.monotonic() - begun < 60
        lists = await harness.lists()
        assert [key for key, _ in lists["a0"]] == ["a1", "a2", "a3"]
        assert lists["a0"][0][1] >= 0.8
        assert all("a0" in {key for key, _ in found} for key, found in lists.items() if key != "a0")
        app.send_task(REBUILD_SIMILAR.name, ignore_result=True)

        async def swapped() -> bool:
            rows = await harness.rows("SELECT version FROM similarity_build WHERE state = 'current'")
            return bool(rows[0]["version"] > 1)

        await until(swapped)
    assert await harness.lists() == lists
    assert (await harness.rows("SELECT model_id FROM embedding_model"))[0]["model_id"] == LOCAL.model_id
