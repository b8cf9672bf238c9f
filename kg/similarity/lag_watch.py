"""Measures how far the index of similar analyses lags behind, and whether its model is outdated."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Self

import structlog
from prometheus_client import Gauge

from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.kg.similarity.embedders import Embedder
from imem.kg.similarity.neighbours import model_version

log = structlog.get_logger()

WAITING: Final = Gauge(
    "similarity_waiting_gauge", "Statements about analyses that are not compared yet.", multiprocess_mode="mostrecent"
)
LAG_S: Final = Gauge(
    "similarity_lag_seconds_gauge", "How long the oldest of them has waited.", multiprocess_mode="mostrecent"
)
OTHER_MODEL: Final = Gauge(
    "similarity_other_model_gauge",
    "1 while analyses are compared by another model, or by other rules, than the settings and the program name.",
    multiprocess_mode="mostrecent",
)

LOOK_EVERY_S: Final = 15.0
"""Interval of the metrics, in seconds."""

BUDGET_MS: Final = 5_000
"""Timeout of one read, in milliseconds."""


@dataclass(frozen=True, slots=True)
class IndexLag:
    """
    How far the index lags behind.

    Attributes:
        waiting: due rows.
        age_s: age of the oldest of them, in seconds.
        built_with: model, dimension and rules of the current version; None before the first analysis.
        wanted: those of the settings and the program.
    """

    waiting: int
    age_s: float
    built_with: str | None
    wanted: str

    @property
    def outdated(self) -> bool:
        """Whether the index is built with another model or other rules than wanted."""
        return self.built_with is not None and self.built_with != self.wanted

    @classmethod
    def from_row(cls, row: Row, embedder: Embedder) -> Self:
        """Return the lag in a row of ``similarity_state``, compared with *embedder*."""
        known = row["model_id"] is not None
        built_with = model_version(row["model_id"], row["dimension"], row["rules"]) if known else None
        return cls(row["waiting"], row["age_s"], built_with, model_version(embedder.model_id, embedder.dimension))


async def watch_similar(
    database: Database, embedder: Embedder, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> None:
    """Update the metrics until cancelled; while Postgres is away they keep their values."""
    while True:
        try:
            [row] = await database.named("similarity_state", deadline=Deadline.after_ms(BUDGET_MS))
        except ImemError as error:
            log.info("similar.not_looked_at", reason=str(error))
        else:
            found = IndexLag.from_row(row, embedder)
            WAITING.set(found.waiting)
            LAG_S.set(found.age_s)
            OTHER_MODEL.set(found.outdated)
        await sleep(LOOK_EVERY_S)
