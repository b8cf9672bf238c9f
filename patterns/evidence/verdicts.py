"""The table of domains, and control of false discoveries over a family of tests. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from scipy import stats

from imem.patterns.evidence.holdout import exceeds

BANDS: Final = (0.01, 0.05, 0.10)
"""Upper ends of the bands of a p-value; a value on one falls to the weaker band."""

STRONG: Final = 0.8
OFTEN: Final = 5
"""Correlation, and occurrences, with which a weak result about strategy may go on probation."""


class DomainClass(StrEnum):
    """The classes of domains, by how much a false pattern costs there."""

    VALUATION = "valuation"
    """Valuation, and the timing of markets."""
    FINANCIAL = "financial"
    """Financial and operational."""
    BUSINESS_MODEL = "business_model"
    STRATEGY = "strategy"
    """Strategy and management."""


class DomainVerdict(StrEnum):
    """The verdict of a domain on a control test."""

    APPROVE = "approve"
    CAVEATS = "caveats"
    PROBATION = "probation"
    REJECT = "reject"


_V = DomainVerdict

_TABLE: Final[Mapping[DomainClass, tuple[DomainVerdict, DomainVerdict, DomainVerdict]]] = {
    DomainClass.VALUATION: (_V.APPROVE, _V.PROBATION, _V.REJECT),
    DomainClass.FINANCIAL: (_V.APPROVE, _V.APPROVE, _V.PROBATION),
    DomainClass.BUSINESS_MODEL: (_V.APPROVE, _V.APPROVE, _V.CAVEATS),
    DomainClass.STRATEGY: (_V.APPROVE, _V.CAVEATS, _V.PROBATION),
}

_NAMED: Final = (
    (DomainClass.VALUATION, ("valuation", "timing")),
    (DomainClass.BUSINESS_MODEL, ("business",)),
    (DomainClass.STRATEGY, ("strategy", "management")),
    (DomainClass.FINANCIAL, ("financial", "operation")),
)


def domain_class(category: str) -> DomainClass:
    """Return the class of a pattern's category; of one that names no known domain the strictest."""
    said = category.casefold()
    return next((one for one, words in _NAMED if any(word in said for word in words)), DomainClass.VALUATION)


def domain_verdict(domain: DomainClass, p: float, *, correlation: float | None, occurrences: int) -> DomainVerdict:
    """
    Return what *domain* says of a p-value, or of a q-value.

    Args:
        correlation, occurrences: of the pattern, which decide about a weak result in strategy.
    """
    band = sum(not exceeds(bound, p) for bound in BANDS)
    if band == len(BANDS):
        return DomainVerdict.REJECT
    verdict = _TABLE[domain][band]
    weak = domain is DomainClass.STRATEGY and verdict is DomainVerdict.PROBATION
    strong = correlation is not None and exceeds(correlation, STRONG) and occurrences >= OFTEN
    return DomainVerdict.REJECT if weak and not strong else verdict


def q_values(p: Sequence[float], *, dependent: bool = False) -> list[float]:
    """
    Return the q-values of a family, failures included, by Benjamini and Hochberg (1995).

    Args:
        dependent: whether the tests share analyses: then by Benjamini and Yekutieli (2001).
    """
    if not p:
        return []
    return [float(one) for one in stats.false_discovery_control(list(p), method="by" if dependent else "bh")]
