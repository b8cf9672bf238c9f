"""Pipelines of alerts: sending those that are due, and watching the memory of each Valkey, denials and late scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Final, Protocol

from imem.alerts.access_watch import watch_access
from imem.alerts.memory_watch import watch_memory
from imem.alerts.notifiers import Notifier
from imem.alerts.sending import send_due
from imem.jobs.pipeline import Every, Pipeline, Report
from imem.jobs.runtime import Runtime
from imem.journal.deadline import Deadline


class AlertRuntime(Runtime, Protocol):
    """A runtime with the channels of alerts and the addresses of the Valkeys, each by name."""

    notifiers: Mapping[str, Notifier]
    valkeys: Mapping[str, str]


async def _send(runtime: AlertRuntime, until: Deadline) -> Report:
    return asdict(await send_due(runtime.database, runtime.notifiers, until=until))


async def _watch_memory(runtime: AlertRuntime, until: Deadline) -> Report:
    return await watch_memory(runtime.database, runtime.valkeys, deadline=until)


async def _watch_access(runtime: Runtime, until: Deadline) -> Report:
    return await watch_access(runtime.database, deadline=until)


# An alert is sent within half a minute.
SEND_ALERTS: Final = Pipeline("alerts.send", _send, Every(10.0), budget_ms=20_000, without_broker=True)

# Without the broker as well: a full broker is the most important alert, and cannot carry the request.
WATCH_MEMORY: Final = Pipeline("alerts.watch_memory", _watch_memory, Every(30.0), budget_ms=10_000, without_broker=True)

WATCH_ACCESS: Final = Pipeline("alerts.watch_access", _watch_access, Every(60.0), budget_ms=10_000, without_broker=True)
