"""
The Celery shell of gates.

Beat asks for a round every minute. Rows say which gates are due, so that a round that is lost, or runs twice, costs a
minute. The worker process hands its runtime in when it starts (:data:`lent`).
"""

from __future__ import annotations

from typing import Protocol

import structlog
from celery import shared_task

import journal.runtime
from journal.deadline import Deadline
from journal.errors import BudgetExceeded, StoreUnavailable
from journal.runtime import Lent
from sync.gates import GateSync

log = structlog.get_logger()

SYNC_GATES = "sync.gates"

SYNC_GATES_EVERY_S = 60.0
"""How often beat asks for a round, in seconds: a gate's agents are synchronised half an hour before, to the minute."""

ROUND_BUDGET_MS = 50_000
"""After that a round begins no further gate, in milliseconds."""


class Runtime(journal.runtime.Runtime, Protocol):
    """What gates need beside the journal; nothing where this process knows of no Valkey."""

    gate_sync: GateSync | None


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


# Celery has no types; what it makes of this function is called by name alone.
@shared_task(name=SYNC_GATES)  # type: ignore[untyped-decorator]
def sync_gates() -> dict[str, int]:
    """Look after gates, as beat asks for it."""
    return attend_once()
