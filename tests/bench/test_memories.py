"""
Memories: how much of the evidence a search finds, and how long it takes.

The evidence is that of LoCoMo, conversations with questions whose answers stand in certain messages. Its licence does
not let it be kept here: ``IMEM_LOCOMO`` names a folder with its ``messages.jsonl.gz`` and ``questions.jsonl.gz``. The
weights of :mod:`imem.recall.memories.ranking` were chosen on the first three conversations.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any, Final
from uuid import UUID

import numpy as np
import orjson
import psycopg
import pytest
import pytest_asyncio

from imem.journal.clock import SystemClock
from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.journal.statements import sql
from imem.kg.similarity.embedders import Vectors, unit
from imem.kg.similarity.sentence_models import Purpose
from imem.kg.similarity.vectors import as_text
from imem.memory import Memory
from imem.recall.memories.dates import named_dates
from imem.recall.memories.ranking import CANDIDATES
from imem.recall.memories.store import EXACT
from imem.recall.memories.upkeep import UpkeepRules, consolidate, maintain
from tests.bench.table import Figure, Table, percentile
from tests.encoders import LOCAL
from tests.imem.memory.conftest import MemoryHarness, harness
from tests.servers import as_pipelines

__all__ = ["harness"]

DATA: Final = os.environ.get("IMEM_LOCOMO", "")
BARS: Final = {10: 0.79, 20: 0.85}
TUNED: Final = 3
"""Conversations on which the weights were chosen."""

FACTOR: Final = 1.5
"""Longest question, as a multiple of the statement and the encoding alone, at p95."""

LEAST_RECALL: Final = 0.95
MOST_MS: Final = 50.0
"""Bars of a search among 100,000 memories, whatever it leaves out."""

GROWTH: Final = 2.0
"""Longest search of 50,000 memories in one namespace, as a multiple of that of 3,000, at p95."""

MOST_MB: Final = 64.0
"""Bar of what a day's upkeep of a namespace needs more of a worker's memory."""

MANY: Final = 4_000 if os.environ.get("IMEM_BENCH_SCALE") == "tiny" else 100_000
TOPICS: Final = 500
QUERIES: Final = 100

pytestmark = pytest.mark.bench


def lines(name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(Path(DATA) / name) as file:
        yield from map(orjson.loads, file)


@pytest_asyncio.fixture
async def memory(harness: MemoryHarness) -> AsyncIterator[Memory]:
    """Remember every message as the how-to shows: each session a conversation, with who said it, and when."""
    settings = harness.of("kate", Role.HUMAN_ADMIN).model_copy(update={"may_import": True})
    async with Memory.open(settings) as opened:
        for said in lines("messages.jsonl.gz"):
            caption = f" [image: {said['image_caption']}]" if said.get("image_caption") else ""
            await opened.remember(
                f"{said['text']}{caption}",
                namespace=f"user/{said['conversation']}",
                metadata={said["id"]: True},
                conversation_id=str(said["session"]),
                author=said["speaker"],
                occurred_at=datetime.strptime(said["session_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC),
                memory_type="episodic",
            )
        yield opened


@pytest.mark.skipif(not DATA, reason="IMEM_LOCOMO names no folder")
async def test_evidence_is_found(memory: Memory, harness: MemoryHarness, table: Table) -> None:
    """Of each question the share of its evidence among the first ten and twenty; and the time of an answer."""
    found: dict[int, dict[str, list[float]]] = {most: defaultdict(list) for most in BARS}
    kinds: dict[int, dict[str, list[float]]] = {most: defaultdict(list) for most in BARS}
    taken_ms, kept = [], []
    there = {said["conversation"]: set[str]() for said in lines("messages.jsonl.gz")}
    for said in lines("messages.jsonl.gz"):
        there[said["conversation"]].add(said["id"])
    for asked in lines("questions.jsonl.gz"):
        space = f"user/{asked['conversation']}"
        evidence = set(asked["evidence"]) & there[asked["conversation"]]
        begun = time.perf_counter()
        answer = await memory.memories.search(asked["question"], namespace=space, limit=max(BARS), deadline_ms=5_000)
        taken_ms.append((time.perf_counter() - begun) * 1000)
        assert answer.reason is None
        kept.append((space, asked["question"]))
        for most, shares in found.items():
            ids = {name for item in answer.items[:most] for name in item.metadata}
            if evidence:
                shares[asked["conversation"]].append(len(ids & evidence) / len(evidence))
                dated = named_dates(asked["question"], SystemClock().now())
                for kind in ("of several messages" if len(evidence) > 1 else "of one", "naming a date" * bool(dated)):
                    kinds[most][kind].append(shares[asked["conversation"]][-1])
    p95_ms, bare_ms = percentile(taken_ms, 0.95), percentile(await bare(harness, kept), 0.95)
    data = f"{sum(map(len, there.values())):,} messages"
    figures = []
    for most, shares in found.items():
        tuned, others = ([one for name in names for one in shares[name]] for names in _split(sorted(shares)))
        by_kind = ", ".join(f"{kind} {fmean(of):.3f}" for kind, of in sorted(kinds[most].items()) if kind)
        note = f"on the conversations for tuning {fmean(tuned):.3f}, on the others {fmean(others):.3f}; {by_kind}"
        figures.append(
            Figure(
                name=f"evidence, R@{most}", data=data, value=fmean([*tuned, *others]), unit="", bar=BARS[most],
                better="more", note=note,
            )
        )  # fmt: skip
    note = f"{len(kept)} questions; the floor is the statement and the encoding alone"
    bar = FACTOR * bare_ms
    table.add(
        *figures,
        Figure(name="memories search p50", data=data, value=percentile(taken_ms, 0.5), unit="ms"),
        Figure(name="memories search p95", data=data, value=p95_ms, unit="ms", floor=bare_ms, bar=bar, note=note),
    )


def _split(names: list[str]) -> tuple[list[str], list[str]]:
    return names[:TUNED], names[TUNED:]


async def bare(harness: MemoryHarness, questions: list[tuple[str, str]]) -> list[float]:
    """Return how long encoding and statement take by themselves, over one connection, in milliseconds."""
    assert harness.settings.postgres_url is not None
    given = {
        "model_id": LOCAL.model_id, "dimension": LOCAL.dimension, "memory_type": None, "agent_id": None,
        "conversation_id": None, "until": None, "candidates": CANDIDATES, "exact": EXACT,
        "items": None, "filter": None,
    }  # fmt: skip
    taken_ms = []
    url = harness.settings.postgres_url.get_secret_value()
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as conn:
        for space, question in [questions[0], *questions]:
            begun = time.perf_counter()
            [vector] = await LOCAL.embed([question], deadline=Deadline.never(), purpose=Purpose.QUERY)
            asked = {**given, "scopes": [space], "query": question, "vector": as_text(vector)}
            await (await conn.execute(sql("search_memories"), asked)).fetchall()
            taken_ms.append((time.perf_counter() - begun) * 1000)
    return taken_ms[1:]


# Many memories


@dataclass
class Topics:
    """An embedder whose texts begin with the number of a topic, around whose direction they lie."""

    model_id: str = "topics"
    dimension: int = 384
    unrelated: float = 0.0

    def __post_init__(self) -> None:
        self._centres = np.random.default_rng(7).normal(size=(TOPICS, self.dimension))

    async def embed(
        self,
        texts: Sequence[str],
        *,
        deadline: Deadline,  # noqa: ARG002 - as the protocol has it
        purpose: Purpose = Purpose.COMPARE,  # noqa: ARG002 - as above
    ) -> Vectors:
        return self.vectors([int(text.split()[0]) for text in texts], sum(map(ord, "".join(texts))))

    def vectors(self, topics: Sequence[int], seed: int) -> Vectors:
        noise = np.random.default_rng(seed).normal(size=(len(topics), self.dimension))
        return unit(self._centres[list(topics)] + 1.2 * noise)


SPACES: Final = {"symbol/LARGE": 0.5, "symbol/OTHER": 0.46, "symbol/MEDIUM": 0.03, "symbol/RARE": 0.01}
"""Namespaces and their shares of all memories."""

SEED: Final = """
INSERT INTO recall.memory (id, version, namespace, memory_type, content, metadata, importance, agent_id, created_at,
    recorded_at, model, vector)
SELECT gen_random_uuid(), 1, n.namespace, n.memory_type, n.content, '{}', 0.5, 'ann', a.at, a.at, %s, n.vector::halfvec
FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[]) AS n (namespace, memory_type, content, vector),
    (SELECT imem_now() - %s::interval AS at) AS a
"""

COUNTED: Final = """
UPDATE recall.memory_namespace AS s SET memories = c.memories, lexemes = c.lexemes
FROM (SELECT namespace, count(*) AS memories, sum(lexemes) AS lexemes FROM recall.memory GROUP BY 1) AS c
WHERE c.namespace = s.namespace
"""

HELD: Final = """
INSERT INTO recall.memory_assertion (id, actor, by_person, content, metadata, importance, said_at, recorded_at)
SELECT m.id, m.agent_id, false, m.content, m.metadata, m.importance, m.recorded_at, m.recorded_at
FROM recall.memory AS m
WHERE NOT EXISTS (SELECT FROM recall.memory_assertion AS a WHERE a.id = m.id)
"""


def seed(admin_url: str, topics: Topics, shares: Mapping[str, float], many: int, age: timedelta = timedelta(0)) -> None:
    """Put the memories in by themselves, and make the index of their vectors then."""
    chance = np.random.default_rng(11)
    spaces = chance.permutation([space for space, share in shares.items() for _ in range(round(share * many))])
    about = chance.integers(TOPICS, size=many)
    kinds = np.where(chance.random(many) < 0.01, "procedural", "semantic")
    with psycopg.connect(admin_url, autocommit=True) as conn:
        conn.execute("SET maintenance_work_mem = '1GB'")
        conn.execute("INSERT INTO recall.memory_namespace (namespace) SELECT unnest(%s::text[])", (list(shares),))
        conn.execute("INSERT INTO embedding_model (model_id, dimension) VALUES (%s, %s)", ("topics", topics.dimension))
        [model] = conn.execute("SELECT model FROM embedding_model WHERE model_id = 'topics'").fetchone() or []
        for start in range(0, many, 5_000):
            part = slice(start, min(start + 5_000, many))
            numbers = about[part].tolist()
            texts = [
                f"{one} story{start + nth} of word{one} and word{nth % 97} in the quarter"
                for nth, one in enumerate(numbers)
            ]
            vectors = [as_text(vector) for vector in topics.vectors(numbers, start)]
            conn.execute(SEED, (model, list(spaces[part]), list(kinds[part]), texts, vectors, age))
        conn.execute(COUNTED)
        conn.execute(HELD)
        conn.execute("SELECT recall.text_model_v1('topics', %s, 0)", (topics.dimension,))
        conn.execute("VACUUM ANALYZE recall.memory, recall.memory_assertion")


@pytest.mark.spec("RC-19")
async def test_among_many(harness: MemoryHarness, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ten best are those of an exact search, in time, also where a filter leaves one of a hundred."""
    topics = Topics()
    monkeypatch.setattr("imem.services.embedders.embedder_of", lambda _: topics)
    begun = time.perf_counter()
    seed(harness.admin_url, topics, SPACES, MANY)
    made_s = time.perf_counter() - begun
    filters: dict[str, dict[str, Any]] = {
        "all": {},
        "one namespace of 50 %": {"namespace": "symbol/LARGE"},
        "one namespace of 3 %": {"namespace": "symbol/MEDIUM"},
        "one namespace of 1 %": {"namespace": "symbol/RARE"},
        "one type of 1 %": {"memory_type": "procedural"},
    }
    p95_ms, figures = {}, []
    async with Memory.open(harness.of("kate", Role.HUMAN_ADMIN)) as memory:

        async def ask(number: int, **only: Any) -> tuple[float, set[UUID]]:
            begun = time.perf_counter()
            query = f"{number * 37 % TOPICS} what of word{number * 37 % TOPICS} in that quarter, {number}"
            answer = await memory.memories.search(query, deadline_ms=30_000, **only)
            return (time.perf_counter() - begun) * 1000, {item.id for item in answer.items}

        for name, only in filters.items():
            await ask(0, **only)
            found = [await ask(number, **only) for number in range(QUERIES)]
            with monkeypatch.context() as patched:
                patched.setattr("imem.recall.memories.store.EXACT", 10**9)
                exact = [await ask(number, **only) for number in range(QUERIES)]
            shares = [len(one & other) / len(other) for (_, one), (_, other) in zip(found, exact, strict=True)]
            p95_ms[name] = percentile([taken for taken, _ in found], 0.95)
            data = f"{name} of {MANY:,}"
            exact_ms = percentile([taken for taken, _ in exact], 0.95)
            note = f"exact: {exact_ms:.0f} ms; all put in within {made_s:.0f} s"
            share = fmean(shares)
            figures += [
                Figure(name="memories, recall@10", data=data, value=share, unit="", bar=LEAST_RECALL, better="more"),
                Figure(
                    name="memories among many p95", data=data, value=p95_ms[name], unit="ms", bar=MOST_MS, note=note
                ),
            ]
    grown = p95_ms["one namespace of 50 %"] / p95_ms["one namespace of 3 %"]
    data = f"{MANY // 2:,} over {MANY * 3 // 100:,}"
    table.add(*figures, Figure(name="memories p95, growth", data=data, value=grown, unit="×", bar=GROWTH))


ONE: Final = {"symbol/ONE": 100 / 103, "symbol/FEW": 3 / 103}
OF_ONE: Final = round(MANY * 1.03)

NEW: Final = 1_000
"""Memories of the last day, of which each tenth says what an older one says."""

LATELY: Final = """
WITH lately AS (
    SELECT m.namespace, m.memory_type, m.content, m.vector, m.model, row_number() OVER (ORDER BY m.id) AS nth
    FROM recall.memory AS m WHERE m.namespace = 'symbol/ONE' ORDER BY m.id LIMIT %(new)s
)
INSERT INTO recall.memory (id, version, namespace, memory_type, content, metadata, importance, agent_id, created_at,
    recorded_at, model, vector)
SELECT gen_random_uuid(), 1, l.namespace, l.memory_type,
    CASE WHEN l.nth %% 10 = 0 THEN l.content || '!' ELSE l.content || ' ' || l.nth END, '{}', 0.5, 'ann', imem_now(),
    imem_now(), l.model, l.vector
FROM lately AS l
"""


async def test_one_namespace_of_very_many(
    harness: MemoryHarness, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To remember and to search beside a namespace of 3,000, in turns; and the day's upkeep of all of them."""
    topics = Topics()
    monkeypatch.setattr("imem.services.embedders.embedder_of", lambda _: topics)
    seed(harness.admin_url, topics, ONE, OF_ONE, timedelta(days=40))
    sizes = {space: round(share * OF_ONE) for space, share in ONE.items()}
    remembered: dict[str, list[float]] = {space: [] for space in ONE}
    searched: dict[str, list[float]] = {space: [] for space in ONE}
    async with Memory.open(harness.of("kate", Role.HUMAN_ADMIN)) as memory:
        for number in range(2 * QUERIES):
            for space in ONE:
                topic = number * 37 % TOPICS
                begun = time.perf_counter()
                await memory.remember(f"{topic} what was said of word{topic}, {number}", namespace=space)
                said = time.perf_counter()
                query = f"{topic} what of word{topic} in that quarter, {number}"
                await memory.memories.search(query, namespace=space, deadline_ms=30_000)
                # The first call makes connections and plans.
                if number:
                    remembered[space].append((said - begun) * 1000)
                    searched[space].append((time.perf_counter() - said) * 1000)
    with psycopg.connect(harness.admin_url, autocommit=True) as conn:
        conn.execute("UPDATE recall.memory_namespace SET consolidated_at = imem_now()")
        conn.execute(LATELY, {"new": NEW})
        conn.execute(COUNTED)
        conn.execute(HELD)
    assert harness.settings.postgres_url is not None
    url = as_pipelines(harness.settings, harness.settings.postgres_url.get_secret_value())
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        upkeep = pool.submit(upkeep_of, url).result()
    assert upkeep.merged == NEW // 10
    # All but what is new, and what was found.
    assert upkeep.decayed >= OF_ONE - NEW - 4 * QUERIES * 10
    large, few = ONE
    data = f"{sizes[large]:,} in one namespace"
    for name, taken in (("remember", remembered), ("search", searched)):
        p50_ms, p95_ms = percentile(taken[large], 0.5), percentile(taken[large], 0.95)
        beside = percentile(taken[few], 0.95)
        note = f"among {sizes[few]:,}: p50 {percentile(taken[few], 0.5):.1f}, p95 {beside:.1f} ms"
        table.add(
            Figure(name=f"memories, {name} p50", data=data, value=p50_ms, unit="ms"),
            Figure(name=f"memories, {name} p95", data=data, value=p95_ms, unit="ms", note=note),
            Figure(name=f"memories, {name} p95, growth", data=data, value=p95_ms / beside, unit="×", bar=GROWTH),
        )
    table.add(
        Figure(
            name="memories, consolidation of a day",
            data=data,
            value=upkeep.consolidated_s,
            unit="s",
            note=f"{NEW:,} new",
        ),
        Figure(name="memories, decay of a day", data=data, value=upkeep.maintained_s, unit="s"),
        Figure(name="memories, peak memory of the upkeep", data=data, value=upkeep.grown_mb, unit="MB", bar=MOST_MB),
    )


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What a day's upkeep did, how long it took, and how much memory of its process beyond what was loaded."""

    merged: object
    decayed: Any
    consolidated_s: float
    maintained_s: float
    grown_mb: float


def upkeep_of(url: str) -> Upkeep:
    """Do it in this process, which does nothing else: its peak is that of the upkeep."""

    async def do() -> Upkeep:
        database, rules = Database(url, size=2), UpkeepRules()
        before_mb, begun = peak_mb(), time.perf_counter()
        try:
            merged = await consolidate(database, Topics(), rules, until=Deadline.never())
            between = time.perf_counter()
            decayed = await maintain(database, rules, until=Deadline.never())
            ended = time.perf_counter()
        finally:
            await database.close()
        assert merged["more"] is decayed["more"] is False
        return Upkeep(merged["merged"], decayed["decayed"], between - begun, ended - between, peak_mb() - before_mb)

    return asyncio.run(do())


def peak_mb() -> float:
    """Return the most that the process held: getrusage would count what its parent held before the exec, too."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    [kilobytes] = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(kilobytes) / 1024
