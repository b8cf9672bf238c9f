"""Pipelines that are due by the calendar, while no run of them comes through the broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from imem.credibility.pipelines import RECONCILE, REVIEW
from imem.jobs.fallback_rounds import LATE_S, fallback_rounds
from imem.jobs.lease import LeaderLease
from imem.jobs.pipeline import Daily, Pipeline, Report
from imem.jobs.reports import StoredReport, stored_reports
from imem.jobs.runtime import slot
from imem.journal.deadline import Deadline
from imem.journal.errors import PostgresUnavailable
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from imem.journal.settings import Settings

from .conftest import HALFLIFE, IMPORTER, World
from .test_pipeline_role import scored

LATE = timedelta(seconds=LATE_S)

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)

TUESDAY, WEDNESDAY = datetime(2031, 3, 4, 3, 17, tzinfo=UTC), datetime(2031, 3, 5, 3, 17, tzinfo=UTC)

SPRING, SUMMER = datetime(2031, 4, 1, 4, 37, tzinfo=UTC), datetime(2031, 7, 1, 4, 37, tzinfo=UTC)


@asynccontextmanager
async def process(world: World, moment: datetime | None) -> AsyncIterator[None]:
    """Have a worker process that was started at *moment*, as the owner, who alone shifts the clock; None: it is not."""
    database = Database(world.pipeline_url, size=4)
    if moment is not None:
        shift = (moment - datetime.now(UTC)).total_seconds()
        database = Database(world.admin_url, size=4, options=f"-c imem.clock_shift={shift:.0f}s")
    loop = asyncio.get_running_loop()

    def run(work: Callable[[], Awaitable[Any]]) -> Any:
        async def call() -> Any:
            return await work()

        return asyncio.run_coroutine_threadsafe(call(), loop).result()

    gateway = Gateway(database, IMPORTER)
    slot.install(SimpleNamespace(database=database, gateway=gateway, halflife_years=HALFLIFE, run=run))
    try:
        yield
    finally:
        slot.install(None)
        await database.close()


async def round_at(
    world: World, pipeline: Pipeline[Any], moment: datetime | None, processes: int = 1
) -> list[StoredReport]:
    """Have so many processes find *pipeline* overdue at *moment*, and return the reports that are kept."""
    [one] = fallback_rounds([pipeline], Settings.read({}))
    async with process(world, moment):
        await asyncio.gather(*(asyncio.to_thread(one.work) for _ in range(processes)))
    return await reports(world, pipeline)


async def reports(world: World, pipeline: Pipeline[Any]) -> list[StoredReport]:
    return await stored_reports(world.database, pipeline.name, deadline=Deadline.never())


@pytest.mark.parametrize(("pipeline", "due", "next_due"), [(RECONCILE, TUESDAY, WEDNESDAY), (REVIEW, SPRING, SUMMER)])
async def test_what_the_calendar_asks_for_is_done_once_without_the_broker(
    world: World, pipeline: Pipeline[Any], due: datetime, next_due: datetime
) -> None:
    """A day's and a quarter's: an hour after it was due, by one of several processes, and never again by the next."""
    await scored(world)
    async with process(world, due - 5 * HOUR):
        await asyncio.to_thread(pipeline.run)
    assert len(await round_at(world, pipeline, due + LATE - 5 * MINUTE)) == 1

    newest, *older = await round_at(world, pipeline, due + LATE + 5 * MINUTE, processes=3)
    assert len(older) == 1
    assert newest.error is None
    assert newest.report["scores"] > 0
    assert abs(newest.started_at - (due + LATE + 5 * MINUTE)) < 4 * MINUTE
    for later in (due + 3 * HOUR, next_due + LATE - 5 * MINUTE):
        assert len(await round_at(world, pipeline, later)) == 2
    assert len(await round_at(world, pipeline, next_due + 7 * HOUR, processes=3)) == 3


async def test_what_came_through_the_broker_is_not_done_again(world: World) -> None:
    """Also where its clock is a little ahead of the database's."""
    for requested in (TUESDAY - timedelta(seconds=20), WEDNESDAY + timedelta(seconds=5)):
        async with process(world, requested):
            await asyncio.to_thread(RECONCILE.run)
        before = await reports(world, RECONCILE)
        assert await round_at(world, RECONCILE, requested + LATE + 5 * MINUTE) == before


async def test_what_another_process_does_is_left_to_it(world: World) -> None:
    """With the rights of pipelines. What never ran is due."""
    lease = LeaderLease(world.pipelines, f"pipeline {RECONCILE.name}")
    assert await lease.take()
    assert await round_at(world, RECONCILE, None) == []
    await lease.drop()
    assert len(await round_at(world, RECONCILE, None)) == 1


async def test_a_run_that_failed_or_left_work_is_not_done(world: World) -> None:
    """What is left is done at once within the budget of each run; what failed, at the next look."""
    left = [3, 2, 1, 0]
    budgets = []

    async def step(_runtime: Any, until: Deadline) -> Report:
        budgets.append(until.left_s())
        if left[0] == 2 and len(budgets) == 2:
            raise PostgresUnavailable("It is away.")
        now: Mapping[str, Any] = {"more": left.pop(0) > 0}
        return now

    pipeline: Pipeline[Any] = Pipeline("test.daily", step, Daily(3, 17), budget_ms=60_000, without_broker=True)
    [failed] = await round_at(world, pipeline, TUESDAY + 2 * HOUR)
    assert failed.error is not None
    assert left == [2, 1, 0]
    [done] = await round_at(world, pipeline, TUESDAY + 3 * HOUR)
    assert (done.error, done.report, left) == (None, {}, [])
    assert await round_at(world, pipeline, TUESDAY + 4 * HOUR) == [done]
    assert len(budgets) == 5
    assert all(0 < budget <= 60 for budget in budgets)
