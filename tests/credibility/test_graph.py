"""Scores in the graph: the links from findings to what settled them, drawn by the applier."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from imem.credibility.settled_links import SettledBy
from imem.journal.deadline import Deadline
from imem.journal.errors import BudgetExceeded
from imem.kg import migrations
from imem.kg.engine import Graph
from imem.kg.projection.applier import Applier
from tests.kg.draining import drain
from tests.servers import EMPTYING

from .conftest import World
from .load import day, lines


class UnusedWakeups:
    """A source of wake-ups on which nothing waits."""

    async def wait(self) -> None:
        raise AssertionError("Nobody waits in these tests.")


@pytest_asyncio.fixture
async def applier(stack: Any, world: World) -> AsyncIterator[Applier]:
    found = stack.settings
    address = (found.neo4j_url, found.neo4j_user, found.neo4j_password.get_secret_value())
    migrations.migrate(*address)
    graph = Graph(*address)
    await emptied(graph)
    yield Applier(world.pipelines, graph, UnusedWakeups(), derivers={"settled_by": SettledBy()})
    await emptied(graph)
    await graph.close()


async def emptied(graph: Graph) -> None:
    async with graph.driver.session(database="neo4j") as session:
        for text in EMPTYING:
            await (await session.run(text)).consume()


async def ask(graph: Graph, query: str) -> list[dict[str, Any]]:
    async def run(transaction: Any) -> list[dict[str, Any]]:
        return [row.data() async for row in await transaction.run(query)]

    found, _ = await graph.write("test", run, deadline=Deadline.after_ms(30_000))
    return found


LINKS = """
MATCH (f:Finding {id: "ann-0"})-[r:SETTLED_BY]->(o:Outcome)
RETURN o.id AS outcome, r.correct AS correct, r.brier AS brier, toString(r.known_at) AS known_at,
    coalesce(f.stub, false) AS stub ORDER BY outcome
"""


async def drained(applier: Applier) -> None:
    """Apply everything; a server that has just started plans each statement anew and may need a second try."""
    for attempt in range(3):
        try:
            await drain(applier)
        except BudgetExceeded:
            if attempt == 2:
                raise
        else:
            return


async def test_a_finding_is_linked_to_what_settled_it(world: World, applier: Applier) -> None:
    await world.say(*lines(1))
    await world.settle()

    await drained(applier)

    found = await ask(applier.graph, LINKS)
    assert [(row["outcome"], row["correct"], row["brier"], row["stub"]) for row in found] == [
        ("o0-0", 1.0, pytest.approx(0.04), False),
        ("o1-0", 0.0, pytest.approx(0.64), False),
    ]
    assert [row["known_at"] for row in found] == [f"{day(number):%Y-%m-%dT%H:%M:%SZ}" for number in (6, 95)]


async def test_a_link_goes_with_its_score(world: World, applier: Applier) -> None:
    await world.say(*lines(1))
    await world.settle()
    await drained(applier)
    world.owner("DELETE FROM agent_outcome WHERE vintage = 1")
    world.owner("INSERT INTO due_row (queue, kind, key) VALUES ('graph', 'settled_by', 'ann-0')")

    await drained(applier)

    assert [row["outcome"] for row in await ask(applier.graph, LINKS)] == ["o0-0"]
