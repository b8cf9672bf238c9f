"""Celery's clock: asks for the regular tasks. One of them is enough; a second one would only ask twice."""

from __future__ import annotations

from typing import Any

from celery import signals
from celery.beat import PersistentScheduler

from imem.journal.settings import Settings
from imem.local.readiness import notify_ready
from imem.logs import configure
from imem.workers.celery_app import make_app


class SteadyScheduler(PersistentScheduler):  # type: ignore[misc]  # Celery has no types.
    """
    Celery's scheduler, for a machine whose clock may be set back.

    Celery asks for a task when the clock has passed its last run by so much: after the clock was set back by an hour it
    would ask for nothing for an hour. Here a last run that lies in the future counts as one of now.
    """

    _heap: Any

    def tick(self, *args: Any, **named: Any) -> Any:
        """Ask for a task that is due, and return for how many seconds none will be."""
        for entry in self.schedule.values():
            now = entry.default_now()
            if entry.last_run_at > now:
                entry.last_run_at = now
                self._heap = None  # When each is due next is computed anew.
        return super().tick(*args, **named)


def run(settings: Settings) -> int:
    """Ask for tasks until SIGTERM; when which was last asked for is kept in ``<home>/beat``."""

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
