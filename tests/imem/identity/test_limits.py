"""Limits of calls: exact within any minute, over all processes, and never none where the server is away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from imem.cache.client import Client
from imem.cache.keys import calls_within
from imem.cache.rate_limit import RateLimiter
from imem.cache.scripts import script
from imem.journal.actors import Actor
from imem.journal.errors import TooManyRequests
from imem.journal.settings import Role
from tests.imem.identity.conftest import soon
from tests.waiting import until

WINDOW_MS = 400


@pytest_asyncio.fixture
async def clients(light_stack: Any) -> AsyncIterator[list[Client]]:
    url = light_stack.settings.valkey_cache_url.get_secret_value()
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Client(url)) for _ in range(2)]


def somebody() -> Actor:
    return Actor(f"agent-{uuid4()}", Role.AGENT)


async def admitted(limiter: RateLimiter, actor: Actor, calls: int, *, writes: bool = True) -> int:
    """Make so many calls at once; return how many were admitted."""
    results = await asyncio.gather(
        *(limiter.admit(actor, writes=writes, deadline=soon()) for _ in range(calls)), return_exceptions=True
    )
    for result in results:
        if result is not None:
            assert isinstance(result, TooManyRequests)
            assert result.retryable
            assert 0 < result.retry_after_s <= 60
    return results.count(None)


async def test_processes_count_together_and_identities_apart(
    clients: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads and writes have limits of their own, and a name may be any text."""
    # On a busy machine the server may take longer than a call may wait, and each process would count by itself.
    monkeypatch.setattr("imem.cache.rate_limit.BUDGET_MS", 20_000.0)
    one, other = (RateLimiter(client, writes_per_minute=5, reads_per_minute=7) for client in clients)
    ann, bob = somebody(), Actor(f"{uuid4()}:*\x00\ud800\n", Role.AGENT)
    assert await admitted(one, ann, 4) + await admitted(other, ann, 4) == 5
    assert await admitted(one, bob, 8) == 5
    assert await admitted(other, ann, 10, writes=False) == 7
    # A limit that was lowered counts at once.
    assert await admitted(RateLimiter(clients[0], writes_per_minute=2), ann, 1) == 0


async def test_a_window_slides_and_what_was_counted_expires(clients: list[Client]) -> None:
    """The next call is admitted when the answer says, and no key is left behind."""
    key, client = calls_within(str(uuid4()), "write"), clients[0]

    async def admit() -> int:
        return int(await client.run(script("admit_call"), (key,), (3, WINDOW_MS), deadline=soon()))

    begun = time.monotonic()
    answers = [await admit() for _ in range(4)]
    if time.monotonic() - begun < WINDOW_MS / 1000:
        assert answers[:3] == [0, 0, 0]
        assert 0 < answers[3] <= WINDOW_MS

    async def again() -> bool:
        return await admit() == 0

    await until(again)
    assert time.monotonic() - begun >= (WINDOW_MS - 2) / 1000


async def test_without_the_server_the_process_counts(clients: list[Client]) -> None:
    """It refuses nobody for that, and nobody is unlimited."""
    nowhere = Client("redis://127.0.0.1:1/0")
    for client in (nowhere, None):
        limiter = RateLimiter(client, writes_per_minute=5, reads_per_minute=7)
        actor = somebody()
        assert await admitted(limiter, actor, 20) == 5
        assert await admitted(limiter, actor, 20, writes=False) == 7
    await nowhere.close()
    assert clients


async def test_a_silent_server_costs_a_call_milliseconds() -> None:
    """It accepts connections and answers nothing; after three calls it is not asked for a second."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = Client(f"redis://127.0.0.1:{port}/0")
    limiter = RateLimiter(client, writes_per_minute=10)
    actor, begun = somebody(), time.monotonic()
    counts = [await admitted(limiter, actor, 1) for _ in range(30)]
    assert sum(counts) == 10
    assert time.monotonic() - begun < 5.0
    await client.close()
    server.close()
