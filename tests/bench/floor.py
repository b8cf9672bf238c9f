"""
Floors: the same work by the bare drivers, on the same servers, without anything that makes it a memory.

No clocks, no histories, no guards against repeats, no audit of who did it: what is left is what the servers and their
drivers cost at least.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, LiteralString

import neo4j
import orjson
import psycopg
import uuid_utils
from psycopg_pool import AsyncConnectionPool

from imem.ingest.line_reader import opened as open_lines
from imem.ingest.line_reader import sources_of
from imem.journal.settings import Settings
from imem.journal.statements import load
from imem.kg.kinds.catalog import CORE, KINDS, implied_links
from imem.kg.load_format.lines import LinkLine, RecordLine
from imem.kg.projection.rows import TERMS

AHEAD: Final = 4
"""Batches that Postgres may be ahead of the graph."""

POOL: Final = 8
"""Connections to Postgres of concurrent pushes: as many as the product's process has."""

_STATEMENTS = load(Path(__file__).parent, ".cypher")

_CREATE: Final = """
DROP TABLE IF EXISTS bench_floor_event, bench_floor_audit;
CREATE TABLE bench_floor_event (
    position bigint PRIMARY KEY, event_id uuid NOT NULL UNIQUE, kind text NOT NULL, record_key text NOT NULL,
    payload jsonb NOT NULL, body text, known_at timestamptz NOT NULL);
CREATE TABLE bench_floor_audit (event_id uuid NOT NULL, actor text NOT NULL, action text NOT NULL);
"""
_COPY_EVENTS: Final = "COPY bench_floor_event FROM STDIN"
_COPY_AUDIT: Final = "COPY bench_floor_audit FROM STDIN"


def statement(name: str, **terms: str) -> LiteralString:
    """Return a bare statement, bound."""
    return _STATEMENTS[name].bind(TERMS, **terms)


@asynccontextmanager
async def driver(settings: Settings) -> Any:
    """Lend a bare driver."""
    assert settings.neo4j_url is not None
    assert settings.neo4j_password is not None
    auth = (settings.neo4j_user, settings.neo4j_password.get_secret_value())
    async with neo4j.AsyncGraphDatabase.driver(
        settings.neo4j_url, auth=auth, notifications_min_severity="OFF", telemetry_disabled=True
    ) as made:
        yield made


def admin_url(settings: Settings) -> str:
    """Return the URL of Postgres' owner, who may make tables for a floor."""
    assert settings.postgres_admin_url is not None
    return settings.postgres_admin_url.get_secret_value()


@dataclass(frozen=True, slots=True)
class Rates:
    """
    What a bare pipeline reached.

    Attributes:
        events: how many there were.
        seconds: until the graph had them all, Postgres and graph side by side.
        graph_seconds: what the graph alone took.
    """

    events: int
    seconds: float
    graph_seconds: float


@dataclass(slots=True)
class _Batch:
    events: list[tuple[Any, ...]]
    nodes: dict[str, list[dict[str, Any]]]
    links: dict[tuple[str, str, str], list[dict[str, Any]]]
    applied: list[dict[str, Any]]


def _prepared(paths: Sequence[Path]) -> Iterator[_Batch]:
    """Yield the rows of the batches in which the product loads them."""
    position = 0
    for source in sources_of([str(path) for path in paths]):
        with open_lines(source) as lines:
            while (batch := lines.next_batch()) is not None:
                made = _Batch([], {}, {}, [])
                for one in batch.lines:
                    position += 1
                    _add(made, one.line, position, one.entry.payload)
                yield made


def _add(batch: _Batch, line: Any, position: int, payload: bytes) -> None:
    event_id = str(uuid_utils.uuid7())
    batch.applied.append({"event_id": event_id, "position": position})
    key = line.key if isinstance(line, RecordLine) else line.from_key
    body = line.body if isinstance(line, RecordLine) else None
    kind = line.kind if isinstance(line, RecordLine) else line.type
    batch.events.append((position, event_id, kind, key, payload.decode(), body, line.known_at))
    known = line.known_at.isoformat()
    if isinstance(line, LinkLine):
        shape = (line.type, line.from_label, line.to_label)
        batch.links.setdefault(shape, []).append({"from": line.from_key, "to": line.to_key, "known_at": known})
        return
    parts = ([line.core] if line.core is not None else []) + list(line.groups.values())
    props = {name: _plain(value) for part in parts for name, value in part.items()} | {"known_at": known}
    batch.nodes.setdefault(line.kind, []).append({"key": line.key, "props": props})
    for link in implied_links(line.kind, line.core) if line.core is not None else ():
        shape = (link.type, link.from_label, link.to_label)
        batch.links.setdefault(shape, []).append({"from": link.from_key, "to": link.to_key, "known_at": known})


def _plain(value: Any) -> Any:
    return orjson.dumps(value).decode() if isinstance(value, dict) else value


async def pipeline(settings: Settings, paths: Sequence[Path]) -> Rates:
    """Put *paths* into empty servers as fast as their drivers can, and return how fast that was."""
    batches = list(_prepared(paths))
    queue: asyncio.Queue[_Batch | None] = asyncio.Queue(AHEAD)
    conn = await psycopg.AsyncConnection.connect(admin_url(settings), autocommit=True)
    async with conn, driver(settings) as bare:
        await conn.execute(_CREATE)

        async def journal() -> None:
            for batch in batches:
                await _copy(conn, batch)
                await queue.put(batch)
            await queue.put(None)

        begun = time.perf_counter()
        graph_seconds = 0.0
        async with asyncio.TaskGroup() as group:
            group.create_task(journal())
            while (batch := await queue.get()) is not None:
                started = time.perf_counter()
                await _merge(bare, batch)
                graph_seconds += time.perf_counter() - started
        seconds = time.perf_counter() - begun
    return Rates(sum(len(batch.events) for batch in batches), seconds, graph_seconds)


async def _copy(conn: psycopg.AsyncConnection[Any], batch: _Batch) -> None:
    async with conn.transaction(), conn.cursor() as cursor:
        async with cursor.copy(_COPY_EVENTS) as copy:
            for row in batch.events:
                await copy.write_row(row)
        async with cursor.copy(_COPY_AUDIT) as copy:
            for row in batch.events:
                await copy.write_row((row[1], "import:bench", "import"))


async def _merge(bare: neo4j.AsyncDriver, batch: _Batch) -> None:
    async with bare.session(database="neo4j") as session, await session.begin_transaction() as transaction:
        for label, rows in sorted(batch.nodes.items()):
            text = statement("floor_nodes", label=label, key=KINDS[label].key)
            await (await transaction.run(text, rows=rows)).consume()
        for (type_, start, end), rows in sorted(batch.links.items()):
            terms = {"from": start, "from_key": KINDS[start].key, "to": end, "to_key": KINDS[end].key}
            await (await transaction.run(statement("floor_links", type=type_, **terms), rows=rows)).consume()
        await (await transaction.run(statement("floor_applied"), rows=batch.applied)).consume()
        await transaction.commit()


async def inserts(settings: Settings, count: int) -> list[float]:
    """Return how long each of *count* bare commits of one row took in Postgres, in milliseconds."""
    taken = []
    conn = await psycopg.AsyncConnection.connect(admin_url(settings), autocommit=True)
    async with conn:
        await conn.execute(_CREATE)
        for number in range(count):
            row = (number, str(uuid_utils.uuid7()), CORE, str(number), '{"core": {}}', None, "2026-06-01T00:00:00Z")
            begun = time.perf_counter()
            await conn.execute("INSERT INTO bench_floor_event VALUES (%s, %s, %s, %s, %s, %s, %s)", row)
            taken.append((time.perf_counter() - begun) * 1000)
        await conn.execute("DROP TABLE bench_floor_event, bench_floor_audit")
    return taken


async def merges(settings: Settings, count: int) -> list[float]:
    """Return how long each of *count* bare commits of one node took in the graph, in milliseconds."""
    taken = []
    async with driver(settings) as bare:
        for number in range(count):
            begun = time.perf_counter()
            async with bare.session(database="neo4j") as session:
                result = await session.run(statement("floor_one"), id=str(number), statement="one statement")
                await result.consume()
            taken.append((time.perf_counter() - begun) * 1000)
        async with bare.session(database="neo4j") as session:
            await (await session.run(statement("floor_clear"))).consume()
    return taken


async def pushes(settings: Settings, agents: int, findings: int) -> list[float]:
    """
    Return how long each of many concurrent pushes took by the bare drivers, in milliseconds.

    A push is the commit of one row in Postgres, then of one node in the graph; *findings* of each of *agents* at once.
    """
    taken: list[float] = []
    pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
        admin_url(settings), min_size=POOL, max_size=POOL, open=False, kwargs={"autocommit": True}
    )
    async with pool, driver(settings) as bare:
        async with pool.connection() as conn:
            await conn.execute(_CREATE)

        async def push(number: int) -> None:
            row = (number, str(uuid_utils.uuid7()), CORE, str(number), '{"core": {}}', None, "2026-06-01T00:00:00Z")
            begun = time.perf_counter()
            async with pool.connection() as conn:
                await conn.execute("INSERT INTO bench_floor_event VALUES (%s, %s, %s, %s, %s, %s, %s)", row)
            async with bare.session(database="neo4j") as session:
                result = await session.run(statement("floor_one"), id=str(number), statement="one statement")
                await result.consume()
            taken.append((time.perf_counter() - begun) * 1000)

        await asyncio.gather(*(push(number) for number in range(agents * findings)))
        async with pool.connection() as conn:
            await conn.execute("DROP TABLE bench_floor_event, bench_floor_audit")
        async with bare.session(database="neo4j") as session:
            await (await session.run(statement("floor_clear"))).consume()
    return taken
