"""
Which agents are told of an event, and how sure we are that it concerns them. Pure: no I/O, no clock.

The score is a weighted sum of five inputs, each between 0 and 1. Who is named is told whatever its score, so is
everybody of what is critical for the system. What weighs much is told to whoever it bears on at all. The inputs are
logged with each score, so that the weights can be fitted to what agents really took.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from imem.journal.events.entry import Tier
from imem.journal.events.tiers import broadcasts

WEIGHTS: Final = (0.30, 0.30, 0.15, 0.15, 0.10)
"""Of specialisation, active analyses, usage, importance and type, in this order."""

NOTIFY_AT: Final = 0.5
"""From this score on an agent is told."""

UNSTATED_IMPORTANCE: Final = 0.5
"""What an event weighs that states no importance."""

_EPSILON: Final = 1e-9
"""Sums of fractions are not exact; a score of 0.5 is one."""

_URGENCY: Final = {Tier.SYSTEM_CRITICAL: 1.0, Tier.CRITICAL: 1.0, Tier.HIGH: 0.6, Tier.NORMAL: 0.2}

_TYPES: Final[Mapping[str, float]] = {
    "Debate": 1.0,
    "DataContradiction": 1.0,
    "DebateResolution": 0.8,
    "Decision": 0.8,
    "Lesson": 0.8,
    "Outcome": 0.6,
    "Pattern": 0.6,
    "Finding": 0.5,
    "Analysis": 0.5,
}
"""Kind of record → how much it asks for being read; a correction as its record."""

_OTHER_TYPE: Final = 0.2

_NAMING: Final[Mapping[str, tuple[str, ...]]] = {
    "Debate": ("challenger_agent", "challenged_agent"),
    "DebateResolution": ("winning_agent",),
    "Decision": ("agents_involved",),
}
"""Kind of record → the fields of its core that name agents."""

_WORDS: Final = re.compile(r"[^\W_]+")


class NotifyReason(StrEnum):
    """Why an agent is notified, or why not."""

    EVERYBODY = "everybody"
    NAMED = "named"
    IMPORTANT = "important"
    RELEVANT = "relevant"
    BELOW = "below"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutableEvent:
    """
    What was recorded, as far as it matters for who is told.

    Attributes:
        position: of its event.
        kind: the record's kind.
        tier: how urgent.
        sender: the actor.
        domain: the field of expertise it speaks of.
        subject_id, analysis_id: what it is about, and where it was said.
        importance: fraction 0–1.
        named: agents that it names.
    """

    position: int
    kind: str
    tier: Tier
    sender: str
    domain: str | None = None
    subject_id: str | None = None
    analysis_id: str | None = None
    importance: float | None = None
    named: frozenset[str] = frozenset()

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> RoutableEvent:
        """Return the message of an event's row."""
        kind = row["kind"].partition(".")[2]
        core = row["core"] or {}
        return cls(
            position=row["position"],
            kind=kind,
            tier=Tier(row["tier"]),
            sender=row["actor"],
            domain=core.get("domain"),
            subject_id=core.get("subject_id"),
            analysis_id=row["analysis_id"],
            importance=row["importance"],
            named=frozenset(_named(kind, core)),
        )


def _named(kind: str, core: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for field in _NAMING.get(kind, ()):
        value = core.get(field)
        found += value if isinstance(value, list) else [value] if isinstance(value, str) else []
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """
    An agent at work that may be told.

    Attributes:
        agent_id: the instance.
        owner: its actor.
        agent_type: what it is.
        analysis_id, subject_id: what it works on.
        domains: fields of expertise that its profile names.
        specialization: what its profile says in words.
        told, pulled: by sender, how many of its messages it was told of, and how many it took.
    """

    agent_id: str
    owner: str
    agent_type: str
    analysis_id: str
    subject_id: str
    domains: frozenset[str] = frozenset()
    specialization: str = ""
    told: Mapping[str, int]
    pulled: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RelevanceScore:
    """
    How much a message concerns an agent.

    Attributes:
        agent_id: which.
        parts: the five inputs, unweighted.
        total: the weighted sum.
        why: whether it is told, and why.
        tier: how urgent the notice is.
    """

    agent_id: str
    parts: tuple[float, float, float, float, float]
    total: float
    why: NotifyReason
    tier: Tier

    @property
    def told(self) -> bool:
        """Whether the agent is told."""
        return self.why is not NotifyReason.BELOW


def is_news(message: RoutableEvent, candidate: Candidate) -> bool:
    """
    Return whether *candidate* may not know *message* of itself.

    One's own word is no news. An owner has several instances, though, and the journal knows owners alone: an instance
    that is named is told all the same, as one that another of the same owner challenges.
    """
    others = candidate.owner != message.sender or candidate.agent_id in message.named
    return others or message.tier is Tier.SYSTEM_CRITICAL


def score(message: RoutableEvent, candidate: Candidate) -> RelevanceScore:
    """Return how much *message* concerns *candidate*, and whether it is told."""
    parts = (
        _specialisation(message, candidate),
        _active(message, candidate),
        _usage(message, candidate),
        _importance(message),
        _TYPES.get(message.kind, _OTHER_TYPE),
    )
    total = sum(weight * part for weight, part in zip(WEIGHTS, parts, strict=True))
    why = _why(message, candidate, parts, total)
    return RelevanceScore(candidate.agent_id, parts, total, why, _tier(message, why))


def _specialisation(message: RoutableEvent, candidate: Candidate) -> float:
    """1 where it is the agent's own field; else the share of the field's words that its profile has."""
    if message.domain is None:
        return 0.0
    if message.domain in candidate.domains:
        return 1.0
    field = _words(message.domain)
    known = _words(" ".join([*candidate.domains, candidate.specialization, candidate.agent_type]))
    return len(field & known) / len(field) if field else 0.0


def _active(message: RoutableEvent, candidate: Candidate) -> float:
    """1 in the same analysis, 0.7 in another one of the same subject."""
    if message.analysis_id is not None and message.analysis_id == candidate.analysis_id:
        return 1.0
    return 0.7 if message.subject_id is not None and message.subject_id == candidate.subject_id else 0.0


def _usage(message: RoutableEvent, candidate: Candidate) -> float:
    """Return the share of what this sender said that the agent took, a half as long as nobody knows."""
    told, pulled = candidate.told.get(message.sender, 0), candidate.pulled.get(message.sender, 0)
    return min(1.0, (pulled + 1) / (told + 2))


def _importance(message: RoutableEvent) -> float:
    importance = UNSTATED_IMPORTANCE if message.importance is None else message.importance
    return (importance + _URGENCY[message.tier]) / 2


def _why(message: RoutableEvent, candidate: Candidate, parts: tuple[float, ...], total: float) -> NotifyReason:
    if message.tier is Tier.SYSTEM_CRITICAL:
        return NotifyReason.EVERYBODY
    if _is_named(message, candidate, active=parts[1] > 0):
        return NotifyReason.NAMED
    bears = parts[0] > 0 or parts[1] > 0
    if broadcasts(message.importance) and bears:
        return NotifyReason.IMPORTANT
    return NotifyReason.RELEVANT if total >= NOTIFY_AT - _EPSILON else NotifyReason.BELOW


def _is_named(message: RoutableEvent, candidate: Candidate, *, active: bool) -> bool:
    """Whether the message names the instance; or its shared name, where the message is about its work or nobody's."""
    if candidate.agent_id in message.named:
        return True
    nowhere = message.analysis_id is None and message.subject_id is None
    return (active or nowhere) and not message.named.isdisjoint({candidate.owner, candidate.agent_type})


def _tier(message: RoutableEvent, why: NotifyReason) -> Tier:
    """Return the tier of the notice: who is named hears of it soon, and of a challenge the others less urgently."""
    if why is NotifyReason.NAMED:
        return min(message.tier, Tier.HIGH)
    if message.kind == "Debate" and message.tier is Tier.CRITICAL:
        return Tier.HIGH
    return message.tier


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORDS.findall(text.lower()))
