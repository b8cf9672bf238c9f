"""
States of a review task. Pure: no clock, no store.

A task that nobody answers falls back to the default of its kind. Until a human gate of its analysis closes the window,
the default is provisional: a person may confirm or override it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from imem.jobs.state_machine import StateMachine, Transition


class TaskState(StrEnum):
    """States of a task."""

    OPEN = "open"
    ANSWERED = "answered"
    DEFAULTED = "defaulted"
    """The default applies, provisionally: its window is open."""
    CONFIRMED = "confirmed"
    OVERRIDDEN = "overridden"
    INVESTIGATING = "investigating"
    """A person wants to know more before the default is confirmed or overridden."""
    CLOSED = "closed"
    """A human gate has closed the window: the default stands for good."""
    WITHDRAWN = "withdrawn"
    """Its question is settled already."""


PROVISIONAL: Final = (TaskState.DEFAULTED, TaskState.INVESTIGATING)
"""States in which the default applies and may still be overridden."""

ANSWERABLE: Final = (TaskState.OPEN, *PROVISIONAL)


class Why(StrEnum):
    """Why a default applies."""

    LATE = "late"
    FULL = "full"
    NOBODY = "nobody"
    DISPLACED = "displaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """
    The facts that guards check.

    Attributes:
        by_person: whether a person asks for it.
        late: whether the time of the open task is over.
        why: why the default is to apply.
        extends: whether more time is asked for; *extended*: whether it was given before.
        delegates: whether another reviewer is named.
    """

    by_person: bool = False
    late: bool = False
    why: Why | None = None
    extends: bool = False
    extended: bool = False
    delegates: bool = False


def _system(facts: TaskFacts) -> str | None:
    return "A person does not withdraw or close tasks." if facts.by_person else None


def _answer(facts: TaskFacts) -> str | None:
    if not facts.by_person:
        return "Only a person answers."
    return "Its time is over: the default applies first." if facts.late else None


def _review(facts: TaskFacts) -> str | None:
    return None if facts.by_person else "Only a person reviews a default."


def _default(facts: TaskFacts) -> str | None:
    if facts.why is Why.LATE and not facts.late:
        return "Its time is not over."
    return None if facts.why is not None else "Nothing says why the default applies."


def _hold(facts: TaskFacts) -> str | None:
    if facts.delegates:
        return None
    if not facts.extends:
        return "It neither gives more time nor names another reviewer."
    return "More time was given before." if facts.extended else None


_S = TaskState

TASK_STATES: Final[StateMachine[TaskState, TaskFacts]] = StateMachine(
    "task",
    Transition("open", None, _S.OPEN, lambda _: None, "a reviewer has room, or the kind is not queued"),
    Transition("default", None, _S.DEFAULTED, _default, "the queue is full, or nobody is there"),
    Transition("hold", _S.OPEN, _S.OPEN, _hold, "more time, once; or another reviewer"),
    Transition("answer", _S.OPEN, _S.ANSWERED, _answer, "a person, in time"),
    Transition("default", _S.OPEN, _S.DEFAULTED, _default, "its time is over, or a more urgent task displaced it"),
    Transition("confirm", _S.DEFAULTED, _S.CONFIRMED, _review, "a person, while the window is open"),
    Transition("override", _S.DEFAULTED, _S.OVERRIDDEN, _review, "a person, while the window is open"),
    Transition("investigate", _S.DEFAULTED, _S.INVESTIGATING, _review, "a person, while the window is open"),
    Transition("confirm", _S.INVESTIGATING, _S.CONFIRMED, _review, "a person, while the window is open"),
    Transition("override", _S.INVESTIGATING, _S.OVERRIDDEN, _review, "a person, while the window is open"),
    Transition("close", _S.DEFAULTED, _S.CLOSED, _system, "a human gate of its analysis was decided"),
    Transition("close", _S.INVESTIGATING, _S.CLOSED, _system, "a human gate of its analysis was decided"),
    Transition("withdraw", _S.OPEN, _S.WITHDRAWN, _system, "it is no question any more"),
    Transition("withdraw", _S.DEFAULTED, _S.WITHDRAWN, _system, "it is no question any more"),
    Transition("withdraw", _S.INVESTIGATING, _S.WITHDRAWN, _system, "it is no question any more"),
    initial="not open",
)
