"""
The Celery worker that runs agents, one per process, from the module that ``IMEM_AGENT_PROGRAMS`` names.

It has a queue of its own, since an agent may run for hours. It is started only if that setting is set.
"""

from __future__ import annotations

from imem.checkpoints.orchestration import programs
from imem.journal.settings import Settings
from imem.workers import celery
from imem.workers.celery_app import AGENTS_QUEUE


def run(settings: Settings) -> int:
    """
    Run agents until SIGTERM.

    Raises:
        SettingsError: the module of programs cannot be imported.
    """
    programs.load(settings.agent_programs)
    return celery.run(settings, concurrency=settings.agent_processes, queue=AGENTS_QUEUE)
