"""
Celery shells of the checkpoints' clean-up.

A worker process hands its runtime in when it starts (:data:`lent`). What the task does is harmless to repeat, and a day
missed is made up for by the next.
"""

from __future__ import annotations

from typing import Protocol

from celery import shared_task

import imem.jobs.runtime
from imem.checkpoints.cleanup import Cleanup
from imem.checkpoints.orchestration.workflows import Workflows
from imem.jobs.runtime import Lent
from imem.journal.deadline import Deadline
from imem.journal.errors import StoreUnavailable

CLEANUP = "imem.checkpoints.cleanup"

CLEANUP_BUDGET_MS = 10 * 60_000
"""How long the clean-up may take, in milliseconds; what is left then waits for the next day."""


class Runtime(imem.jobs.runtime.Runtime, Protocol):
    """What the clean-up needs beside the journal."""

    cleanup: Cleanup


lent: Lent[Runtime] = Lent()
"""What the tasks of this process run on."""


# Celery has no types; what it makes of these functions is called by name alone.
@shared_task(  # type: ignore[untyped-decorator]
    name=CLEANUP, autoretry_for=(StoreUnavailable,), retry_backoff=True, retry_backoff_max=600, max_retries=5
)
def cleanup() -> dict[str, int]:
    """Remove the checkpoints of analyses, and the threads of workflows, that failed thirty days ago."""
    runtime = lent.get()
    deadline = Deadline.after_ms(CLEANUP_BUDGET_MS)
    swept = runtime.run(lambda: runtime.cleanup.cleanup_failed(deadline=deadline))
    threads = runtime.run(lambda: Workflows(runtime.database).cleanup_failed(deadline=deadline))
    return {
        "analyses": swept.analyses,
        "deleted": swept.deleted,
        "cleared": swept.cleared,
        "waiting": swept.waiting,
        "threads": threads,
    }
