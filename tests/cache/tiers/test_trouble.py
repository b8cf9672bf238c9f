"""Servers that stop, die, come back with less, or are full: no kept answer from before is served as if nothing were."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from imem.cache.client import Client
from imem.cache.keys import CHANGE_STREAM, CHANGES
from imem.cache.metrics import ERRORS
from imem.cache.tiers.invalidation import HEARTBEAT_TTL_S, InvalidationPublisher, InvalidationSubscriber
from imem.cache.tiers.local import LocalCache
from imem.cache.tiers.shared import SharedCache
from imem.cache.tiers.tag_versions import TagVersionReader
from imem.cache.tiers.tiered import TieredCache
from imem.journal.circuit_breaker import FAILURE_THRESHOLD
from imem.journal.clock import ManualClock
from imem.journal.errors import GraphUnavailable
from tests.cache.tiers.conftest import MOMENT, Servers, Source, answered, soon, text_query, until
from tests.cache.working.servers import OwnServer, own_server
from tests.conftest import temporary_home
from tests.telling import publishing_heartbeat


@dataclass
class Torn:
    """
    A durable server of the test's own, who tells there, and a process that keeps answers by it.

    Attributes:
        server: which may be ill-treated.
        publisher: tells.
        tiers: of a process; nothing is shared.
    """

    server: OwnServer
    publisher: InvalidationPublisher
    tiers: TieredCache

    async def vouched(self) -> bool:
        return await self.tiers.changes.tag_versions(deadline=soon(200)) is not None


@pytest_asyncio.fixture
async def torn() -> AsyncIterator[Torn]:
    with temporary_home() as folder, own_server(Path(folder)) as server:
        async with AsyncExitStack() as stack:
            telling, asking = [await stack.enter_async_context(Client(server.url)) for _ in range(2)]
            clock = ManualClock(MOMENT)
            tiers = TieredCache(LocalCache(clock), None, TagVersionReader(asking), clock, cache_timeout_ms=5_000.0)
            yield Torn(server, InvalidationPublisher(telling, lambda: True), tiers)


@pytest.mark.spec("RS-1")
async def test_while_nobody_tells_of_changes_no_kept_answer_is_the_answer(torn: Torn) -> None:
    """Where the graph's writer is away, or another process has taken over without telling."""
    source, query = Source(), text_query("silent")
    async with publishing_heartbeat(torn.publisher):
        await answered(torn.tiers, query, source.load, deadline=soon())
        assert (await answered(torn.tiers, query, source.load, deadline=soon())).tier == "C2"

    async def silent() -> bool:
        return not await torn.vouched()

    await until(silent)
    source.text = "two"

    assert (await answered(torn.tiers, query, source.load, deadline=soon())).value == "two"
    source.fails = GraphUnavailable("away")
    old = await answered(torn.tiers, query, source.load, deadline=soon())
    assert (old.value, old.age_s) == ("one", 0.0), "it may stand in, and says so"


@pytest.mark.spec("RS-1")
async def test_telling_waits_for_a_stopped_server_until_nobody_trusts_it(torn: Torn) -> None:
    """What could not be told in time holds nobody up for long, and nobody is served an answer from before it."""
    source, query = Source(), text_query("stopped")
    async with publishing_heartbeat(torn.publisher):
        await answered(torn.tiers, query, source.load, deadline=soon())
        source.text = "two"
        with torn.server.stopped():
            begun = time.monotonic()
            await torn.publisher.publish({"subject:a"})
            took_s = time.monotonic() - begun
        # From here on the server answers again, and may first do what it was sent while it was stopped.
        answers = [await answered(torn.tiers, query, source.load, deadline=soon()) for _ in range(20)]
        await until(torn.vouched)
        again = await answered(torn.tiers, query, source.load, deadline=soon())

    assert took_s < HEARTBEAT_TTL_S + 1.0
    assert {answer.value for answer in (*answers, again)} == {"two"}


async def test_a_silent_server_of_answers_is_left_alone_after_three_calls_one_after_another() -> None:
    """Calls that were under way together count as one: a process that stood still itself must not do without."""

    def troubles() -> float:
        return float(ERRORS.labels("C1")._value.get())

    with temporary_home() as folder, own_server(Path(folder)) as server:
        async with Client(server.url) as client:
            shared = SharedCache(client, budget_ms=100.0)
            assert await shared.get([b"key"], deadline=soon()) == [None]
            with server.stopped():
                before = troubles()
                await asyncio.gather(*(shared.get([b"key"], deadline=soon()) for _ in range(8)))
                assert troubles() == before + 8
                for _ in range(FAILURE_THRESHOLD - 1):
                    await shared.get([b"key"], deadline=soon())
                assert troubles() == before + 8 + FAILURE_THRESHOLD - 1, "it was still asked"
                await shared.get([b"key"], deadline=soon())
                assert troubles() == before + 8 + FAILURE_THRESHOLD - 1, "now it rests"


async def test_while_something_is_owed_a_second_telling_waits_for_nothing(torn: Torn) -> None:
    async with publishing_heartbeat(torn.publisher):
        with torn.server.stopped():
            await torn.publisher.publish({"subject:a"})
            begun = time.monotonic()
            await torn.publisher.publish({"subject:b"})
            assert time.monotonic() - begun < 1.0
        await until(torn.vouched)
        tag_versions = await torn.tiers.changes.tag_versions({"subject:a", "subject:b"}, deadline=soon())
    assert tag_versions is not None
    assert all(tag_versions.changed.values()), "both were told when it answered again"


async def test_a_word_that_arrives_late_says_nothing(torn: Torn) -> None:
    """A stopped server does afterwards what it was sent: by then, what was owed may not be told yet."""
    async with publishing_heartbeat(torn.publisher):
        await until(torn.vouched)
    with torn.server.stopped():
        await torn.publisher._send_heartbeat()
        await asyncio.sleep(HEARTBEAT_TTL_S)
    assert not await torn.vouched()


@pytest.mark.spec("SY-5")
async def test_a_server_that_was_killed_may_have_forgotten_so_that_nothing_from_before_holds(torn: Torn) -> None:
    source, query = Source(), text_query("killed")
    async with publishing_heartbeat(torn.publisher):
        await answered(torn.tiers, query, source.load, deadline=soon())
        source.text = "two"
        await torn.publisher.publish({"subject:a"})
        # As if its file did not hold the last second.
        with torn.server.bare() as bare:
            bare.hdel(CHANGES, *[field for field in bare.hkeys(CHANGES) if field not in {b"since", b"n"}])
        torn.server.kill()
        torn.server.start()
        await until(torn.vouched)
        assert (await answered(torn.tiers, query, source.load, deadline=soon())).value == "two"


async def test_a_server_that_was_emptied_counts_from_later(torn: Torn) -> None:
    source, query = Source(), text_query("emptied")
    async with publishing_heartbeat(torn.publisher):
        await answered(torn.tiers, query, source.load, deadline=soon())
        source.text = "two"
        with torn.server.bare() as bare:
            bare.flushall()
        await until(torn.vouched)
        assert (await answered(torn.tiers, query, source.load, deadline=soon())).value == "two"


async def test_too_much_owed_makes_everything_worthless(servers: Servers) -> None:
    tiers = await servers.process()
    source, query = Source(tags=frozenset({"subject:unconcerned"})), text_query("flood")
    await answered(tiers, query, source.load, deadline=soon())
    await servers.publisher.publish({f"subject:{nth}" for nth in range(20_001)})
    assert not servers.publisher._has_pending, "it was told, and nobody had to wait until the word lapsed"
    assert [(await answered(tiers, query, source.load, deadline=soon())).tier for _ in range(2)] == ["L3", "C2"]


@pytest.mark.spec("RS-1")
async def test_without_the_shared_cache_everything_goes_on(servers: Servers) -> None:
    """A refused port: each process loads for itself, and keeps it for itself."""
    tiers = await servers.process(cache="redis://127.0.0.1:1/0")
    source, query = Source(), text_query("alone")
    assert [(await answered(tiers, query, source.load, deadline=soon())).tier for _ in range(2)] == ["L3", "C2"]


@pytest.mark.spec("RS-1")
async def test_a_stopped_shared_cache_costs_a_moment_once(servers: Servers) -> None:
    with temporary_home() as folder, own_server(Path(folder)) as server:
        tiers = await servers.process(cache=server.url, patient=False)
        with server.stopped():
            begun = time.monotonic()
            for nth in range(20):
                await answered(tiers, text_query(f"slow{nth}"), Source().load, deadline=soon())
            took_s = time.monotonic() - begun
    assert took_s < 1.0, "it is left alone for a while once it has not answered"


@pytest.mark.spec("RS-1")
async def test_a_full_shared_cache_keeps_nothing_and_harms_nobody(servers: Servers) -> None:
    with temporary_home() as folder, own_server(Path(folder), "maxmemory 1") as server:
        tiers = await servers.process(cache=server.url)
        source, query = Source(), text_query("full")
        assert [(await answered(tiers, query, source.load, deadline=soon())).tier for _ in range(2)] == ["L3", "C2"]


# Listening


async def test_a_listener_drops_what_it_hears_of_within_two_seconds(servers: Servers) -> None:
    tiers = await servers.process()
    for name in "ab":
        source = Source(tags=frozenset({f"subject:{name}"}))
        await answered(tiers, text_query(name), source.load, deadline=soon())
    listener = InvalidationSubscriber(tiers.changes, tiers.local)
    await listener.listen()
    task = asyncio.create_task(listener.run())

    await servers.publisher.publish({"subject:a"})

    async def dropped() -> bool:
        return len(tiers.local) == 1

    await until(dropped, within_s=2.0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert tiers.local.get(text_query("b").key or b"") is not None


@pytest.mark.parametrize("trouble", ["missing", "trimmed", "emptied"])
async def test_a_listener_that_missed_something_drops_everything(servers: Servers, trouble: str) -> None:
    tiers = await servers.process()
    await answered(tiers, text_query("a"), Source().load, deadline=soon())
    listener = InvalidationSubscriber(tiers.changes, tiers.local)
    await listener.listen()
    for nth in range(3):
        await servers.publisher.publish({f"subject:other{nth}"})
    bare = await servers.bare(servers.durable)
    if trouble == "missing":
        [_, (second, _), _] = await bare.xrange(CHANGE_STREAM)
        await bare.xdel(CHANGE_STREAM, second)
    elif trouble == "trimmed":
        await bare.xtrim(CHANGE_STREAM, maxlen=1, approximate=False)
    else:
        await bare.flushall()
        await servers.publisher._send_heartbeat()

    await listener.listen()

    assert len(tiers.local) == 0
