"""Similar analyses: lookups, recall against looking at everything, throughput, and what a rebuild costs readers."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import orjson
import psycopg
import pytest
import pytest_asyncio
from pydantic import SecretStr

from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.kg.asof import END_OF_TIME
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import parse_line
from imem.kg.pipelines import REBUILD_SIMILAR
from imem.kg.similarity.index import update
from imem.memory import Memory
from imem.recall.sections.similar_analyses import MOST_EXACT
from imem.services.stores import Stores
from imem.workers.celery_app import make_app
from tests.bench.conftest import SCALES, _scale
from tests.bench.generate import START, History
from tests.bench.table import Figure, Table, percentile
from tests.bench.test_memory import uncaching
from tests.bench.worlds import World
from tests.encoders import LOCAL
from tests.servers import as_pipelines, cloned, in_database

NEVER = Deadline.never()
ASKED = 200
TEXTS = 1000
KINDS = frozenset({"Analysis", "Company", "Finding"})
MODEL = "SELECT model FROM embedding_model WHERE in_use"
NOW = {"known_until": END_OF_TIME, "recorded_until": END_OF_TIME}


@dataclass
class Compared:
    """
    A journal of analyses that were compared with one another.

    Attributes:
        data: how many, for the table.
        database: the journal.
        memory: what is asked.
        keys: the analyses.
        seconds: what comparing took.
    """

    data: str
    database: Database
    memory: Memory
    keys: list[str]
    seconds: float


@pytest_asyncio.fixture(scope="module")
async def compared(light_stack: Any, light_template: str) -> AsyncIterator[Compared]:
    count = SCALES[_scale()][1]
    importer = Actor("import:bench", Role.HUMAN_ADMIN, may_import=True)
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        database = Database(as_pipelines(light_stack.settings, url), size=4)
        lines = [line for line in History(count).lines() if line.get("record") in KINDS]
        entries = [entry_of(parse_line(orjson.dumps(line), needs_known_at=False)) for line in lines]
        gateway = Gateway(database, importer)
        await gateway.append(entries, deadline=NEVER)
        begun = time.perf_counter()
        await update(database, LOCAL, until=NEVER, loading=0.0)
        seconds = time.perf_counter() - begun
        with psycopg.connect(admin_url, autocommit=True) as conn:
            # There is no graph here: as if it held everything, and as autovacuum leaves an old memory.
            conn.execute("UPDATE delivery SET state = 'applied'")
            conn.execute("VACUUM ANALYZE")
        graph = {"neo4j_url": "bolt://127.0.0.1:1", "neo4j_password": SecretStr("none")}
        given = {**in_database(light_stack.settings, url), **graph}
        async with Memory.open(light_stack.settings.model_copy(update=given)) as memory:
            keys = [line["core"]["id"] for line in lines if line["record"] == "Analysis"]
            yield Compared(f"{count:,}", database, memory, keys, seconds)
        await database.close()


async def timed(call: Callable[[str], Awaitable[Any]], keys: list[str]) -> list[float]:
    taken = []
    for nth, key in enumerate(keys):
        begun = time.perf_counter()
        await call(key)
        if nth >= 10:
            taken.append((time.perf_counter() - begun) * 1000)
    return taken


@pytest.mark.bench
async def test_embedding(table: Table) -> None:
    """How fast vectors are made, by one thread of the encoder that is here."""
    texts = [line["core"]["summary"] for line in History(TEXTS).lines() if line.get("record") == "Analysis"]
    embedder = LOCAL
    await embedder.embed(texts[:8], deadline=NEVER)
    begun = time.perf_counter()
    await embedder.embed(texts, deadline=NEVER)
    rate = len(texts) / (time.perf_counter() - begun)
    note = "summaries of 30 words, in a thread of its own; OPENBLAS_NUM_THREADS=1, as in the worker"
    table.add(Figure(name="embedding", data=f"{TEXTS:,} texts", value=rate, unit="texts/s", note=note))


@pytest.mark.bench
@pytest.mark.spec("PF-8")
async def test_lookup(compared: Compared, table: Table) -> None:
    """Stored neighbours by key, candidates by the index, and how many of the nearest the index finds."""
    keys = random.Random(3).sample(compared.keys, ASKED)
    stored = await timed(lambda key: compared.memory.similar(key, min_score=0.0), keys)
    [model] = await compared.database.rows(MODEL, deadline=NEVER)

    def nearest(name: str, limit: int) -> Callable[[str], Awaitable[Any]]:
        return lambda key: compared.database.named(
            name, {"model": model["model"], "keys": [key], "limit": limit, "ties": limit, **NOW}, deadline=NEVER
        )

    async def exactly(key: str, limit: int) -> list[dict[str, Any]]:
        given = {
            "keys": [key],
            "subject_id": "",
            "newest": 1,
            "recorded": False,
            "most": MOST_EXACT,
            "limit": limit,
            "ties": limit,
        }
        return await compared.database.named("similar_as_of", {**given, **NOW}, deadline=NEVER)

    bare = await timed(
        lambda key: compared.database.named("similar_stored", {"keys": [key], "min_score": 0.0}, deadline=NEVER), keys
    )
    indexed = await timed(nearest("nearest", 50), keys)
    exact_ms = await timed(lambda key: exactly(key, 50), keys[:40])
    hits = 0
    for key in keys:
        found = {row["candidate"] for row in await nearest("nearest", 10)(key)}
        hits += len(found & {row["candidate"] for row in await exactly(key, 10)})
    table.add(
        Figure(
            name="comparing, sustained", data=compared.data, value=len(compared.keys) / compared.seconds,
            unit="analyses/s", note="vectors, index and lists on both sides, without rest",
        ),
        Figure(name="similar, stored p50", data=compared.data, value=percentile(stored, 0.5), unit="ms"),
        Figure(
            name="similar, stored p95", data=compared.data, value=percentile(stored, 0.95), unit="ms",
            floor=percentile(bare, 0.95),
            note="Memory.similar of an analysis, dated, with decisions, through the gateway; floor: the lookup alone",
        ),
        Figure(name="similar, by the index p50", data=compared.data, value=percentile(indexed, 0.5), unit="ms"),
        Figure(
            name="similar, by the index p95", data=compared.data, value=percentile(indexed, 0.95), unit="ms", bar=10,
            note=f"50 candidates by HNSW; looking at every vector takes {percentile(exact_ms, 0.5):.0f} ms",
        ),
        Figure(
            name="similar, recall@10", data=compared.data, value=hits / (10 * len(keys)), unit="", bar=0.95,
            better="more", note="of the ten nearest by looking at every vector, the share that the index finds",
        ),
    )  # fmt: skip


@pytest.mark.bench
async def test_as_of_a_day(compared: Compared, table: Table) -> None:
    """As of a day in the middle every vector of then is looked at, within the budget of a question."""

    middle = START + timedelta(days=300)
    keys = compared.keys[: len(compared.keys) // 3]
    asked = random.Random(5).sample(keys, 60)
    taken = await timed(lambda key: compared.memory.similar(key, as_of=middle, deadline_ms=2000), asked)
    table.add(
        Figure(name="similar, as of a day p95", data=compared.data, value=percentile(taken, 0.95), unit="ms", bar=500)
    )


@pytest.mark.bench
@pytest.mark.spec("PF-9")
async def test_from_write_to_found(compared: Compared, table: Table) -> None:
    """One new analysis among many: its vector, its own list, and its place in those of others."""
    gateway = Gateway(compared.database, Actor("import:late", Role.HUMAN_ADMIN, may_import=True))
    embedder = LOCAL
    taken = []
    for number in range(30):
        core = {
            "id": f"late-{number}", "subject_id": f"company:LATE{number}", "date": "2026-01-01T00:00:00Z",
            "kind": "equity_research", "summary": f"Margin and demand hold while inventory falls, case {number}.",
        }  # fmt: skip
        line = {"record": "Analysis", "known_at": "2026-01-01T00:00:00Z", "core": core}
        await gateway.append([entry_of(parse_line(orjson.dumps(line), needs_known_at=False))], deadline=NEVER)
        begun = time.perf_counter()
        await update(compared.database, embedder, until=NEVER, loading=0.0)
        taken.append(time.perf_counter() - begun)
        rows = await compared.database.named(
            "similar_stored", {"keys": [f"late-{number}"], "min_score": 0.0}, deadline=NEVER
        )
        assert len(rows) == 10
    note = "what the worker does for it; it is asked at once when the graph holds the analysis, and each 15 s"
    name = "similar, from write to found p95"
    table.add(
        Figure(name=name, data=compared.data, value=percentile(taken, 0.95) * 1000, unit="ms", bar=60_000, note=note)
    )


@pytest.mark.bench
@pytest.mark.spec("PF-15")
async def test_readers_during_a_rebuild(world: World, stores: Stores, table: Table) -> None:
    """The worker builds the index anew while briefings are asked for: their p95 stays within half as much again."""
    memory = uncaching(stores)
    rows = await stores.database.rows(
        "SELECT key FROM record_head WHERE kind = 'Company' AND grp = 'core'", deadline=NEVER
    )
    subjects = sorted(f"company:{row['key']}" for row in rows)
    chance = random.Random(11)

    async def briefs(count: int) -> list[float]:
        taken = []
        for _ in range(count):
            begun = time.perf_counter()
            await memory.brief(chance.choice(subjects))
            taken.append((time.perf_counter() - begun) * 1000)
        return taken

    count = 400 if table.scale == "full" else 60
    await briefs(50)
    quiet = percentile(await briefs(count), 0.95)

    async def version() -> int:
        found = await stores.database.named("live_builds", deadline=NEVER)
        return next(int(row["version"]) for row in found if row["state"] == "current")

    before = await version()
    await asyncio.to_thread(
        lambda: make_app(stores.settings).send_task(REBUILD_SIMILAR.name, ignore_result=True, retry=False)
    )
    busy: list[float] = []
    begun = time.monotonic()
    while await version() == before:
        assert time.monotonic() - begun < 1800, "The rebuild did not end."
        busy += await briefs(20)
    p95 = percentile(busy, 0.95)
    note = f"{len(busy):,} briefings while the worker built the index anew for {time.monotonic() - begun:.0f} s"
    name = "brief p95 while the index is rebuilt"
    table.add(
        Figure(name=name, data=world.data, value=p95, unit="ms", floor=quiet, note=f"{note}; floor: before"),
        Figure(name=f"{name}, growth", data=world.data, value=p95 / quiet, unit="×", bar=1.5, note="over none"),
    )
