"""Search over everything: whether the ten best are those of an exact search, and how long an answer takes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from statistics import fmean
from typing import Any, Final

import numpy as np
import psycopg
import pytest

from imem.journal.settings import Role
from imem.journal.statements import sql
from imem.kg.model import Company
from imem.kg.similarity.vectors import as_text
from imem.memory import Memory
from imem.recall.memories.ranking import CANDIDATES
from imem.recall.memories.store import EXACT
from imem.recall.search.model import RECORDS
from tests.bench.table import Figure, Table, percentile
from tests.bench.test_memories import FACTOR, LEAST_RECALL, MANY, QUERIES, TOPICS, Topics
from tests.imem.memory.conftest import MemoryHarness, harness

__all__ = ["harness"]

SUBJECTS: Final = 100
"""Each has one of a hundred texts."""

SEED: Final = """
INSERT INTO recall.record_text (
    id, version, kind, key, part, place, ordinal, subject_id, author, title, content, before, known_at, model, vector)
SELECT gen_random_uuid(), 1, n.kind, n.number::text, 0, 'Analysis/' || n.number / 5, n.number %% 5 + 1, n.subject,
    'ann', n.subject, n.content, '', imem_now(), %s, n.vector::halfvec
FROM unnest(%s::integer[], %s::text[], %s::text[], %s::text[], %s::text[]) AS n (number, kind, subject, content, vector)
"""

COUNTED: Final = """
INSERT INTO recall.record_text_count (kind, texts, lexemes)
SELECT kind, count(*), sum(lexemes) FROM recall.record_text GROUP BY kind
"""

pytestmark = pytest.mark.bench


def seed(admin_url: str, topics: Topics) -> None:
    """Put texts in by themselves, one of ten an analysis, and make the index of their vectors then."""
    about = np.random.default_rng(11).integers(TOPICS, size=MANY)
    with psycopg.connect(admin_url, autocommit=True) as conn:
        conn.execute("SET maintenance_work_mem = '1GB'")
        conn.execute("INSERT INTO embedding_model (model_id, dimension) VALUES (%s, %s)", ("topics", topics.dimension))
        [model] = conn.execute("SELECT model FROM embedding_model WHERE model_id = 'topics'").fetchone() or []
        for start in range(0, MANY, 5_000):
            numbers = list(range(start, min(start + 5_000, MANY)))
            kinds = ["Analysis" if nth % 10 == 5 else "Finding" for nth in numbers]
            subjects = [f"company:T{nth // 5 % SUBJECTS}" for nth in numbers]
            found = about[start : start + 5_000].tolist()
            texts = [
                f"{one} story{nth} of word{one} and word{nth % 97} in the quarter"
                for nth, one in zip(numbers, found, strict=True)
            ]
            vectors = [as_text(vector) for vector in topics.vectors(found, start)]
            conn.execute(SEED, (model, numbers, kinds, subjects, texts, vectors))
        conn.execute(COUNTED)
        conn.execute("SELECT recall.text_model_v1('topics', %s, 0)", (topics.dimension,))
        conn.execute("VACUUM ANALYZE recall.record_text")


@asynccontextmanager
async def filled(harness: MemoryHarness, topics: Topics) -> AsyncIterator[Memory]:
    """Open a memory of very many texts, and of one subject that is known."""
    seed(harness.admin_url, topics)
    async with Memory.open(harness.of("kate", Role.HUMAN_ADMIN)) as memory:
        await memory.record(Company(ticker="T7"))
        yield memory


def question(number: int) -> str:
    return f"{number * 37 % TOPICS} what of word{number * 37 % TOPICS} in that quarter, {number}"


async def test_among_many(harness: MemoryHarness, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of one subject, of one kind, of both; beside the statement of records and the encoding alone."""
    topics = Topics()
    monkeypatch.setattr("imem.services.embedders.embedder_of", lambda _: topics)
    filters: dict[str, dict[str, Any]] = {
        "all": {},
        "one kind of 10 %": {"kinds": ["analysis"]},
        "one subject of 1 %": {"subject": "T7"},
        "kind and subject, 0.1 %": {"kinds": ["analysis"], "subject": "T7"},
    }
    figures = []
    async with filled(harness, topics) as memory:

        async def ask(number: int, **only: Any) -> tuple[float, set[str]]:
            begun = time.perf_counter()
            answer = await memory.search(question(number), deadline_ms=30_000, **only)
            return (time.perf_counter() - begun) * 1000, {item.key for item in answer.items}

        for name, only in filters.items():
            await ask(0, **only)
            floor_ms = percentile(await bare(harness, topics, only), 0.95)
            found = [await ask(number, **only) for number in range(QUERIES)]
            with monkeypatch.context() as patched:
                patched.setattr("imem.recall.memories.store.EXACT", 10**9)
                exact = [await ask(number, **only) for number in range(QUERIES)]
            share = fmean(len(one & other) / len(other) for (_, one), (_, other) in zip(found, exact, strict=True))
            p95_ms = percentile([taken for taken, _ in found], 0.95)
            data = f"{name} of {MANY:,}"
            note = f"exact: {percentile([taken for taken, _ in exact], 0.95):.0f} ms"
            figures += [
                Figure(name="search, recall@10", data=data, value=share, unit="", bar=LEAST_RECALL, better="more"),
                Figure(
                    name="search p95",
                    data=data,
                    value=p95_ms,
                    unit="ms",
                    floor=floor_ms,
                    bar=FACTOR * floor_ms,
                    note=note,
                ),
            ]
    table.add(*figures)


async def bare(harness: MemoryHarness, topics: Topics, only: dict[str, Any]) -> list[float]:
    """Return how long the statement of records takes by itself, over one connection, in milliseconds."""
    assert harness.settings.postgres_url is not None
    given = {
        "kinds": ["Analysis"] if "kinds" in only else [text for texts in RECORDS.values() for text in texts],
        "model_id": topics.model_id, "dimension": topics.dimension, "until": None, "candidates": CANDIDATES,
        "exact": EXACT, "subject_id": "company:T7" if "subject" in only else None,
    }  # fmt: skip
    taken_ms = []
    url = harness.settings.postgres_url.get_secret_value()
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
        for number in [0, *range(QUERIES)]:
            begun = time.perf_counter()
            [vector] = topics.vectors([number * 37 % TOPICS], number)
            asked = {**given, "query": question(number), "vector": as_text(vector)}
            await (await conn.execute(sql("search_records"), asked)).fetchall()
            taken_ms.append((time.perf_counter() - begun) * 1000)
    return taken_ms[1:]
