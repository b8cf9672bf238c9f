"""The endpoint for vectors falls silent under load: whoever asks gets what was compared before, what is new waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import orjson
import pytest
import pytest_asyncio

from imem.kg.similarity.embedders import EndpointEmbedder
from imem.memory import Memory
from imem.recall.model import Quality
from tests.http_server import Answer, Asked, HttpServer, serving
from tests.kg.similarity.conftest import Directions, SimilarityHarness, analysis, day, without_a_graph
from tests.kg.similarity.test_embedders import vectors
from tests.proxy import SlowProxy, slowly
from tests.punctual import STALL_S, Punctual

STOPS, RESUMES = 8, 8 + round(STALL_S * 8)
ASKED = RESUMES + 8
"""Eight questions a second."""


HANG_S = 2.0
"""No question takes longer, in seconds."""


@pytest.fixture
def endpoint() -> Iterator[HttpServer]:
    """Lend a real server that speaks OpenAI's embeddings."""
    made = Directions()

    def answer(asked: Asked) -> Answer:
        rows = [made._vector(text).astype(np.float64).tolist() for text in orjson.loads(asked.body)["input"]]
        return vectors(*rows)

    with serving(answer) as server:
        yield server


@pytest_asyncio.fixture
async def way(harness: SimilarityHarness, endpoint: HttpServer) -> AsyncIterator[SlowProxy]:
    """Lend the way to that server, by which the harness has its vectors made."""
    async with slowly(endpoint.url) as proxy:
        harness.embedder = EndpointEmbedder(f"http://127.0.0.1:{proxy.port}/v1", "small", Directions().dimension)
        yield proxy


@pytest_asyncio.fixture
async def memory(harness: SimilarityHarness, light_stack: Any) -> AsyncIterator[Memory]:
    async with Memory.open(without_a_graph(light_stack.settings, harness, deadline_ms=500)) as opened:
        yield opened


@pytest.mark.spec("RS-1")
async def test_a_silent_endpoint_holds_up_nobody_and_what_is_new_is_compared_afterwards(
    harness: SimilarityHarness, memory: Memory, way: SlowProxy
) -> None:
    """Questions, and an analysis with every fourth, while vectors are made without end and for five seconds are not."""
    await harness.say(*(analysis(f"a{nth}", f"company:C{nth}", f"near oil {nth}", day(1)) for nth in range(12)))
    harness.owner("UPDATE delivery SET state = 'applied'")
    await harness.update()
    before = await harness.lists()
    await memory.similar("C0", deadline_ms=30_000)
    in_time, while_silent, over = Punctual(), list[bool](), asyncio.Event()

    async def ask(nth: int) -> None:
        with in_time.within(HANG_S):
            found = await memory.similar("C0")
        assert found.quality is Quality.EXACT, found.reason
        assert found.items
        while_silent.append(STOPS < nth < RESUMES)

    async def compare() -> None:
        while not over.is_set():
            await harness.update()
            await asyncio.sleep(0.01)

    comparing = asyncio.create_task(compare())
    async with asyncio.TaskGroup() as load:
        for nth in range(ASKED):
            if nth == STOPS:
                way.stall()
            if nth == RESUMES:
                at_the_end = await harness.lists()
                way.flow()
            load.create_task(ask(nth))
            if nth % 4 == 0:
                # About other subjects: what is asked for has been compared as a whole.
                await harness.say(analysis(f"new{nth}", f"company:N{nth}", f"near oil {100 + nth}", day(2)))
                harness.owner("UPDATE delivery SET state = 'applied'")
            await asyncio.sleep(1 / 8)  # The rate of the load.
    over.set()
    await comparing
    await harness.update()

    assert in_time.late_s < 0
    assert any(while_silent)
    asked_late = {f"new{nth}" for nth in range(STOPS, RESUMES) if nth % 4 == 0}
    assert not asked_late & at_the_end.keys(), "vectors came although nobody could make them"
    lists = await harness.lists()
    assert lists.keys() == before.keys() | {f"new{nth}" for nth in range(0, ASKED, 4)}
    assert all(lists[key] for key in asked_late)
    assert await harness.rows("SELECT FROM due_row WHERE queue = 'similar'") == []
