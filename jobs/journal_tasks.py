"""
Celery shells of the journal's upkeep.

A worker process hands its runtime in when it starts (:data:`lent`). What the tasks do is harmless to repeat, and a
day missed is made up for by the next.
"""

from __future__ import annotations

from celery import shared_task

from imem.jobs.runtime import Lent, Runtime
from imem.journal.deadline import Deadline
from imem.journal.errors import StoreUnavailable
from imem.journal.upkeep import make_audit_partitions

UPKEEP = "imem.journal.upkeep"

UPKEEP_BUDGET_MS = 60_000
"""How long the upkeep may take; moving a month's audit rows is most of it."""


lent: Lent[Runtime] = Lent()
"""What the tasks of this process run on."""


# Celery has no types; what it makes of these functions is called by name alone.
@shared_task(  # type: ignore[untyped-decorator]
    name=UPKEEP, autoretry_for=(StoreUnavailable,), retry_backoff=True, retry_backoff_max=600, max_retries=5
)
def upkeep() -> dict[str, int]:
    """Make the audit's partitions of the months to come."""
    runtime = lent.get()
    made = runtime.run(lambda: make_audit_partitions(runtime.database, deadline=Deadline.after_ms(UPKEEP_BUDGET_MS)))
    return {"audit_partitions": made}
