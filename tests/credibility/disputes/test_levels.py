"""Scores of sources, the levels and priorities: the worked examples of the specification and every boundary."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from imem.credibility.disputes.levels import (
    CREDIBILITY,
    EVIDENCE_BASED,
    PROVISIONAL,
    UNCERTAIN,
    Claim,
    Verdict,
    settle,
    unsettled,
)
from imem.credibility.disputes.priorities import CRITICAL, HIGH, priority_of
from imem.credibility.disputes.sources import (
    SOURCE_TYPES,
    YEAR,
    Source,
    SourceOutcome,
    score_of,
    source_in,
    tallies_of,
    type_of,
)
from imem.kg.kinds.enums import ContradictionPriority as Priority
from imem.kg.kinds.enums import ContradictionSide as Side
from imem.kg.kinds.enums import ContradictionStatus as Status
from imem.kg.kinds.enums import OutcomeProvenance
from imem.kg.kinds.enums import ResolutionLevelData as Level

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOISE = 1e-10


def claim(value: float, source: str, score: float | None = None, day: int = 0) -> Claim:
    kind = type_of(source)
    given = Source(source, kind, SOURCE_TYPES[kind].weight if score is None else score)
    return Claim(value, given, NOW + timedelta(days=day))


def verdict(a: Claim, b: Claim, priority: Priority = Priority.MEDIUM, *, guard: bool = True) -> Verdict:
    """Return how the two are resolved; with the sides swapped it is the same value that wins."""
    found = settle(a, b, priority, guard=guard) or unsettled(a, b)
    swapped = settle(b, a, priority, guard=guard) or unsettled(b, a)
    assert swapped._replace(winner=None) == found._replace(winner=None)
    winners = {Side.A: Side.B, Side.B: Side.A, None: None}
    assert a.filed_at == b.filed_at or swapped.winner is winners[found.winner]
    return found


# Sources


def outcomes(source: str, correct: int, wrong: int, at: datetime, provenance: OutcomeProvenance) -> list[SourceOutcome]:
    return [SourceOutcome(source, one < correct, provenance, at) for one in range(correct + wrong)]


@pytest.mark.spec("DC-1")
@pytest.mark.parametrize(
    ("source", "correct", "total", "years", "expected"),
    [
        ("Bloomberg", 70, 100, 0.0, 0.8600),
        ("Bloomberg", 70, 100, 1.0, 0.8314),
        ("Bloomberg", 70, 100, 4.5, 0.7600),
        ("News", 15, 30, 2.0, 0.6270),
        ("News", 9, 30, 3.0, 0.5260),
        ("Bloomberg", 90, 100, 0.0, 0.9400),
        ("Bloomberg", 85, 100, 0.0, 0.9200),
        ("Reuters", 70, 100, 0.0, 0.8400),
        ("Bloomberg", 0, 14, 0.0, 0.9500),
        ("Bloomberg", 0, 15, 0.0, 0.5800),
        ("SEC_EDGAR", 0, 0, 0.0, 1.0000),
        ("somebody", 0, 0, 0.0, 0.7000),
    ],
)
def test_scores_are_those_of_the_specification(
    source: str, correct: int, total: int, years: float, expected: float
) -> None:
    """Fourteen outcomes leave the weight of the type alone, without decay."""
    at = NOW - YEAR * years
    known = outcomes(source, correct, total - correct, at, OutcomeProvenance.LATER_FILING)
    assert source_in(tallies_of(known), source, NOW).score == pytest.approx(expected, abs=5e-5)
    assert score_of(SOURCE_TYPES[type_of(source)].weight, correct, total, YEAR * years) == pytest.approx(
        expected, abs=5e-5
    )


@pytest.mark.spec("DC-2")
def test_what_the_system_says_itself_is_no_evidence() -> None:
    told = [
        *outcomes("Bloomberg", 5, 10, NOW, OutcomeProvenance.HUMAN_LABEL),
        *outcomes("Bloomberg", 50, 0, NOW, OutcomeProvenance.AUTO),
        *outcomes("Bloomberg", 50, 0, NOW, OutcomeProvenance.CONSENSUS),
        *outcomes("Reuters", 50, 0, NOW, OutcomeProvenance.HUMAN_LABEL),
    ]
    assert source_in(tallies_of(told), "Bloomberg", NOW).score == pytest.approx(0.4 / 3 + 0.38 + 0.2)
    assert source_in(tallies_of(told[15:]), "Bloomberg", NOW).score == 0.95


def test_the_score_of_a_day_knows_nothing_later() -> None:
    told = outcomes("Bloomberg", 0, 15, NOW, OutcomeProvenance.LATER_FILING)
    assert source_in(tallies_of(told), "Bloomberg", NOW - timedelta(seconds=1)).score == 0.95
    assert source_in(tallies_of(told), "Bloomberg", NOW).score < 0.6


# Levels


@pytest.mark.spec("DC-3")
@pytest.mark.parametrize(
    ("a", "b", "confidence", "winner"),
    [
        (claim(9.0, "SEC_EDGAR"), claim(9.5, "SEC_EDGAR", day=1), 0.95, Side.B),
        (claim(9.0, "News"), claim(9.5, "News", day=100), 0.95, Side.B),
        (claim(9.0, "SEC_EDGAR"), claim(9.5, "Bloomberg", day=400), 0.95, Side.A),
        (claim(9.0, "Company_IR"), claim(9.5, "SEC_EDGAR"), 0.95, Side.B),
        (claim(9.0, "Company_IR"), claim(9.5, "Bloomberg", day=400), 0.85, Side.A),
        (claim(9.0, "Bloomberg"), claim(9.5, "Reuters", day=91), 0.80, Side.B),
        (claim(9.0, "Bloomberg", day=91), claim(9.5, "Reuters"), 0.80, Side.A),
    ],
)
def test_the_first_rule_that_applies_wins(a: Claim, b: Claim, confidence: float, winner: Side) -> None:
    found = verdict(a, b)
    assert (found.level, found.method, found.status) == (Level.EVIDENCE, EVIDENCE_BASED, Status.RESOLVED)
    assert (found.confidence, found.winner) == (confidence, winner)


@pytest.mark.spec("DC-3")
def test_ninety_days_are_not_more_than_ninety() -> None:
    assert verdict(claim(9.0, "Bloomberg"), claim(9.5, "Reuters", day=90)).level is Level.FALLBACK


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ((0.5260, 0.9400), (Level.CREDIBILITY, CREDIBILITY, Side.B, 0.8460, Status.RESOLVED)),
        ((0.8314, 0.6270), (Level.FALLBACK, PROVISIONAL, Side.A, 0.6236, Status.PROVISIONAL)),
        ((0.9200, 0.8400), (Level.FALLBACK, UNCERTAIN, None, 0.50, Status.UNCERTAIN)),
        ((0.70, 0.95), (Level.FALLBACK, PROVISIONAL, Side.B, 0.7125, Status.PROVISIONAL)),
        ((0.70, 0.95 + NOISE), (Level.FALLBACK, PROVISIONAL, Side.B, 0.7125, Status.PROVISIONAL)),
        ((0.70, 0.9501), (Level.CREDIBILITY, CREDIBILITY, Side.B, 0.85509, Status.RESOLVED)),
        ((0.80, 0.70), (Level.FALLBACK, UNCERTAIN, None, 0.50, Status.UNCERTAIN)),
        ((0.80 + NOISE, 0.70), (Level.FALLBACK, UNCERTAIN, None, 0.50, Status.UNCERTAIN)),
        ((0.8001, 0.70), (Level.FALLBACK, PROVISIONAL, Side.A, 0.600075, Status.PROVISIONAL)),
    ],
)  # fmt: skip
@pytest.mark.spec("DC-4")
def test_scores_decide_by_their_difference(
    scores: tuple[float, float], expected: tuple[Level, str, Side | None, float, Status]
) -> None:
    """A difference of exactly 0.25 or 0.10 takes the next level down."""
    level, method, winner, confidence, status = expected
    found = verdict(claim(9.0, "Bloomberg", scores[0]), claim(9.5, "Reuters", scores[1]))
    assert (found.level, found.method, found.winner, found.status) == (level, method, winner, status)
    assert found.confidence == pytest.approx(confidence, abs=5e-5)
    assert found.differential == pytest.approx(abs(scores[0] - scores[1]))


@pytest.mark.spec("DC-15")
def test_a_slip_of_the_pen_goes_to_a_person_and_not_to_evidence() -> None:
    sec, bloomberg = claim(9.53, "SEC_EDGAR"), claim(95.3, "Bloomberg")
    assert settle(sec, bloomberg, Priority.MEDIUM, guard=True) is None
    assert (
        settle(sec, replace(bloomberg, source=Source("Bloomberg", "Bloomberg", 0.1)), Priority.LOW, guard=True) is None
    )
    found = settle(sec, bloomberg, Priority.MEDIUM, guard=False)
    assert found is not None
    assert (found.level, found.winner) == (Level.EVIDENCE, Side.A)


@pytest.mark.parametrize(
    ("value", "priority", "settled"),
    [
        (20.1, Priority.CRITICAL, False),
        (20.0, Priority.CRITICAL, True),
        (20.1, Priority.HIGH, True),
        (100.9, Priority.LOW, False),
        (102.0, Priority.LOW, True),
    ],
)
def test_what_looks_like_a_slip(value: float, priority: Priority, *, settled: bool) -> None:
    """A power of ten within 1 %, or more than 50 % of a critical metric."""
    found = settle(claim(10.0, "SEC_EDGAR"), claim(value, "Bloomberg"), priority, guard=True)
    assert (found is not None) is settled


def test_one_source_without_dates_is_settled_by_no_restatement() -> None:
    a, b = (replace(claim(value, "SEC_EDGAR"), filed_at=None) for value in (9.0, 9.5))
    assert settle(a, b, Priority.MEDIUM, guard=True) is None


# Priorities


@pytest.mark.spec("DC-5")
def test_every_metric_has_its_priority() -> None:
    assert {
        "revenue", "net_income", "operating_margin", "gross_margin", "debt", "cash_flow_from_operations",
        "free_cash_flow", "shares_outstanding",
    } == CRITICAL  # fmt: skip
    assert {"capex", "depreciation", "tax_rate", "working_capital", "ebitda", "operating_income"} == HIGH
    assert {priority_of(name) for name in CRITICAL} == {Priority.CRITICAL}
    assert {priority_of(name, 0.001) for name in CRITICAL} == {Priority.CRITICAL}
    assert {priority_of(name) for name in HIGH} == {Priority.HIGH}
    assert {priority_of(name, 0.001) for name in HIGH} == {Priority.HIGH}
    assert priority_of("inventory") is Priority.MEDIUM
    assert priority_of("Revenues") is Priority.CRITICAL
    assert priority_of("OperatingIncomeLoss") is Priority.HIGH


@pytest.mark.spec("DC-5")
@pytest.mark.parametrize(
    ("impact", "expected"),
    [
        (0.05, Priority.MEDIUM),
        (0.05 + NOISE, Priority.MEDIUM),
        (0.0501, Priority.HIGH),
        (-0.2, Priority.HIGH),
        (0.01, Priority.MEDIUM),
        (0.01 - NOISE, Priority.MEDIUM),
        (0.0099, Priority.LOW),
        (0.0, Priority.LOW),
        (None, Priority.MEDIUM),
    ],
)
def test_the_valuation_raises_and_lowers_the_priority_of_the_rest(impact: float | None, expected: Priority) -> None:
    assert priority_of("inventory", impact) is expected
