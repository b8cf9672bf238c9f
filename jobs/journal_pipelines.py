"""The pipeline of the journal's upkeep: partitions of the audit for the months to come."""

from __future__ import annotations

from typing import Final

from imem.jobs.pipeline import Daily, Pipeline, Report
from imem.jobs.runtime import Runtime
from imem.journal.deadline import Deadline
from imem.journal.upkeep import make_audit_partitions


async def _upkeep(runtime: Runtime, until: Deadline) -> Report:
    return {"audit_partitions": await make_audit_partitions(runtime.database, deadline=until)}


# Moving a month's audit rows is most of the minute.
UPKEEP: Final = Pipeline(
    "journal.upkeep", _upkeep, Daily(2, 41), budget_ms=60_000, retry_max_s=600, without_broker=True
)
