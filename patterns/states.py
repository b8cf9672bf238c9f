"""The statuses of a pattern, which transitions there are, who makes them, and what each demands. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from imem.jobs.state_machine import StateMachine, Transition
from imem.journal.settings import Role
from imem.kg.kinds.enums import PatternStatus

_S = PatternStatus

REJECTED: Final = frozenset(status for status in PatternStatus if status.value.startswith("rejected_"))
"""Statuses that are the end of a pattern; the same condition and claim may be tried again on later data alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternFacts:
    """
    The facts that guards check.

    Attributes:
        role: of who makes the transition.
        failed_tier: the first tier that failed, 1 to 3; None if none did.
        occurrences: cases of the condition in the data that the pattern was found in.
        tiers_passed: whether all three tiers passed.
        verdict: what the table of domains says of the control test: approve, caveats, probation or reject; None before.
        returns_to: the status that a pattern on probation came from.
        approved: whether a person approved it before.
        probation_passed: whether the new evidence of a probation suffices; None while it is too early to say.
    """

    role: Role
    failed_tier: int | None = None
    occurrences: int | None = None
    tiers_passed: bool = False
    verdict: str | None = None
    returns_to: PatternStatus | None = None
    approved: bool = False
    probation_passed: bool | None = None


LEAST_OCCURRENCES: Final = 5
"""Cases below which a condition is no pattern (pattern-validation, section 4)."""

_TESTERS: Final = (Role.KNOWLEDGE_BASE_AGENT, Role.LEARNING_ENGINE)
_PERSON: Final = (Role.HUMAN_ADMIN,)
_WATCHERS: Final = (Role.LEARNING_ENGINE, Role.HUMAN_ADMIN)
_DEPLOYERS: Final = (Role.KNOWLEDGE_BASE_AGENT, Role.HUMAN_ADMIN)
_ENGINE: Final = (Role.LEARNING_ENGINE,)

Guard = Callable[[PatternFacts], str | None]


def _by(roles: tuple[Role, ...], demand: Guard = lambda _: None) -> Guard:
    def guard(facts: PatternFacts) -> str | None:
        if facts.role not in roles:
            return f"That is for {' or '.join(role.value for role in roles)}, not for {facts.role.value}."
        return demand(facts)

    return guard


def _failed(tier: int) -> Guard:
    return lambda facts: None if facts.failed_tier == tier else f"Tier {tier} is not the first that failed."


def _few(facts: PatternFacts) -> str | None:
    few = facts.occurrences is not None and facts.occurrences < LEAST_OCCURRENCES
    return None if few else f"It has {LEAST_OCCURRENCES} occurrences or more."


def _validated(facts: PatternFacts) -> str | None:
    if not facts.tiers_passed:
        return "Not all three tiers passed."
    return None if facts.verdict in {"approve", "caveats"} else "The table of domains does not approve it."


def _provisional(facts: PatternFacts) -> str | None:
    if not facts.tiers_passed:
        return "Not all three tiers passed."
    return None if facts.verdict == "probation" else "The table of domains does not ask for probation."


def _returns(status: PatternStatus) -> Guard:
    def guard(facts: PatternFacts) -> str | None:
        if facts.returns_to is not status:
            return f"It did not come from {status.value}."
        if status is _S.ACTIVE and not facts.approved:
            return "No person approved it."
        return None if facts.probation_passed else "Its probation has not passed."

    return guard


def _probation_failed(facts: PatternFacts) -> str | None:
    return None if facts.probation_passed is False else "Its probation has not failed."


_REJECTIONS: Final = ((_S.REJECTED_HOLDOUT, 1), (_S.REJECTED_BLIND, 2), (_S.REJECTED_STATISTICAL, 3))

PATTERN_STATES: Final[StateMachine[PatternStatus, PatternFacts]] = StateMachine(
    "pattern",
    Transition("propose", None, _S.CANDIDATE, _by(_TESTERS), "it is proposed"),
    *(
        Transition("reject", _S.CANDIDATE, status, _by(_TESTERS, _failed(tier)), f"tier {tier} failed, and none before")
        for status, tier in _REJECTIONS
    ),
    Transition("reject", _S.CANDIDATE, _S.REJECTED_INSUFFICIENT, _by(_TESTERS, _few), "it has too few occurrences"),
    Transition(
        "validate", _S.CANDIDATE, _S.STATISTICALLY_VALIDATED, _by(_TESTERS, _validated),
        "all tiers passed, and its domain approves the result",
    ),
    Transition(
        "hold", _S.CANDIDATE, _S.PROBATIONARY, _by(_TESTERS, _provisional),
        "all tiers passed, and its domain asks for more evidence",
    ),
    Transition("approve", _S.STATISTICALLY_VALIDATED, _S.HUMAN_APPROVED, _by(_PERSON), "a person approves it"),
    Transition("refuse", _S.STATISTICALLY_VALIDATED, _S.REJECTED_GATE6, _by(_PERSON), "a person rejects it"),
    Transition("hold", _S.STATISTICALLY_VALIDATED, _S.PROBATIONARY, _by(_PERSON), "a person asks for more evidence"),
    Transition("activate", _S.HUMAN_APPROVED, _S.ACTIVE, _by(_DEPLOYERS), "it is deployed"),
    Transition("hold", _S.ACTIVE, _S.PROBATIONARY, _by(_WATCHERS), "its success decays"),
    Transition("deprecate", _S.ACTIVE, _S.DEPRECATED, _by(_WATCHERS), "its success has decayed beyond doubt"),
    *(
        Transition(
            "return", _S.PROBATIONARY, status, _by(_ENGINE, _returns(status)),
            "it came from there, and the new evidence suffices",
        )
        for status in (_S.STATISTICALLY_VALIDATED, _S.ACTIVE)
    ),
    Transition(
        "reject", _S.PROBATIONARY, _S.REJECTED_PROBATION, _by(_ENGINE, _probation_failed), "the new evidence fails"
    ),
    Transition("restore", _S.DEPRECATED, _S.ACTIVE_FROM_ARCHIVE, _by(_ENGINE), "it is restored from the archive"),
    Transition("confirm", _S.ACTIVE_FROM_ARCHIVE, _S.ACTIVE, _by(_PERSON), "a person approves it at Gate 6"),
    Transition("demote", _S.ACTIVE_FROM_ARCHIVE, _S.DEPRECATED, _by(_WATCHERS), "a veto, or its probation fails"),
    *(
        Transition("withdraw", status, _S.REJECTED_HUMAN_OVERRIDE, _by(_PERSON), "a person withdraws it")
        for status in PatternStatus
        if status not in REJECTED
    ),
    initial="not proposed",
)  # fmt: skip


def quarantined(status: PatternStatus | None) -> bool:
    """Return whether agents must not see a pattern; one of unknown status is in quarantine, too."""
    return status is not PatternStatus.ACTIVE
