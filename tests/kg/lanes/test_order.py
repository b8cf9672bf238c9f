"""Both lanes at work on a real graph: who waits for whom, and who for nobody."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import neo4j
import pytest

import imem.kg.projection.applier
from imem.journal.deadline import Deadline
from imem.journal.events.entry import Tier
from imem.journal.gateway import Gateway
from imem.journal.notifications.wakeups import IntervalWakeups
from imem.kg.engine import Graph
from imem.kg.projection.applier import MOST_REJECTIONS, Applier
from imem.kg.projection.batches import write_events
from imem.kg.projection.hash import graph_hash
from imem.kg.projection.rows import Event
from tests.kg.draining import drain
from tests.kg.lanes.conftest import agent, finding
from tests.kg.projection.world import Journal, World, analysis, importer
from tests.waiting import until

SOON = 30_000
"""How long the test's machine may take over what takes milliseconds, in milliseconds."""


@asynccontextmanager
async def at_work(applier: Applier) -> AsyncIterator[Applier]:
    """Have it apply while the block runs."""
    running = asyncio.create_task(applier.run())
    try:
        yield applier
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await applier.stop()


class Witness:
    """Writes down what was applied, in the order in which the graph got it."""

    def __init__(self) -> None:
        self.seen: list[Event] = []

    async def written(self, events: Sequence[Event]) -> None:
        self.seen += events

    def order(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for event in self.seen:
            found[event.actor].append(event.position)
        return found


async def all_applied(journal: Journal) -> None:
    async def nothing_waits() -> bool:
        return not (await journal.counts())["pending"]

    await until(nothing_waits, within_s=120)


def visible(journal: Journal, position: int | None) -> Awaitable[bool]:
    assert position is not None
    return Gateway(journal.database, importer()).wait_visible([position], Deadline.after_ms(SOON))


@pytest.mark.spec("SY-9")
async def test_applied_order_is_the_order_of_each_actor(empty: World, journal: Journal) -> None:
    """Six agents say things of all tiers, in bursts, while others are applied."""
    rng = random.Random(5)
    witness = Witness()

    async def talk(name: str) -> None:
        for number in range(25):
            tier = Tier(rng.choice([0, 1, 2, 3, 3, 3, 3]))
            count = rng.randint(1, 4)
            lines = [finding(f"{name}-{number}-{part}", by=name) for part in range(count)]
            await journal.say(*lines, actor=agent(name), tier=tier)

    async with at_work(empty.applier(journal, batch=7, written=witness.written)):
        await asyncio.gather(*(talk(name) for name in ("bull", "bear", "owl", "fox", "cat", "dog")))
        await all_applied(journal)

    events = await journal.events()
    assert witness.order() == {
        name: [event.position for event in events if event.actor == name] for name in witness.order()
    }
    assert len(witness.seen) == len(events)
    found = await graph_hash(empty.graph)
    assert found == await empty.hash_of(events)


@pytest.mark.spec("SY-9")
async def test_nothing_overtakes_a_refused_event(empty: World, journal: Journal) -> None:
    """Of the same actor, not even in the same batch; others go on meanwhile. Once it is dead its actor goes on."""
    await journal.say(*[finding(f"bull-{number}") for number in range(6)], actor=agent("bull"), tier=Tier.CRITICAL)
    await journal.say(*[finding(f"bear-{number}", by="bear") for number in range(6)], actor=agent("bear"))
    journal.owner("ALTER TABLE event DISABLE TRIGGER append_only")
    journal.owner(
        "UPDATE event SET payload = jsonb_set(payload, '{core,statement}', '{\"a\": 1}') WHERE record_key = 'bull-2'"
    )
    applier = empty.applier(journal)

    await drain(applier)

    applied = "SELECT record_key FROM event JOIN delivery USING (position) WHERE state = 'applied' ORDER BY position"
    bears = [f"bear-{number}" for number in range(6)]
    assert [row["record_key"] for row in await journal.rows(applied)] == ["bull-0", "bull-1", *bears]
    async with at_work(empty.applier(journal)):
        await all_applied(journal)
    rows = await journal.rows(
        "SELECT record_key, state, attempts, died_at, applied_at FROM event JOIN delivery USING (position) "
        "WHERE died_at IS NULL ORDER BY position"
    )
    assert {row["state"] for row in rows} == {"applied"}
    (dead,) = await journal.rows("SELECT died_at, attempts FROM delivery WHERE state = 'dead'")
    assert dead["attempts"] == MOST_REJECTIONS
    behind = [row["applied_at"] for row in rows if row["record_key"] in {"bull-3", "bull-4", "bull-5"}]
    assert len(behind) == 3
    assert min(behind) > dead["died_at"]


@pytest.mark.spec("SY-8")
async def test_an_event_that_is_refused_by_itself_is_tried_on_time(empty: World, journal: Journal) -> None:
    """Nobody has to ring for the next attempt; the next event is none the worse for the five refusals."""
    await journal.say(finding("bad"), finding("good"), actor=agent("bull"))
    journal.owner("ALTER TABLE event DISABLE TRIGGER append_only")
    journal.owner(
        "UPDATE event SET payload = jsonb_set(payload, '{core,statement}', '{\"a\": 1}') WHERE record_key = 'bad'"
    )

    class Deaf:
        async def wait(self) -> None:
            await asyncio.Event().wait()

    async with at_work(Applier(journal.database, empty.graph, Deaf())):
        await all_applied(journal)

    rows = await journal.rows("SELECT state, attempts FROM delivery ORDER BY position")
    assert rows == [{"state": "dead", "attempts": 5}, {"state": "applied", "attempts": 0}]
    assert await empty.node("Finding", "good") is not None


class Gate:
    """Holds the writing of one actor's events until it is opened."""

    def __init__(self, actor: str) -> None:
        self.actor = actor
        self.reached, self.open = asyncio.Event(), asyncio.Event()

    async def __call__(self, graph: Graph, events: Sequence[Event], *rest: Any, **more: Any) -> str | None:
        if any(event.actor == self.actor for event in events):
            self.reached.set()
            await self.open.wait()
        return await write_events(graph, events, *rest, **more)


@pytest.mark.spec("SY-2")
async def test_a_critical_event_does_not_wait_for_a_batch_that_is_being_written(
    empty: World, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import's batch takes for ever; what another agent waits for becomes visible all the same, and so once more."""
    gate = Gate(importer().id)
    monkeypatch.setattr(imem.kg.projection.applier, "write_events", gate)
    await journal.say(*[finding(f"i-{number}", by="old") for number in range(60)], actor=importer())
    async with at_work(empty.applier(journal)):
        await asyncio.wait_for(gate.reached.wait(), 60)
        for number in range(3):
            (receipt,) = await journal.say(finding(f"f-{number}"), actor=agent("bull"), tier=Tier.CRITICAL)
            assert await visible(journal, receipt.position)
        assert (await journal.counts())["pending"] == 60
        gate.open.set()
        await all_applied(journal)


@pytest.mark.spec("SY-9")
async def test_a_critical_event_is_visible_with_what_lay_claimed_in_the_other_lane(
    empty: World, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other lane had claimed its predecessors behind a batch that takes for ever; they are handed over."""
    gate, witness = Gate(importer().id), Witness()
    monkeypatch.setattr(imem.kg.projection.applier, "write_events", gate)
    await journal.say(finding("i-0", by="old"), actor=importer())
    applier = empty.applier(journal, written=witness.written)
    async with at_work(applier):
        await asyncio.wait_for(gate.reached.wait(), 60)
        await journal.say(finding("before"), actor=agent("bull"))

        async def is_claimed() -> bool:
            # The bulk lane looks ahead once, while its batch is being written: have it look again.
            await applier._claim(applier._lane_slots.bulk)
            return "bull" in applier._lane_slots.bulk.actors

        await until(is_claimed)
        (receipt,) = await journal.say(finding("urgent"), actor=agent("bull"), tier=Tier.CRITICAL)
        assert await visible(journal, receipt.position)
        assert [event.key for event in witness.seen] == ["before", "urgent"]
        gate.open.set()
        await all_applied(journal)


@pytest.mark.spec("SY-15")
async def test_continuous_critical_load_holds_nobody_else_up(empty: World, journal: Journal) -> None:
    """While four agents push critical events without a pause, normal ones of others become visible at once."""
    over = False

    async def press(name: str) -> int:
        number = 0
        while not over:
            (receipt,) = await journal.say(finding(f"{name}-{number}", by=name), actor=agent(name), tier=Tier.CRITICAL)
            assert await visible(journal, receipt.position)
            number += 1
        return number

    async with at_work(empty.applier(journal)):
        pressing = [asyncio.create_task(press(name)) for name in ("a", "b", "c", "d")]
        for number in range(5):
            (normal,) = await journal.say(finding(f"n-{number}", by="owl"), actor=agent("owl"))
            (high,) = await journal.say(finding(f"h-{number}", by="cat", importance=0.9), actor=agent("cat"))
            assert await visible(journal, normal.position)
            assert await visible(journal, high.position)
        over = True
        pushed = await asyncio.gather(*pressing)
        await all_applied(journal)
    assert min(pushed) > 0


async def test_the_victim_of_a_deadlock_writes_once_more(
    empty: World, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No attempt is counted, and nobody else has to begin anew."""
    told_at = {"known_at": "2026-01-01T00:00:00Z"}
    await journal.say({"record": "Company", "core": {"ticker": "ZZZ"}, **told_at})
    applier = empty.applier(journal)
    await drain(applier)
    await journal.say({"record": "Company", "core": {"ticker": "AAA"}, **told_at})
    await journal.say({"record": "Company", "key": "ZZZ", "groups": {"profile": {"name": "Z"}}, **told_at})
    defeats: list[float] = []
    sleep = asyncio.sleep

    async def yields(seconds: float) -> None:
        defeats.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr(random, "uniform", lambda *_: 0.00123)
    monkeypatch.setattr(asyncio, "sleep", yields)
    async with empty.graph.driver.session(database="neo4j") as session, await session.begin_transaction() as other:
        # The server ends who holds fewer locks.
        await (await other.run("UNWIND range(1, 1000) AS n CREATE (c:Company {ticker: 'T' + n})")).consume()
        await _set_test(other, "ZZZ")
        applying = asyncio.create_task(drain(applier))

        async def blocked() -> bool:
            return bool(await empty.run("SHOW TRANSACTIONS YIELD status WHERE status STARTS WITH 'Blocked' RETURN 1"))

        # Ours holds AAA and waits for ZZZ; now the other wants AAA.
        await until(blocked)
        await _set_test(other, "AAA")
        await other.rollback()
    assert await applying == 2

    monkeypatch.undo()
    assert 0.00123 in defeats, "ours was the victim"
    assert await journal.rows("SELECT DISTINCT state, attempts FROM delivery") == [{"state": "applied", "attempts": 0}]
    assert (await empty.node("Company", "ZZZ") or {})["name"] == "Z"


async def _set_test(transaction: neo4j.AsyncTransaction, ticker: str) -> None:
    await (await transaction.run("MATCH (c:Company {ticker: $ticker}) SET c.test = 1", ticker=ticker)).consume()


# Without tiers


class Turns:
    """Time that goes by in cycles, when the test says so."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self._next = asyncio.Semaphore(0)

    async def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        await self._next.acquire()

    def go_by(self) -> None:
        self._next.release()


@pytest.mark.spec("SY-16")
async def test_without_tiers_there_is_the_cycle_alone_and_nothing_is_lost(empty: World, journal: Journal) -> None:
    """Whatever the tier, nothing is applied before its cycle, and then everything in the order of its recording."""
    turns, witness = Turns(), Witness()

    def one() -> Applier:
        wakeups = IntervalWakeups(sleep=turns.sleep)
        return Applier(journal.database, empty.graph, wakeups, lanes=False, written=witness.written)

    async def say(part: int) -> None:
        for number, tier in enumerate(Tier):
            await journal.say(finding(f"{part}-{number}", by=f"a{number}"), actor=agent(f"a{number}"), tier=tier)

    async def waits() -> bool:
        return bool(turns.asked)

    async with at_work(one()):
        await until(waits)
        await say(1)
        await asyncio.sleep(0.2)  # Nothing happens: there is nothing to wait for.
        assert (await journal.counts())["pending"] == 4
        turns.go_by()
        await all_applied(journal)
        await say(2)
    # A process that ends between two cycles leaves what waits to the next one.
    async with at_work(one()):
        await all_applied(journal)

    assert set(turns.asked) == {300.0}
    positions = [event.position for event in witness.seen]
    assert positions == sorted(positions)
    assert positions == [event.position for event in await journal.events()]
    assert {actor: len(found) for actor, found in witness.order().items()} == {f"a{number}": 2 for number in range(4)}


@pytest.mark.spec("SY-16")
async def test_tiers_count_again_when_they_are_switched_on_again(empty: World, journal: Journal) -> None:
    """What was recorded meanwhile kept its tier."""
    await journal.say(finding("n", by="bear"), actor=agent("bear"))
    await journal.say(finding("c"), actor=agent("bull"), tier=Tier.CRITICAL)
    witness = Witness()

    await drain(empty.applier(journal, written=witness.written))

    assert [event.key for event in witness.seen] == ["c", "n"]


async def test_derived_values_come_under_a_load_that_does_not_end(empty: World, journal: Journal) -> None:
    """There is never a moment in which nothing waits: they wait for what was said before them, not for everything."""
    applier = empty.applier(journal)
    await journal.say({**analysis("a1"), "known_at": None}, actor=agent("bull"))
    await drain(applier)
    journal.owner("INSERT INTO due_row (queue, kind, key) VALUES ('graph', 'subject_counters', 'company:MU')")
    await journal.say(finding("first"), actor=agent("bull"))
    assert not await applier.derive()
    # The next one is there before the first is applied.
    await journal.say(finding("second", by="bear"), actor=agent("bear"))
    assert not await applier.derive()
    lane = applier._lane_slots.bulk
    lane.size = 1
    await applier._claim(lane)
    await applier._write(lane, lane.begin())
    await applier._marked(lane)

    assert (await journal.counts())["pending"] == 1
    assert await applier.derive()
    assert await journal.rows("SELECT count(*) AS n FROM due_row WHERE queue = 'graph'") == [{"n": 0}]
