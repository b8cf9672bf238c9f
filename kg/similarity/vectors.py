"""
Vectors of analyses in Postgres, each with the clocks of its statement.

Each statement of an analysis, its core and every correction, has a vector, so that a search as of a moment reads what
counted then. The text is made only of what was recorded by then, so that a statement's vector never changes.

Vectors are made outside any transaction and stored in one; after a crash between the two they are made again.
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
from imem.kg.similarity.sentence_models import Purpose

log = structlog.get_logger()

Vector = NDArray[np.float32]

STORE_BUDGET_MS: Final = 30_000
"""Timeout of one statement or batch in Postgres, in milliseconds; a growing vector index is slow to write."""

EMBED_BUDGET_MS: Final = 120_000
"""Timeout of the vectors of one batch, in milliseconds; an endpoint may be called several times."""

PROBE_TEXT: Final = "analysis"
"""A text that any model accepts; distinguishes a refused text from a wrong model or key."""

_FACTS: Final = ("kind", "recommendation", "regime")
"""Fields used as text where an analysis has none."""


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """
    An embedding model with stored vectors.

    Attributes:
        number: its number in rows.
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
    Return the model of *embedder*, registered and indexed; the first one is in use at once.

    Raises:
        PostgresUnavailable: it may not be registered yet; retryable.
    """
    named = {"model_id": embedder.model_id, "dimension": embedder.dimension, "unrelated": embedder.unrelated}
    found = await models(database)
    if not any(one.is_of(embedder) for one in found):
        await database.execute("add_model", named, deadline=store_deadline())
        found = await models(database)
    model = next(one for one in found if one.is_of(embedder))
    await index_vectors(database, model)
    return model


async def index_vectors(database: Database, model: EmbeddingModel) -> None:
    """Create the index of the vectors of *model*, if it does not exist."""
    given = {"model": model.number, "dimension": model.dimension}
    await database.commit("index_model", given, deadline=store_deadline())


async def model_number(database: Database, embedder: Embedder, *, deadline: Deadline) -> int:
    """
    Return the number of the embedder's model, which is registered.

    Raises:
        PostgresUnavailable, BudgetExceeded: it is not known; retryable.
    """
    named = {"model_id": embedder.model_id, "dimension": embedder.dimension, "unrelated": embedder.unrelated}
    number: int = (await database.commit("text_model", named, deadline=deadline))[0]["model"]
    return number


async def models(database: Database) -> list[EmbeddingModel]:
    """Return every registered model."""
    found = await database.named("models", deadline=store_deadline())
    return [EmbeddingModel(row["model"], row["model_id"], row["dimension"], row["in_use"]) for row in found]


def document(core: Mapping[str, Any], *, body: str | None = None, question: str | None = None) -> str:
    """
    Return the text by which an analysis is compared: its question and its conclusion.

    Args:
        core: canonical core of the analysis.
        body: its long text, used without a summary.
        question: of the subject, if it is a market.
    """
    said = (core.get("summary") or "").strip() or (body or "").strip()
    if not said:
        said = " ".join(str(core[name]).replace("_", " ") for name in _FACTS if core.get(name) is not None)
    # Never empty, which a model may refuse.
    return (f"{question} {said}" if question else said).strip()[:TEXT_CHARS] or PROBE_TEXT


async def embed(database: Database, embedder: Embedder, model: EmbeddingModel, keys: Sequence[str]) -> int:
    """
    Make and store the vectors that *model* lacks of the given analyses; return how many.

    A text that the model refuses, while it accepts others, is logged and stays without a vector until the next rebuild,
    so that it does not block the rest.

    Raises:
        ImemError: the embedder cannot make them now; nothing was stored.
        PostgresUnavailable: nothing was stored; retryable.
    """
    wanted = {"model": model.number, "keys": sorted(set(keys)), "chars": TEXT_CHARS}
    found = await database.named("statements_to_embed", wanted, deadline=store_deadline())
    if not found:
        return 0
    texts = [document(row["core"], body=row["body"], question=row["question"]) for row in found]
    vectors = await vectors_of(embedder, texts, deadline=Deadline.after_ms(EMBED_BUDGET_MS))
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


async def vectors_of(
    embedder: Embedder, texts: Sequence[str], *, deadline: Deadline, purpose: Purpose = Purpose.COMPARE
) -> list[Vector | None]:
    """
    Return the vectors of *texts*; None for a text that is refused while others are accepted.

    Raises:
        ImemError: as the embedder; nothing is accepted now.
    """
    try:
        return list(await embedder.embed(texts, deadline=deadline, purpose=purpose))
    except StatementRejected:
        # If even the probe is refused, the settings are wrong, and every text stays due.
        await embedder.embed([PROBE_TEXT], deadline=deadline, purpose=purpose)
    if len(texts) == 1:
        return [None]
    middle = len(texts) // 2
    first = await vectors_of(embedder, texts[:middle], deadline=deadline, purpose=purpose)
    return first + await vectors_of(embedder, texts[middle:], deadline=deadline, purpose=purpose)


def as_text(vector: Vector) -> str:
    """Return *vector* as the extension reads it: each number as the shortest decimal that parses to it again."""
    return orjson.dumps(vector, option=orjson.OPT_SERIALIZE_NUMPY).decode()


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
        "vectors": [as_text(vector) for vector in vectors if vector is not None],
    }
