"""
The Celery shells of gates, and of what agents publish and do not push themselves.

Rows and memories say what is due, so that a round that is lost, or runs twice, costs a moment. The worker process hands
its runtime in when it starts (:data:`lent`).
"""

from __future__ import annotations

from typing import Protocol

import structlog
from celery import shared_task

import imem.jobs.runtime
from imem.jobs.runtime import Lent
from imem.journal.deadline import Deadline
from imem.journal.errors import BudgetExceeded, StoreUnavailable
from imem.sync.gates import GateSync
from imem.sync.synchronizer import Synchronizer

log = structlog.get_logger()

SYNC_GATES = "imem.sync.gates"

SYNC_GATES_EVERY_S = 60.0
"""How often beat asks for a round, in seconds: a gate's agents are synchronised half an hour before, to the minute."""

ROUND_BUDGET_MS = 50_000
"""After that a round begins no further gate, in milliseconds."""


FLUSH = "sync.flush"

FLUSH_EVERY_S = 5.0
"""How often beat asks for what is published and not pushed, in seconds: high findings are visible within ten."""

FLUSH_BUDGET_MS = 20_000
"""How long such a round may take, in milliseconds; the rest waits for the next."""


class Runtime(imem.jobs.runtime.Runtime, Protocol):
    """What gates need beside the journal; nothing where this process knows of no Valkey."""

    gate_sync: GateSync | None
    synchronizer: Synchronizer | None


lent: Lent[Runtime] = Lent()
"""What the tasks of this process run on."""


def attend_once() -> dict[str, int]:
    """Look after gates. A Postgres that is away is not waited for: the next round comes in a minute."""
    runtime = lent.get()
    gate_sync = runtime.gate_sync
    if gate_sync is None:
        return {}
    try:
        done = runtime.run(lambda: gate_sync.attend(deadline=Deadline.after_ms(ROUND_BUDGET_MS)))
    except (StoreUnavailable, BudgetExceeded) as error:
        log.warning("gates.not_attended", reason=str(error))
        return {}
    return {"gates": done}


def flush_once() -> dict[str, int]:
    """Push what agents have published. A Postgres that is away is not waited for: the next round comes in seconds."""
    runtime = lent.get()
    synchronizer = runtime.synchronizer
    if synchronizer is None:
        return {}
    try:
        done = runtime.run(lambda: synchronizer.flush_all(deadline=Deadline.after_ms(FLUSH_BUDGET_MS)))
    except (StoreUnavailable, BudgetExceeded) as error:
        log.warning("published.not_flushed", reason=str(error))
        return {}
    return {"items": done}


# Celery has no types; what it makes of these functions is called by name alone.
@shared_task(name=SYNC_GATES)  # type: ignore[untyped-decorator]
def sync_gates() -> dict[str, int]:
    """Look after gates, as beat asks for it."""
    return attend_once()


@shared_task(name=FLUSH)  # type: ignore[untyped-decorator]
def flush() -> dict[str, int]:
    """Push what agents have published, as beat asks for it."""
    return flush_once()
