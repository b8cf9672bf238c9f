"""States of a case. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from imem.jobs.state_machine import StateMachine, Transition
from imem.kg.kinds.enums import PostmortemStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFacts:
    """
    The facts that guards check.

    Attributes:
        room: whether a place is free.
        answered: whether a person answered the six questions.
        late: whether the time of the review is over.
        asked: whether a person asked for another review; *other* names another open case of the decision.
        off: whether a checkpoint is still off.
    """

    room: bool = False
    answered: bool = False
    late: bool = False
    asked: bool = False
    other: str | None = None
    off: bool = True


def _reopen(facts: CaseFacts) -> str | None:
    if facts.other is not None:
        return f"The decision has the open case {facts.other}."
    return None if facts.asked else "Nobody asked for it."


def _room(facts: CaseFacts) -> str | None:
    return None if facts.room else "No place is free."


def _answered(facts: CaseFacts) -> str | None:
    return None if facts.answered else "The six questions are not answered."


def _late(facts: CaseFacts) -> str | None:
    return None if facts.late else "Its time is not over."


def _withdraw(facts: CaseFacts) -> str | None:
    return "A checkpoint is still off." if facts.off else None


_S = PostmortemStatus

CASE_STATES: Final[StateMachine[PostmortemStatus, CaseFacts]] = StateMachine(
    "post-mortem",
    Transition("open", None, _S.QUEUED, lambda _: None, "a forecast was off by more than noise"),
    Transition("admit", _S.QUEUED, _S.IN_REVIEW, _room, "a place is free"),
    Transition("withdraw", _S.QUEUED, _S.WITHDRAWN, _withdraw, "the outcome was revised, and is off no more"),
    Transition("complete", _S.IN_REVIEW, _S.COMPLETED, _answered, "six answers"),
    Transition("expire", _S.IN_REVIEW, _S.TIMEOUT, _late, "48 hours without them"),
    Transition("complete", _S.TIMEOUT, _S.COMPLETED, _answered, "six answers that come late"),
    Transition("reopen", _S.TIMEOUT, _S.QUEUED, _reopen, "a person asks for another review"),
    initial="not open",
)
"""
A case that is reopened queues again, since at most five are in review: it keeps its priority.
"""
