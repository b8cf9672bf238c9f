"""
Pipelines: one declaration each of a step, its cadence, and the events that make work for it.

The Celery task, the entry of beat, the fallback round and the request after an event are derived from the declaration
(:mod:`imem.jobs.celery_tasks`, :mod:`imem.jobs.fallback_rounds`, the applier). Rows in Postgres say what is due, so
that a lost, repeated or killed run is made up for by the next.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final, Generic, TypeVar

import structlog

from imem.jobs.due import DueRule
from imem.jobs.reports import keep_report
from imem.jobs.runtime import Runtime, slot
from imem.journal.deadline import Deadline
from imem.journal.errors import BudgetExceeded, StoreUnavailable
from imem.journal.settings import Settings

log = structlog.get_logger()

R = TypeVar("R", bound=Runtime)

Report = Mapping[str, Any]
"""The report of a run, as plain values. A true ``more`` means that work is left, and requests another run."""

REPORT_OF_NOTHING: Final[Report] = {}


@dataclass(frozen=True, slots=True)
class Every:
    """A fixed interval, in seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Daily:
    """Once a day, or with *sundays* once a week, in UTC."""

    hour: int
    minute: int
    sundays: bool = False

    def latest_before(self, moment: datetime) -> datetime:
        """Return when a run was due last at *moment*, which is in UTC."""
        due = moment.replace(hour=self.hour, minute=self.minute, second=0, microsecond=0)
        if due > moment:
            due -= timedelta(days=1)
        return due - timedelta(days=due.isoweekday() % 7) if self.sundays else due


@dataclass(frozen=True, slots=True)
class Monthly:
    """On the first day of each month, in UTC."""

    MONTHS: ClassVar[int] = 1
    """So many months from one run to the next."""

    hour: int
    minute: int

    def latest_before(self, moment: datetime) -> datetime:
        """Return when a run was due last at *moment*, which is in UTC."""
        due = self._first(moment)
        return due if due <= moment else self._first(due - timedelta(days=1))

    def _first(self, moment: datetime) -> datetime:
        """Return when a run is due in the month or quarter of *moment*."""
        month = moment.month - (moment.month - 1) % self.MONTHS
        return moment.replace(month=month, day=1, hour=self.hour, minute=self.minute, second=0, microsecond=0)


class Quarterly(Monthly):
    """On the first day of January, April, July and October, in UTC."""

    MONTHS: ClassVar[int] = 3


Cadence = Every | Daily | Monthly


@dataclass(frozen=True, slots=True)
class Pipeline(Generic[R]):
    """
    Periodic work of a worker process.

    Attributes:
        name: of the Celery task, ``<package>.<verb>``.
        step: does one run; takes the runtime and a deadline, and returns a report.
        cadence: when beat requests a run; a function of the settings where it depends on them.
        budget_ms: after so many milliseconds a run begins nothing more; None: no limit.
        retry_max_s: longest pause between retries while a store is away, in seconds; None: a run that finds a store
            away ends, is logged, and the next one makes up for it.
        without_broker: whether worker processes also begin runs by themselves while none come through the broker.
        due: which events make rows of its queue due; the applier requests a run at once after each.
        reports: how many of its reports are kept.
    """

    name: str
    step: Callable[[R, Deadline], Awaitable[Report]]
    cadence: Cadence | Callable[[Settings], Cadence]
    budget_ms: float | None
    retry_max_s: int | None = None
    without_broker: bool = False
    due: tuple[DueRule, ...] = ()
    reports: int = 1

    @property
    def wakes_on(self) -> frozenset[str]:
        """Kinds of events after which a run is requested at once."""
        return frozenset(rule.event for rule in self.due)

    def cadence_of(self, settings: Settings) -> Cadence:
        """Return the cadence under *settings*."""
        return self.cadence if isinstance(self.cadence, Cadence) else self.cadence(settings)

    def run(self) -> Report:
        """
        Do one run in this worker process; blocks meanwhile.

        Raises:
            StoreUnavailable: a store is away, and the task is retried.
            RuntimeError: the process has no runtime.
        """
        runtime = slot.get()
        try:
            report: Report = runtime.run(lambda: self.reported(runtime))
        except (StoreUnavailable, BudgetExceeded) as error:
            if self.retry_max_s is not None:
                raise
            log.warning("pipeline.skipped", pipeline=self.name, reason=str(error))
            return REPORT_OF_NOTHING
        return report

    async def reported(self, runtime: R) -> Report:
        """
        Do one run in the runtime's loop, and keep its report, or its error.

        Raises:
            ImemError: the step's.
        """
        begun_s = time.monotonic()
        until = Deadline.never() if self.budget_ms is None else Deadline.after_ms(self.budget_ms)
        report, failure = REPORT_OF_NOTHING, None
        try:
            report = await self.step(runtime, until)
        except Exception as error:  # raised again: the report names it
            failure = f"{type(error).__name__}: {error}"
            raise
        finally:
            took_s = time.monotonic() - begun_s
            await keep_report(runtime.database, self.name, report, took_s=took_s, error=failure, keep=self.reports)
        return report
