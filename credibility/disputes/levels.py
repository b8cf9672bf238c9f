"""
How a contradiction is resolved: by evidence, by the scores of the sources, by a person, or by a fallback.

:func:`settle` applies levels 1 and 2; what it leaves open goes to :func:`unsettled`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from imem.credibility.disputes.cells import EPSILON, is_power_of_ten, spread
from imem.credibility.disputes.sources import SEC, Source
from imem.kg.kinds.enums import ContradictionPriority, ContradictionSide, ContradictionStatus, ResolutionLevelData

EVIDENCE_BASED: Final = "evidence_based"
CREDIBILITY: Final = "credibility_auto_resolved"
PROVISIONAL: Final = "provisional_credibility_weighted"
UNCERTAIN: Final = "provisional_uncertainty"

OWN_VALUE: Final = "human_value"
"""Method of a value that a person states, where neither document is right."""

STANDING_RULE: Final = "standing_rule"

HUMAN_CONFIDENCE: Final = 0.90
"""Confidence in what a person decides."""

NEWER_AFTER: Final = timedelta(days=90)
"""How far apart two filings have to be for the newer one to win."""

DECISIVE: Final = 0.25
"""Difference of scores above which the higher one decides."""

TELLING: Final = 0.10
"""Difference of scores above which the value of the higher one counts provisionally."""

GROSS: Final = 0.50
"""Difference above which the values of a critical metric go to a person, as a share of the larger one."""


@dataclass(frozen=True, slots=True)
class Claim:
    """
    One of two values that contradict each other.

    Attributes:
        value: stated.
        source: who states it, with its score.
        filed_at: when its document was filed; None if unknown.
    """

    value: float
    source: Source
    filed_at: datetime | None = None


class Verdict(NamedTuple):
    """
    How a contradiction was resolved.

    Attributes:
        level: which level resolved it.
        method: by which method.
        winner: whose value was accepted; None where neither was.
        confidence: in it, 0 to 1.
        differential: the difference of the scores, without its sign.
        status: what that makes of the contradiction.
    """

    level: ResolutionLevelData
    method: str
    winner: ContradictionSide | None
    confidence: float
    differential: float
    status: ContradictionStatus


def settle(a: Claim, b: Claim, priority: ContradictionPriority, *, guard: bool) -> Verdict | None:
    """
    Return how evidence or scores resolve a contradiction; None where a person has to.

    Args:
        a, b: the values; *b* became known later.
        priority: of the contradiction.
        guard: whether values that look like a slip of the pen go to a person at once.
    """
    if guard and looks_like_slip(a.value, b.value, priority):
        return None
    differential = _differential(a, b)
    for confidence, rule, _ in RULES:
        winner = rule(a, b)
        if winner is not None:
            level = ResolutionLevelData.EVIDENCE
            return Verdict(level, EVIDENCE_BASED, winner, confidence, differential, ContradictionStatus.RESOLVED)
    if differential > DECISIVE + EPSILON:
        level, confidence = ResolutionLevelData.CREDIBILITY, _highest(a, b) * 0.90
        return Verdict(level, CREDIBILITY, _higher(a, b), confidence, differential, ContradictionStatus.RESOLVED)
    return None


def unsettled(a: Claim, b: Claim) -> Verdict:
    """
    Return the fallback for a contradiction that neither evidence nor scores resolve.

    It applies while a person is asked, and stays if nobody answers.
    """
    differential = _differential(a, b)
    if differential > TELLING + EPSILON:
        return fallback(_higher(a, b), _highest(a, b) * 0.75, differential)
    return fallback(None, 0.50, differential)


def fallback(winner: ContradictionSide | None, confidence: float, differential: float) -> Verdict:
    """Return the verdict of level 4: a value counts provisionally, or without a winner none does."""
    method, status = PROVISIONAL, ContradictionStatus.PROVISIONAL
    if winner is None:
        method, status = UNCERTAIN, ContradictionStatus.UNCERTAIN
    return Verdict(ResolutionLevelData.FALLBACK, method, winner, confidence, differential, status)


def looks_like_slip(a: float, b: float, priority: ContradictionPriority) -> bool:
    """Return whether values are so far apart that one of them may be mistyped, which no filing excludes."""
    gross = priority is ContradictionPriority.CRITICAL and spread(a, b) > GROSS + EPSILON
    return gross or is_power_of_ten(a, b)


# The rules of level 1


def _same_source(a: Claim, b: Claim) -> ContradictionSide | None:
    """Return the later document of one source: a restatement; of two filed at once the one that became known later."""
    if a.source.name != b.source.name or a.filed_at is None or b.filed_at is None:
        return None
    return ContradictionSide.A if a.filed_at > b.filed_at else ContradictionSide.B


def _filed_with_sec(a: Claim, b: Claim) -> ContradictionSide | None:
    return _either(a.source.type == SEC, b.source.type == SEC)


def _primary(a: Claim, b: Claim) -> ContradictionSide | None:
    return _either(a.source.primary, b.source.primary)


def _newer(a: Claim, b: Claim) -> ContradictionSide | None:
    if a.filed_at is None or b.filed_at is None or not abs(a.filed_at - b.filed_at) > NEWER_AFTER:
        return None
    return _either(a.filed_at > b.filed_at, b.filed_at > a.filed_at)


RULES: Final[tuple[tuple[float, Callable[[Claim, Claim], ContradictionSide | None], str], ...]] = (
    (0.95, _same_source, "of one source the later document counts"),
    (0.95, _filed_with_sec, "a filing with the SEC counts"),
    (0.85, _primary, "a primary source counts"),
    (0.80, _newer, "the document that was filed more than 90 days later counts"),
)
"""Confidence, rule, and the rule in words, in their order: the first that names a winner decides."""


def _either(a: bool, b: bool) -> ContradictionSide | None:  # noqa: FBT001 - two of a kind, told by their order
    return None if a == b else ContradictionSide.A if a else ContradictionSide.B


def _differential(a: Claim, b: Claim) -> float:
    return abs(a.source.score - b.source.score)


def _highest(a: Claim, b: Claim) -> float:
    return max(a.source.score, b.source.score)


def _higher(a: Claim, b: Claim) -> ContradictionSide:
    return ContradictionSide.A if a.source.score > b.source.score else ContradictionSide.B
