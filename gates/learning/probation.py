"""
Probation: how long more evidence is waited for, what it says at the deadline, and what a p-value says by domain. Pure.

Nothing here approves: what is ready goes to Gate 6, where a person decides (postmortem-and-gates, sections 5.3 and 8).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Final

from imem.journal.errors import TransitionRefused

TOLERANCE: Final = 1e-9
"""Float noise decides no boundary."""

EXTENSION: Final = timedelta(days=90)
EXTENSIONS: Final = 2
"""How much more time an extension gives, and how many there are: in all at most 180 days more."""

KEPT: Final = 0.9
"""At the deadline the correlation is at least this share of the first one."""

NOTICES: Final = (timedelta(days=30), timedelta(days=7))
"""How long before the deadline a notice is given."""


class Recurrence(StrEnum):
    """How often a pattern can occur."""

    MONTHLY = "monthly"
    QUARTERLY = "quarterly"
    ANNUAL = "annual"
    UNKNOWN = "unknown"


LENGTHS: Final[Mapping[Recurrence, timedelta]] = {
    Recurrence.MONTHLY: timedelta(days=90),
    Recurrence.QUARTERLY: timedelta(days=180),
    Recurrence.ANNUAL: timedelta(days=365),
    Recurrence.UNKNOWN: timedelta(days=180),
}


class ProbationEnd(StrEnum):
    """What follows at the deadline."""

    READY = "ready"
    """Gate 6 is shown it."""
    EXTENDED = "extended"
    REJECTED = "rejected"


class Proposal(StrEnum):
    """What significance lets one propose to a person."""

    APPROVE = "approve"
    APPROVE_WITH_CAVEATS = "approve_with_caveats"
    PROBATION = "probation"
    REJECT = "reject"


class PatternDomain(StrEnum):
    """Domains by which significance is read."""

    VALUATION = "valuation"
    MARKET_TIMING = "market_timing"
    FINANCIAL = "financial"
    OPERATIONAL = "operational"
    BUSINESS_MODEL = "business_model"
    STRATEGY = "strategy"


def occurrences_needed(correlation: float, occurrences: int) -> int:
    """Return how many more occurrences a pattern needs that begins with *correlation* on *occurrences*."""
    if correlation < 0.75 - TOLERANCE:
        return 5
    return 2 if correlation >= 0.8 - TOLERANCE and occurrences >= 4 else 3


def at_deadline(*, found: int, needed: int, correlation: float, first: float, extensions: int) -> ProbationEnd:
    """
    Return what follows at the deadline.

    Args:
        found, needed: new occurrences.
        correlation, first: with the new occurrences, and at the beginning.
        extensions: how many there were.
    """
    if found >= needed:
        return ProbationEnd.READY if correlation >= KEPT * first - TOLERANCE else ProbationEnd.REJECTED
    extends = 2 * found >= needed and extensions < EXTENSIONS
    return ProbationEnd.EXTENDED if extends else ProbationEnd.REJECTED


def length(recurrence: Recurrence, extensions: int = 0) -> timedelta:
    """
    Return how long a probation is in all.

    Raises:
        TransitionRefused: there are no more than :data:`EXTENSIONS`.
    """
    if extensions > EXTENSIONS:
        raise TransitionRefused(f"A probation is extended at most {EXTENSIONS} times.")
    return LENGTHS[recurrence] + extensions * EXTENSION


_D, _P = PatternDomain, Proposal

_BY_LEVEL: Final[Mapping[PatternDomain, tuple[Proposal, Proposal, Proposal]]] = {
    _D.VALUATION: (_P.APPROVE, _P.PROBATION, _P.REJECT),
    _D.MARKET_TIMING: (_P.APPROVE, _P.PROBATION, _P.REJECT),
    _D.FINANCIAL: (_P.APPROVE, _P.APPROVE, _P.PROBATION),
    _D.OPERATIONAL: (_P.APPROVE, _P.APPROVE, _P.PROBATION),
    _D.BUSINESS_MODEL: (_P.APPROVE, _P.APPROVE, _P.APPROVE_WITH_CAVEATS),
    _D.STRATEGY: (_P.APPROVE, _P.APPROVE_WITH_CAVEATS, _P.PROBATION),
}
"""What p below 0.01, 0.05 and 0.10 lets one propose."""


def proposal_of(domain: PatternDomain, p_value: float, *, effect: float = 0.0, n: int = 0) -> Proposal:
    """
    Return what a p-value lets one propose; a person may decide otherwise, with a rationale.

    Args:
        effect: size of the effect, 0 to 1.
        n: occurrences.
    """
    for level, found in zip((0.01, 0.05, 0.10), _BY_LEVEL[domain], strict=True):
        if p_value < level - TOLERANCE:
            weak = domain is _D.STRATEGY and found is _P.PROBATION
            return _P.REJECT if weak and not (effect > 0.8 + TOLERANCE and n >= 5) else found
    return _P.REJECT
