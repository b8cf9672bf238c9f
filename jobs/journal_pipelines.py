"""The pipeline of the journal's upkeep: partitions of the audit for the months to come, and identities that ended."""

from __future__ import annotations

from typing import Final

from imem.jobs.pipeline import Daily, Pipeline, Report
from imem.jobs.runtime import Runtime
from imem.journal.deadline import Deadline
from imem.journal.upkeep import make_audit_partitions, remove_old_identities


async def _upkeep(runtime: Runtime, until: Deadline) -> Report:
    made = await make_audit_partitions(runtime.database, deadline=until)
    return {
        "audit_partitions": made,
        "identities_removed": await remove_old_identities(runtime.database, deadline=until),
    }


# Moving a month's audit rows is most of the minute.
UPKEEP: Final = Pipeline(
    "journal.upkeep", _upkeep, Daily(2, 41), budget_ms=60_000, retry_max_s=600, without_broker=True
)
