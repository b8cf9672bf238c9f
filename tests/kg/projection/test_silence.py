"""A graph that goes silent is left alone but for one reader at a time, and answers everybody once it does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest
import pytest_asyncio
import structlog
import structlog.testing

from imem.journal.circuit_breaker import FAILURE_THRESHOLD
from imem.journal.deadline import Deadline
from imem.journal.errors import BudgetExceeded, GraphUnavailable
from imem.journal.telemetry.slow_queries import SlowLog
from imem.kg.engine import Graph
from imem.kg.projection.plan_warming import example
from imem.kg.queries import named_queries
from tests.kg.projection.test_engine import RUNAWAY
from tests.kg.projection.world import World
from tests.proxy import SlowProxy, slowly, through


@dataclass
class Far:
    """A graph behind a proxy."""

    graph: Graph
    proxy: SlowProxy


@pytest_asyncio.fixture
async def far(world: World) -> AsyncIterator[Far]:
    url, password = world.settings.neo4j_url, world.settings.neo4j_password
    assert url is not None
    assert password is not None
    async with slowly(url) as proxy:
        graph = Graph(through(url, proxy), world.settings.neo4j_user, password.get_secret_value())
        yield Far(graph, proxy)
        await graph.close()


async def _planned(slow: SlowLog) -> None:
    """Wait until a pending plan is logged."""
    assert slow._task is not None
    await slow._task


async def _asked(graph: Graph, ms: float = 400) -> type[BaseException] | None:
    try:
        await graph.read_text("one", "RETURN 1 AS n", deadline=Deadline.after_ms(ms))
    except (BudgetExceeded, GraphUnavailable) as error:
        return type(error)
    return None


@pytest.mark.spec("RS-3")
async def test_a_silent_graph_costs_its_readers_nothing_and_comes_back(far: Far) -> None:
    assert await _asked(far.graph, 20_000) is None
    far.proxy.stall()
    for _ in range(FAILURE_THRESHOLD):
        assert await _asked(far.graph) is BudgetExceeded

    begun = time.monotonic()
    errors = await asyncio.gather(*(_asked(far.graph) for _ in range(100)))
    took_s = time.monotonic() - begun

    assert set(errors) <= {GraphUnavailable, BudgetExceeded}
    assert errors.count(BudgetExceeded) <= 1, "one tries, if it is time to"
    assert took_s < 3.0
    assert far.graph.most_running <= 10
    far.proxy.flow()
    back = time.monotonic()
    while await _asked(far.graph) is not None:
        assert time.monotonic() - back < 10
        await asyncio.sleep(0.05)
    assert set(await asyncio.gather(*(_asked(far.graph, 10_000) for _ in range(50)))) == {None}
    assert far.graph.most_running <= 10


async def test_a_graph_that_answers_others_is_not_silent(far: Far) -> None:
    """Slow statements end by the server's own word; whoever asks something else is answered."""
    assert await _asked(far.graph, 20_000) is None
    for _ in range(FAILURE_THRESHOLD + 1):
        slow = asyncio.create_task(far.graph.read_text("runaway", RUNAWAY, deadline=Deadline.after_ms(300)))
        assert await _asked(far.graph, 10_000) is None
        with pytest.raises(BudgetExceeded):
            await slow
    assert await _asked(far.graph, 10_000) is None


async def test_a_statement_planned_for_longer_than_every_deadline_is_answered_in_the_end(far: Far) -> None:
    """The server drops a plan with the statement for which it was made, as after a restart on a busy machine."""
    assert await _asked(far.graph, 20_000) is None
    query = named_queries()["company_history"]

    async def ask(ms: float) -> float:
        begun = time.monotonic()
        await far.graph.read(query.name, example(query), deadline=Deadline.after_ms(ms))
        return (time.monotonic() - begun) * 1000

    async def forget_plans() -> None:
        async with far.graph.driver.session() as session:
            await (await session.run("CALL db.clearQueryCaches()")).consume()

    await ask(20_000)
    await forget_plans()
    planning_ms = await ask(20_000)
    await forget_plans()
    async with asyncio.timeout(60):
        while True:
            try:
                await ask(planning_ms / 3)
            except (BudgetExceeded, GraphUnavailable):
                await asyncio.sleep(0.05)  # The rate of the load.
            else:
                break


@pytest.fixture
def plainly_logged() -> Iterator[None]:
    """Have everything logged, whatever a memory that was opened before has configured."""
    configured = structlog.get_config()
    structlog.reset_defaults()
    yield
    structlog.configure(**configured)


@pytest.mark.usefixtures("plainly_logged")
async def test_what_is_slow_is_logged_with_its_plan_afterwards(far: Far) -> None:
    assert await _asked(far.graph, 20_000) is None
    far.graph.slow.slow_ms = 5.0
    slow = "UNWIND range(1, 300000) AS x WITH x WHERE x % 7 = 8 RETURN count(x) AS n"
    with structlog.testing.capture_logs() as logs:
        await far.graph.read_text("slow_one", slow, deadline=Deadline.after_ms(2_000))
        await _planned(far.graph.slow)
        await far.graph.read_text("slow_one", slow, deadline=Deadline.after_ms(2_000))
        await _planned(far.graph.slow)
        await far.graph.read_text("slow_one", slow, deadline=Deadline.after_ms(60_000))
    told = [one for one in logs if one.get("statement") == "slow_one"]
    assert [one["event"] for one in told] == ["query.slow", "query.plan", "query.slow"]
    assert told[0]["ms"] >= 5
    assert "Unwind" in told[1]["plan"]
