"""The pipeline of the checkpoints' clean-up; idempotent."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final, Protocol

from imem.checkpoints.cleanup import Cleanup
from imem.checkpoints.orchestration.workflows import Workflows
from imem.jobs.pipeline import Daily, Pipeline, Report
from imem.jobs.runtime import Runtime
from imem.journal.deadline import Deadline


class CleanupRuntime(Runtime, Protocol):
    """The clean-up over this process's stores."""

    cleanup: Cleanup


async def _cleanup(runtime: CleanupRuntime, until: Deadline) -> Report:
    """Remove the checkpoints of analyses, and the threads of workflows, that failed thirty days ago."""
    swept = await runtime.cleanup.cleanup_failed(deadline=until)
    threads = await Workflows(runtime.database).cleanup_failed(deadline=until)
    return {**asdict(swept), "threads": threads}


# What is left at the end of the budget waits for the next day. It needs the broker: that is the Valkey it clears.
CLEANUP: Final = Pipeline("checkpoints.cleanup", _cleanup, Daily(2, 53), budget_ms=10 * 60_000, retry_max_s=600)
