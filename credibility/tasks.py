"""
Celery shells of the credibility pipeline: each calls one plain function and returns what it did.

Rows in Postgres decide what there is to do, so that a task that is lost, sent twice, or killed half-way costs a moment
at most. The worker process hands its runtime in when it starts (:data:`lent`).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Protocol

from celery import shared_task

import imem.jobs.runtime
from imem.credibility import reconcile as reconciling
from imem.credibility.settling import settle_due
from imem.jobs.runtime import Lent
from imem.journal.deadline import Deadline
from imem.journal.errors import StoreUnavailable
from imem.journal.gateway import Gateway

SETTLE = "imem.credibility.settling"
RECONCILE = "imem.credibility.reconcile"

SETTLE_BUDGET_MS = 60_000
"""After that a settle task ends and asks for another one, so that no task outlives the broker's patience."""


class Runtime(imem.jobs.runtime.Runtime, Protocol):
    """What the pipeline needs beside the journal: the way in for its verdicts, and what agents' records leave open."""

    gateway: Gateway
    halflife_years: float


lent: Lent[Runtime] = Lent()
"""What the tasks of this process run on."""


# Celery has no types; what it makes of these functions is called by name alone.
@shared_task(  # type: ignore[untyped-decorator]
    name=SETTLE, autoretry_for=(StoreUnavailable,), retry_backoff=True, retry_backoff_max=60, max_retries=5
)
def settle() -> dict[str, Any]:
    """Settle what is due; where more is left at the end of the budget, ask for another run."""
    runtime = lent.get()
    done = runtime.run(
        lambda: settle_due(
            runtime.database,
            runtime.gateway,
            halflife_years=runtime.halflife_years,
            until=Deadline.after_ms(SETTLE_BUDGET_MS),
        )
    )
    if done.more:
        settle.delay()
    return asdict(done)


@shared_task(  # type: ignore[untyped-decorator]
    name=RECONCILE, autoretry_for=(StoreUnavailable,), retry_backoff=True, retry_backoff_max=600, max_retries=5
)
def reconcile() -> dict[str, Any]:
    """Recompute everything from the journal, mend what differs, and report it."""
    runtime = lent.get()
    report = runtime.run(
        lambda: reconciling.reconcile(runtime.database, runtime.gateway, halflife_years=runtime.halflife_years)
    )
    return {"scores": report.scores, "differing": report.differing}
