"""Probation and significance, as the tables of the specification say."""

from __future__ import annotations

from datetime import timedelta

import pytest

from imem.journal.errors import TransitionRefused
from imem.patterns.evidence.verdicts import DomainClass, DomainVerdict, domain_class, domain_verdict
from imem.patterns.evidence.watching import (
    Frequency,
    ProbationEnd,
    probation_end,
    probation_length,
    required_occurrences,
)

READY, EXTENDED, REJECTED = ProbationEnd.PASS, ProbationEnd.EXTEND, ProbationEnd.REJECT
APPROVE, CAVEATS, PROBATION, REJECT = DomainVerdict


@pytest.mark.spec("GT-11")
@pytest.mark.parametrize(
    ("correlation", "occurrences", "needed"),
    [(0.82, 4, 2), (0.8, 4, 2), (0.8, 3, 3), (0.79, 9, 3), (0.75, 4, 3), (0.74, 9, 5)],
)
def test_how_many_more_occurrences(correlation: float, occurrences: int, needed: int) -> None:
    assert required_occurrences(correlation, occurrences) == needed


@pytest.mark.spec("GT-11")
@pytest.mark.parametrize(
    ("found", "needed", "correlation", "extensions", "end"),
    [
        (2, 2, 0.73, 0, REJECTED),  # 0.73 < 0.9 × 0.82 = 0.738
        (2, 2, 0.738, 0, READY),
        (3, 2, 0.9, 2, READY),
        (1, 2, 0.1, 0, EXTENDED),
        (1, 2, 0.9, 1, EXTENDED),
        (1, 2, 0.9, 2, REJECTED),
        (1, 3, 0.9, 0, REJECTED),
        (3, 5, 0.9, 0, EXTENDED),
        (0, 2, 0.9, 0, REJECTED),
    ],
)
def test_at_the_deadline(found: int, needed: int, correlation: float, extensions: int, end: ProbationEnd) -> None:
    found_end = probation_end(required=needed, new=found, initial=0.82, updated=correlation, extensions=extensions)
    assert found_end is end


@pytest.mark.spec("GT-11")
def test_a_third_extension_is_refused() -> None:
    days = {Frequency.MONTHLY: 90, Frequency.QUARTERLY: 180, Frequency.ANNUAL: 365, Frequency.UNKNOWN: 180}
    for frequency, expected in days.items():
        lengths = [probation_length(frequency, n) for n in (0, 1, 2)]
        assert lengths == [timedelta(days=expected + 90 * n) for n in (0, 1, 2)]
        with pytest.raises(TransitionRefused, match="at most 2"):
            probation_length(frequency, 3)


@pytest.mark.parametrize(
    ("domain", "proposals"),
    [
        ("valuation", (APPROVE, PROBATION, REJECT)),
        ("market_timing", (APPROVE, PROBATION, REJECT)),
        ("financial", (APPROVE, APPROVE, PROBATION)),
        ("operational", (APPROVE, APPROVE, PROBATION)),
        ("business_model", (APPROVE, APPROVE, CAVEATS)),
        ("strategy", (APPROVE, CAVEATS, REJECT)),
    ],
)
def test_what_a_p_value_lets_one_propose(domain: str, proposals: tuple[DomainVerdict, ...]) -> None:
    of = domain_class(domain)
    found = tuple(domain_verdict(of, p, correlation=0.0, occurrences=0) for p in (0.009, 0.01, 0.05))
    assert found == proposals
    assert [domain_verdict(of, p, correlation=0.99, occurrences=99) for p in (0.1, 0.5)] == [REJECT, REJECT]


def test_a_strong_effect_of_strategy_goes_on_probation() -> None:
    def verdict(correlation: float, occurrences: int) -> DomainVerdict:
        return domain_verdict(DomainClass.STRATEGY, 0.07, correlation=correlation, occurrences=occurrences)

    assert verdict(0.81, 5) is PROBATION
    assert {verdict(correlation, occurrences) for correlation, occurrences in ((0.8, 5), (0.9, 4))} == {REJECT}
