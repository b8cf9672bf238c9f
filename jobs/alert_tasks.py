"""
The Celery shell of sending alerts.

Beat asks for a pass every ten seconds. Rows say what is due, so that a pass that is lost, runs twice, or is killed
half-way costs a moment. The worker process hands its runtime in when it starts (:data:`lent`), and begins passes itself
while the broker is away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Protocol

import structlog
from celery import shared_task

import imem.jobs.runtime
from imem.alerts.memory_watch import watch_memory
from imem.alerts.notifiers import Notifier
from imem.alerts.sending import send_due
from imem.jobs.runtime import Lent
from imem.journal.deadline import Deadline
from imem.journal.errors import BudgetExceeded, StoreUnavailable

log = structlog.get_logger()

SEND_ALERTS = "checkpoints.send_alerts"

SEND_EVERY_S = 10.0
"""How often beat asks for a pass, in seconds: an alert of a failure leaves within half a minute."""

PASS_BUDGET_MS = 20_000
"""After that a pass begins no further message; beat asks for the next anyway."""


WATCH_MEMORY = "checkpoints.watch_memory"

WATCH_MEMORY_EVERY_S = 30.0
"""How often the memory of each Valkey is looked at, in seconds."""

WATCH_MEMORY_BUDGET_MS = 10_000


class Runtime(imem.jobs.runtime.Runtime, Protocol):
    """What alerts need beside the journal: the channels, and the addresses of the Valkeys, by name."""

    notifiers: Mapping[str, Notifier]
    valkeys: Mapping[str, str]


lent: Lent[Runtime] = Lent()
"""What the tasks of this process run on."""


def send_once() -> dict[str, int]:
    """Send what is due. A Postgres that is away is not waited for: the next pass comes in ten seconds."""
    runtime = lent.get()
    try:
        done = runtime.run(
            lambda: send_due(runtime.database, runtime.notifiers, until=Deadline.after_ms(PASS_BUDGET_MS))
        )
    except (StoreUnavailable, BudgetExceeded) as error:
        log.warning("alerts.not_sent", reason=str(error))
        return {}
    return asdict(done)


def watch_memory_once() -> dict[str, float]:
    """Look at the memory of each Valkey; a Postgres that is away hears of it with the next round."""
    runtime = lent.get()
    try:
        return runtime.run(
            lambda: watch_memory(runtime.database, runtime.valkeys, deadline=Deadline.after_ms(WATCH_MEMORY_BUDGET_MS))
        )
    except (StoreUnavailable, BudgetExceeded) as error:
        log.warning("alerts.memory_not_watched", reason=str(error))
        return {}


# Celery has no types; what it makes of this function is called by name alone.
@shared_task(name=SEND_ALERTS)  # type: ignore[untyped-decorator]
def send_alerts() -> dict[str, int]:
    """Send what is due, as beat asks for it."""
    return send_once()


@shared_task(name=WATCH_MEMORY)  # type: ignore[untyped-decorator]
def watch_valkey_memory() -> dict[str, float]:
    """Look at the memory of each Valkey, as beat asks for it."""
    return watch_memory_once()
