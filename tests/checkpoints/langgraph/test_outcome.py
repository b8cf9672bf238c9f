"""A connection that breaks: what was stored is not reported as lost, what is unknown is called so, and retries help."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import pytest_asyncio
from psycopg_pool import AsyncConnectionPool, ConnectionPool

import imem.journal.postgres.connection
from imem.checkpoints.langgraph import executors
from imem.journal.errors import BudgetExceeded, OutcomeUnknown, PostgresUnavailable
from imem.langgraph import ImemSaver
from tests.checkpoints.langgraph.conftest import (
    Base,
    ThroughThreads,
    chain,
    checkpoint,
    config,
    listed,
    metadata,
    thread,
)
from tests.kg.projection.proxy import Proxy, proxied


@pytest_asyncio.fixture
async def proxy(base: Base) -> AsyncIterator[Proxy]:
    parts = urlsplit(base.url)
    assert parts.hostname is not None
    assert parts.port is not None
    async with proxied(parts.hostname, parts.port) as between:
        yield between


@pytest_asyncio.fixture(params=["threads", "tasks"])
async def through(request: pytest.FixtureRequest, base: Base, proxy: Proxy) -> AsyncIterator[Any]:
    """Give a saver behind the proxy, with one connection of each half."""
    parts = urlsplit(base.url)
    url = parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{proxy.port}").geturl()
    async with ImemSaver.from_conn_string(url, pool_size=1) as saver:
        yield ThroughThreads(saver) if request.param == "threads" else saver


async def test_a_put_whose_answer_is_lost(through: Any, proxy: Proxy, base: Base) -> None:
    """It is stored, nobody knows, and the very same call again is harmless."""
    thread_id = thread()
    [first] = await chain(through, thread_id, 1)
    one = checkpoint({"value": ["new"]})
    proxy.cut_on = lambda data: one["id"].encode() in data

    with pytest.raises(OutcomeUnknown, match="Repeating the very same call is safe"):
        await through.aput(first, one, metadata(1), {"value": "1"})

    assert proxy.cuts == 1
    proxy.cut_on = lambda _: False
    assert base.count(thread_id) == {"checkpoints": 2, "blobs": 3, "writes": 0}
    again = await through.aput(first, one, metadata(1), {"value": "1"})
    assert base.count(thread_id) == {"checkpoints": 2, "blobs": 3, "writes": 0}
    assert (await through.aget_tuple(config(thread_id))).config == again


async def test_writes_whose_answer_is_lost(through: Any, proxy: Proxy, base: Base) -> None:
    thread_id = thread()
    [stored] = await chain(through, thread_id, 1)
    await through.aput_writes(stored, [("a", 0)], "warm")
    proxy.cut_on = lambda data: b"lost-task" in data

    with pytest.raises(OutcomeUnknown):
        await through.aput_writes(stored, [("a", 1), ("b", 2)], "lost-task")

    proxy.cut_on = lambda _: False
    assert base.count(thread_id)["writes"] == 3
    await through.aput_writes(stored, [("a", 1), ("b", 2)], "lost-task")
    assert base.count(thread_id)["writes"] == 3


async def test_a_read_whose_answer_is_lost(through: Any, proxy: Proxy) -> None:
    """Nothing can have been written: the same call may simply be repeated."""
    thread_id = thread()
    await chain(through, thread_id, 1)
    proxy.cut_on = lambda data: thread_id.encode() in data

    with pytest.raises(PostgresUnavailable) as lost:
        await through.aget_tuple(config(thread_id))

    assert lost.value.retryable
    proxy.cut_on = lambda _: False
    assert await through.aget_tuple(config(thread_id)) is not None


async def test_connections_that_were_closed_meanwhile_are_not_lent(through: Any, proxy: Proxy) -> None:
    """By a pooler or a firewall, while nobody used them: the next call does not notice."""
    thread_id = thread()
    await chain(through, thread_id, 1)

    await proxy.refuse()
    with pytest.raises(PostgresUnavailable):
        await through.aget_tuple(config(thread_id))
    await proxy.listen()

    assert await through.aget_tuple(config(thread_id)) is not None
    await proxy.refuse()
    await proxy.listen()
    assert len(await chain(through, thread_id, 1)) == 1


async def test_connections_that_the_server_ended_are_not_lent(either: Any, base: Base) -> None:
    """As when it is restarted: each said so before it went."""
    thread_id = thread()
    await asyncio.gather(*(chain(either, thread_id, 1) for _ in range(4)))
    base.rows(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
        "WHERE application_name = 'imem-langgraph' AND datname = current_database()"
    )

    await asyncio.gather(*(chain(either, thread_id, 1) for _ in range(4)))

    assert len(await listed(either, config(thread_id))) == 8


@pytest.mark.parametrize("half", ["threads", "tasks"])
async def test_long_unused_connections_are_asked_first(base: Base, monkeypatch: pytest.MonkeyPatch, half: str) -> None:
    """A network that vanished without a word leaves no trace on the socket."""
    asked: list[Any] = []
    for pool in (ConnectionPool, AsyncConnectionPool):

        def check(conn: Any, original: Any = pool.check_connection) -> Any:
            asked.append(conn)
            return original(conn)

        monkeypatch.setattr(pool, "check_connection", check)
    async with ImemSaver.from_conn_string(base.url, pool_size=1) as saver:
        through = ThroughThreads(saver) if half == "threads" else saver
        await chain(through, thread(), 3)
        assert len(asked) <= 1, "only a new connection has never been used"
        asked.clear()

        monkeypatch.setattr(executors, "TRUSTED_S", 0.0)
        await chain(through, thread(), 3)

        assert len(asked) == 3


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the server no longer than a moment."""
    monkeypatch.setattr(executors, "LIMIT_S", 0.2)
    monkeypatch.setattr(imem.journal.postgres.connection, "BACKGROUND_TIMEOUT_S", 0.2)


@pytest.mark.usefixtures("hasty")
async def test_a_server_that_does_not_answer(either: Any, base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for ever; and what it does after all, when nobody listens any more, was never denied."""
    thread_id = thread()
    [first] = await chain(either, thread_id, 1)
    one = checkpoint()
    with psycopg.connect(base.admin_url) as holder:
        holder.execute("SELECT langgraph.lock_v1(ARRAY[%s])", (thread_id,))
        # A connection of the journal's ends the statement and knows it; another one only stops listening.
        with pytest.raises((OutcomeUnknown, BudgetExceeded)):
            await either.aput(first, one, metadata(1), {})
        holder.execute("LOCK TABLE langgraph.checkpoint IN ACCESS EXCLUSIVE MODE")
        with pytest.raises((PostgresUnavailable, BudgetExceeded)):
            await either.aget_tuple(config(thread_id))
        holder.rollback()

    monkeypatch.undo()
    await either.aput(first, one, metadata(1), {})
    assert [found.checkpoint["id"] for found in await listed(either, config(thread_id), limit=1)] == [one["id"]]


async def test_the_server_stops_what_takes_too_long(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nothing was written, and that is known."""
    monkeypatch.setattr(executors, "LIMIT_S", 0.2)
    thread_id = thread()
    with ImemSaver.from_conn_string(base.url) as saver, psycopg.connect(base.admin_url) as holder:
        monkeypatch.undo()
        holder.execute("SELECT langgraph.lock_v1(ARRAY[%s])", (thread_id,))
        with pytest.raises(BudgetExceeded):
            await asyncio.to_thread(saver.put, config(thread_id), checkpoint(), metadata(), {})
        holder.rollback()
        assert saver.get_tuple(config(thread_id)) is None
