"""Probation and significance, as the tables of the specification say."""

from __future__ import annotations

from datetime import timedelta

import pytest

from imem.gates.learning.probation import (
    PatternDomain,
    ProbationEnd,
    Proposal,
    Recurrence,
    at_deadline,
    length,
    occurrences_needed,
    proposal_of,
)
from imem.journal.errors import TransitionRefused

READY, EXTENDED, REJECTED = ProbationEnd.READY, ProbationEnd.EXTENDED, ProbationEnd.REJECTED
APPROVE, CAVEATS, PROBATION, REJECT = Proposal


@pytest.mark.spec("GT-11")
@pytest.mark.parametrize(
    ("correlation", "occurrences", "needed"),
    [(0.82, 4, 2), (0.8, 4, 2), (0.8, 3, 3), (0.79, 9, 3), (0.75, 4, 3), (0.74, 9, 5)],
)
def test_how_many_more_occurrences(correlation: float, occurrences: int, needed: int) -> None:
    assert occurrences_needed(correlation, occurrences) == needed


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
    assert at_deadline(found=found, needed=needed, correlation=correlation, first=0.82, extensions=extensions) is end


@pytest.mark.spec("GT-11")
def test_a_third_extension_is_refused() -> None:
    days = {Recurrence.MONTHLY: 90, Recurrence.QUARTERLY: 180, Recurrence.ANNUAL: 365, Recurrence.UNKNOWN: 180}
    for recurrence, expected in days.items():
        assert [length(recurrence, n) for n in (0, 1, 2)] == [timedelta(days=expected + 90 * n) for n in (0, 1, 2)]
        with pytest.raises(TransitionRefused, match="at most 2"):
            length(recurrence, 3)


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
def test_what_a_p_value_lets_one_propose(domain: str, proposals: tuple[Proposal, ...]) -> None:
    of = PatternDomain(domain)
    found = tuple(proposal_of(of, p) for p in (0.009, 0.01, 0.05))
    assert found == proposals
    assert [proposal_of(of, p, effect=0.99, n=99) for p in (0.1, 0.5)] == [REJECT, REJECT]


def test_a_strong_effect_of_strategy_goes_on_probation() -> None:
    strategy = PatternDomain.STRATEGY
    assert proposal_of(strategy, 0.07, effect=0.81, n=5) is PROBATION
    assert {proposal_of(strategy, 0.07, effect=effect, n=n) for effect, n in ((0.8, 5), (0.9, 4))} == {REJECT}
