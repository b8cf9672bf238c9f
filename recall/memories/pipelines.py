"""Pipelines of memories: vectors that were not made yet, or that are of another model, and daily upkeep."""

from __future__ import annotations

from typing import Final, Protocol
from uuid import UUID

import structlog

from imem.jobs.due import DueRow, finish_due, next_due
from imem.jobs.pipeline import Daily, Every, Pipeline, Report
from imem.journal.deadline import Deadline
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import execute
from imem.kg.pipelines import BUDGET_MS, SimilarityRuntime
from imem.kg.similarity.embedders import Embedder
from imem.kg.similarity.vectors import model_number, store_deadline
from imem.recall.memories.encoding import PartVectors, passage_vectors
from imem.recall.memories.parts import searched_text, split
from imem.recall.memories.store import with_context
from imem.recall.memories.upkeep import UpkeepRules, consolidate, maintain

log = structlog.get_logger()

QUEUE: Final = "memories"
"""The queue of its due rows, which the functions that store memories insert."""

KIND: Final = "Memory"

PAGE: Final = 64
"""Memories that are looked at in one round, and parts of them whose vectors are made in one batch."""


async def embed_due(database: Database, embedder: Embedder, *, until: Deadline) -> Report:
    """
    Make vectors that are due, then those that are of another model than *embedder*'s, until none is left.

    What no vector is of any more loses its indexes.

    A text of which the model refuses a part, while it accepts others, is logged and stays without; it loses vectors of
    another.

    Raises:
        ImemError: the embedder is away; finished pages stay, the rest is still due.
    """
    model = await model_number(database, embedder, deadline=store_deadline())
    made = 0
    while not until.passed:
        async with database.transaction(store_deadline()) as conn:
            due = await next_due(conn, QUEUE, (KIND,), PAGE)
        ids = [UUID(one.key) for one in due]
        if not due:
            given = {"model": model, "limit": PAGE}
            ids = [
                row["id"] for row in await database.named("memories_of_other_models", given, deadline=store_deadline())
            ]
        if not ids:
            await database.commit("drop_unused_indexes", {"model": model}, deadline=store_deadline())
            return {"vectors": made, "more": False}
        made += await _embed(database, embedder, model, ids, due)
    return {"vectors": made, "more": True}


async def _embed(database: Database, embedder: Embedder, model: int, ids: list[UUID], due: list[DueRow]) -> int:
    found = await database.named("memories_to_embed", {"ids": sorted(set(ids))}, deadline=store_deadline())
    page = _page(found)
    contexts = [
        with_context(part, row["before"]) if nth == 0 and row["before"] is not None else None
        for row, parts in page
        for nth, part in enumerate(parts)
    ]
    pairs = iter(await passage_vectors(embedder, [part for _, parts in page for part in parts], contexts))
    made = [[next(pairs) for _ in parts] for _, parts in page]
    vectors = [PartVectors.of([vector for vector, _ in one]) for one in made]
    for (row, _), one in zip(page, vectors, strict=True):
        if one.first is None:
            log.warning("memories.refused", model=embedder.model_id, memory=str(row["id"]))
    columns = {
        "ids": [row["id"] for row, _ in page],
        "versions": [row["version"] for row, _ in page],
        "vectors": [one.first for one in vectors],
        "parts": [one.others for one in vectors],
        "contexts": [of[0][1] if one.first is not None else None for one, of in zip(vectors, made, strict=True)],
    }
    waiting = {str(row["id"]) for row in found[len(page) :]}
    async with database.transaction(store_deadline()) as conn:
        await execute(conn, "set_memory_vectors", {"model": model, **columns})
        await finish_due(conn, QUEUE, [one for one in due if one.key not in waiting])
    return sum(one.first is not None for one in vectors)


def _page(found: list[Row]) -> list[tuple[Row, list[str]]]:
    """Return the first memories with their parts: so many that all of these are about one batch."""
    page: list[tuple[Row, list[str]]] = []
    parts = 0
    for row in found:
        if parts >= PAGE:
            break
        page.append((row, [searched_text(row["author"], part) for part in split(row["content"])]))
        parts += len(page[-1][1])
    return page


async def _step(runtime: SimilarityRuntime, until: Deadline) -> Report:
    return await embed_due(runtime.database, runtime.embedder, until=until)


class MemoryRuntime(SimilarityRuntime, Protocol):
    """A runtime with the rules of upkeep."""

    memory_rules: UpkeepRules


async def _consolidate(runtime: MemoryRuntime, until: Deadline) -> Report:
    return await consolidate(runtime.database, runtime.embedder, runtime.memory_rules, until=until)


async def _maintain(runtime: MemoryRuntime, until: Deadline) -> Report:
    return await maintain(runtime.database, runtime.memory_rules, until=until)


EMBED_MEMORIES: Final = Pipeline("recall.embed_memories", _step, Every(15.0), budget_ms=BUDGET_MS, retry_max_s=60)

CONSOLIDATE_MEMORIES: Final = Pipeline(
    "recall.consolidate_memories", _consolidate, Daily(3, 37), budget_ms=BUDGET_MS, retry_max_s=600, without_broker=True
)

MAINTAIN_MEMORIES: Final = Pipeline(
    "recall.maintain_memories", _maintain, Daily(3, 52), budget_ms=BUDGET_MS, retry_max_s=600, without_broker=True
)
