"""Stores that go and come back on the way into the graph: nothing acknowledged is lost, nothing is condemned."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

import imem.jobs.leadership
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.events.entry import Tier
from imem.journal.gateway import Gateway
from imem.journal.notifications.visibility import VisibilityPublisher, VisibilitySubscriber
from imem.journal.notifications.wakeups import WakeupPublisher, WakeupSubscriber
from imem.kg.engine import Graph
from imem.kg.projection.applier import Applier
from tests.cache.working.servers import OwnServer, own_server
from tests.kg.lanes.conftest import agent, finding
from tests.kg.lanes.test_order import all_applied, at_work
from tests.kg.projection.proxy import Proxy, proxied
from tests.kg.projection.world import NEVER, Journal, NoWakeups, World, analysis, entries_of, importer
from tests.waiting import until

HOUR_EVENTS = 18_000
"""What comes in an hour: five events in a second."""

HOUR_WITHIN_S = 600.0
"""How long catching up may take then, in seconds."""

EVENTS = HOUR_EVENTS if os.environ.get("IMEM_CHAOS") else HOUR_EVENTS // 4

OUTAGE_ATTEMPTS = 300
"""As many attempts as an applier makes in ten minutes, one every two seconds."""


@pytest_asyncio.fixture
async def wire(world: World) -> AsyncIterator[Proxy]:
    """What the applier reaches Neo4j by."""
    address = urlsplit(world.settings.neo4j_url or "")
    async with proxied(address.hostname or "", address.port or 0) as proxy:
        yield proxy


class Counting(Graph):
    """A graph that counts how often something was to be written."""

    writes = 0

    async def write(self, name: str, work: Any, *, deadline: Deadline) -> Any:
        self.writes += 1
        return await super().write(name, work, deadline=deadline)


@pytest_asyncio.fixture
async def graph(world: World, wire: Proxy) -> AsyncIterator[Counting]:
    assert world.settings.neo4j_password is not None
    password = world.settings.neo4j_password.get_secret_value()
    made = Counting(f"bolt://127.0.0.1:{wire.port}", world.settings.neo4j_user, password)
    yield made
    await made.close()


CUT = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""Neo4j's driver leaves the socket of a connection that is given up while it is being made to the garbage collector."""


@CUT
@pytest.mark.spec("SY-8")
@pytest.mark.usefixtures("empty")
async def test_an_outage_of_ten_minutes_condemns_nothing(
    journal: Journal, wire: Proxy, graph: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many attempts as ten minutes have, each met by a refused port: none is counted."""
    monkeypatch.setattr(imem.jobs.leadership, "LONGEST_PAUSE_S", 0.01)
    await wire.refuse()
    await journal.say(finding("critical"), actor=agent("bull"), tier=Tier.CRITICAL)
    await journal.say(*[analysis(f"a{number}") for number in range(20)])
    async with at_work(Applier(journal.database, graph, NoWakeups())):

        async def long_enough() -> bool:
            return graph.writes >= OUTAGE_ATTEMPTS

        await until(long_enough, within_s=300)
        rows = await journal.rows("SELECT DISTINCT state, attempts, error FROM delivery")
        assert rows == [{"state": "pending", "attempts": 0, "error": None}]
        await wire.listen()
        await all_applied(journal)
    rows = await journal.rows("SELECT DISTINCT state, attempts FROM delivery")
    assert rows == [{"state": "applied", "attempts": 0}]


@CUT
@pytest.mark.spec("RS-2")
@pytest.mark.longer
async def test_a_graph_that_comes_back_is_caught_up_without_duplicates(
    empty: World, journal: Journal, wire: Proxy, graph: Counting
) -> None:
    """After as many events as an hour brings, all of them that old; what is urgent by then does not wait for them."""
    await wire.refuse()
    gateway = Gateway(journal.database, importer())
    for start in range(0, EVENTS, 1000):
        lines = [analysis(f"a{number}", ticker=f"T{number % 97}") for number in range(start, min(start + 1000, EVENTS))]
        await gateway.append(entries_of(*lines), deadline=NEVER)
    journal.owner("ALTER TABLE event DISABLE TRIGGER append_only")
    journal.owner("UPDATE event SET recorded_at = recorded_at - interval '1 hour'")
    async with at_work(Applier(journal.database, graph, NoWakeups())):
        await wire.listen()
        begun = time.monotonic()
        (receipt,) = await journal.say(finding("urgent"), actor=agent("bull"), tier=Tier.CRITICAL)
        assert receipt.position is not None
        assert await gateway.wait_visible([receipt.position], Deadline.after_ms(120_000))
        urgent_waits_for = (await journal.counts())["pending"]

        async def caught_up() -> bool:
            return not (await journal.counts())["pending"]

        await until(caught_up, within_s=HOUR_WITHIN_S)
        took_s = time.monotonic() - begun

    assert took_s <= HOUR_WITHIN_S * EVENTS / HOUR_EVENTS
    assert urgent_waits_for > 0, "it did not wait for all the others"
    (marks,) = await empty.run("MATCH (e:AppliedEvent) RETURN count(e) AS n, count(DISTINCT e.position) AS positions")
    assert marks == {"n": EVENTS + 1, "positions": EVENTS + 1}
    (nodes,) = await empty.run("MATCH (a:Analysis) WHERE a.known_at IS NOT NULL RETURN count(a) AS n")
    assert nodes == {"n": EVENTS}
    assert await journal.rows("SELECT DISTINCT state, attempts FROM delivery") == [{"state": "applied", "attempts": 0}]


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[OwnServer]:
    with own_server(tmp_path) as server:
        yield server


def lose_everything(server: OwnServer) -> None:
    """Kill it and remove what it kept."""
    server.kill()
    for entry in server.folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)


@pytest.mark.spec("SY-5")
async def test_a_valkey_that_comes_back_empty_has_lost_no_event(
    empty: World, journal: Journal, valkey: OwnServer
) -> None:
    """Writes are acknowledged before, while it is away, and afterwards; all are applied, and waiting works again."""
    wakeup_publisher, wakeups, speaker, listener = (
        WakeupPublisher(valkey.url), WakeupSubscriber(valkey.url), VisibilityPublisher(valkey.url),
        VisibilitySubscriber(valkey.url),
    )  # fmt: skip
    gateway = Gateway(
        journal.database, Actor("bull", agent("bull").role), wakeup_publisher.publish_wakeup, visibility=listener
    )
    positions: list[int] = []

    async def push(name: str, wait_ms: float | None = None) -> bool | None:
        wait = Deadline.after_ms(wait_ms) if wait_ms is not None else None
        tier = Tier.CRITICAL if wait_ms is not None else None
        entries = entries_of(finding(name), tier=tier)
        (receipt,) = await gateway.append(entries, deadline=Deadline.after_ms(20_000), wait_visible=wait)
        assert receipt.durable
        assert receipt.position is not None
        positions.append(receipt.position)
        return receipt.visible

    for number in range(10):
        await push(f"unseen-{number}")  # Nobody applies yet: the streams alone speak of them.
    lose_everything(valkey)
    for number in range(10):
        await push(f"away-{number}")
    async with at_work(Applier(journal.database, empty.graph, wakeups, announce=speaker.publish)):
        assert await push("waited for without it", 60_000)
        valkey.start()
        for number in range(10):
            await push(f"back-{number}")
        assert await push("waited for with it", 60_000)
        await all_applied(journal)

        async def hears() -> bool:
            await listener.wait_applied([], 0.01)
            return listener.subscribed

        await until(hears)
    for one in (wakeup_publisher, wakeups, speaker, listener):
        await one.close()

    rows = await journal.rows("SELECT position FROM delivery WHERE state = 'applied' ORDER BY position")
    assert [row["position"] for row in rows] == positions
    (nodes,) = await empty.run("MATCH (f:Finding) WHERE f.known_at IS NOT NULL RETURN count(f) AS n")
    assert nodes == {"n": len(positions)}


async def test_a_valkey_that_stands_still_holds_up_nobody(empty: World, journal: Journal, valkey: OwnServer) -> None:
    """It takes a moment to be given up; the applier does not wait for its words to be said."""
    wakeups, speaker = WakeupSubscriber(valkey.url), VisibilityPublisher(valkey.url)
    async with at_work(Applier(journal.database, empty.graph, wakeups, announce=speaker.publish)):
        valkey.signal(signal.SIGSTOP)
        for number in range(5):
            await journal.say(finding(f"f-{number}"), actor=agent("bull"))
        await asyncio.wait_for(all_applied(journal), 60)
        valkey.signal(signal.SIGCONT)
    await wakeups.close()
    await speaker.close()
