"""
Relevance of an event for an agent, and whether the agent is notified. Pure: no I/O, no clock.

The score is a weighted sum of five inputs, each between 0 and 1. An agent that is named is notified whatever its score,
and so is every agent of a system-critical event. An important event notifies every agent with the same field, analysis
or subject. The inputs are logged with each score, so that the weights can be fitted to what agents pull.
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
"""Weights of specialisation, active analyses, usage, importance and type, in this order."""

NOTIFY_AT: Final = 0.5
"""Score from which an agent is notified."""

DEFAULT_IMPORTANCE: Final = 0.5
"""Importance of an event without one."""

_EPSILON: Final = 1e-9
"""Tolerance of the comparison: sums of fractions are not exact."""

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
"""Kind of record → weight of its type; a correction counts as its record."""

_OTHER_TYPE: Final = 0.2

_NAMING: Final[Mapping[str, tuple[str, ...]]] = {
    "Debate": ("challenger_agent", "challenged_agent"),
    "DebateResolution": ("winning_agent",),
    "Decision": ("agents_involved",),
    "Lesson": ("agents",),
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
    A recorded event, as far as routing needs it.

    Attributes:
        position: of its event.
        kind: of the record.
        tier: its urgency.
        sender: the actor.
        domain: its field of expertise.
        subject_id, analysis_id: its subject, and its analysis.
        importance: fraction 0–1.
        named: agents that it names.
        shown: whether agents see the record.
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
    shown: bool = True

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> RoutableEvent:
        """Return the event of a row."""
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
            shown=row["shown"],
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
    An active agent that may be notified.

    Attributes:
        agent_id: the instance.
        owner: its actor.
        agent_type: its type.
        analysis_id, subject_id: of its work.
        domains: fields of expertise in its profile.
        specialization: text of its profile.
        notified, pulled: by sender, how many updates it was notified of, and how many it pulled.
    """

    agent_id: str
    owner: str
    agent_type: str
    analysis_id: str
    subject_id: str
    domains: frozenset[str] = frozenset()
    specialization: str = ""
    notified: Mapping[str, int]
    pulled: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RelevanceScore:
    """
    The relevance of an event for an agent.

    Attributes:
        agent_id: of the agent.
        parts: the five inputs, unweighted.
        total: the weighted sum.
        why: whether it is notified, and why.
        tier: of the notice.
    """

    agent_id: str
    parts: tuple[float, float, float, float, float]
    total: float
    why: NotifyReason
    tier: Tier

    @property
    def notified(self) -> bool:
        """Whether the agent is notified."""
        return self.why is not NotifyReason.BELOW


def is_news(message: RoutableEvent, candidate: Candidate) -> bool:
    """
    Return whether *message* may be new to *candidate*; what agents do not see is not.

    An actor's own event is not. Several instances may have one owner, and the journal knows only owners: an instance
    that is named is notified all the same, as one that another instance of its owner challenges.
    """
    if not message.shown:
        return False
    others = candidate.owner != message.sender or candidate.agent_id in message.named
    return others or message.tier is Tier.SYSTEM_CRITICAL


def score(message: RoutableEvent, candidate: Candidate) -> RelevanceScore:
    """Return the relevance of *message* for *candidate*, and whether it is notified."""
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
    """1 where it is the agent's own domain; else the share of the domain's words that its profile has."""
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
    """Return the share of this sender's updates that the agent pulled; 0.5 without any."""
    notified, pulled = candidate.notified.get(message.sender, 0), candidate.pulled.get(message.sender, 0)
    return min(1.0, (pulled + 1) / (notified + 2))


def _importance(message: RoutableEvent) -> float:
    importance = DEFAULT_IMPORTANCE if message.importance is None else message.importance
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
    """Whether the event names the instance; or its owner or type, where the event is of its work or of no analysis."""
    if candidate.agent_id in message.named:
        return True
    nowhere = message.analysis_id is None and message.subject_id is None
    return (active or nowhere) and not message.named.isdisjoint({candidate.owner, candidate.agent_type})


def _tier(message: RoutableEvent, why: NotifyReason) -> Tier:
    """Return the tier of the notice: at least HIGH for a named agent, at most HIGH for the others of a challenge."""
    if why is NotifyReason.NAMED:
        return min(message.tier, Tier.HIGH)
    if message.kind == "Debate" and message.tier is Tier.CRITICAL:
        return Tier.HIGH
    return message.tier


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORDS.findall(text.lower()))
