"""
Celery shells of pauses: a manager's round, the putting aside of what is old, and the running of one agent.

Rows decide what there is to do; a task that is lost, sent twice, or killed half-way costs a moment. The worker process
hands its runtime in when it starts (:data:`lent`), and begins rounds itself while the broker is away.
"""

from __future__ import annotations

from typing import Any, Protocol

import structlog
from celery import shared_task

import imem.jobs.runtime
from imem.checkpoints.orchestration.orchestrator import Message
from imem.checkpoints.pauses.assembly import Pausing
from imem.jobs.runtime import Lent
from imem.journal.deadline import Deadline
from imem.journal.errors import BudgetExceeded, OutcomeUnknown, StoreUnavailable

log = structlog.get_logger()

MANAGE = "checkpoints.manage"
RETIRE = "checkpoints.retire"
RUN_AGENT = "checkpoints.run_agent"

MANAGE_EVERY_S = 3.0
"""How often beat asks for a manager's round, in seconds: a crash is made up for in a few of them."""

ROUND_BUDGET_MS = 60_000
"""After that a round begins nothing more, in milliseconds."""

RETIRE_BUDGET_MS = 10 * 60_000
"""How long putting aside may take, in milliseconds; the rest waits for the next day."""


class Runtime(imem.jobs.runtime.Runtime, Protocol):
    """What pauses need beside the journal; nothing where this process knows of no Valkey."""

    pausing: Pausing | None


lent: Lent[Runtime] = Lent()
"""What the tasks of this process run on."""


def manage_once() -> dict[str, Any]:
    """Do a manager's round. A Postgres that is away is not waited for: the next round comes in seconds."""
    runtime = lent.get()
    pausing = runtime.pausing
    if pausing is None:
        return {}
    told = runtime.run(lambda: pausing.manager.round(deadline=Deadline.after_ms(ROUND_BUDGET_MS)))
    return {"done": told.done, "troubles": told.troubles}


# Celery has no types; what it makes of these functions is called by name alone.
@shared_task(name=MANAGE)  # type: ignore[untyped-decorator]
def manage() -> dict[str, Any]:
    """Do a manager's round, as beat asks for it."""
    return manage_once()


@shared_task(  # type: ignore[untyped-decorator]
    name=RETIRE, autoretry_for=(StoreUnavailable,), retry_backoff=True, retry_backoff_max=600, max_retries=5
)
def retire() -> dict[str, int]:
    """Put aside pauses, plans, batches, correlations and failures that are old."""
    runtime = lent.get()
    pausing = runtime.pausing
    if pausing is None:
        return {}
    return runtime.run(lambda: pausing.manager.retire(deadline=Deadline.after_ms(RETIRE_BUDGET_MS)))


@shared_task(name=RUN_AGENT)  # type: ignore[untyped-decorator]
def run_agent(analysis_id: str, agent_type: str, dispatch: int) -> str:
    """Run an agent to its end, if the message that names it still counts."""
    runtime = lent.get()
    pausing = runtime.pausing
    if pausing is None:
        return "dropped"
    message = Message(analysis_id, agent_type, dispatch)
    try:
        return runtime.run(lambda: pausing.runner.run(message))
    except (StoreUnavailable, BudgetExceeded, OutcomeUnknown) as error:
        # What its row says by now is what the manager goes on from.
        log.warning("agent_run_broken_off", analysis_id=analysis_id, agent=agent_type, error=error.message)
        return "broken off"
