"""
State machines of pauses and of human gates, with their guards, and classes of failures.

Pure: no clock, no store. In :data:`PAUSE_STATES`, ``None`` stands for RUNNING, an analysis without an open pause::

    RUNNING ── PAUSING ── PAUSED ── RESUMING ── RESUMED (RUNNING)
                  ↑          │  │        │
                  └──────────┼──┼────────┘  a failure while resuming
                             │  └── EXPIRED  by a human
                             └── STALE ── RESUMING  by a human
                                     └── EXPIRED  by time

A failure of class 3 is no transition: it ends the analysis, and its pause with it
(:func:`imem.checkpoints.pauses.transitions.fail`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from imem.jobs.state_machine import StateMachine, Transition

AUTO_RESUMES: Final = 3
"""Automatic resumes of one pause at most."""


class PauseStatus(StrEnum):
    """States of a pause."""

    PAUSING = "PAUSING"
    PAUSED = "PAUSED"
    RESUMING = "RESUMING"
    RESUMED = "RESUMED"
    STALE = "STALE"
    EXPIRED = "EXPIRED"


class Trigger(StrEnum):
    """Cause of a pause."""

    AUTO_TIER2 = "AUTO_TIER2"
    """A failure of class 2."""
    MANUAL = "MANUAL"
    GATE_TIMEOUT = "GATE_TIMEOUT"
    GATE_REJECTION = "GATE_REJECTION"
    """A soft rejection; a hard one fails the analysis."""
    AUTO_BATCH_CORRELATION = "AUTO_BATCH_CORRELATION"


class Initiator(StrEnum):
    """Initiator of a transition."""

    HUMAN = "human"
    AUTOMATIC = "automatic"
    """An external cause was reported as resolved."""
    SYSTEM = "system"
    """The manager: sagas, timers, failures."""


class FailureClass(StrEnum):
    """Effect of a failure: classes 1, 2 and 3 of the specification."""

    RETRY = "retry"
    PAUSE = "pause"
    FAIL = "fail"


class Gate(StrEnum):
    """States of a gate, as the manager reads them."""

    WAITING_FOR_HUMAN = "WAITING_FOR_HUMAN"
    VALIDATED = "VALIDATED"
    SOFT_REJECTED = "SOFT_REJECTED"
    HARD_REJECTED = "HARD_REJECTED"
    TIMED_OUT = "TIMED_OUT"


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardContext:
    """
    The facts that guards check; a fact that is not stated counts against the transition.

    Attributes:
        by: the initiator.
        now: the present moment, for guards that depend on time.
        trigger: cause of the pause.
        failure: class of the failure behind it.
        gate: state of the gate that causes the pause.
        gate_waiting: whether a gate of the analysis waits for a human.
        stopped: whether no agent runs any more, or those that do are fenced off.
        verified: whether both snapshots of every begun agent were read back and verified.
        cause_resolved: whether every failure of the pause is external and resolved.
        attempts: automatic resumes before.
        recovered: whether the memory of every agent that restarts is verified.
        scheduled: whether the orchestrator has the tasks.
        failed: whether there is a further failure.
        stale_at, expires_at: when the pause becomes stale and expires.
    """

    by: Initiator
    now: datetime | None = None
    trigger: Trigger | None = None
    failure: FailureClass | None = None
    gate: Gate | None = None
    gate_waiting: bool = False
    stopped: bool = False
    verified: bool = False
    cause_resolved: bool = False
    attempts: int = 0
    recovered: bool = False
    scheduled: bool = False
    failed: bool = False
    stale_at: datetime | None = None
    expires_at: datetime | None = None


def _may_pause(facts: GuardContext) -> str | None:
    if facts.gate_waiting:
        return "A gate of the analysis waits for a person; answer it first."
    match facts.trigger:
        case Trigger.MANUAL:
            return None if facts.by is Initiator.HUMAN else "Only a person pauses without a failure."
        case Trigger.AUTO_TIER2:
            return None if facts.failure is FailureClass.PAUSE else "Only a failure of class 2 pauses."
        case Trigger.GATE_TIMEOUT:
            return None if facts.gate is Gate.TIMED_OUT else "The gate's time is not over."
        case Trigger.GATE_REJECTION:
            return None if facts.gate is Gate.SOFT_REJECTED else "Only a soft rejection pauses."
        case Trigger.AUTO_BATCH_CORRELATION:
            return None if facts.by is Initiator.SYSTEM else "Only correlated failures pause so."
        case None:
            return "Nothing says why it should be paused."


def _may_append(facts: GuardContext) -> str | None:
    return None if facts.failed else "There is no further failure to add."


def _may_settle(facts: GuardContext) -> str | None:
    if not facts.stopped:
        return "An agent is still running."
    return None if facts.verified else "The snapshots of its agents are not proven."


def _may_resume(facts: GuardContext) -> str | None:
    if facts.by is Initiator.HUMAN:
        return None
    if facts.by is Initiator.SYSTEM or not facts.cause_resolved:
        return "Only a person resumes it: its cause does not lie outside, or is not resolved."
    if facts.attempts >= AUTO_RESUMES:
        return f"It was resumed {AUTO_RESUMES} times without a person; now a person has to."
    return None


def _may_run(facts: GuardContext) -> str | None:
    if not facts.recovered:
        return "The memory of an agent is not proven."
    return None if facts.scheduled else "Its tasks are not scheduled."


def _may_pause_again(facts: GuardContext) -> str | None:
    return None if facts.failed else "Nothing failed while it was resumed."


def _by_person(facts: GuardContext) -> str | None:
    return None if facts.by is Initiator.HUMAN else "Only a person may do that."


def _may_go_stale(facts: GuardContext) -> str | None:
    over = facts.now is not None and facts.stale_at is not None and facts.now >= facts.stale_at
    return None if over else "Its time is not over."


def _may_expire(facts: GuardContext) -> str | None:
    over = facts.now is not None and facts.expires_at is not None and facts.now >= facts.expires_at
    return None if over else "A stale pause expires by itself when its time is over; resume it, or let it expire."


PAUSE_STATES: Final[StateMachine[PauseStatus, GuardContext]] = StateMachine(
    "analysis",
    Transition(
        "pause", None, PauseStatus.PAUSING, _may_pause,
        "a failure that pauses, a person, a gate that nobody answered, a soft rejection at a gate",
    ),
    Transition("fail", PauseStatus.PAUSING, PauseStatus.PAUSING, _may_append, "a further failure: it joins"),
    Transition(
        "settle", PauseStatus.PAUSING, PauseStatus.PAUSED, _may_settle,
        "every agent is stopped or fenced off, and both snapshots of every begun agent are proven",
    ),
    Transition(
        "resume", PauseStatus.PAUSED, PauseStatus.RESUMING, _may_resume,
        f"a person; or, up to {AUTO_RESUMES} times, the manager, when every cause came from outside and is over",
    ),
    Transition(
        "run", PauseStatus.RESUMING, PauseStatus.RESUMED, _may_run,
        "the memory of every agent that restarts is proven, and its tasks are scheduled",
    ),
    Transition(
        "fail", PauseStatus.RESUMING, PauseStatus.PAUSING, _may_pause_again,
        "something failed while it was resumed; nothing was started",
    ),
    Transition(
        "go stale", PauseStatus.PAUSED, PauseStatus.STALE, _may_go_stale,
        "14 days after it began, or when its extension ends",
    ),
    Transition(
        "resume", PauseStatus.STALE, PauseStatus.RESUMING, _by_person,
        "a person alone; the memory comes from Postgres",
    ),
    Transition(
        "expire", PauseStatus.STALE, PauseStatus.EXPIRED, _may_expire,
        "16 days later: day 30, unless it was extended",
    ),
    Transition("cancel", PauseStatus.PAUSED, PauseStatus.EXPIRED, _by_person, "a person gave it up"),
    # An analysis whose pause has ended runs again; its next pause is a new one.
    initial="RUNNING",
)  # fmt: skip

OPEN: Final = frozenset(PauseStatus) - PAUSE_STATES.terminal
"""States in which no agent of the analysis starts."""


def _waits(overdue: bool) -> str | None:  # noqa: FBT001 - the facts of a guard
    return "Its time is over." if overdue else None


def _timed_out(overdue: bool) -> str | None:  # noqa: FBT001 - the facts of a guard
    return None if overdue else "Its time is not over."


GATE_STATES: Final[StateMachine[Gate, bool]] = StateMachine(
    "gate",
    Transition("validate", Gate.WAITING_FOR_HUMAN, Gate.VALIDATED, _waits, "in time; the analysis continues"),
    Transition("reject", Gate.WAITING_FOR_HUMAN, Gate.SOFT_REJECTED, _waits, "in time; the analysis is paused"),
    Transition("reject_for_good", Gate.WAITING_FOR_HUMAN, Gate.HARD_REJECTED, _waits, "in time; the analysis fails"),
    Transition("time out", Gate.WAITING_FOR_HUMAN, Gate.TIMED_OUT, _timed_out, "its time is over; it is paused"),
    initial="not open",
)
"""The facts are whether its time is over."""

ANSWERS: Final[Mapping[str, Gate]] = MappingProxyType(
    {one.event: one.after for one in GATE_STATES.transitions if one.guard is _waits}
)
"""Possible answers of a human: continue; pause until a human resumes; fail the analysis."""
