"""Errors of saving and of consistency are counted, and one alert a cause is there at once."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import redis.asyncio

from imem.alerts.store import Alerts
from imem.cache.client import Client
from imem.cache.working.snapshots import SnapshotStore
from imem.checkpoints.incidents.error_watch import ErrorWatch
from imem.checkpoints.metrics import CONSISTENCY_ERRORS, SAVE_ERRORS
from imem.checkpoints.model import CheckpointKind
from imem.checkpoints.store import Checkpoints
from imem.journal.actors import Actor
from imem.journal.clock import SystemClock
from imem.journal.errors import ConsistencyError, PostgresUnavailable, ValkeyUnavailable
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from tests.checkpoints.conftest import DEFINITIONS, World, memory, soon
from tests.checkpoints.recovering import READERS, desk_of, names, work
from tests.counting import total

PERSON = Actor("priya", Role.HUMAN_ADMIN)


async def told(world: World) -> list[tuple[str, str]]:
    board = await Alerts(world.database).cards(deadline=soon())
    return [(alert.kind, alert.payload["store"]) for card in board.cards for alert in card.alerts]


async def totals(world: World) -> dict[tuple[str, str], int]:
    found = await world.rows("SELECT name, store, total FROM workflow.error_counter")
    return {(row["name"], row["store"]): row["total"] for row in found}


async def at_once(_: float) -> None:
    await asyncio.sleep(0)


async def test_a_save_without_its_copy_tells_people_at_once(world: World) -> None:
    """The save stands; one alert names the store, however often it happens."""
    away = Client("redis://127.0.0.1:1/0")
    checkpoints = Checkpoints(world.database, DEFINITIONS, SnapshotStore(away, SystemClock()))
    lease = await world.acquire()
    for subtask in ("fetch", "parse"):
        document, its = memory(after=subtask)
        await checkpoints.save(
            lease, kind=CheckpointKind.SUBTASK, subtask=subtask, document=document, digest=its, deadline=soon()
        )
    await checkpoints.errors.flush()
    await away.close()

    assert await told(world) == [("CHECKPOINT_SAVE_ERRORS", "durable")]
    assert await totals(world) == {("checkpoint_save_errors_total", "durable"): 2}


async def test_a_tier_that_is_damaged_tells_people_though_another_serves(world: World) -> None:
    world = replace(world, definitions=READERS)
    harness = desk_of(world)
    async with harness.begin(**names(world)) as session:
        await work(session, "fetch")
    plain = redis.asyncio.Redis.from_url(world.settings.valkey_working_url.get_secret_value())
    await plain.set(f"L1:{world.agent('reader')}:working:fetch:note", "tampered", keepttl=True)
    await plain.aclose()
    async with harness.begin(**names(world)):
        pass
    await harness.recovery._checkpoints.errors.flush()

    assert await told(world) == [("CHECKPOINT_CONSISTENCY_ERRORS", "l1_existing")]


async def test_many_errors_in_many_processes_are_one_alert_a_cause(world: World) -> None:
    """Once somebody has acknowledged it, the next error is another one."""
    watches = [ErrorWatch(world.database, sleep=at_once) for _ in range(4)]
    for number in range(200):
        watches[number % 4].count(SAVE_ERRORS, ValkeyUnavailable("away"), store="durable")
        watches[number % 4].count(CONSISTENCY_ERRORS, ConsistencyError("torn\0"), store="redis_secondary")
    await asyncio.gather(*(watch.flush() for watch in watches))

    assert sorted(await told(world)) == [
        ("CHECKPOINT_CONSISTENCY_ERRORS", "redis_secondary"),
        ("CHECKPOINT_SAVE_ERRORS", "durable"),
    ]
    assert set((await totals(world)).values()) == {200}
    assert total(SAVE_ERRORS) == 200
    board = await Alerts(world.database).cards(deadline=soon())
    for card in board.cards:
        for alert in card.alerts:
            await Alerts(world.database).acknowledge(alert.alert_id, PERSON, deadline=soon())
    assert await told(world) == []
    watches[0].count(SAVE_ERRORS, ValkeyUnavailable("away"), store="durable")
    await watches[0].flush()
    assert await told(world) == [("CHECKPOINT_SAVE_ERRORS", "durable")]


async def test_a_postgres_that_was_away_hears_of_it_when_it_is_back(world: World) -> None:
    """What failed is Postgres: the process that counted asks until somebody answers."""
    away = Database("postgresql://nobody@127.0.0.1:1/none", size=2)
    waits: list[float] = []

    async def back(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 6:
            watch._database = world.database
        await asyncio.sleep(0)

    checkpoints = Checkpoints(away, DEFINITIONS)
    watch = checkpoints.errors = ErrorWatch(away, sleep=back)
    document, its = memory(after="fetch")
    lease = await world.acquire()
    with pytest.raises(PostgresUnavailable):
        await checkpoints.save(
            lease, kind=CheckpointKind.SUBTASK, subtask="fetch", document=document, digest=its, deadline=soon()
        )
    await watch.flush()
    await away.close()

    assert waits == [2.0, 4.0, 8.0, 15.0, 15.0, 15.0]
    assert await told(world) == [("CHECKPOINT_SAVE_ERRORS", "postgres")]
