"""
Pipelines of pauses: the manager's round, and retention; and the Celery task that runs one agent.

That task is no pipeline: a message names the agent, and the agent's row says whether the message is current.
"""

from __future__ import annotations

from typing import Final, Protocol

import structlog
from celery import Celery

from imem.checkpoints.orchestration.orchestrator import DispatchMessage
from imem.checkpoints.pauses.assembly import PauseServices
from imem.jobs.pipeline import Daily, Every, Pipeline, Report
from imem.jobs.runtime import Runtime, slot
from imem.journal.deadline import Deadline
from imem.journal.errors import UNANSWERED

log = structlog.get_logger()

RUN_AGENT: Final = "checkpoints.run_agent"


class PauseRuntime(Runtime, Protocol):
    """Pauses over this process's stores."""

    pause_services: PauseServices


async def _manage(runtime: PauseRuntime, until: Deadline) -> Report:
    report = await runtime.pause_services.manager.round(deadline=until)
    return {"done": report.done, "troubles": report.troubles}


async def _retire(runtime: PauseRuntime, until: Deadline) -> Report:
    """Archive or remove old pauses, plans, batches, correlations and failures."""
    return await runtime.pause_services.manager.retire(deadline=until)


# A crash is repaired within a few rounds.
MANAGE: Final = Pipeline("checkpoints.manage", _manage, Every(3.0), budget_ms=60_000, without_broker=True)

RETIRE: Final = Pipeline(
    "checkpoints.retire", _retire, Daily(2, 23), budget_ms=10 * 60_000, retry_max_s=600, without_broker=True
)


def run_agent(analysis_id: str, agent_type: str, dispatch: int) -> str:
    """Run an agent to its end, if its message is current."""
    runtime: PauseRuntime = slot.get()
    message = DispatchMessage(analysis_id, agent_type, dispatch)
    try:
        return runtime.run(lambda: runtime.pause_services.runner.run(message))
    except UNANSWERED as error:
        # The manager continues from its row.
        log.warning("agent_run_broken_off", analysis_id=analysis_id, agent=agent_type, error=error.message)
        return "broken off"


def register_run_agent(app: Celery) -> None:
    """Register :func:`run_agent` as a task of *app*."""
    app.task(run_agent, name=RUN_AGENT)
