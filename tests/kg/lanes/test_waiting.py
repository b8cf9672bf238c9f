"""Who waits for the graph is told, and finds out even where no word comes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
import pytest_asyncio
import redis.asyncio

from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.events.entry import Receipt, Tier
from imem.journal.gateway import Gateway
from imem.journal.notifications.visibility import (
    CHANNEL,
    MOST_IDS,
    RECENT_EVENTS,
    VisibilityPublisher,
    VisibilitySubscriber,
)
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from tests.kg.lanes.conftest import agent, finding, lame
from tests.kg.projection.world import NEVER, Journal, entries_of
from tests.waiting import until

PERSON = Actor("bull", Role.HUMAN_ADMIN)


class Counting(Database):
    """A journal that counts how often it is asked whether the graph holds something."""

    looks = 0

    async def named(self, name: str, parameters: Any = None, *, deadline: Deadline) -> list[Row]:
        self.looks += name == "count_undelivered"
        return await super().named(name, parameters, deadline=deadline)


@pytest_asyncio.fixture
async def durable(light_stack: Any) -> str:
    return str(light_stack.settings.valkey_durable_url.get_secret_value())


@pytest_asyncio.fixture
async def speaker(durable: str) -> AsyncIterator[VisibilityPublisher]:
    made = VisibilityPublisher(durable)
    yield made
    await made.close()


@pytest_asyncio.fixture
async def listener(durable: str) -> AsyncIterator[VisibilitySubscriber]:
    made = VisibilitySubscriber(durable)
    await begun(made)
    yield made
    await made.close()


async def begun(listener: VisibilitySubscriber) -> None:
    """Wait until words are wait_applied."""
    assert not await listener.wait_applied([uuid4()], 1.0)

    async def hears() -> bool:
        return listener.subscribed

    await until(hears)


def some(count: int) -> list[UUID]:
    return [uuid4() for _ in range(count)]


# Words


async def test_a_word_wakes_who_waits_for_it_and_nobody_else(
    speaker: VisibilityPublisher, listener: VisibilitySubscriber
) -> None:
    mine, yours = some(3), some(1)
    waiting = asyncio.create_task(listener.wait_applied(mine, 10.0))
    other = asyncio.create_task(listener.wait_applied(yours, 10.0))
    await asyncio.sleep(0)
    speaker.publish(mine[:2])
    speaker.publish([*some(5), mine[2]])

    assert await waiting
    assert not other.done()
    speaker.publish(yours)
    assert await other


async def test_who_asks_a_moment_too_late_is_told_at_once(
    speaker: VisibilityPublisher, listener: VisibilitySubscriber
) -> None:
    said = some(2)
    witness = asyncio.create_task(listener.wait_applied(said, 10.0))
    speaker.publish(said)
    await witness

    assert await listener.wait_applied(said, 0.0)


async def test_what_is_remembered_is_bounded(speaker: VisibilityPublisher, listener: VisibilitySubscriber) -> None:
    first, last = some(1), some(1)
    speaker.publish(first)
    for _ in range(RECENT_EVENTS // MOST_IDS + 1):
        batch = some(MOST_IDS)
        wait_applied = asyncio.create_task(listener.wait_applied(batch, 10.0))
        await asyncio.sleep(0)
        speaker.publish(batch)
        assert await wait_applied
    speaker.publish(last)

    assert await listener.wait_applied(last, 10.0)
    assert not await listener.wait_applied(first, 0.05)
    assert len(listener._known) <= RECENT_EVENTS
    assert len(listener._recent) <= RECENT_EVENTS


async def test_many_at_once_have_everybody_look(speaker: VisibilityPublisher, listener: VisibilitySubscriber) -> None:
    """So does a word without a name, and one that is none of ours."""
    for word in (some(MOST_IDS + 1), []):
        waiting = asyncio.create_task(listener.wait_applied(some(1), 60.0))
        await asyncio.sleep(0)
        speaker.publish(word)
        assert not await waiting


async def test_a_foreign_message_does_no_harm(durable: str, listener: VisibilitySubscriber) -> None:
    waiting = asyncio.create_task(listener.wait_applied(some(1), 60.0))
    await asyncio.sleep(0)
    async with redis.asyncio.Redis.from_url(durable) as client:
        await client.publish(CHANNEL, "nonsense")

    assert not await waiting
    assert listener.subscribed


async def test_nothing_is_heard_where_nobody_answers() -> None:
    """And nothing waits: neither who speaks nor who listens."""
    listener, speaker = VisibilitySubscriber("redis://127.0.0.1:1"), VisibilityPublisher("redis://127.0.0.1:1")
    speaker.publish(some(1))

    assert not await listener.wait_applied(some(1), 60.0)
    await asyncio.sleep(0.05)
    assert not listener.subscribed
    assert not await listener.wait_applied(some(1), 60.0)
    await speaker.close()
    await listener.close()


async def test_a_listener_whose_connection_breaks_listens_again(
    durable: str, speaker: VisibilityPublisher, listener: VisibilitySubscriber
) -> None:
    """Whoever waits meanwhile is sent to look for himself."""
    waiting = asyncio.create_task(listener.wait_applied(some(1), 60.0))
    await asyncio.sleep(0)
    async with redis.asyncio.Redis.from_url(durable) as client:
        await client.client_kill_filter(_type="pubsub")

    assert not await waiting
    await begun(listener)
    said = some(1)
    waiting = asyncio.create_task(listener.wait_applied(said, 60.0))
    await asyncio.sleep(0)
    speaker.publish(said)
    assert await waiting


# The gateway


async def applied(paper: Journal, speaker: VisibilityPublisher | None) -> None:
    """Have Postgres note everything as applied, and say so."""
    applier = lame(paper.database, announce=speaker.publish if speaker is not None else None)
    await applier.lease.seize()
    for lane in applier._in_use:
        await applier._claim(lane)
        events = lane.begin()
        if events:
            await applier._mark(lane, events, "bookmark")


async def written(paper: Journal) -> None:
    async def is_there() -> bool:
        return bool((await paper.counts())["pending"])

    await until(is_there)


Begin = Callable[..., Awaitable["asyncio.Task[list[Receipt]]"]]


@pytest_asyncio.fixture
async def begin(paper: Journal, listener: VisibilitySubscriber) -> AsyncIterator[Begin]:
    """Give what begins a write that is waited for, and returns when it is durable."""
    databases: list[Database] = []

    async def make(database: Database | None = None, wait_ms: float = 30_000, **options: Any) -> Any:
        databases.append(database or Database(paper.pipeline_url))
        gateway = Gateway(databases[-1], PERSON, visibility=listener, **options)
        entries = entries_of(finding("f"), tier=Tier.CRITICAL)
        task = asyncio.create_task(gateway.append(entries, deadline=NEVER, wait_visible=Deadline.after_ms(wait_ms)))
        await written(paper)
        return task

    yield make
    for database in databases:
        await database.close()


async def test_a_write_is_visible_when_the_applier_says_so(
    paper: Journal, begin: Begin, speaker: VisibilityPublisher
) -> None:
    """Postgres is not even asked."""
    database = Counting(paper.pipeline_url)
    task = await begin(database)
    await applied(paper, speaker)

    (receipt,) = await task

    assert receipt.visible
    assert database.looks <= 1, "one look in a quarter of a second"


async def test_a_lost_word_costs_a_moment(paper: Journal, begin: Begin) -> None:
    task = await begin()
    await applied(paper, None)
    begun_at = time.monotonic()

    (receipt,) = await task

    assert receipt.visible
    assert time.monotonic() - begun_at < 10


async def test_what_was_recorded_before_is_looked_for_at_once(paper: Journal, listener: VisibilitySubscriber) -> None:
    """No word will come about it any more."""
    await paper.say(finding("f"), actor=agent("bull"))
    await applied(paper, None)
    database = Counting(paper.pipeline_url)
    gateway = Gateway(database, PERSON, visibility=listener)

    (receipt,) = await gateway.append(entries_of(finding("f")), deadline=NEVER, wait_visible=Deadline.after_ms(30_000))
    await database.close()

    assert (receipt.verdict, receipt.visible) == ("identical", True)
    assert database.looks == 1


async def test_a_dead_event_is_waited_for_no_longer(paper: Journal, begin: Begin, speaker: VisibilityPublisher) -> None:
    task = await begin()
    paper.owner("UPDATE delivery SET state = 'dead', died_at = now()")
    speaker.publish([])

    (receipt,) = await asyncio.wait_for(task, 10)

    assert receipt.state == "durable_not_visible"


async def test_a_deadline_is_kept_where_no_word_comes(begin: Begin) -> None:
    begun_at = time.monotonic()
    task = await begin(wait_ms=600)

    (receipt,) = await task

    assert receipt.state == "durable_not_visible"
    assert time.monotonic() - begun_at < 5.0


@pytest.mark.spec("SY-16")
async def test_where_tiers_do_not_count_nobody_waits(paper: Journal, begin: Begin) -> None:
    """A look, and the receipt says how it stands."""
    database = Counting(paper.pipeline_url)
    task = await begin(database, waits=False)

    (receipt,) = await asyncio.wait_for(task, 10)

    assert receipt.state == "durable_not_visible"
    assert database.looks == 1
