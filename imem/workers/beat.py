"""Celery beat: sends the regular tasks. A second process would only send them twice."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from celery import signals
from celery.beat import PersistentScheduler

from imem.journal.clock import SystemClock
from imem.journal.settings import Settings
from imem.local.readiness import notify_ready
from imem.logs import configure
from imem.workers.celery_app import make_app


def _now() -> datetime:
    return SystemClock().now()


class SteadyScheduler(PersistentScheduler):  # type: ignore[misc]  # Celery has no types.
    """
    Celery's scheduler, for a machine whose clock may be set back.

    Celery sends a task when its interval has passed since the last run: after the clock was set back by an hour it
    would send nothing for an hour. Here a last run in the future is set to now. What is due is due by the clock
    of the stack, which a trial moves; when a request expires is the machine's time, with which workers compare it.
    """

    _heap: Any

    def tick(self, *args: Any, **named: Any) -> Any:
        """Send due tasks, and return the seconds until the next one."""
        for entry in self.schedule.values():
            entry.schedule.nowfun = _now
            now = entry.default_now()
            if entry.last_run_at > now:
                entry.last_run_at = now
                self._heap = None  # Forces recomputation of due times.
        return super().tick(*args, **named)


def run(settings: Settings) -> int:
    """Send tasks until SIGTERM; the times of the last runs are stored in ``<home>/beat``."""

    def log(**_: Any) -> None:
        configure(settings.log_level)

    def ready(**_: Any) -> None:
        notify_ready()

    signals.setup_logging.connect(log, weak=False)
    signals.beat_init.connect(ready, weak=False)
    folder = settings.home / "beat"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    beat = make_app(settings).Beat(
        schedule=str(folder / "schedule"), scheduler=SteadyScheduler, loglevel=settings.log_level, quiet=True
    )
    beat.run()
    return 0
