"""The statements that one briefing runs, written down, and run once more by the bare drivers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import neo4j
from psycopg_pool import AsyncConnectionPool

from imem.journal.deadline import Deadline
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from imem.journal.settings import Settings
from imem.journal.statements import sql
from imem.kg.engine import Graph, given
from imem.services.stores import Stores, secret
from tests.bench.floor import driver

_FIRST = frozenset({"read_horizon", "find_subject"})
"""What is asked before the sections begin."""


@dataclass(frozen=True, slots=True)
class Call:
    """
    One statement.

    Attributes:
        task: the task that waited for it; those of one task run one after another.
        store: ``graph`` or ``journal``.
        text, parameters: what was sent.
    """

    task: int
    store: str
    text: Any
    parameters: Any


@dataclass(slots=True)
class Notebook:
    """What was asked."""

    calls: list[Call] = field(default_factory=list)

    def note(self, store: str, text: Any, parameters: Any) -> None:
        """Write a call down."""
        self.calls.append(Call(id(asyncio.current_task()), store, text, parameters))


class _Connection:
    """A connection that writes down what it is asked, and is otherwise the one that it stands for."""

    def __init__(self, conn: Any, notes: Notebook) -> None:
        self._conn, self._notes = conn, notes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conn, name)

    async def execute(self, text: Any, parameters: Any = None) -> Any:
        self._notes.note("journal", text, parameters)
        return await self._conn.execute(text, parameters)


class NotingDatabase(Database):
    """A pool that writes down what it is asked, whichever way."""

    def __init__(self, url: str, notes: Notebook) -> None:
        super().__init__(url)
        self._notes = notes

    @asynccontextmanager
    async def connection(self, deadline: Deadline) -> AsyncIterator[Any]:
        """Lend a connection that writes down."""
        async with super().connection(deadline) as conn:
            yield _Connection(conn, self._notes)


class NotingGraph(Graph):
    """A graph that writes down what it is asked."""

    notes: Notebook

    async def read_text(
        self, name: str, text: Any, parameters: Mapping[str, Any] | None = None, *, deadline: Deadline
    ) -> list[dict[str, Any]]:
        """Write down and ask."""
        self.notes.note("graph", text, parameters)
        return await super().read_text(name, text, parameters, deadline=deadline)


@asynccontextmanager
async def noting(stores: Stores) -> AsyncIterator[tuple[Stores, Notebook]]:
    """Lend stores like the given ones that write down what they are asked."""
    settings, notes = stores.settings, Notebook()
    assert settings.neo4j_url is not None
    database = NotingDatabase(secret(settings, "postgres_url"), notes)
    graph = NotingGraph(settings.neo4j_url, settings.neo4j_user, secret(settings, "neo4j_password"))
    graph.notes = notes
    try:
        made = Stores(settings, database, Gateway(database, stores.gateway.actor), stores.wakeup_publisher)
        made.graph = graph
        yield made, notes
    finally:
        await graph.close()
        await database.close()


@dataclass(frozen=True, slots=True)
class Bare:
    """Both drivers, without anything around them."""

    pool: Any
    graph: neo4j.AsyncDriver

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings) -> AsyncIterator[Bare]:
        """Connect."""
        pool: Any = AsyncConnectionPool(
            secret(settings, "postgres_url"), min_size=8, max_size=8, open=False, kwargs={"autocommit": True}
        )
        async with pool, driver(settings) as graph:
            yield cls(pool, graph)

    async def run(self, calls: Sequence[Call]) -> float:
        """Run *calls* as they were run, those of one task in order and tasks side by side; return milliseconds."""
        first = {sql(name) for name in _FIRST}
        phases = ([one for one in calls if one.text in first], [one for one in calls if one.text not in first])
        begun = time.perf_counter()
        for phase in phases:
            tasks: dict[int, list[Call]] = {}
            for call in phase:
                tasks.setdefault(call.task, []).append(call)
            await asyncio.gather(*(self._in_order(one) for one in tasks.values()))
        return (time.perf_counter() - begun) * 1000

    async def _in_order(self, calls: Sequence[Call]) -> None:
        for call in calls:
            if call.store == "graph":
                await self.read(call.text, call.parameters)
            else:
                async with self.pool.connection() as conn:
                    await (await conn.execute(call.text, call.parameters)).fetchall()

    async def read(self, text: Any, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Run one statement in the graph."""
        async with self.graph.session(database="neo4j", default_access_mode=neo4j.READ_ACCESS) as session:
            result = await session.run(text, given(parameters))
            return [record.data() async for record in result]
