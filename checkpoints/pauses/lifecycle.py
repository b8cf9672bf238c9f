"""
State machine of pauses: allowed transitions, their guards, and classes of failures.

Pure: no clock, no store. :data:`TRANSITIONS` holds every allowed transition; any other is refused. ``None`` stands for
RUNNING, an analysis without an open pause::

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

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from imem.journal.errors import TransitionRefused

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


OPEN: Final = frozenset({PauseStatus.PAUSING, PauseStatus.PAUSED, PauseStatus.RESUMING, PauseStatus.STALE})
"""States in which no agent of the analysis starts."""


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


Guard = Callable[[GuardContext], str | None]
"""Returns the reason of a refusal, in a sentence, or None."""


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


TRANSITIONS: Final[Mapping[tuple[PauseStatus | None, PauseStatus], Guard]] = MappingProxyType(
    {
        (None, PauseStatus.PAUSING): _may_pause,
        (PauseStatus.PAUSING, PauseStatus.PAUSING): _may_append,
        (PauseStatus.PAUSING, PauseStatus.PAUSED): _may_settle,
        (PauseStatus.PAUSED, PauseStatus.RESUMING): _may_resume,
        (PauseStatus.RESUMING, PauseStatus.RESUMED): _may_run,
        (PauseStatus.RESUMING, PauseStatus.PAUSING): _may_pause_again,
        (PauseStatus.PAUSED, PauseStatus.STALE): _may_go_stale,
        (PauseStatus.STALE, PauseStatus.RESUMING): _by_person,
        (PauseStatus.STALE, PauseStatus.EXPIRED): _may_expire,
        (PauseStatus.PAUSED, PauseStatus.EXPIRED): _by_person,
    }
)
"""From → to: the guard. Other transitions are refused."""


def check(before: PauseStatus | None, after: PauseStatus, facts: GuardContext) -> None:
    """
    Refuse a transition that is not in the table, or that its guard refuses.

    Args:
        before: the state of the pause; None for an analysis that runs.

    Raises:
        TransitionRefused: with the reason.
    """
    # An analysis whose pause has ended runs again; its next pause is a new one.
    guard = TRANSITIONS.get((before, after))
    name = before.value if before is not None else "RUNNING"
    if guard is None:
        raise TransitionRefused(f"What is {name} cannot become {after.value}.")
    reason = guard(facts)
    if reason is not None:
        raise TransitionRefused(f"What is {name} does not become {after.value} now.", mend=reason)
