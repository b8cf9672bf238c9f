"""A journal and a graph to prove things with: facts are stated, applied in any order, and looked at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import neo4j
import orjson

from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.events.entry import JournalEntry, Receipt, Tier
from imem.journal.gateway import Gateway
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.journal.settings import Role, Settings
from imem.kg.engine import Graph, given
from imem.kg.kinds.catalog import KINDS, LINKS
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import parse_line
from imem.kg.projection.applier import Applier
from imem.kg.projection.hash import GraphHash, graph_hash
from imem.kg.projection.rows import Event, Projection
from tests.servers import EMPTYING, as_pipelines, asked, cloned

Line = dict[str, Any]

NEVER = Deadline.never()


def importer(source: str = "test") -> Actor:
    """Return who may state when history was known."""
    return Actor(f"import:{source}", Role.HUMAN_ADMIN, may_import=True)


def writer_of(line: Line) -> str | None:
    """Return the subsystem that may write the line, if only one may."""
    if "link" in line:
        shape = (line["link"], next(iter(line["from"])), next(iter(line["to"])))
        return LINKS[shape].governed if shape in LINKS else None
    info = KINDS[line.get("record") or line["correct"]]
    governors = [info.governed, *(info.groups[name].governed for name in line.get("groups", {}))]
    return next((governor for governor in governors if governor), None)


def entries_of(*lines: Line, tier: Tier | None = None) -> list[JournalEntry]:
    """Return lines as the journal takes them, whoever may write them."""
    return [
        entry_of(parse_line(orjson.dumps(line), needs_known_at=False, writer=writer_of(line)), tier=tier)
        for line in lines
    ]


class NoWakeups:
    """A source of wake-ups that has none: the applier polls."""

    async def wait(self) -> None:
        """Return soon: each time the applier asks Postgres three times, also for minutes while the graph is away."""
        await asyncio.sleep(0.1)


@dataclass
class Journal:
    """
    One migrated database of its own.

    Attributes:
        url: as the application.
        admin_url: as its owner.
        database: as the application.
    """

    url: str
    admin_url: str
    database: Database
    pipeline_url: str

    async def say(self, *lines: Line, actor: Actor | None = None, tier: Tier | None = None) -> list[Receipt]:
        """Append lines as an import does, or as the agent that *actor* is."""
        gateway = Gateway(self.database, actor or importer())
        return await gateway.append(entries_of(*lines, tier=tier), deadline=NEVER)

    async def events(self) -> list[Event]:
        """Return the whole journal."""
        rows = await self.database.named(
            "events_after", {"after": 0, "upto": 2**62, "limit": 1_000_000}, deadline=NEVER
        )
        return [Event.from_row(row) for row in rows]

    async def counts(self) -> Row:
        """Return how many events wait and how many are dead."""
        return (await self.database.named("delivery_counts", deadline=NEVER))[0]

    async def rows(self, query: str, *parameters: Any) -> list[Row]:
        """Ask anything as the application."""
        return await self.database.rows(query, parameters or None, deadline=NEVER)

    def owner(self, query: str, *parameters: Any) -> None:
        """Change something behind the application's back."""
        asked(self.admin_url, query, parameters or None)


@dataclass
class World:
    """
    The servers, with a template of an empty journal.

    Attributes:
        settings: where they are.
        template: name of a migrated database that nobody is connected to.
        graph: the graph, shared by all tests and wiped between them.
    """

    settings: Settings
    template: str
    graph: Graph

    @asynccontextmanager
    async def journal(self) -> AsyncIterator[Journal]:
        """Lend an empty journal."""
        with cloned(self.settings, self.template) as (url, admin_url):
            pipeline_url = as_pipelines(self.settings, url)
            database = Database(pipeline_url)
            try:
                yield Journal(url, admin_url, database, pipeline_url)
            finally:
                await database.close()

    async def wipe(self) -> None:
        """Empty the graph; what migrations made stays."""
        async with self.graph.driver.session(database="neo4j") as session:
            for text in EMPTYING:
                await (await session.run(text)).consume()

    async def run(self, text: str, **parameters: Any) -> list[dict[str, Any]]:
        """Run any statement on the graph."""

        async def work(transaction: neo4j.AsyncTransaction) -> list[dict[str, Any]]:
            result = await transaction.run(text, parameters)
            return [record.data() async for record in result]

        return (await self.graph.write("test", work, deadline=NEVER))[0]

    async def apply(self, *batches: Sequence[Event]) -> None:
        """Apply batches, each in one transaction, as the applier does."""
        now = datetime.now(UTC).isoformat()
        for batch in batches:
            projection = Projection()
            for event in batch:
                projection.add(event)
            works = list(projection.work())

            async def work(transaction: neo4j.AsyncTransaction, works: Any = works) -> None:
                for one in works:
                    await (await transaction.run(one.text, given(one.parameters, now=now))).consume()

            await self.graph.write("apply", work, deadline=NEVER)

    async def hash_of(self, *batches: Sequence[Event]) -> GraphHash:
        """Return the hash of an empty graph to which the batches were applied."""
        await self.wipe()
        await self.apply(*batches)
        return await graph_hash(self.graph)

    def applier(self, journal: Journal, **options: Any) -> Applier:
        """Return an applier between the two."""
        return Applier(journal.database, self.graph, NoWakeups(), **options)

    async def node(self, kind: str, key: str) -> Mapping[str, Any] | None:
        """Return the properties of one node."""
        rows = await self.run(f"MATCH (n:{kind} {{{KINDS[kind].key}: $key}}) RETURN properties(n) AS p", key=key)
        return rows[0]["p"] if rows else None


def analysis(key: str, *, ticker: str = "MU", known_at: str = "2026-01-02T00:00:00Z", **core: Any) -> Line:
    """Return a line of an analysis."""
    values = {"id": key, "subject_id": f"company:{ticker}", "date": "2026-01-01T00:00:00Z", "kind": "research"}
    return {"record": "Analysis", "known_at": known_at, "core": {**values, **core}}


def cut(events: Iterable[Event], size: int) -> list[list[Event]]:
    """Return the events in batches."""
    found = list(events)
    return [found[start : start + size] for start in range(0, len(found), size)]
