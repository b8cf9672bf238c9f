"""LangGraph's store beside the one that LangGraph itself has for Postgres: same server, same vectors, in turns."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Final

import pytest
import pytest_asyncio
from langgraph.store.base import BaseStore
from langgraph.store.postgres.aio import AsyncPostgresStore

from imem.langgraph import MemoryStore
from imem.memory import Memory
from tests.bench.table import Figure, Table, percentile
from tests.imem.memories.conftest import Places, places
from tests.imem.memory.conftest import MemoryHarness, harness

__all__ = ["harness", "places"]

ITEMS: Final = 60 if os.environ.get("IMEM_BENCH_SCALE") == "tiny" else 1_000
"""Items that are put, and as often read and searched for."""

WARM: Final = 20
"""Calls before those that count."""

pytestmark = pytest.mark.bench


@pytest_asyncio.fixture
async def stores(harness: MemoryHarness, places: Places) -> AsyncIterator[dict[str, BaseStore]]:
    async def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[float(one) for one in places._vector(text)] for text in texts]

    index: Any = {"dims": places.dimension, "embed": embed, "fields": ["text"]}
    async with (
        Memory.open(harness.of()) as memory,
        AsyncPostgresStore.from_conn_string(harness.admin_url, index=index) as peer,
    ):
        await peer.setup()
        yield {"ours": MemoryStore(memory, fields=["text"]), "peer": peer}


async def test_calls_beside_langgraphs_own_store(stores: dict[str, BaseStore], table: Table) -> None:
    """In turns, so that both meet the same machine; one task, every commit on disk."""

    def value(n: int) -> dict[str, Any]:
        return {"text": f"What was said about topic {n * 7919 % 1000}, number {n}.", "n": n}

    calls: dict[str, Callable[[BaseStore, int], Coroutine[Any, Any, Any]]] = {
        "put": lambda store, n: store.aput(("notes", str(n % 10)), str(n), value(n)),
        "get": lambda store, n: store.aget(("notes", str(n % 10)), str(n)),
        "search": lambda store, n: store.asearch(("notes",), query=f"topic {n * 7919 % 1000}", limit=10),
        "search, filtered": lambda store, n: store.asearch(("notes",), query=f"topic {n}", filter={"n": n}),
        "list": lambda store, n: store.asearch(("notes", str(n % 10)), limit=10),
    }
    taken_ms: dict[tuple[str, str], list[float]] = defaultdict(list)
    for call, make in calls.items():
        for n in range(ITEMS):
            for name in ("ours", "peer") if n % 2 else ("peer", "ours"):
                begun = time.perf_counter()
                await make(stores[name], n)
                if n >= WARM:
                    taken_ms[call, name].append((time.perf_counter() - begun) * 1000)
    data = f"{ITEMS:,} items"
    table.add(
        *(
            Figure(
                name=f"LangGraph store {call} {label}", data=data, value=percentile(taken_ms[call, "ours"], share),
                unit="ms", floor=percentile(taken_ms[call, "peer"], share),
                note="the floor is AsyncPostgresStore; ours searches by words, too",
            )
            for call in calls
            for share, label in ((0.5, "p50"), (0.95, "p95"))
        )
    )  # fmt: skip
