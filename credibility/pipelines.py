"""Pipelines of credibility: settlement of due rows, and the nightly reconciliation."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final, Protocol

from imem.credibility.reconcile import reconcile
from imem.credibility.settling import QUEUE, settle_due
from imem.jobs.due import DueRule
from imem.jobs.pipeline import Daily, Every, Pipeline, Report
from imem.jobs.runtime import Runtime
from imem.journal.deadline import Deadline
from imem.journal.gateway import Gateway


class CredibilityRuntime(Runtime, Protocol):
    """The gateway that appends verdicts, and the half-life of agents whose record names none."""

    gateway: Gateway
    halflife_years: float


async def _settle(runtime: CredibilityRuntime, until: Deadline) -> Report:
    halflife_years = runtime.halflife_years
    return asdict(await settle_due(runtime.database, runtime.gateway, halflife_years=halflife_years, until=until))


async def _reconcile(runtime: CredibilityRuntime, _until: Deadline) -> Report:
    """Recompute everything from the journal, correct what differs, and report it."""
    report = await reconcile(runtime.database, runtime.gateway, halflife_years=runtime.halflife_years)
    return {"scores": report.scores, "differing": report.differing}


# A run that uses up its budget requests another, so that no task runs longer than the broker's visibility timeout.
SETTLE: Final = Pipeline(
    "credibility.settle",
    _settle,
    Every(15.0),
    budget_ms=60_000,
    retry_max_s=60,
    due=(
        *(
            DueRule(QUEUE, kind, f"{verb}.{kind}", "$key ? ($metric != null)")
            for kind in ("Outcome", "Finding")
            for verb in ("record", "correct")
        ),
        # An agent that becomes a baseline, or ceases to be one, changes what others are measured against.
        DueRule(QUEUE, "Agent", "record.Agent", "$key ? (exists($.groups.profile))"),
        # The verdict on a decision follows from its stance and from what it cites.
        DueRule(QUEUE, "Decision", "link.CITES", '$.from_key ? ($.from_label == "Decision")'),
        *(DueRule(QUEUE, "Decision", f"{verb}.Decision", "$key ? (exists($.core))") for verb in ("record", "correct")),
    ),
)

RECONCILE: Final = Pipeline("credibility.reconcile", _reconcile, Daily(3, 17), budget_ms=None, retry_max_s=600)
