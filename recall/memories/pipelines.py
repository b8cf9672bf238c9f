"""Pipelines of memories: vectors that were not made yet, or that are of another model, and daily upkeep."""

from __future__ import annotations

from typing import Final
from uuid import UUID

import structlog

from imem.jobs.due import DueRow, finish_due, next_due
from imem.jobs.pipeline import Daily, Every, Pipeline, Report
from imem.jobs.runtime import Runtime
from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import execute
from imem.kg.pipelines import BUDGET_MS, SimilarityRuntime
from imem.kg.similarity.embedders import Embedder
from imem.kg.similarity.sentence_models import Purpose
from imem.kg.similarity.vectors import EMBED_BUDGET_MS, as_text, store_deadline, vectors_of
from imem.recall.memories.store import model_number, with_context
from imem.recall.memories.upkeep import consolidate, maintain

log = structlog.get_logger()

QUEUE: Final = "memories"
"""The queue of its due rows, which the functions that store memories insert."""

KIND: Final = "Memory"

PAGE: Final = 64
"""Memories whose vectors are made in one batch."""


async def embed_due(database: Database, embedder: Embedder, *, until: Deadline) -> Report:
    """
    Make vectors that are due, then those that are of another model than *embedder*'s, until none is left.

    A text that the model refuses, while it accepts others, is logged and stays without.

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
            return {"vectors": made, "more": False}
        made += await _embed(database, embedder, model, ids, due)
    return {"vectors": made, "more": True}


async def _embed(database: Database, embedder: Embedder, model: int, ids: list[UUID], due: list[DueRow]) -> int:
    found = await database.named("memories_to_embed", {"ids": sorted(set(ids))}, deadline=store_deadline())
    texts = [row["content"] for row in found]
    contexts = [with_context(row["content"], row["before"]) for row in found if row["before"] is not None]
    vectors = await vectors_of(
        embedder, [*texts, *contexts], deadline=Deadline.after_ms(EMBED_BUDGET_MS), purpose=Purpose.PASSAGE
    )
    in_context = iter(vectors[len(texts) :])
    made = []
    for row, vector in zip(found, vectors, strict=False):
        context = next(in_context) if row["before"] is not None else None
        if vector is None:
            log.warning("memories.refused", model=embedder.model_id, memory=str(row["id"]))
        else:
            made.append((row["id"], row["version"], as_text(vector), as_text(context) if context is not None else None))
    async with database.transaction(store_deadline()) as conn:
        names = ("ids", "versions", "vectors", "contexts")
        columns = {name: [one[nth] for one in made] for nth, name in enumerate(names)}
        await execute(conn, "set_memory_vectors", {"model": model, **columns})
        await finish_due(conn, QUEUE, due)
    return len(made)


async def _step(runtime: SimilarityRuntime, until: Deadline) -> Report:
    return await embed_due(runtime.database, runtime.embedder, until=until)


async def _consolidate(runtime: SimilarityRuntime, until: Deadline) -> Report:
    return await consolidate(runtime.database, runtime.embedder, until=until)


async def _maintain(runtime: Runtime, until: Deadline) -> Report:
    return await maintain(runtime.database, until=until)


EMBED_MEMORIES: Final = Pipeline("recall.embed_memories", _step, Every(15.0), budget_ms=BUDGET_MS, retry_max_s=60)

CONSOLIDATE_MEMORIES: Final = Pipeline(
    "recall.consolidate_memories", _consolidate, Daily(3, 37), budget_ms=BUDGET_MS, retry_max_s=600
)

MAINTAIN_MEMORIES: Final = Pipeline(
    "recall.maintain_memories", _maintain, Daily(3, 52), budget_ms=BUDGET_MS, retry_max_s=600
)
