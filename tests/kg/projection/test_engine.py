"""The engine keeps deadlines, bounds and words whatever the server does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from neo4j.exceptions import ClientError

from imem.journal.deadline import Deadline
from imem.journal.errors import BudgetExceeded, GraphUnavailable, OutcomeUnknown, StatementRejected
from imem.kg.engine import Graph, translate_error
from imem.kg.projection.hash import graph_hash
from tests.kg.draining import drain
from tests.kg.projection.proxy import Proxy, proxied
from tests.kg.projection.world import NEVER, Journal, World, analysis
from tests.waiting import until

RUNAWAY = "UNWIND range(1, 100000000000) AS x WITH x WHERE x % 7 = 8 RETURN count(x) AS n"
"""Runs for hours."""

BOLT_COMMIT = b"\xb0\x12"
"""The message COMMIT of Bolt: a structure without fields, tag 0x12."""

Address = tuple[str, str, str]


@pytest.fixture
def address(world: World) -> Address:
    found = world.settings
    assert found.neo4j_url is not None
    assert found.neo4j_password is not None
    return found.neo4j_url, found.neo4j_user, found.neo4j_password.get_secret_value()


@pytest_asyncio.fixture
async def small(address: Address) -> AsyncIterator[Graph]:
    """A graph with one connection."""
    graph = Graph(*address, pool_size=1)
    yield graph
    await graph.close()


async def running(world: World) -> list[dict[str, Any]]:
    return await world.graph.read_text(
        "show",
        "SHOW TRANSACTIONS YIELD metaData, status WHERE metaData.statement STARTS WITH 'runaway' RETURN status",
        deadline=NEVER,
    )


async def stopped(world: World) -> bool:
    return not await running(world)


async def begun(world: World) -> bool:
    return bool(await running(world))


@pytest.mark.spec("GR-12")
async def test_a_statement_past_its_deadline_ends_and_frees_its_connection(world: World, small: Graph) -> None:
    """On the server too: the one connection of the pool answers the next question."""
    await small.read_text("warm", "RETURN 1", deadline=NEVER)
    start = time.monotonic()

    with pytest.raises(BudgetExceeded):
        await small.read_text("runaway", RUNAWAY, deadline=Deadline.after_ms(300))

    assert time.monotonic() - start < 10
    assert await small.read_text("next", "RETURN 2 AS n", deadline=Deadline.after_ms(20_000)) == [{"n": 2}]
    await until(lambda: stopped(world))


@pytest.mark.spec("GR-12")
async def test_a_caller_that_is_cancelled_leaves_nothing_running(world: World, small: Graph) -> None:
    task = asyncio.create_task(small.read_text("runaway", RUNAWAY, deadline=Deadline.after_ms(15_000)))
    await until(lambda: begun(world))

    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert await small.read_text("next", "RETURN 2 AS n", deadline=Deadline.after_ms(20_000)) == [{"n": 2}]
    await until(lambda: stopped(world))


async def test_a_full_pool_ends_with_the_deadline(small: Graph) -> None:
    """Who cannot get a connection in time is told so, in time."""
    await small.read_text("warm", "RETURN 1", deadline=NEVER)
    busy = asyncio.create_task(small.read_text("runaway", RUNAWAY, deadline=Deadline.after_ms(4000)))
    await asyncio.sleep(0)
    start = time.monotonic()

    with pytest.raises(BudgetExceeded):
        await small.read_text("other", "RETURN 1", deadline=Deadline.after_ms(300))

    assert time.monotonic() - start < 3.5
    with pytest.raises(BudgetExceeded):
        await busy


async def test_no_more_statements_run_at_once_than_allowed(address: Address, world: World) -> None:
    graph = Graph(*address, concurrency=2)
    tasks = [
        asyncio.create_task(graph.read_text(f"runaway{number}", RUNAWAY, deadline=Deadline.after_ms(4000)))
        for number in range(5)
    ]
    seen = 0
    while not all(task.done() for task in tasks):
        seen = max(seen, len(await running(world)))
    results = await asyncio.gather(*tasks, return_exceptions=True)
    await graph.close()

    assert seen == 2
    assert all(isinstance(result, BudgetExceeded) for result in results)


async def test_a_wrong_password_says_so(address: Address) -> None:
    graph = Graph(address[0], address[1], "not the password")
    with pytest.raises(GraphUnavailable, match="refused the user or the password") as refused:
        await graph.read_text("q", "RETURN 1", deadline=Deadline.after_ms(20_000))
    await graph.close()
    assert "not the password" not in f"{refused.value!r} {refused.value.__cause__!r} {graph!r}"


async def test_nobody_there_is_retryable(address: Address) -> None:
    graph = Graph("bolt://127.0.0.1:1", *address[1:])
    with pytest.raises(GraphUnavailable) as refused:
        await graph.read_text("q", "RETURN 1", deadline=Deadline.after_ms(5000))
    await graph.close()
    assert refused.value.retryable


async def test_a_bad_statement_is_not_retryable(world: World) -> None:
    with pytest.raises(StatementRejected) as refused:
        await world.graph.read_text("q", "RETURN $missing", deadline=NEVER)
    assert not refused.value.retryable


async def test_what_the_server_does_not_allow_is_no_events_fault(world: World) -> None:
    """A database that is not there: the applier waits for it to be mended, and no event dies of it."""
    with pytest.raises(ClientError) as refused:
        async with world.graph.driver.session(database="nowhere") as session:
            await (await session.run("RETURN 1")).consume()
    assert isinstance(translate_error(refused.value), GraphUnavailable)


async def test_a_deadline_that_has_passed_asks_nobody() -> None:
    graph = Graph("bolt://127.0.0.1:1", "u", "p")
    with pytest.raises(BudgetExceeded, match="No time was left"):
        await graph.read_text("q", "RETURN 1", deadline=Deadline(0.0))


@pytest_asyncio.fixture
async def cut(address: Address) -> AsyncIterator[tuple[Proxy, Graph]]:
    """A graph behind a proxy."""
    parts = urlsplit(address[0])
    async with proxied(parts.hostname or "", parts.port or 0) as proxy:
        graph = Graph(f"bolt://127.0.0.1:{proxy.port}", *address[1:])
        yield proxy, graph
        await graph.close()


def once(proxy: Proxy, mark: bytes) -> None:
    """Cut the connection the first time that the client sends *mark*."""
    proxy.cut_on = lambda data: mark in data and proxy.cuts == 0


async def test_a_lost_answer_to_a_commit_is_an_unknown_outcome(empty: World, cut: tuple[Proxy, Graph]) -> None:
    """The server did it, the client cannot know: neither success nor failure is claimed."""
    proxy, graph = cut
    once(proxy, BOLT_COMMIT)

    async def work(transaction: Any) -> None:
        await (await transaction.run("CREATE (:Human {id: 'h'})")).consume()

    with pytest.raises(OutcomeUnknown) as unknown:
        await graph.write("w", work, deadline=Deadline.after_ms(20_000))

    assert unknown.value.retryable
    assert proxy.cuts == 1
    assert await empty.node("Human", "h") is not None


async def test_a_connection_lost_before_the_commit_wrote_nothing(empty: World, cut: tuple[Proxy, Graph]) -> None:
    proxy, graph = cut
    once(proxy, b"CREATE (:Human")

    async def work(transaction: Any) -> None:
        await (await transaction.run("CREATE (:Human {id: 'h'})")).consume()

    with pytest.raises(GraphUnavailable) as lost:
        await graph.write("w", work, deadline=Deadline.after_ms(20_000))

    assert lost.value.retryable
    assert await empty.node("Human", "h") is None


@pytest.mark.spec("GR-5")
async def test_the_applier_settles_a_lost_commit_by_writing_again(
    empty: World, journal: Journal, cut: tuple[Proxy, Graph]
) -> None:
    """No event is lost, doubled or counted as refused."""
    proxy, graph = cut
    await journal.say(*[analysis(f"a{number}") for number in range(3)])
    once(proxy, BOLT_COMMIT)
    applier = World(empty.settings, empty.template, graph).applier(journal)

    assert await drain(applier) == 3

    assert proxy.cuts == 1
    assert await journal.rows("SELECT DISTINCT state, attempts FROM delivery") == [{"state": "applied", "attempts": 0}]
    found = await graph_hash(empty.graph)
    assert found == await empty.hash_of(await journal.events())
