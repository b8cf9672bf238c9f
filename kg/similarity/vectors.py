"""
Vectors of analyses in Postgres: made of what each says, kept from when it counts.

Each statement of an analysis, its core and every correction, has a vector of its own with the clocks of the statement,
so that a search as of a day looks at what stood then. A text is made of what was recorded with the statement or before
it and of nothing later: the vector of a statement never changes.

Vectors are made outside any transaction and stored in one; a crash between the two costs making them again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson
import structlog
from numpy.typing import NDArray

from imem.journal.deadline import Deadline
from imem.journal.errors import StatementRejected
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import execute
from imem.kg.similarity.embedders import TEXT_CHARS, Embedder

log = structlog.get_logger()

Vector = NDArray[np.float32]

STORE_BUDGET_MS: Final = 30_000
"""How long one statement or batch may take in Postgres, in milliseconds: an index that grows is slow to write."""

EMBED_BUDGET_MS: Final = 120_000
"""How long the vectors of one batch may take, in milliseconds: an endpoint may be asked several times."""

PROBE_TEXT: Final = "analysis"
"""What any model takes: it tells a text that is refused from a model, or a key, that is wrong."""

_FACTS: Final = ("kind", "recommendation", "regime")
"""What stands for a text where there is none."""


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """
    A model that vectors were made by.

    Attributes:
        number: by which rows name it.
        model_id, dimension: see :class:`imem.kg.similarity.embedders.Embedder`.
        in_use: whether searches use its vectors.
    """

    number: int
    model_id: str
    dimension: int
    in_use: bool

    def is_of(self, embedder: Embedder) -> bool:
        """Return whether *embedder* makes vectors of this model."""
        return (self.model_id, self.dimension) == (embedder.model_id, embedder.dimension)


def store_deadline() -> Deadline:
    """Return the deadline of one batch in Postgres."""
    return Deadline.after_ms(STORE_BUDGET_MS)


async def model_of(database: Database, embedder: Embedder) -> EmbeddingModel:
    """
    Return the model of *embedder*, registered and with its index; the first one is in use from the beginning.

    Raises:
        PostgresUnavailable: it may not be registered yet; retryable.
    """
    named = {"model_id": embedder.model_id, "dimension": embedder.dimension}
    found = await models(database)
    if not any(one.is_of(embedder) for one in found):
        await database.execute("add_model", named, deadline=store_deadline())
        found = await models(database)
    model = next(one for one in found if one.is_of(embedder))
    await database.commit(
        "index_model", {"model": model.number, "dimension": model.dimension}, deadline=store_deadline()
    )
    return model


async def models(database: Database) -> list[EmbeddingModel]:
    """Return every model that vectors were made by."""
    found = await database.named("models", deadline=store_deadline())
    return [EmbeddingModel(row["model"], row["model_id"], row["dimension"], row["in_use"]) for row in found]


def document(core: Mapping[str, Any], *, body: str | None = None, question: str | None = None) -> str:
    """
    Return the text that an analysis is compared by: the question that it answers, and what it concludes.

    Args:
        core: canonical core of the analysis.
        body: its long text, which stands in for a summary.
        question: of the subject, if that is one.
    """
    said = (core.get("summary") or "").strip() or (body or "").strip()
    if not said:
        said = " ".join(str(core[name]).replace("_", " ") for name in _FACTS if core.get(name) is not None)
    # Never empty, which a model may refuse.
    return (f"{question} {said}" if question else said).strip()[:TEXT_CHARS] or PROBE_TEXT


async def embed(database: Database, embedder: Embedder, model: EmbeddingModel, keys: Sequence[str]) -> int:
    """
    Make the vectors that *model* lacks of the given analyses, store them, and return how many they were.

    A text that the model refuses, and no other, must not hold up the rest for ever: it stays without a vector, which
    the log says, until the index is built anew.

    Raises:
        ImemError: the embedder cannot make them now; nothing was stored.
        PostgresUnavailable: nothing was stored; retryable.
    """
    wanted = {"model": model.number, "keys": sorted(set(keys)), "chars": TEXT_CHARS}
    found = await database.named("statements_to_embed", wanted, deadline=store_deadline())
    if not found:
        return 0
    texts = [document(row["core"], body=row["body"], question=row["question"]) for row in found]
    vectors = await _vectors(embedder, texts, Deadline.after_ms(EMBED_BUDGET_MS))
    taken = [nth for nth, vector in enumerate(vectors) if vector is not None]
    if len(taken) < len(found):
        refused = sorted({found[nth]["key"] for nth in set(range(len(found))) - set(taken)})
        log.warning("similar.refused", model=model.model_id, analyses=refused)
    if taken:
        columns = _columns(
            [found[nth] for nth in taken], [texts[nth] for nth in taken], [vectors[nth] for nth in taken]
        )
        async with database.transaction(store_deadline()) as conn:
            await execute(conn, "add_embeddings", {"model": model.number, **columns})
            await execute(
                conn, "mark_current_embeddings", {"model": model.number, "keys": sorted({row["key"] for row in found})}
            )
    return len(taken)


async def _vectors(embedder: Embedder, texts: Sequence[str], deadline: Deadline) -> list[Vector | None]:
    """
    Return the vectors of *texts*, none of one that is refused where others are taken.

    Raises:
        ImemError: as the embedder; nothing at all is taken now.
    """
    try:
        return list(await embedder.embed(texts, deadline=deadline))
    except StatementRejected:
        # Where it takes nothing, the settings are wrong, and every text shall wait until they are right.
        await embedder.embed([PROBE_TEXT], deadline=deadline)
    if len(texts) == 1:
        return [None]
    middle = len(texts) // 2
    first = await _vectors(embedder, texts[:middle], deadline)
    return first + await _vectors(embedder, texts[middle:], deadline)


def _columns(found: Sequence[Row], texts: Sequence[str], vectors: Sequence[Vector | None]) -> dict[str, Any]:
    return {
        "keys": [row["key"] for row in found],
        "positions": [row["position"] for row in found],
        "questions": [row["question_position"] for row in found],
        "corrects": [row["corrects"] for row in found],
        "order_keys": [row["order_key"] for row in found],
        "known_at": [row["known_at"] for row in found],
        "recorded_at": [row["recorded_at"] for row in found],
        "subjects": [row["core"].get("subject_id") for row in found],
        "hashes": [hashlib.sha256(text.encode()).digest() for text in texts],
        # The shortest text of each number that gives its 32 bits again: just what the extension reads.
        "vectors": [orjson.dumps(vector, option=orjson.OPT_SERIALIZE_NUMPY).decode() for vector in vectors],
    }
