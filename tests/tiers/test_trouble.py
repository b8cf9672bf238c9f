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
from imem.cache.keys import CHANGES, TOLD
from imem.cache.metrics import TROUBLE
from imem.cache.tiers.invalidation import LIFE_S, Listener, Teller
from imem.cache.tiers.local import Local
from imem.cache.tiers.shared import FAILURES, Shared
from imem.cache.tiers.tag_versions import Changes
from imem.cache.tiers.tiered import Tiered
from imem.journal.clock import ManualClock
from imem.journal.errors import GraphUnavailable
from tests.conftest import temporary_home
from tests.telling import giving_word
from tests.tiers.conftest import MOMENT, Servers, Source, soon, text_query, until
from tests.working.servers import OwnServer, own_server


@dataclass
class Torn:
    """
    A durable server of the test's own, who tells there, and a process that keeps answers by it.

    Attributes:
        server: which may be ill-treated.
        teller: tells.
        tiers: of a process; nothing is shared.
    """

    server: OwnServer
    teller: Teller
    tiers: Tiered

    async def vouched(self) -> bool:
        return await self.tiers.changes.standing(deadline=soon(200)) is not None


@pytest_asyncio.fixture
async def torn() -> AsyncIterator[Torn]:
    with temporary_home() as folder, own_server(Path(folder)) as server:
        async with AsyncExitStack() as stack:
            telling, asking = [await stack.enter_async_context(Client(server.url)) for _ in range(2)]
            clock = ManualClock(MOMENT)
            tiers = Tiered(Local(clock), None, Changes(asking), clock, caches_ms=5_000.0)
            yield Torn(server, Teller(telling, lambda: True), tiers)


@pytest.mark.spec("RS-1")
async def test_while_nobody_tells_of_changes_no_kept_answer_is_the_answer(torn: Torn) -> None:
    """Where the graph's writer is away, or another process has taken over without telling."""
    source, query = Source(), text_query("silent")
    async with giving_word(torn.teller):
        await torn.tiers.get(query, source.load, deadline=soon())
        assert (await torn.tiers.get(query, source.load, deadline=soon())).tier == "C2"

    async def silent() -> bool:
        return not await torn.vouched()

    await until(silent)
    source.text = "two"

    assert (await torn.tiers.get(query, source.load, deadline=soon())).value == "two"
    source.fails = GraphUnavailable("away")
    old = await torn.tiers.get(query, source.load, deadline=soon())
    assert (old.value, old.age_s) == ("one", 0.0), "it may stand in, and says so"


@pytest.mark.spec("RS-1")
async def test_telling_waits_for_a_stopped_server_until_nobody_trusts_it(torn: Torn) -> None:
    """What could not be told in time holds nobody up for long, and nobody is served an answer from before it."""
    source, query = Source(), text_query("stopped")
    async with giving_word(torn.teller):
        await torn.tiers.get(query, source.load, deadline=soon())
        source.text = "two"
        with torn.server.stopped():
            begun = time.monotonic()
            await torn.teller.tell({"subject:a"})
            took_s = time.monotonic() - begun
        # From here on the server answers again, and may first do what it was sent while it was stopped.
        answers = [await torn.tiers.get(query, source.load, deadline=soon()) for _ in range(20)]
        await until(torn.vouched)
        again = await torn.tiers.get(query, source.load, deadline=soon())

    assert took_s < LIFE_S + 1.0
    assert {answer.value for answer in (*answers, again)} == {"two"}


async def test_a_silent_server_of_answers_is_left_alone_after_three_calls_one_after_another() -> None:
    """Calls that were under way together count as one: a process that stood still itself must not do without."""

    def troubles() -> float:
        return float(TROUBLE.labels("C1")._value.get())

    with temporary_home() as folder, own_server(Path(folder)) as server:
        async with Client(server.url) as client:
            shared = Shared(client, budget_ms=100.0)
            assert await shared.get([b"key"], deadline=soon()) == [None]
            with server.stopped():
                before = troubles()
                await asyncio.gather(*(shared.get([b"key"], deadline=soon()) for _ in range(8)))
                assert troubles() == before + 8
                for _ in range(FAILURES - 1):
                    await shared.get([b"key"], deadline=soon())
                assert troubles() == before + 8 + FAILURES - 1, "it was still asked"
                await shared.get([b"key"], deadline=soon())
                assert troubles() == before + 8 + FAILURES - 1, "now it rests"


async def test_while_something_is_owed_a_second_telling_waits_for_nothing(torn: Torn) -> None:
    async with giving_word(torn.teller):
        with torn.server.stopped():
            await torn.teller.tell({"subject:a"})
            begun = time.monotonic()
            await torn.teller.tell({"subject:b"})
            assert time.monotonic() - begun < 1.0
        await until(torn.vouched)
        standing = await torn.tiers.changes.standing({"subject:a", "subject:b"}, deadline=soon())
    assert standing is not None
    assert all(standing.changed.values()), "both were told when it answered again"


async def test_a_word_that_arrives_late_says_nothing(torn: Torn) -> None:
    """A stopped server does afterwards what it was sent: by then, what was owed may not be told yet."""
    async with giving_word(torn.teller):
        await until(torn.vouched)
    with torn.server.stopped():
        await torn.teller._beat()
        await asyncio.sleep(LIFE_S)
    assert not await torn.vouched()


@pytest.mark.spec("SY-5")
async def test_a_server_that_was_killed_may_have_forgotten_so_that_nothing_from_before_holds(torn: Torn) -> None:
    source, query = Source(), text_query("killed")
    async with giving_word(torn.teller):
        await torn.tiers.get(query, source.load, deadline=soon())
        source.text = "two"
        await torn.teller.tell({"subject:a"})
        # As if its file did not hold the last second.
        with torn.server.bare() as bare:
            bare.hdel(CHANGES, *[field for field in bare.hkeys(CHANGES) if field not in {b"since", b"n"}])
        torn.server.kill()
        torn.server.start()
        await until(torn.vouched)
        assert (await torn.tiers.get(query, source.load, deadline=soon())).value == "two"


async def test_a_server_that_was_emptied_counts_from_later(torn: Torn) -> None:
    source, query = Source(), text_query("emptied")
    async with giving_word(torn.teller):
        await torn.tiers.get(query, source.load, deadline=soon())
        source.text = "two"
        with torn.server.bare() as bare:
            bare.flushall()
        await until(torn.vouched)
        assert (await torn.tiers.get(query, source.load, deadline=soon())).value == "two"


async def test_too_much_owed_makes_everything_worthless(servers: Servers) -> None:
    tiers = await servers.process()
    source, query = Source(tags=frozenset({"subject:unconcerned"})), text_query("flood")
    await tiers.get(query, source.load, deadline=soon())
    await servers.teller.tell({f"subject:{nth}" for nth in range(20_001)})
    assert not servers.teller._owes, "it was told, and nobody had to wait until the word lapsed"
    assert [(await tiers.get(query, source.load, deadline=soon())).tier for _ in range(2)] == ["L3", "C2"]


@pytest.mark.spec("RS-1")
async def test_without_the_shared_cache_everything_goes_on(servers: Servers) -> None:
    """A refused port: each process loads for itself, and keeps it for itself."""
    tiers = await servers.process(cache="redis://127.0.0.1:1/0")
    source, query = Source(), text_query("alone")
    assert [(await tiers.get(query, source.load, deadline=soon())).tier for _ in range(2)] == ["L3", "C2"]


@pytest.mark.spec("RS-1")
async def test_a_stopped_shared_cache_costs_a_moment_once(servers: Servers) -> None:
    with temporary_home() as folder, own_server(Path(folder)) as server:
        tiers = await servers.process(cache=server.url, patient=False)
        with server.stopped():
            begun = time.monotonic()
            for nth in range(20):
                await tiers.get(text_query(f"slow{nth}"), Source().load, deadline=soon())
            took_s = time.monotonic() - begun
    assert took_s < 1.0, "it is left alone for a while once it has not answered"


@pytest.mark.spec("RS-1")
async def test_a_full_shared_cache_keeps_nothing_and_harms_nobody(servers: Servers) -> None:
    with temporary_home() as folder, own_server(Path(folder), "maxmemory 1") as server:
        tiers = await servers.process(cache=server.url)
        source, query = Source(), text_query("full")
        assert [(await tiers.get(query, source.load, deadline=soon())).tier for _ in range(2)] == ["L3", "C2"]


# Listening


async def test_a_listener_drops_what_it_hears_of_within_two_seconds(servers: Servers) -> None:
    tiers = await servers.process()
    for name in "ab":
        source = Source(tags=frozenset({f"subject:{name}"}))
        await tiers.get(text_query(name), source.load, deadline=soon())
    listener = Listener(tiers.changes, tiers.local)
    await listener.listen()
    task = asyncio.create_task(listener.run())

    await servers.teller.tell({"subject:a"})

    async def dropped() -> bool:
        return len(tiers.local) == 1

    await until(dropped, within_s=2.0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert tiers.local.get(text_query("b").key or b"") is not None


@pytest.mark.parametrize("trouble", ["missing", "trimmed", "emptied"])
async def test_a_listener_that_missed_something_drops_everything(servers: Servers, trouble: str) -> None:
    tiers = await servers.process()
    await tiers.get(text_query("a"), Source().load, deadline=soon())
    listener = Listener(tiers.changes, tiers.local)
    await listener.listen()
    for nth in range(3):
        await servers.teller.tell({f"subject:other{nth}"})
    bare = await servers.bare(servers.durable)
    if trouble == "missing":
        [_, (second, _), _] = await bare.xrange(TOLD)
        await bare.xdel(TOLD, second)
    elif trouble == "trimmed":
        await bare.xtrim(TOLD, maxlen=1, approximate=False)
    else:
        await bare.flushall()
        await servers.teller._beat()

    await listener.listen()

    assert len(tiers.local) == 0
