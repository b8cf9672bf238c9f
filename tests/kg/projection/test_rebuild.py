"""The graph made anew says what the old one said, from the journal alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from imem.journal.errors import BadInput
from imem.kg import migrations
from imem.kg.engine import Graph
from imem.kg.projection.hash import graph_hash
from imem.kg.projection.rebuild import (
    Replacement,
    begin,
    clear_rebuild_mark,
    holding_applier_lease,
    rebuild_in_place,
    rederive,
    replay,
    settled_end,
)
from imem.local.supervisor import LocalStack
from tests.conftest import settings_for, temporary_home
from tests.kg.draining import drain
from tests.kg.projection.world import NEVER, Journal, Line, World, analysis


def history(analyses: int) -> list[Line]:
    """Return analyses of a few companies, each with findings, decisions, citations and late groups."""
    lines: list[Line] = []
    for number in range(analyses):
        day = (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=number)).isoformat()
        ticker, key = f"T{number % 5}", f"a{number}"
        subject = f"company:{ticker}"
        lines += [
            analysis(key, ticker=ticker, known_at=day),
            {"record": "Finding", "known_at": day, "core": {
                "id": f"f{number}", "analysis_id": key, "subject_id": subject, "agent": f"agent{number % 3}",
                "domain": "d", "statement": "it rises"}},
            {"record": "Decision", "known_at": day, "core": {
                "id": f"d{number}", "analysis_id": key, "subject_id": subject, "type": "trade",
                "agents_involved": [f"agent{number % 3}", "trader"], "decided_at": day}},
            {"link": "CITES", "known_at": day, "from": {"Decision": f"d{number}"}, "to": {"Finding": f"f{number}"},
             "props": {"at": day, "rank": 1}},
            {"record": "Company", "known_at": day, "key": ticker, "groups": {"profile": {"name": f"Name {number}"}}},
        ]  # fmt: skip
    return lines


@pytest_asyncio.fixture(scope="module")
async def second() -> AsyncIterator[Graph]:
    """A second Neo4j, empty at the beginning of each test."""
    with temporary_home() as home, LocalStack(settings_for(home), servers={"neo4j"}, workers=False) as local:
        found = local.settings
        assert found.neo4j_url is not None
        assert found.neo4j_password is not None
        address = (found.neo4j_url, found.neo4j_user, found.neo4j_password.get_secret_value())
        migrations.migrate(*address)
        graph = Graph(*address)
        yield graph
        await graph.close()


@pytest_asyncio.fixture
async def target(second: Graph) -> Graph:
    async def wipe(transaction: Any) -> None:
        await (await transaction.run("MATCH (n) WHERE NOT n:SchemaVersion DETACH DELETE n")).consume()

    await second.write("test", wipe, deadline=NEVER)
    return second


async def _applied(world: World, journal: Journal, lines: list[Line]) -> None:
    await journal.say(*lines)
    applier = world.applier(journal)
    await drain(applier)
    await applier.stop()


@pytest.mark.spec("GR-6")
async def test_the_new_graph_has_the_hash_of_the_live_one(empty: World, journal: Journal, target: Graph) -> None:
    """Events that were applied, that wait, and that come while it runs: both graphs end the same."""
    await _applied(empty, journal, history(10))
    await journal.say(analysis("late1"))
    seen: list[tuple[int, int]] = []
    replacement = Replacement(journal.database, empty.graph, target, report=lambda *now: seen.append(now))

    assert await replacement.fill() == []
    await journal.say(analysis("late2"))
    async with holding_applier_lease(journal.database) as lease:
        made = await replacement.compare(lease)
    await clear_rebuild_mark(target)

    assert made.same
    assert made.after == await graph_hash(target)
    assert (made.events, made.left_out, made.refused) == (52, 0, ())
    assert made.after.parts["Analysis"].count == 12
    assert seen == sorted(seen)
    assert seen[-1] == (51, 51)
    assert (await journal.counts())["pending"] == 0


@pytest.mark.spec("GR-6")
async def test_it_goes_on_where_it_stopped(empty: World, journal: Journal, target: Graph) -> None:
    """What one run wrote the next one does not write again, and the end is the same."""
    await _applied(empty, journal, history(10))
    replacement = Replacement(journal.database, empty.graph, target)
    assert await begin(journal.database, empty.graph, target) == 0
    upto = await settled_end(journal.database)
    middle = (await journal.events())[22].position
    await replay(journal.database, target, after=0, upto=middle, page=7)

    assert await begin(journal.database, empty.graph, target) == middle

    seen: list[int] = []
    await replay(journal.database, target, after=middle, upto=upto, page=5, report=lambda done, _: seen.append(done))
    assert seen == [28, 33, 38, 43, 48, 50]
    async with holding_applier_lease(journal.database) as lease:
        assert (await replacement.compare(lease)).same


@pytest.mark.spec("GR-6")
async def test_a_difference_is_found_and_named(empty: World, journal: Journal, target: Graph) -> None:
    """A live graph in which something else wrote is not what the journal says."""
    await _applied(empty, journal, history(3))
    await empty.run("MATCH (f:Finding {id: 'f1'}) SET f.statement = 'it falls'")
    await empty.run("MATCH (:Decision {id: 'd2'})-[r:CITES]->() DELETE r")
    replacement = Replacement(journal.database, empty.graph, target)
    await replacement.fill()

    async with holding_applier_lease(journal.database) as lease:
        made = await replacement.compare(lease)

    assert not made.same
    assert made.before.differing(made.after) == ["CITES (2 against 3)", "Finding (3 against 3, with other content)"]


async def test_what_was_refused_is_tried_once_more(empty: World, journal: Journal, target: Graph) -> None:
    """A mended event comes back into both graphs; one that is still bad stays out of both."""
    await journal.say(*history(2))
    journal.owner("ALTER TABLE event DISABLE TRIGGER append_only")
    journal.owner(
        "UPDATE event SET payload = jsonb_set(payload, '{core,statement}', '{\"a\": 1}') WHERE record_key = 'f1'"
    )
    journal.owner(
        "UPDATE delivery SET state = 'dead' FROM event WHERE event.position = delivery.position AND record_key ~ '^f'"
    )
    await drain(empty.applier(journal))
    replacement = Replacement(journal.database, empty.graph, target)

    refused = await replacement.fill()
    async with holding_applier_lease(journal.database) as lease:
        made = await replacement.compare(lease)

    assert made.same
    assert (made.events, made.left_out, len(refused)) == (9, 1, 1)
    dead = await journal.rows("SELECT record_key FROM event JOIN delivery USING (position) WHERE state = 'dead'")
    assert dead == [{"record_key": "f1"}]
    assert (await empty.node("Finding", "f0") or {})["statement"] == "it rises"


async def test_only_an_empty_graph_or_an_unfinished_rebuild_is_written(
    empty: World, journal: Journal, target: Graph
) -> None:
    """The live graph, somebody else's data and the rebuild of another journal are refused and left alone."""
    await _applied(empty, journal, history(1))

    with pytest.raises(BadInput, match="in use"):
        await begin(journal.database, empty.graph, empty.graph)

    async with empty.journal() as other:
        await other.say(analysis("a"))
        await begin(other.database, empty.graph, target)
        await replay(other.database, target, after=0, upto=10**9)
    with pytest.raises(BadInput, match="not empty"):
        await begin(journal.database, empty.graph, target)

    async def foreign(transaction: Any) -> None:
        await (await transaction.run("MATCH (n) DETACH DELETE n")).consume()
        await (await transaction.run("CREATE (:Theirs {x: 1})")).consume()

    await target.write("test", foreign, deadline=NEVER)
    with pytest.raises(BadInput, match="not empty"):
        await begin(journal.database, empty.graph, target)
    assert await target.read_text("t", "MATCH (n) RETURN count(n) AS n", deadline=NEVER) == [{"n": 1}]


@pytest.mark.spec("GR-6")
async def test_in_place_removes_what_the_journal_does_not_say(empty: World, journal: Journal) -> None:
    """The graph is emptied and replayed; what something else had written is gone, and named."""
    await _applied(empty, journal, history(5))
    clean = await graph_hash(empty.graph)
    await empty.run("CREATE (:Human {id: 'nobody'})")

    made = await rebuild_in_place(journal.database, empty.graph)

    assert made.after == clean
    assert made.before.differing(made.after) == ["Human (1 against 0)"]
    assert (await journal.counts())["pending"] == 0
    again = await rebuild_in_place(journal.database, empty.graph)
    assert again.same


async def test_in_place_readers_are_told_how_little_is_there(
    empty: World, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the graph is empty the safe horizon lies before the first event."""
    await _applied(empty, journal, history(2))
    first = (await journal.rows("SELECT min(recorded_at) AS at FROM event"))[0]["at"]
    horizons = []

    async def look(*_: Any, **__: Any) -> str | None:
        horizons.append((await journal.database.named("safe_horizon", deadline=NEVER))[0]["horizon"])
        return await write(*_, **__)

    from imem.kg.projection import batches, rebuild

    write = batches.write_events
    monkeypatch.setattr(rebuild, "write_events", look)
    await rebuild_in_place(journal.database, empty.graph)

    assert horizons[0] < first
    assert (await journal.database.named("safe_horizon", deadline=NEVER))[0]["horizon"] > first


async def test_a_late_commit_is_not_passed_over(journal: Journal) -> None:
    """The end of the journal is told only when nothing can appear below it any more."""
    await journal.say(analysis("a1"))
    async with journal.database.transaction(NEVER) as conn:
        await conn.execute("UPDATE lease SET expires_at = expires_at")
        await conn.execute("INSERT INTO lease VALUES ('held open', 'test', 1, now())")
        end = asyncio.create_task(settled_end(journal.database))
        done, _ = await asyncio.wait({end}, timeout=0.3)
        assert not done
    assert await end == (await journal.events())[-1].position


async def test_derived_values_come_back(empty: World, journal: Journal) -> None:
    """Counters are in no event; after a rebuild they are computed again."""
    await _applied(empty, journal, history(5))
    await rebuild_in_place(journal.database, empty.graph)
    assert (await empty.node("Company", "T1") or {}).get("analyzed_count") is None

    await rederive(journal.database, ["rederive_counters", "rederive_settled"])
    await drain(empty.applier(journal))

    assert (await empty.node("Company", "T1") or {})["analyzed_count"] == 1
    assert (await empty.node("Agent", "trader") or {})["total_decisions"] == 5


async def test_notices_are_no_part_of_the_graph(empty: World, journal: Journal, target: Graph) -> None:
    """Alerts among the events: the graph made anew, beside and in place, says the same and counts none of them."""

    async def raise_one() -> None:
        await journal.database.rows(
            "SELECT workflow.raise_alert_v1(gen_random_uuid(), 'AGENT_FAILURE', 'HIGH', 'T1', 'a1', NULL, '{}')",
            deadline=NEVER,
        )

    await raise_one()
    await _applied(empty, journal, history(5))
    await raise_one()
    alone = await graph_hash(empty.graph)
    replacement = Replacement(journal.database, empty.graph, target)
    await replacement.fill()
    async with holding_applier_lease(journal.database) as lease:
        done = await replacement.compare(lease)

    assert done.same
    assert done.before == alone
    assert (done.events, done.refused, done.left_out) == (25, (), 0)
    in_place = await rebuild_in_place(journal.database, empty.graph)
    assert in_place.same
    assert in_place.events == 25
