"""The pipeline that moves lifecycle rows: one for all kinds, each of which its package declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final, Protocol

from imem.jobs.lifecycle import Lifecycle, LifecycleRuntime, advance_due
from imem.jobs.pipeline import Every, Pipeline, Report
from imem.journal.deadline import Deadline


class AdvancingRuntime(LifecycleRuntime, Protocol):
    """A runtime with the kinds of lifecycle rows, by name."""

    lifecycles: Mapping[str, Lifecycle[Any]]


async def _advance(runtime: AdvancingRuntime, until: Deadline) -> Report:
    return asdict(await advance_due(runtime, runtime.lifecycles, until=until))


# A person who answers sees the effect within seconds; a timer may be late by as much.
ADVANCE: Final = Pipeline("jobs.advance", _advance, Every(3.0), budget_ms=45_000, without_broker=True)
