"""
The clock of Gate 6, and the pipeline that opens a package when it is due.

The clock is one lifecycle row: it says up to which event outcomes were counted, and when a package was opened last, or
nothing waited. A package is opened in the transaction in which the clock starts anew, under the lock of its row: two
workers open one, and a crash leaves the clock as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

import structlog

from imem.gates.learning.package import ITEM_KINDS, KIND, LEARNING, compose
from imem.gates.learning.trigger import COOLDOWN, Due, Urgency, due_package
from imem.jobs.lifecycle import Effects, LifecycleRow, finish, move
from imem.jobs.pipeline import Every, Pipeline, Report
from imem.jobs.state_machine import StateMachine, Transition
from imem.journal.deadline import Deadline
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.rows import execute, rows
from imem.review.states import ANSWERABLE, TaskState
from imem.review.tasks import ReviewRuntime, open_task, withdraw_task

log = structlog.get_logger()

CLOCK: Final = {"kind": "learning_clock", "key": "gate 6"}
"""The clock's lifecycle row."""

OPEN_MS: Final = 40_000
"""How long the opening of a package may take, in milliseconds."""


class ClockState(StrEnum):
    """States of the clock."""

    COUNTING = "counting"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockFacts:
    """The fact that the guard checks: how long the clock has run."""

    since: timedelta


def _rested(facts: ClockFacts) -> str | None:
    return None if facts.since >= COOLDOWN else f"The last validation was less than {COOLDOWN.days} days ago."


CLOCK_STATES: Final[StateMachine[ClockState, ClockFacts]] = StateMachine(
    "learning clock",
    Transition("validate", ClockState.COUNTING, ClockState.COUNTING, _rested, "a package is opened, or nothing waits"),
    initial="not started",
)


async def open_due_package(runtime: ReviewRuntime) -> Report:
    """
    Open a package if it is due; empty if it is not.

    Raises:
        PostgresUnavailable: nothing was opened; retryable.
    """
    until = Deadline.after_ms(OPEN_MS)
    async with runtime.database.transaction(until) as conn:
        await execute(conn, "learning_start", {**CLOCK, "state": ClockState.COUNTING.value})
        [found] = await rows(conn, "learning_clock", CLOCK)
        clock = LifecycleRow.of(found)
        since = found["now"] - clock.entered_at
        if since < COOLDOWN:
            return {}
        [counted] = await rows(conn, "learning_outcomes", {"after": clock.data["position"]})
        due = due_package(counted["outcomes"], since)
        tasks = await rows(conn, "learning_tasks", {"kind": KIND, "states": [state.value for state in ANSWERABLE]})
        # One package at a time; an answer that was given has its effect before its items could be listed again.
        if due is None or any(row["state"] == TaskState.OPEN or row["requested"] for row in tasks):
            return {}
        effects = Effects()
        for row in tasks:
            effects += await withdraw_task(conn, row["key"], "The next package lists its items again.")
        number = clock.data["number"] + 1
        report, more = await _open(runtime, conn, number, due)
        data = {
            "position": counted["position"] or clock.data["position"],
            "number": number if report["items"] else number - 1,
        }
        reason = f"After {due.outcomes} outcomes and {since.days} days {report['items']} items go to a person."
        await move(conn, CLOCK_STATES, clock, ClockState.COUNTING, ClockFacts(since=since), data=data, reason=reason)
        await finish(conn, effects + more, runtime.gateway, until)
    log.info("learning.validation", **report)
    return report


async def _open(runtime: ReviewRuntime, conn: Connection, number: int, due: Due) -> tuple[dict[str, int], Effects]:
    """Open a package, unless nothing waits; return how many items it has, and how many are left."""
    waiting = [(kind, item) for kind in ITEM_KINDS.values() for item in await kind.waiting(conn)]
    if not waiting:
        return {"items": 0, "left": 0}, Effects()
    package = compose(number, due, waiting)
    rank = 0 if due.urgency is Urgency.HIGH else 1
    _, effects = await open_task(runtime, conn, LEARNING, package, task_id=f"learning-{number}", rank=rank)
    return {"items": len(package.items), "left": package.left}, effects


async def _validate(runtime: ReviewRuntime, _until: Deadline) -> Report:
    return await open_due_package(runtime)


VALIDATE_LEARNING: Final[Pipeline[ReviewRuntime]] = Pipeline(
    "gates.learning", _validate, Every(300.0), budget_ms=45_000, without_broker=True, reports=100
)
