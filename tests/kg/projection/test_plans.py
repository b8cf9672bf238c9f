"""Statements are planned before anybody waits for what they write, and nothing is written by that."""

from __future__ import annotations

import time

from imem.kg.engine import Graph
from imem.kg.projection.plan_warming import AWAITED, warm_writing
from tests.kg.projection.world import World


async def test_planning_writes_nothing(empty: World) -> None:
    before = await empty.run("MATCH (n) RETURN count(n) AS nodes")

    assert await warm_writing(empty.graph, AWAITED[:2]) == 2

    assert await empty.run("MATCH (n) RETURN count(n) AS nodes") == before


async def test_a_graph_that_is_away_is_asked_once() -> None:
    """However many statements there are: whoever starts must not wait for each."""
    graph = Graph("bolt://127.0.0.1:1", "neo4j", "neo4j")
    begun_s = time.monotonic()

    assert await warm_writing(graph, AWAITED) == 0

    assert time.monotonic() - begun_s < 10
    await graph.close()
