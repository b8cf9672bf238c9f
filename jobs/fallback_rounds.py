"""
Runs of pipelines while the broker is away.

Beat requests each run through the durable Valkey. While that or beat is away, pauses would not be driven, and alerts
would not be sent. So each worker process checks once a second when any of them last began a run of a pipeline that is
declared ``without_broker``, and begins an overdue one itself. The rows make a run that is done twice harmless.

A pipeline that is due by the calendar is looked at each :data:`LATE_S`: its kept reports say whether the run that was
due last was done, also before the worker was started. If not, one process does it, under a lease.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from multiprocessing.sharedctypes import RawValue
from typing import Any, Final

import structlog

from imem.jobs.leadership import together
from imem.jobs.lease import LeaderLease
from imem.jobs.pipeline import Daily, Every, Monthly, Pipeline
from imem.jobs.reports import stored_reports
from imem.jobs.runtime import Runtime, slot
from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError
from imem.journal.postgres.database import Database
from imem.journal.settings import Settings

log = structlog.get_logger()

POLL_S: Final = 1.0
"""Interval between two checks, in seconds."""

MISSED: Final = 2.0
"""A run is overdue after so many times its cadence."""

LATE_S: Final = 60 * 60.0
"""A run that is due by the calendar is overdue after so many seconds, which Celery's retries and redelivery have."""

CLOCKS: Final = timedelta(minutes=1)
"""By how much the clock that requests a run may be ahead of the database's."""

LOOK_MS: Final = 5_000
"""How long reading the time and the reports may take, in milliseconds."""

STOP_WITHIN_S: Final = 5.0
"""How long a stopping process waits for a current run, in seconds; the next run makes up for it."""


class FallbackRound:
    """
    A pipeline, and when any process of this worker last began a run of it.

    Made before the worker forks: the moment is in memory that the processes share. It has no lock: two processes that
    find it overdue at the same instant do no harm, and a lock would outlive a process that was killed.

    Args:
        name: of the pipeline.
        overdue_after_s: after how many seconds without a run it is overdue.
        work: does one run, or by the calendar looks whether one is to be done; blocks meanwhile.
        calendar: whether it is due by the calendar.
    """

    def __init__(
        self, name: str, overdue_after_s: float, work: Callable[[], object], *, calendar: bool = False
    ) -> None:
        self.name = name
        self.overdue_after_s = overdue_after_s
        self.work = work
        self.calendar = calendar
        # On the monotonic clock, which all processes of the machine share.
        self._begun = RawValue("d", time.monotonic())

    @property
    def overdue(self) -> bool:
        """Whether no run has begun for so long."""
        return time.monotonic() - float(self._begun.value) > self.overdue_after_s

    def note(self) -> None:
        """Record that a run, or a look, begins now."""
        self._begun.value = time.monotonic()


def fallback_rounds(pipelines: Iterable[Pipeline[Any]], settings: Settings) -> tuple[FallbackRound, ...]:
    """Return the rounds of the pipelines declared ``without_broker``."""
    rounds = []
    for pipeline in pipelines:
        if not pipeline.without_broker:
            continue
        cadence = pipeline.cadence_of(settings)
        if isinstance(cadence, Every):
            rounds.append(FallbackRound(pipeline.name, MISSED * cadence.seconds, pipeline.run))
        else:
            rounds.append(FallbackRound(pipeline.name, LATE_S, partial(_run_missed, pipeline, cadence), calendar=True))
    return tuple(rounds)


def _run_missed(pipeline: Pipeline[Any], cadence: Daily | Monthly) -> None:
    """Do the run that was due last, unless it was done or another process does it; blocks meanwhile."""
    runtime = slot.get()
    try:
        runtime.run(lambda: _run_under_lease(pipeline, cadence, runtime))
    except ImemError as error:
        log.warning("pipeline.skipped", pipeline=pipeline.name, reason=str(error))


async def _run_under_lease(pipeline: Pipeline[Any], cadence: Daily | Monthly, runtime: Runtime) -> None:
    lease = LeaderLease(runtime.database, f"pipeline {pipeline.name}")
    if not await lease.take():
        return
    try:
        # Under the lease: the process that held it before has kept its report.
        if await is_missed(runtime.database, pipeline.name, cadence):
            log.info("round_without_broker", task=pipeline.name)
            await together(lease.renew_until_cancelled(), _run_until_done(pipeline, runtime))
    finally:
        await lease.drop()


async def _run_until_done(pipeline: Pipeline[Any], runtime: Runtime) -> None:
    """Do runs until no work is left, each within the budget."""
    while (await pipeline.reported(runtime)).get("more"):
        pass


async def is_missed(database: Database, name: str, cadence: Daily | Monthly) -> bool:
    """
    Whether the run that was due last, at least :data:`LATE_S` ago, was not done.

    One that failed, or that left work, was not; its report says so. Without any report none was ever done.

    Raises:
        PostgresUnavailable, BudgetExceeded: the reports could not be read; retryable.
    """
    deadline = Deadline.after_ms(LOOK_MS)
    [row] = await database.named("database_now", {}, deadline=deadline)
    now: datetime = row["now"].astimezone(UTC)
    due = cadence.latest_before(now - timedelta(seconds=LATE_S))
    newest = next(iter(await stored_reports(database, name, deadline=deadline)), None)
    if newest is None or newest.started_at < due - CLOCKS:
        return True
    return newest.error is not None or bool(newest.report.get("more"))


class FallbackWatch:
    """
    Begins overdue runs, in one thread for each round, since a run may take a minute.

    Those that are due by the calendar have one thread: none is urgent, and one after the other they burden less.
    """

    def __init__(self, rounds: Sequence[FallbackRound]) -> None:
        self._over = threading.Event()
        watched = {one.name: [one] for one in rounds if not one.calendar}
        watched["calendar"] = [one for one in rounds if one.calendar]
        self._threads = [
            threading.Thread(target=self._watch, args=(of,), name=f"imem-{name}", daemon=True)
            for name, of in watched.items()
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the threads; a current run has :data:`STOP_WITHIN_S` seconds to finish."""
        self._over.set()
        until = time.monotonic() + STOP_WITHIN_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _watch(self, rounds: Sequence[FallbackRound]) -> None:
        while not self._over.wait(POLL_S):
            for one in rounds:
                if one.overdue and not self._over.is_set():
                    self._begin(one)

    def _begin(self, one: FallbackRound) -> None:
        one.note()
        if not one.calendar:
            log.info("round_without_broker", task=one.name)
        # In a thread of its own, so that an unexpected error ends this run alone.
        run = threading.Thread(target=one.work, name=f"imem-{one.name}-run", daemon=True)
        run.start()
        run.join()


def note_begun(rounds: Sequence[FallbackRound]) -> Callable[..., None]:
    """Return a receiver of Celery's ``task_prerun`` that records the runs that came through the broker."""
    by_name: Mapping[str, FallbackRound] = {one.name: one for one in rounds}

    def note(task: Any, **_: Any) -> None:
        one = by_name.get(task.name)
        if one is not None:
            one.note()

    return note
