"""Pipelines of synchronisation: gates that open soon, and items that agents do not push themselves."""

from __future__ import annotations

from typing import Final, Protocol

from imem.jobs.pipeline import Every, Pipeline, Report
from imem.jobs.runtime import Runtime
from imem.journal.deadline import Deadline
from imem.journal.notifications.wakeups import APPLIER_INTERVAL_S
from imem.journal.settings import Settings
from imem.sync.gates import GateSync
from imem.sync.snapshots import Snapshots
from imem.sync.synchronizer import Synchronizer

FLUSH_EVERY_S: Final = 5.0
"""Interval of flushes, in seconds: high findings are visible within ten."""


class SyncRuntime(Runtime, Protocol):
    """Synchronisation over this process's stores."""

    gate_sync: GateSync
    synchronizer: Synchronizer
    snapshots: Snapshots


async def _attend(runtime: SyncRuntime, until: Deadline) -> Report:
    return {"gates": await runtime.gate_sync.run_due(deadline=until)}


async def _flush(runtime: SyncRuntime, until: Deadline) -> Report:
    return {"items": await runtime.synchronizer.flush_all(deadline=until)}


async def _take(runtime: SyncRuntime, until: Deadline) -> Report:
    return {"snapshots": await runtime.snapshots.take_due(deadline=until)}


def _flush_cadence(settings: Settings) -> Every:
    """Where priorities are switched off, flushes have the applier's interval."""
    return Every(FLUSH_EVERY_S if settings.sync_priority else APPLIER_INTERVAL_S)


# A gate's agents are synchronised half an hour before, to the minute.
SYNC_GATES: Final = Pipeline("sync.gates", _attend, Every(60.0), budget_ms=50_000, without_broker=True)

FLUSH: Final = Pipeline("sync.flush", _flush, _flush_cadence, budget_ms=20_000, without_broker=True)

# Sides may argue at once; what they argue from is fixed seconds later.
TAKE_SNAPSHOTS: Final = Pipeline("sync.snapshots", _take, Every(5.0), budget_ms=20_000, without_broker=True)
