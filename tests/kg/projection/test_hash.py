"""The hash says what the graph says, and nothing of how it came to be."""

from __future__ import annotations

import pytest

from imem.kg.projection.hash import graph_hash
from tests.kg.projection.world import Journal, World, analysis, cut

LINES = [
    {
        "record": "Company",
        "known_at": "2026-01-01T00:00:00Z",
        "core": {"ticker": "MU"},
        "groups": {"profile": {"name": "Micron"}},
    },
    analysis("a1"),
    analysis("a2", summary="2026-01-01T00:00:00Z"),
    {
        "link": "PERFORMED",
        "known_at": "2026-01-02T00:00:00Z",
        "from": {"Agent": "x"},
        "to": {"Analysis": "a1"},
        "props": {"role": "lead"},
    },
    {
        "link": "CITES",
        "known_at": "2026-01-02T00:00:00Z",
        "from": {"Decision": "d"},
        "to": {"Analysis": "a1"},
        "props": {"at": "2026-01-02T00:00:00Z", "rank": 1},
    },
    {
        "link": "PEER_OF",
        "known_at": "2026-01-02T00:00:00Z",
        "from": {"Company": "MU"},
        "to": {"Company": "AMD"},
        "props": {},
    },
]


async def _stated(world: World, journal: Journal) -> None:
    await journal.say(*LINES)
    await world.apply(await journal.events())


async def test_it_counts_what_it_covers(empty: World, journal: Journal) -> None:
    """Nodes with stubs, links with implied ones; bookkeeping is left out."""
    await _stated(empty, journal)

    found = await graph_hash(empty.graph)

    assert (found.nodes, found.links) == (6, 5)
    assert {name: part.count for name, part in found.parts.items()} == {
        "Company": 2,
        "Analysis": 2,
        "Agent": 1,
        "Decision": 1,
        "HAS_ANALYSIS": 2,
        "PERFORMED": 1,
        "CITES": 1,
        "PEER_OF": 1,
    }


async def test_it_does_not_depend_on_the_page(empty: World, journal: Journal) -> None:
    """Pages of one node and pages of all give the same."""
    await _stated(empty, journal)
    seen: list[int] = []

    small = await graph_hash(empty.graph, page=1, seen=seen.append)

    assert small == await graph_hash(empty.graph)
    assert seen[-1] == 6
    assert seen == sorted(seen)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ("MATCH (n:Analysis {id: 'a1'}) SET n.kind = 'other'", ["Analysis"]),
        ("MATCH (n:Analysis {id: 'a1'}) SET n.known_at = n.known_at + duration('PT0.000001S')", ["Analysis"]),
        ("MATCH (n:Analysis {id: 'a1'}) SET n.occurred_at = n.known_at", ["Analysis"]),
        ("MATCH (n:Analysis {id: 'a2'}) SET n.summary = n.date", ["Analysis"]),
        ("MATCH (n:Company {ticker: 'MU'}) SET n.profile_known_at = n.known_at + duration('PT1S')", ["Company"]),
        ("MATCH (n:Company {ticker: 'MU'}) SET n.invented = 1", ["Company"]),
        ("MATCH (n:Analysis {id: 'a2'}) DETACH DELETE n", ["Analysis", "HAS_ANALYSIS"]),
        ("CREATE (:Human {id: 'h', stub: true})", ["Human"]),
        ("MATCH ()-[r:PERFORMED]->() SET r.role = 'other'", ["PERFORMED"]),
        ("MATCH ()-[r:PERFORMED]->() REMOVE r.role", ["PERFORMED"]),
        ("MATCH ()-[r:CITES]->() SET r.rank = 1.0", ["CITES"]),
        ("MATCH ()-[r:CITES]->() SET r.known_at = r.known_at + duration('PT1S')", ["CITES"]),
        ("MATCH (a)-[r:PEER_OF]->(b) CREATE (b)-[s:PEER_OF]->(a) SET s = properties(r) DELETE r", ["PEER_OF"]),
        (
            "MATCH ()-[r:PERFORMED]->(a) CREATE (:Agent {name: 'y'})-[s:PERFORMED]->(a) SET s = properties(r) DELETE r",
            ["Agent", "PERFORMED"],
        ),
    ],
)
async def test_every_fact_matters(empty: World, journal: Journal, change: str, where: list[str]) -> None:
    """Whatever is changed in a fact changes the hash, and the report says in which label or type."""
    await _stated(empty, journal)
    before = await graph_hash(empty.graph)

    await empty.run(change)

    after = await graph_hash(empty.graph)
    assert after.digest != before.digest
    assert sorted(line.partition(" ")[0] for line in before.differing(after)) == sorted(where)


@pytest.mark.parametrize(
    "change",
    [
        "MATCH (n) SET n.recorded_at = datetime(), n.position = 77, n.core_order = '9'",
        "MATCH (n:Company) SET n.profile_order = '9', n.profile_position = 9, n.profile_recorded_at = datetime()",
        "MATCH (n) SET n.stub = true",
        "MATCH (n:Company) SET n.analyzed_count = 7, n.last_analysis = datetime()",
        "MATCH (n:Agent) SET n.total_decisions = 7, n.accuracy_scores = '{}'",
        "MATCH ()-[r]->() SET r.recorded_at = datetime(), r.position = 77, r.order = '9', r.first_order = '9'",
        "MATCH (a:Analysis {id: 'a1'}), (b:Analysis {id: 'a2'}) CREATE (a)-[:SIMILAR_TO {score: 0.5}]->(b)",
        "MATCH (n:Analysis {id: 'a1'}) CREATE (:AppliedEvent {event_id: 'e'})",
    ],
)
async def test_nothing_else_matters(empty: World, journal: Journal, change: str) -> None:
    """Order of arrival, derived values and bookkeeping leave the hash as it is."""
    await _stated(empty, journal)
    before = await graph_hash(empty.graph)

    await empty.run(change)

    assert await graph_hash(empty.graph) == before


@pytest.mark.spec("GR-3")
async def test_one_event_at_a_time_or_all_at_once(empty: World, journal: Journal) -> None:
    """The size of the batches leaves no trace."""
    await journal.say(*LINES)
    events = await journal.events()

    assert await empty.hash_of(events) == await empty.hash_of(*cut(events, 1))
