"""Celery tasks and beat's schedule, derived from pipelines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from celery import Celery, Task
from celery.schedules import crontab

from imem.jobs.pipeline import Daily, Every, Pipeline
from imem.journal.errors import StoreUnavailable
from imem.journal.settings import Settings

RETRIES: Final = 5
"""Most retries of a task while a store is away; beat requests it anew in any case."""

EXPIRES_S: Final = 12 * 60 * 60
"""Expiry of a daily request in the broker, in seconds."""

MONTHLY_EXPIRES_S: Final = 14 * EXPIRES_S
"""That of a monthly or quarterly one, which no other soon makes up for."""


def register(app: Celery, pipelines: Iterable[Pipeline[Any]]) -> None:
    """Register a task for each pipeline under its name; one whose report says ``more`` requests another run."""
    for pipeline in pipelines:
        retry: dict[str, Any] = {}
        if pipeline.retry_max_s is not None:
            retry = {
                "autoretry_for": (StoreUnavailable,),
                "retry_backoff": True,
                "retry_backoff_max": pipeline.retry_max_s,
                "max_retries": RETRIES,
            }
        app.task(_body(pipeline), name=pipeline.name, bind=True, **retry)


def _body(pipeline: Pipeline[Any]) -> Any:
    def run(task: Task) -> dict[str, Any]:
        report = pipeline.run()
        if report.get("more"):
            task.delay()
        return dict(report)

    return run


def beat_schedule(pipelines: Iterable[Pipeline[Any]], settings: Settings) -> dict[str, dict[str, Any]]:
    """Return beat's schedule, by the names of the pipelines."""
    return {pipeline.name: _entry(pipeline, settings) for pipeline in pipelines}


def _entry(pipeline: Pipeline[Any], settings: Settings) -> dict[str, Any]:
    cadence = pipeline.cadence_of(settings)
    if isinstance(cadence, Every):
        # Expires before the next request, so that none pile up while no worker runs.
        return {"task": pipeline.name, "schedule": cadence.seconds, "options": {"expires": cadence.seconds}}
    if isinstance(cadence, Daily):
        days, expires_s = {"day_of_week": "sunday"} if cadence.sundays else {}, EXPIRES_S
    else:
        months = {"month_of_year": ",".join(str(month) for month in range(1, 13, cadence.MONTHS))}
        days, expires_s = {"day_of_month": "1", **months}, MONTHLY_EXPIRES_S
    when = crontab(hour=str(cadence.hour), minute=str(cadence.minute), **days)
    return {"task": pipeline.name, "schedule": when, "options": {"expires": expires_s}}
