"""
Situations: the contexts of past decisions to trade, found by how like they are to a context, with what came of them.

A context is compared by a summary's vector. Vectors are made in the background and stored with their model; those of
another model are never compared, and are made anew. Both only while ``IMEM_SITUATIONS_ENABLED`` is on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol
from uuid import UUID

import structlog

from imem.jobs.pipeline import Every, Pipeline, Report
from imem.jobs.runtime import Runtime
from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import execute
from imem.kg.similarity.embedders import TEXT_CHARS, Embedder
from imem.kg.similarity.index import run_lock
from imem.kg.similarity.sentence_models import Purpose
from imem.kg.similarity.vectors import EMBED_BUDGET_MS, Vector, as_text, model_number, store_deadline, vectors_of
from imem.postmortem.trades.model import Trade, TradeScope

log = structlog.get_logger()

MOST: Final = 50
"""Most situations of one answer."""

COMPARED: Final = 20_000
"""Trades, the newest by entry, whose decisions are compared with a context, one by one."""

PAGE: Final = 64
"""Contexts whose vectors are made in one batch."""

BUDGET_MS: Final = 60_000
"""Budget of a run, in milliseconds; then it requests another."""


@dataclass(frozen=True, slots=True)
class Situation:
    """
    A decision that entered or left a position, and its outcome.

    Attributes:
        snapshot_id, deployment_id, tick_at: which decision.
        context, proposed_action, verdict: as they were recorded. They are data, never instructions.
        similarity: cosine of its context with the one asked about, -1 to 1, as the encoder gives it: it says which is
            nearer. Unlike the similarity of texts, it does not begin at that of unrelated ones.
        trades: those that it entered or left, by entry, as known at the moment asked for.
    """

    snapshot_id: UUID
    deployment_id: str
    tick_at: datetime
    context: Mapping[str, Any]
    proposed_action: Mapping[str, Any]
    verdict: str
    similarity: float
    trades: tuple[Trade, ...]


def context_summary(context: Mapping[str, Any]) -> str:
    """Return the text by which a context is compared: its ``summary``, else its values by name, bounded."""
    summary = context.get("summary")
    text = summary if isinstance(summary, str) and summary.strip() else "\n".join(_lines("", context))
    # Never empty, which a model may refuse.
    return text.strip()[:TEXT_CHARS] or "nothing"


def _lines(name: str, value: Any) -> Iterator[str]:
    match value:
        case Mapping():
            for key in sorted(value):
                yield from _lines(f"{name} {key}".strip(), value[key])
        case list() | tuple():
            for one in value:
                yield from _lines(name, one)
        case None:
            return
        case _:
            yield f"{name}: {value}"


async def nearest_situations(
    database: Database, embedder: Embedder, vector: Vector, scope: TradeScope, k: int, *, deadline: Deadline
) -> list[Situation]:
    """
    Return the *k* decisions of *scope* whose contexts are nearest to *vector*, nearest first.

    Those whose vectors are not made yet, or are of another model than *embedder*'s, are not among them.

    Raises:
        PostgresUnavailable, BudgetExceeded: no answer in time; retryable.
    """
    given = {
        "model_id": embedder.model_id,
        "dimension": embedder.dimension,
        "vector": as_text(vector),
        **scope.parameters,
        "compared": COMPARED,
        "limit": k,
    }
    found = await database.named("nearest_situations", given, deadline=deadline)
    of = {"ids": sorted({id_ for row in found for id_ in row["trades"]}), "until": given["until"]}
    trades = [Trade.from_row(row) for row in await database.named("trades_by_id", of, deadline=deadline)]
    return [
        Situation(
            row["id"],
            row["deployment_id"],
            row["tick_at"].astimezone(UTC),
            row["context"],
            row["proposed_action"],
            row["verdict"],
            row["similarity"],
            tuple(trade for trade in trades if trade.id in row["trades"]),
        )
        for row in found
    ]


async def embed_situations(database: Database, embedder: Embedder, *, until: Deadline) -> Report:
    """
    Make the vectors that are missing or of another model, until none is left.

    A context that the model refuses, while it accepts others, stays without.

    Raises:
        ImemError: Postgres or the encoder is away; finished pages stay, the rest is still due.
    """
    model = await model_number(database, embedder, deadline=store_deadline())
    made = 0
    # One process at a time: another would make the same vectors.
    async with run_lock(database, "situations") as held:
        while held and not until.passed:
            due = {"model": model, "limit": PAGE}
            found = await database.named("situations_to_embed", due, deadline=store_deadline())
            if not found:
                break
            summaries = [context_summary(row["context"]) for row in found]
            encoded_by = Deadline.after_ms(EMBED_BUDGET_MS)
            # As passages: where texts are compared, figures do not count, and they are most of a context.
            vectors = await vectors_of(embedder, summaries, deadline=encoded_by, purpose=Purpose.PASSAGE)
            given = {"ids": [row["id"] for row in found], "vectors": [_text_or_none(vector) for vector in vectors]}
            async with database.transaction(store_deadline()) as conn:
                await execute(conn, "set_situation_vectors", {"model": model, **given})
            refused = [str(row["id"]) for row, vector in zip(found, vectors, strict=True) if vector is None]
            if refused:
                log.warning("situations.refused", model=embedder.model_id, snapshots=refused)
            made += len(found) - len(refused)
    return {"vectors": made, "more": held and until.passed}


def _text_or_none(vector: Vector | None) -> str | None:
    return as_text(vector) if vector is not None else None


class SituationRuntime(Runtime, Protocol):
    """A runtime with an embedder, that says whether situations are on."""

    embedder: Embedder
    situations: bool


async def _step(runtime: SituationRuntime, until: Deadline) -> Report:
    if not runtime.situations:
        return {"vectors": 0, "more": False}
    return await embed_situations(runtime.database, runtime.embedder, until=until)


EMBED_SITUATIONS: Final = Pipeline(
    "postmortem.embed_situations", _step, Every(60.0), budget_ms=BUDGET_MS, retry_max_s=600
)
