"""The processes themselves: a worker and beat on a real broker, killed and started again."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis.asyncio

from imem.credibility.pipelines import SETTLE
from imem.journal.settings import Settings
from imem.workers.applier import TaskRequester
from imem.workers.celery_app import QUEUE, make_app
from imem.workers.pipelines import PIPELINES
from tests.servers import as_curators, in_database
from tests.waiting import until
from tests.workers import process

from .conftest import World
from .load import lines

TIMEOUT_S = 60.0
DECISIONS = 30


def settings_of(stack: Any, world: World, home: Path) -> Settings:
    given: Settings = stack.settings
    return given.model_copy(update={"home": home, **in_database(given, world.url)})


@pytest.fixture
async def broker(stack: Any) -> AsyncIterator[redis.asyncio.Redis]:
    """Give the durable Valkey, emptied of Celery's keys before and after."""
    client = redis.asyncio.Redis.from_url(stack.settings.valkey_durable_url.get_secret_value())
    await empty(client)
    yield client
    await empty(client)
    await client.aclose()


async def empty(client: redis.asyncio.Redis) -> None:
    keys = [key async for key in client.scan_iter("imem:celery:*")]
    if keys:
        await client.delete(*keys)


async def settled(world: World) -> bool:
    rows = await world.rows("SELECT FROM due_row WHERE queue = 'credibility' UNION ALL SELECT FROM track_due LIMIT 1")
    return not rows


async def asked(broker: redis.asyncio.Redis) -> bool:
    return bool(await broker.llen(f"imem:celery:{QUEUE}"))


async def verdicts(world: World) -> int:
    (row,) = await world.rows("SELECT count(*) AS found FROM event WHERE actor = 'credibility'")
    return int(row["found"])


@pytest.mark.spec("AC-3")
async def test_what_the_applier_asks_for_is_settled(
    world: World, stack: Any, home: Path, broker: redis.asyncio.Redis
) -> None:
    """
    A request reaches the worker by name, whether it was up already or not; other events ask for nothing.

    What it writes it writes as the pipelines' role.
    """
    settings = settings_of(stack, world, home)
    await world.say(*lines(3))
    requester = TaskRequester(make_app(settings), SETTLE, settings)
    requester.applied(frozenset({"record.Analysis"}))
    asking = asyncio.create_task(requester.run())
    await asyncio.sleep(0)
    assert await broker.llen(f"imem:celery:{QUEUE}") == 0
    requester.applied(frozenset({"record.Outcome", "record.Analysis"}))
    await until(lambda: asked(broker))
    asking.cancel()

    async with process("celery", settings):
        await until(lambda: settled(world))
        logged_in = await world.rows("SELECT DISTINCT usename FROM pg_stat_activity WHERE datname = current_database()")

    mine = {urlsplit(url).username for url in (world.url, as_curators(settings, world.url))}
    assert {row["usename"] for row in logged_in} - mine == {urlsplit(world.pipeline_url).username}
    assert await verdicts(world) == 6


@pytest.mark.spec("AC-3")
@pytest.mark.parametrize("role", ["applier", "celery"])
async def test_without_a_role_for_pipelines_no_worker_starts(world: World, stack: Any, home: Path, role: str) -> None:
    """It ends with a sentence that says what to create; the application's role is none instead."""
    settings = settings_of(stack, world, home).model_copy(update={"postgres_pipeline_url": None})

    async with process(role, settings) as worker:
        assert await asyncio.wait_for(worker.wait(), TIMEOUT_S) == 1

    said = (home / f"{role}.log").read_text()
    assert "IMEM_POSTGRES_PIPELINE_URL is not set" in said
    assert "CREATE ROLE imem_pipelines" in said


async def test_a_killed_worker_loses_and_doubles_nothing(
    world: World, stack: Any, home: Path, broker: redis.asyncio.Redis
) -> None:
    """Killed with its child again and again while it settles; the next one ends the work."""
    settings = settings_of(stack, world, home)
    app = make_app(settings)
    await world.say(*lines(DECISIONS))

    async def working() -> bool:
        rows = await world.rows(
            "SELECT FROM pg_stat_activity WHERE datname = current_database() AND backend_xid IS NOT NULL"
        )
        return bool(rows) or await settled(world)

    async def ended() -> bool:
        """Say whether the last worker is up, by its taking what was asked: the work may have ended before it."""
        return not await asked(broker) and await settled(world)

    for _ in range(3):
        app.send_task(SETTLE.name, queue=QUEUE)
        async with process("celery", settings, killed=True) as worker:
            await until(working)
            os.killpg(worker.pid, signal.SIGKILL)
            await worker.wait()
    app.send_task(SETTLE.name, queue=QUEUE)
    async with process("celery", settings):
        await until(ended)

    assert await verdicts(world) == 2 * DECISIONS
    (count,) = await world.rows("SELECT count(*) AS scores FROM agent_outcome WHERE known_at IS NOT NULL")
    assert count["scores"] == DECISIONS * 3 * 2


async def test_beat_asks_for_settling_and_keeps_its_schedule_at_home(
    world: World, stack: Any, home: Path, broker: redis.asyncio.Redis
) -> None:
    settings = settings_of(stack, world, home)

    async with process("beat", settings):
        await until(lambda: asked(broker))

    assert [path.name for path in (home / "beat").iterdir()] != []
    assert (home / "beat").stat().st_mode & 0o077 == 0
    schedule = make_app(settings).conf.beat_schedule
    assert {entry["task"] for entry in schedule.values()} == {pipeline.name for pipeline in PIPELINES}
    assert {
        "credibility.settle", "credibility.reconcile", "credibility.detect_regime", "credibility.publish_scores",
        "credibility.review", "credibility.find_contradictions", "credibility.track_forecasts",
        "credibility.measure_returns", "postmortem.validate_successes",
        "archives.build", "archives.prune", "archives.retain",
        "kg.similar", "kg.rebuild_similar", "kg.rebuild_views",
        "alerts.send", "alerts.watch_memory", "alerts.watch_access",
        "checkpoints.manage", "checkpoints.retire", "checkpoints.cleanup",
        "sync.gates", "sync.flush", "sync.snapshots", "journal.upkeep", "jobs.advance",
        "recall.embed_memories", "recall.consolidate_memories", "recall.maintain_memories", "recall.project_texts",
        "postmortem.open_cases", "postmortem.lessons", "postmortem.measure_lessons",
        "postmortem.reflect", "postmortem.embed_situations",
        "recall.project_signals", "recall.retain_signals", "gates.learning", "gates.restore", "patterns.test",
    } == {pipeline.name for pipeline in PIPELINES}  # fmt: skip
