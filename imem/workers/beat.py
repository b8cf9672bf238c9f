"""Celery's clock: asks for the regular tasks. One of them is enough; a second one would only ask twice."""

from __future__ import annotations

from typing import Any

from celery import signals

from imem.journal.settings import Settings
from imem.local.readiness import tell_ready
from imem.logs import configure
from imem.workers.celery_app import make_app


def run(settings: Settings) -> int:
    """Ask for tasks until SIGTERM; when which was last asked for is kept in ``<home>/beat``."""

    def log(**_: Any) -> None:
        configure(settings.log_level)

    def ready(**_: Any) -> None:
        tell_ready()

    signals.setup_logging.connect(log, weak=False)
    signals.beat_init.connect(ready, weak=False)
    folder = settings.home / "beat"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    make_app(settings).Beat(schedule=str(folder / "schedule"), loglevel=settings.log_level, quiet=True).run()
    return 0
