"""Neighbours in the graph: the links that the named query follows are those of the index, whole and of one version."""

from __future__ import annotations

from tests.kg.projection.world import NEVER
from tests.kg.similarity.conftest import analysis, corrected, day
from tests.recall.conftest import RecallHarness

EDGES = """
MATCH (a:Analysis)-[r:SIMILAR_TO]->(b:Analysis)
RETURN a.id AS one, b.id AS other, r.score AS score, r.rank AS rank, r.model_version AS version,
    r.built_at IS NOT NULL AS dated
ORDER BY one, rank"""

LISTS = """
SELECT s.analysis_id AS one, s.neighbour_id AS other, s.score, s.rank, s.model_version AS version, true AS dated
FROM similar_analysis AS s JOIN similarity_build AS b ON b.version = s.version
WHERE b.state = 'current' ORDER BY s.analysis_id, s.rank"""


async def test_links_are_those_of_the_index(harness: RecallHarness) -> None:
    """Directed, with rank and score; a correction moves them; what is no neighbour any more is no link any more."""
    lines = [analysis(f"a{n}", f"company:C{n}", f"near {'oil' if n % 2 else 'water'} {n}", day(n)) for n in range(14)]
    await harness.know(lines)
    edges = await harness.world.run(EDGES)
    assert edges == await harness.journal.rows(LISTS)
    assert {edge["one"] for edge in edges} == {f"a{n}" for n in range(14)}

    await harness.know([corrected(lines[3], day(20), summary="near steel 99")])
    moved = await harness.world.run(EDGES)
    assert moved == await harness.journal.rows(LISTS)
    assert moved != edges

    rows = await harness.memory.query("similar_analyses", {"analysis_id": "a1", "limit": 10})
    wanted = [edge["other"] for edge in moved if edge["one"] == "a1"]
    assert [row["analysis"]["id"] for row in rows] == wanted


async def test_a_graph_made_anew_gets_them_again(harness: RecallHarness) -> None:
    """They are in no event: whoever rebuilds a graph has them drawn again."""
    await harness.know([analysis(f"a{n}", f"company:C{n}", f"near oil {n}", day(n)) for n in range(4)])
    edges = await harness.world.run(EDGES)
    await harness.world.run("MATCH (:Analysis)-[r:SIMILAR_TO]->() DELETE r")
    await harness.journal.database.execute("rederive_similar", deadline=NEVER)
    await harness.work()
    assert await harness.world.run(EDGES) == edges
