"""When the records of two agents end their debate at level 2."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from imem.credibility.scores.auto_resolve import Basis, Contender, ScoreEstimate
from imem.debates.levels import Level2Reason, level2_verdict
from imem.kg.model import DebatePriority


def side(score: float | None, n: float, width: float = 0.05, *, designed: float | None = None) -> Contender:
    """Return a side whose scores are the same on both bases, unless *designed* is another one."""
    product = ScoreEstimate(score if designed is None else designed, width)
    return Contender(n=n, posterior=ScoreEstimate(score, width), as_designed=product)


def reason(a: Contender | None, b: Contender | None, **more: object) -> Level2Reason:
    given_ = {"priority": DebatePriority.VALUATION, "evidence": True, **more}
    found = level2_verdict(a, b, **given_)  # type: ignore[arg-type]
    assert found.resolved == (found.reason is Level2Reason.DIFFERENTIAL) == (found.winner is not None)
    return found.reason


def test_the_higher_score_wins() -> None:
    found = level2_verdict(side(0.4, 15), side(0.9, 40), priority=None, evidence=True)

    assert (found.resolved, found.reason, found.winner) == (True, Level2Reason.DIFFERENTIAL, "b")


@pytest.mark.spec("DB-3")
@example(score=1.0, other=0.0, n=14.0, more=40.0, basis=Basis.POSTERIOR)
@given(
    score=st.floats(0, 1),
    other=st.floats(0, 1),
    n=st.floats(0, 14),
    more=st.floats(15, 1e6),
    basis=st.sampled_from(Basis),
)
def test_fourteen_decisions_never_decide(score: float, other: float, n: float, more: float, basis: Basis) -> None:
    """However far the scores are apart, and however many decisions the other side has."""
    few, many = side(score, n, 0.0), side(other, more, 0.0)

    assert reason(few, many, basis=basis) is Level2Reason.INSUFFICIENT_DECISIONS
    assert reason(many, few, basis=basis) is Level2Reason.INSUFFICIENT_DECISIONS


@pytest.mark.spec("DB-3")
@pytest.mark.parametrize(
    ("a", "b", "width"),
    [(0.75, 0.50, 0.1), (0.9, 0.5, 0.2), (0.4, 0.8, 0.2)],
    ids=["at 0.25", "at both widths", "below, the other way"],
)
def test_a_differential_exactly_at_the_threshold_escalates(a: float, b: float, width: float) -> None:
    """The differential must exceed both 0.25 and the two half-widths together; a little more does."""
    assert reason(side(a, 40, width), side(b, 40, width)) is Level2Reason.BELOW_THRESHOLD

    further = a + (0.001 if a > b else -0.001)

    assert reason(side(further, 40, width), side(b, 40, width)) is Level2Reason.DIFFERENTIAL


@pytest.mark.spec("DB-4")
@given(
    scores=st.tuples(*(st.one_of(st.none(), st.floats(0, 1)) for _ in "ab")),
    ns=st.tuples(*(st.floats(0, 1e6) for _ in "ab")),
    evidence=st.booleans(),
    basis=st.sampled_from(Basis),
)
def test_a_critical_path_debate_is_never_decided_by_records(
    *, scores: tuple[float | None, float | None], ns: tuple[float, float], evidence: bool, basis: Basis
) -> None:
    """The priority alone keeps it open; the scores are kept for those who decide."""
    a, b = (side(score, n, 0.0) for score, n in zip(scores, ns, strict=True))

    found = level2_verdict(a, b, priority=DebatePriority.CRITICAL_PATH, evidence=evidence, basis=basis)

    assert (found.resolved, found.reason, found.winner) == (False, Level2Reason.CRITICAL_PATH, None)
    assert found.scores is not None


@pytest.mark.spec("DB-17")
def test_too_few_decisions_are_not_below_the_threshold() -> None:
    """0.82 of 15 decisions against 0.71 of 12: there are too few, whatever the differential is."""
    assert reason(side(0.82, 15), side(0.71, 12)) is Level2Reason.INSUFFICIENT_DECISIONS
    assert reason(side(0.82, 15), side(0.71, 15)) is Level2Reason.BELOW_THRESHOLD


def test_a_missing_record_is_too_few_decisions() -> None:
    assert reason(None, side(0.9, 40)) is Level2Reason.INSUFFICIENT_DECISIONS
    assert reason(side(0.1, 40), None) is Level2Reason.INSUFFICIENT_DECISIONS
    assert reason(side(None, 40), side(0.9, 40)) is Level2Reason.INSUFFICIENT_DECISIONS


def test_both_sides_supply_evidence() -> None:
    assert reason(side(0.9, 40), side(0.2, 40), evidence=False) is Level2Reason.MISSING_EVIDENCE


def test_the_verdicts_on_both_bases_are_kept() -> None:
    a, b = side(0.9, 40, designed=0.5), side(0.3, 40, designed=0.5)

    posterior, designed = (level2_verdict(a, b, priority=None, evidence=True, basis=basis) for basis in Basis)

    assert (posterior.resolved, designed.resolved) == (True, False)
    assert posterior.scores is not None
    assert (posterior.scores.posterior.resolved, posterior.scores.as_designed.resolved) == (True, False)
