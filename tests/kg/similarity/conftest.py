"""A journal of the test's own, an embedder that is told what lies near what, and the pipeline between them."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import orjson
import pytest_asyncio
from pydantic import SecretStr

from imem.jobs.throttle import Throttle
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import StoreUnavailable
from imem.journal.events.entry import Receipt
from imem.journal.gateway import Gateway
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.journal.settings import Role, Settings
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import parse_line
from imem.kg.similarity.embedders import Embedder, Vectors, unit
from imem.kg.similarity.index import UpdateReport, rebuild, update
from imem.kg.similarity.sentence_models import Purpose
from tests.servers import as_pipelines, asked, cloned, in_database

IMPORTER = Actor("import:test", Role.HUMAN_ADMIN, may_import=True)
START = datetime(2026, 1, 1, tzinfo=UTC)
NEVER = Deadline.never()


def day(number: float) -> datetime:
    return START + timedelta(days=number)


@dataclass
class Directions:
    """
    An embedder whose texts name what they point to: "near oil 3" lies near "near oil 5".

    It is arithmetic as any other: vectors of the wanted length, the same for the same text. The words give a common
    direction, the digits a little of their own.
    """

    model_id: str = "directions"
    dimension: int = 64
    unrelated: float = 0.0
    away: bool = False
    texts: list[str] = field(default_factory=list)

    async def embed(
        self,
        texts: Sequence[str],
        *,
        deadline: Deadline,
        purpose: Purpose = Purpose.COMPARE,  # noqa: ARG002 - as a protocol has it
    ) -> Vectors:
        deadline.check("vectors")
        if self.away:
            raise StoreUnavailable("The endpoint for vectors is busy (status 503).")
        self.texts += texts
        return unit([self._vector(text) for text in texts])

    def _vector(self, text: str) -> Any:
        words = "".join(char for char in text if not char.isdigit())
        return self._noise(words) + 0.3 * self._noise(text)

    def _noise(self, text: str) -> Any:
        seed = int.from_bytes(hashlib.sha256(f"{self.model_id} {text}".encode()).digest()[:8])
        return unit([np.random.default_rng(seed).normal(size=self.dimension)])[0]


@dataclass
class SimilarityHarness:
    """
    Facts are stated, compared, and asked for.

    Attributes:
        url, admin_url: the database, as the application and as its owner.
        database: as the application.
        gateway: an import's, as the pipelines.
        pipelines: as the pipelines.
        embedder: what vectors are made by.
    """

    url: str
    admin_url: str
    database: Database
    gateway: Gateway
    pipelines: Database
    embedder: Embedder

    async def say(self, *lines: dict[str, Any], actor: Actor = IMPORTER) -> list[Receipt]:
        entries = [
            entry_of(parse_line(orjson.dumps(line), needs_known_at=False, writer=_writer(line))) for line in lines
        ]
        receipts = await self.gateway.append(entries, actor=actor, deadline=NEVER)
        assert not any(receipt.verdict.refused for receipt in receipts), receipts
        return receipts

    async def update(self) -> UpdateReport:
        return await update(self.pipelines, self.embedder, until=NEVER, loading=0.0)

    async def rebuild(self) -> UpdateReport:
        return await rebuild(self.pipelines, self.embedder, throttle=Throttle(NEVER))

    async def rows(self, query: str, *parameters: Any) -> list[Row]:
        return await self.database.rows(query, parameters, deadline=NEVER)

    async def lists(self) -> dict[str, list[tuple[str, float]]]:
        """Return the neighbours of every analysis in the current version, nearest first."""
        found: dict[str, list[tuple[str, float]]] = {}
        for row in await self.rows(
            "SELECT s.* FROM similar_analysis AS s JOIN similarity_build AS b ON b.version = s.version"
            " WHERE b.state = 'current' ORDER BY s.analysis_id, s.rank"
        ):
            found.setdefault(row["analysis_id"], []).append((row["neighbour_id"], row["score"]))
        return found

    def owner(self, query: str, *parameters: Any) -> None:
        """Change something behind the application's back."""
        asked(self.admin_url, query, parameters)


def _writer(line: dict[str, Any]) -> str | None:
    return "patterns" if line.get("record") == "Pattern" else None


@pytest_asyncio.fixture
async def harness(light_stack: Any, light_template: str) -> AsyncIterator[SimilarityHarness]:
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        async with opened(url, as_pipelines(light_stack.settings, url), admin_url) as made:
            yield made


@asynccontextmanager
async def opened(
    url: str, pipeline_url: str, admin_url: str, embedder: Embedder | None = None
) -> AsyncIterator[SimilarityHarness]:
    """Lend a harness upon a database that is there."""
    database, pipelines = Database(url, size=4), Database(pipeline_url, size=4)
    try:
        yield SimilarityHarness(
            url, admin_url, database, Gateway(pipelines, IMPORTER), pipelines, embedder or Directions()
        )
    finally:
        await database.close()
        await pipelines.close()


def without_a_graph(settings: Settings, harness: SimilarityHarness, **changes: Any) -> Settings:
    """Return *settings* by which a memory asks the journal of *harness*, and finds no graph."""
    named = {
        **in_database(settings, harness.url),
        "neo4j_url": "bolt://127.0.0.1:1",
        "neo4j_password": SecretStr("none"),
    }
    return settings.model_copy(update={**named, **changes})


# Lines


def analysis(key: str, subject: str, summary: str, known_at: datetime = START, **core: Any) -> dict[str, Any]:
    return {
        "record": "Analysis",
        "known_at": known_at.isoformat(),
        "core": {
            "id": key, "subject_id": subject, "date": known_at.isoformat(), "kind": "research", "summary": summary,
            **core,
        },
    }  # fmt: skip


def company(ticker: str, known_at: datetime = START, **profile: Any) -> dict[str, Any]:
    core = {"ticker": ticker}
    return {"record": "Company", "known_at": known_at.isoformat(), "core": core, "groups": {"profile": profile}}


def finding(key: str, analysis_id: str, subject: str, metric: str, known_at: datetime = START) -> dict[str, Any]:
    return {
        "record": "Finding",
        "known_at": known_at.isoformat(),
        "core": {
            "id": key, "analysis_id": analysis_id, "subject_id": subject, "agent": "ann", "domain": "d",
            "statement": "It rises.", "direction": "positive", "value": 1.0, "metric": metric,
            "target_at": day(90).isoformat(),
        },
    }  # fmt: skip


def corrected(line: dict[str, Any], known_at: datetime, **core: Any) -> dict[str, Any]:
    return {
        "correct": line["record"],
        "known_at": known_at.isoformat(),
        "core": {**line["core"], **core},
        "reason": "A slip.",
    }
