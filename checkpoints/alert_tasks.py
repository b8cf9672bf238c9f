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

import journal.runtime
from checkpoints.alert_sending import send_due
from checkpoints.notifiers import Notifier
from journal.deadline import Deadline
from journal.errors import BudgetExceeded, StoreUnavailable
from journal.runtime import Lent

log = structlog.get_logger()

SEND_ALERTS = "checkpoints.send_alerts"

SEND_EVERY_S = 10.0
"""How often beat asks for a pass, in seconds: an alert of a failure leaves within half a minute."""

PASS_BUDGET_MS = 20_000
"""After that a pass begins no further message; beat asks for the next anyway."""


class Runtime(journal.runtime.Runtime, Protocol):
    """What sending needs beside the journal: the channels, by name."""

    notifiers: Mapping[str, Notifier]


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


# Celery has no types; what it makes of this function is called by name alone.
@shared_task(name=SEND_ALERTS)  # type: ignore[untyped-decorator]
def send_alerts() -> dict[str, int]:
    """Send what is due, as beat asks for it."""
    return send_once()
