"""The applier's process: it applies, asks for settling, and goes cleanly."""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import neo4j
import psycopg
import pytest
import redis

from imem.cache.client import Client
from imem.cache.tiers.tag_versions import TagVersionReader
from imem.cache.tiers.tags import agent, subject
from imem.credibility.settling import settle_due
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.events.entry import Tier
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.kg.model import Company
from imem.kg.similarity.index import update
from imem.memory import Memory
from tests.imem.ingest.conftest import KNOWN, LoadHarness, analysis, company, finding
from tests.kg.lanes.conftest import finding as stated
from tests.kg.projection.world import Journal, importer
from tests.kg.similarity.conftest import Directions
from tests.servers import as_pipelines
from tests.waiting import until as awaited

TIMEOUT_S = 60.0

LATER = "2026-06-02T10:00:00Z"


def until(harness: LoadHarness, query: str) -> list[tuple[Any, ...]]:
    """Look until the journal has rows for *query*."""
    end = time.monotonic() + TIMEOUT_S
    with psycopg.connect(harness.admin_url, autocommit=True) as conn:
        while time.monotonic() < end:
            rows = conn.execute(query).fetchall()
            if rows:
                return list(rows)
            time.sleep(0.01)  # Between two looks at what another process does.
    raise AssertionError(f"nothing within {TIMEOUT_S} s for {query}")


def test_the_process_empties_a_graph_of_another_journal(harness: LoadHarness, graph: neo4j.Driver) -> None:
    """What a restored dump stands beside: nothing of it stays, and what this journal says is there."""
    graph.execute_query(
        "CREATE (:AppliedEvent {event_id: 'of another journal', position: 99}) CREATE (:Human {id: 'x'})"
    )
    assert harness.run("load", harness.file("desk.jsonl", [company("MU", name="Micron")]), "--no-wait").returncode in {
        0,
        3,
    }
    held = "MATCH (c:Company {ticker: 'MU'}) WHERE NOT EXISTS { MATCH (:Human {id: 'x'}) } RETURN c"
    with harness.applier() as process:
        end = time.monotonic() + TIMEOUT_S
        while not graph.execute_query(held).records and time.monotonic() < end:
            time.sleep(0.05)  # Between two looks at what another process does.
        found = graph.execute_query(held).records
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert len(found) == 1


def test_the_process_applies_asks_and_lets_its_lease_go(harness: LoadHarness, graph: neo4j.Driver) -> None:
    """What is loaded reaches the graph, an outcome asks for a settling, and SIGTERM leaves no lease behind."""
    assert harness.settings.valkey_durable_url is not None
    broker = redis.Redis.from_url(harness.settings.valkey_durable_url.get_secret_value())
    outcome = {
        "record": "Outcome",
        "known_at": KNOWN,
        "core": {
            "id": "o",
            "subject_id": "company:MU",
            "metric": "return_1s",
            "target_at": KNOWN,
            "actual": 0.1,
            "observed_at": KNOWN,
            "vintage": 0,
        },
    }
    before = broker.llen("imem:celery:imem")
    with harness.applier() as process:
        done = harness.run("load", harness.file("desk.jsonl", [company("MU", name="Micron"), outcome]))
        until(harness, "SELECT 1 FROM lease WHERE name = 'applier' AND expires_at > imem_now()")
        end = time.monotonic() + TIMEOUT_S
        while broker.llen("imem:celery:imem") == before and time.monotonic() < end:
            time.sleep(0.01)  # Between two looks at what another process does.
        asked = broker.llen("imem:celery:imem")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    broker.close()

    assert done.returncode == 0, done.stderr
    assert "The graph holds all of it." in done.stderr
    assert asked > before
    assert harness.rows("SELECT expires_at < imem_now() FROM lease WHERE name = 'applier'") == [(True,)]
    assert harness.rows("SELECT DISTINCT state FROM delivery") == [("applied",)]
    with graph.session() as session:
        row = session.run("MATCH (o:Outcome)-[:OUTCOME_OF]->(c:Company) RETURN c.name AS name").single()
    assert row is not None
    assert row["name"] == "Micron"


@asynccontextmanager
async def journal_of(harness: LoadHarness) -> AsyncIterator[Journal]:
    """Lend the harness' journal."""
    pipeline_url = as_pipelines(harness.settings, harness.url)
    database = Database(pipeline_url, size=2)
    try:
        yield Journal(harness.url, harness.admin_url, database, pipeline_url)
    finally:
        await database.close()


@pytest.mark.usefixtures("graph")
async def test_the_process_publishes_scores_and_neighbours(harness: LoadHarness) -> None:
    """Nothing is stated then: without it, answers that show them would stay as they were for an hour."""
    claim = {"metric": "up", "probability": 0.9, "target_at": LATER}
    outcome = {"id": "o", "subject_id": "company:MU", "metric": "up", "target_at": LATER, "actual": 1.0, "vintage": 0}
    lines = [
        company("MU"), company("NV"), analysis("a"), analysis("b", subject_id="company:NV"), finding("f", **claim),
        {"record": "Outcome", "known_at": LATER, "core": {**outcome, "observed_at": LATER}},
    ]  # fmt: skip
    assert harness.settings.valkey_durable_url is not None
    client = Client(harness.settings.valkey_durable_url.get_secret_value())
    with harness.applier():
        assert harness.run("load", harness.file("season.jsonl", lines)).returncode == 0
        async with journal_of(harness) as journal:
            invalidated = InvalidatedTags(journal, TagVersionReader(client))

            async def settle() -> None:
                await settle_due(
                    journal.database, Gateway(journal.database, importer()), halflife_years=2.0, until=Deadline.never()
                )

            async def compare() -> None:
                await update(journal.database, Directions(), until=Deadline.never(), loading=0.0)

            assert await invalidated.of(settle) >= {subject("company:MU"), agent("ann")}
            assert await invalidated.of(compare) >= {subject("company:MU"), subject("company:NV")}
    await client.close()


class InvalidatedTags:
    """The tags that the applier's process publishes while something is derived."""

    def __init__(self, journal: Journal, changes: TagVersionReader) -> None:
        self._journal = journal
        self._changes = changes

    async def of(self, work: Callable[[], Awaitable[None]]) -> set[str]:
        """Return the tags that are published by when everything that *work* has made due is in the graph."""
        await awaited(self._publishes)
        tag_versions = await self._changes.tag_versions(deadline=Deadline.never())
        assert tag_versions is not None
        await work()
        assert await self._journal.rows("SELECT FROM due_row WHERE queue = 'graph'"), "nothing was to be derived"
        await awaited(self._derived)
        invalidated = await self._changes.changes_after(tag_versions.bookmark.number, deadline=Deadline.never())
        return {tag for _, tags in invalidated for tag in tags}

    async def _publishes(self) -> bool:
        return await self._changes.tag_versions(deadline=Deadline.never()) is not None

    async def _derived(self) -> bool:
        return not await self._journal.rows("SELECT FROM due_row WHERE queue = 'graph'")


@pytest.mark.spec("SY-16")
@pytest.mark.usefixtures("graph")
async def test_without_the_flag_the_process_has_one_lane_and_no_wakeups(harness: LoadHarness) -> None:
    """In the order of recording whatever the tier; what comes then waits for the cycle, or for the next process."""
    slow = harness.having(sync_priority=False, apply_batch=1)
    async with journal_of(harness) as journal:

        async def applied() -> bool:
            return not (await journal.counts())["pending"]

        for number in range(5):
            await journal.say(stated(f"normal-{number}", by="bear"), actor=Actor("bear", Role.AGENT))
        await journal.say(stated("critical"), actor=Actor("bull", Role.AGENT), tier=Tier.CRITICAL)
        with slow.applier():
            await awaited(applied)
            rows = await journal.rows("SELECT position FROM delivery ORDER BY applied_at")
            async with Memory.open(slow.settings) as memory:
                receipt = await memory.record_company(Company(ticker="MU"), wait_visible=True)
            # With the flag it is woken at once, and looks for itself each second.
            for _ in range(30):
                assert not await applied()
                time.sleep(0.1)  # noqa: ASYNC251 - nothing happens: there is nothing to wait for
        assert [row["position"] for row in rows] == sorted(row["position"] for row in rows)
        assert receipt.state == "durable_not_visible"
        with slow.applier():
            await awaited(applied)
