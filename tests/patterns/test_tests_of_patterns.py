"""The tests that a pattern must pass, by the numbers of their specification."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from imem.patterns.evidence.blind import (
    Look,
    Pair,
    designed_blind,
    helped,
    look_of,
    sign_flip_p,
    sound_blind,
)
from imem.patterns.evidence.control import ControlResult, assignment, control_test
from imem.patterns.evidence.holdout import designed_failure
from imem.patterns.evidence.verdicts import DomainClass, DomainVerdict, domain_class, domain_verdict, q_values
from imem.patterns.looks import arms

DAY0 = datetime(2026, 1, 1, tzinfo=UTC)
TREATMENT = [0.82, 0.75, 0.88, 0.79, 0.91, 0.73, 0.85, 0.80]
CONTROL = [0.70, 0.78, 0.66, 0.74, 0.81, 0.69, 0.72, 0.76]
FAMILY = [0.001, 0.008, 0.012, 0.021, 0.030, 0.041, 0.060, 0.210, 0.450, 0.740]
RATES = st.floats(0.0, 1.0)


@pytest.mark.spec("PV-4")
@pytest.mark.parametrize(
    ("training", "validation", "test", "failure"),
    [
        (0.80, 0.66, 0.66, None),
        (0.80, 0.65, 0.90, "validation_correlation"),
        (0.80, 0.90, 0.65, "test_correlation"),
        (0.82, 0.90, 0.82 * 0.8, "degradation"),
        (0.82, 0.90, 0.6561, None),
        (0.82, 0.90, 0.6560, "degradation"),
        (0.9, 0.9, 0.9 * 0.8, "degradation"),
        (math.nan, 0.9, 0.9, "undefined_correlation"),
        (0.9, None, 0.9, "undefined_correlation"),
    ],
)
def test_a_hit_rate_on_its_boundary_fails(
    training: float | None, validation: float | None, test: float | None, failure: str | None
) -> None:
    assert designed_failure(training, validation, test, 3) == failure


@pytest.mark.spec("PV-5")
def test_two_validation_cases_fail_and_three_may_pass_as_designed() -> None:
    assert designed_failure(0.9, 0.9, 0.9, 2) == "too_few_validation_cases"
    assert designed_failure(0.9, 0.9, 0.9, 3) is None


@pytest.mark.spec("PV-7")
@pytest.mark.parametrize(
    ("with_pattern", "without", "expected"),
    [
        (0.08, 0.10, True), (0.09, 0.10, None), (0.12, 0.10, False), (0.0, 0.0, None), (0.11, 0.10, None),
        (0.0899, 0.10, True), (0.1101, 0.10, False), (0.0, 0.1, True), (0.1, 0.0, False),
    ],
)  # fmt: skip
def test_helped_and_hurt_are_material_differences(
    *, with_pattern: float, without: float, expected: bool | None
) -> None:
    assert helped(with_pattern, without) is expected


@pytest.mark.spec("PV-8")
@pytest.mark.parametrize(
    ("good", "bad", "neither", "ratio", "failure"),
    [
        (6, 3, 1, 2.0, None),
        (6, 4, 0, 1.5, "helped_too_seldom"),
        (9, 0, 0, None, "too_few_comparisons"),
        (10, 0, 0, None, None),
        (0, 0, 10, None, "helped_too_seldom"),
        (5, 4, 0, 1.25, "too_few_comparisons"),
    ],
)
def test_the_blind_gate_counts_completed_comparisons(
    *, good: int, bad: int, neither: int, ratio: float | None, failure: str | None
) -> None:
    unknown = pairs([math.nan] * 20)
    found = designed_blind([*pairs([0.2] * good + [-0.2] * bad + [0.0] * neither), *unknown])
    assert (found.helped, found.hurt, found.neither, found.ratio, found.failure) == (good, bad, neither, ratio, failure)


def test_the_sign_flip_test_is_exact() -> None:
    differences = [0.04, 0.02, -0.01, 0.05, 0.03, 0.0, 0.06, -0.02, 0.01, 0.04, 0.03, 0.02]
    assert sum(differences) / len(differences) == pytest.approx(0.0225)
    assert sign_flip_p(differences) == pytest.approx(15 / 2048)


def pairs(gains: list[float], *, actual: float = 1.0, p: float = 0.5, days: int = 30) -> list[Pair]:
    """Return pairs a month apart, in which the pattern makes the error smaller by each of *gains*."""
    return [
        Pair(
            cluster=f"c{n}", target_at=DAY0 + n * timedelta(days=days), without_pattern=p, actual=actual,
            with_pattern=p + gain if actual else p - gain, event=True,
        )
        for n, gain in enumerate(gains)
    ]  # fmt: skip


def test_a_look_waits_before_it_rejects() -> None:
    horizon = timedelta(days=30)
    good, none = pairs([0.2] * 24), pairs([0.2, -0.2] * 12)
    for month, found, expected in (
        (6, good, Look.PASSED), (6, none, Look.INCONCLUSIVE), (12, none, Look.FAILED),
        (6, good[:9], Look.INCONCLUSIVE), (12, good[:9], Look.INCONCLUSIVE), (12, good[:11], Look.INCONCLUSIVE),
        (12, none[:11], Look.FAILED), (6, pairs([math.nan] * 24), Look.FAILED),
    ):  # fmt: skip
        verdicts = designed_blind(found)
        assert look_of(month, verdicts, sound_blind(found, horizon))[0] is expected
        alone = Look.INCONCLUSIVE if verdicts.failure == "too_few_comparisons" else Look.FAILED
        assert look_of(month, verdicts, None)[0] is (Look.PASSED if verdicts.failure is None else alone)


def test_a_pattern_that_only_exaggerates_probabilities_does_not_pass() -> None:
    """An event of 0.7 happens seven times in ten; who says 1.0 has the smaller absolute error, and knows nothing."""
    found = [
        Pair(
            cluster=f"c{n}", target_at=DAY0 + n * timedelta(days=30), without_pattern=0.7, with_pattern=1.0,
            actual=float(n % 10 < 7), event=True,
        )
        for n in range(240)
    ]  # fmt: skip
    assert sum(abs(one.actual - 0.7) - abs(one.actual - 1.0) for one in found) > 0
    p = sound_blind(found, timedelta(days=30)).p
    assert p is not None
    assert p > 0.99


def test_what_the_sound_blind_test_cannot_say_it_does_not() -> None:
    month = timedelta(days=30)
    assert sound_blind([], month).p is None
    rare = sound_blind(pairs([0.005] * 24, actual=0.0, p=0.01), month)
    assert (rare.p, rare.blocks) == (None, 24)
    assert "rare" in (rare.reason or "")
    undefined = sound_blind(pairs([math.nan] * 24), month)
    assert (undefined.p, undefined.reason) == (None, "undefined_predictions")
    crowded = sound_blind(pairs([0.2] * 24, days=1), month)
    assert crowded.p is None, "a month of daily pairs is one or two blocks"


@pytest.mark.spec("PV-15")
def test_the_control_test_says_what_the_specification_says() -> None:
    found = control_test(TREATMENT, CONTROL, seed=1)
    assert isinstance(found, ControlResult)
    assert (found.treatment, found.control) == pytest.approx((0.8163, 0.7325), abs=5e-5)
    assert (found.t, found.p) == pytest.approx((2.9831, 0.0099), abs=5e-5)
    assert found.welch_p == pytest.approx(0.0103, abs=5e-5)
    assert found.permutation_p == pytest.approx(79 / 12_870)
    assert found.hedges_g == pytest.approx(1.4102, abs=5e-5)
    assert found.failure is None
    expected = [0.0100, 0.0400, 0.0400, 0.0525, 0.0600, 0.0683, 0.0857, 0.2625, 0.5000, 0.7400]
    assert q_values(FAMILY) == pytest.approx(expected, abs=5e-5)
    assert q_values([]) == []
    assert all(by >= bh for by, bh in zip(q_values(FAMILY, dependent=True), q_values(FAMILY), strict=True))


def test_a_treatment_that_is_no_better_or_not_surely_fails() -> None:
    for treatment, control, failure in (
        (CONTROL, TREATMENT, "treatment_not_better"),
        (CONTROL, CONTROL, "treatment_not_better"),
        ([one + 0.02 for one in CONTROL], CONTROL, "control_p_value"),
    ):
        found = control_test(treatment, control, seed=1)
        assert isinstance(found, ControlResult)
        assert found.failure == failure
    for values, reason in (
        (([1.0], CONTROL), "too_few_clusters"), (([0.5, 0.5], [0.5, 0.5]), "constant_accuracy"),
        (([math.nan, 1.0], CONTROL), "undefined_accuracy"),
    ):  # fmt: skip
        assert control_test(*values, seed=1) == reason


@pytest.mark.spec("PV-14")
@given(st.sets(st.text("abc", min_size=1), min_size=1, max_size=40), st.integers(0, 2**32))
def test_clusters_are_assigned_by_a_seed_and_in_balance(clusters: set[str], seed: int) -> None:
    """A cluster of many cases is one unit, and their order changes nothing."""
    treated = assignment([*clusters, *sorted(clusters)], seed)
    assert treated.keys() == clusters
    assert abs(sum(treated.values()) * 2 - len(treated)) <= 1
    assert assignment(sorted(clusters, reverse=True), seed) == treated


def exaggerated(rates: Sequence[int], *, event: bool) -> list[Pair]:
    """Return ten questions of each company; so many come true. The crowd says 0.7, the pattern 1.0."""
    return [
        Pair(
            cluster=f"c{place}", target_at=DAY0, without_pattern=0.7, with_pattern=1.0, actual=float(n < rate),
            event=event,
        )
        for place, rate in enumerate(rates)
        for n in range(10)
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_exaggerated_probabilities_gain_nothing_in_the_control_test(seed: int) -> None:
    """An event of 0.7 happens seven times in ten; by absolute errors the pattern would seem to be better."""
    rates = [6, 7, 8] * 20
    found = control_test(*arms(exaggerated(rates, event=True), seed), seed)
    assert isinstance(found, ControlResult)
    assert found.failure == "treatment_not_better"
    assert found.permutation_p > 0.99
    of_values = control_test(*arms(exaggerated(rates, event=False), seed), seed)
    assert isinstance(of_values, ControlResult)
    assert of_values.treatment == pytest.approx(0.7, abs=0.04), "errors of values are absolute"
    assert of_values.control == pytest.approx(1 - (0.7 * 0.3 + 0.3 * 0.7), abs=0.02)


@pytest.mark.spec("PV-17")
@pytest.mark.parametrize(
    ("domain", "verdicts"),
    [
        ("valuation", "approve probation reject"),
        ("market timing", "approve probation reject"),
        ("financial", "approve approve probation"),
        ("operational", "approve approve probation"),
        ("business model", "approve approve caveats"),
        ("strategy", "approve caveats reject"),
        ("management", "approve caveats reject"),
    ],
)
def test_each_cell_of_the_table_of_domains(domain: str, verdicts: str) -> None:
    """A p-value on a boundary falls to the weaker band; 0.10 is rejected everywhere."""
    for weaker, (verdict, low, high) in enumerate(
        zip(verdicts.split(), (0.0, 0.01, 0.05), (0.01, 0.05, 0.1), strict=True)
    ):
        for p in (low, (low + high) / 2, high - 1e-6):
            found = domain_verdict(domain_class(domain), p, correlation=0.7, occurrences=9)
            assert found == verdict, (p, weaker)
    assert domain_verdict(domain_class(domain), 0.1, correlation=0.9, occurrences=9) is DomainVerdict.REJECT


@pytest.mark.spec("PV-17")
@pytest.mark.parametrize(
    ("correlation", "occurrences", "verdict"),
    [(0.81, 5, "probation"), (0.80, 5, "reject"), (0.81, 4, "reject"), (None, 5, "reject")],
)
def test_a_weak_result_about_strategy_needs_strength(correlation: float | None, occurrences: int, verdict: str) -> None:
    found = domain_verdict(DomainClass.STRATEGY, 0.07, correlation=correlation, occurrences=occurrences)
    assert found == verdict


def test_a_category_that_names_no_domain_is_judged_strictly() -> None:
    assert domain_class("flu") is DomainClass.VALUATION


def test_a_family_makes_a_p_value_weaker() -> None:
    """p .041 would be approved alone; among ten tests its q of .0683 is not."""
    place = FAMILY.index(0.041)
    known: dict[str, Any] = {"correlation": 0.7, "occurrences": 9}
    assert domain_verdict(DomainClass.FINANCIAL, FAMILY[place], **known) is DomainVerdict.APPROVE
    assert domain_verdict(DomainClass.FINANCIAL, q_values(FAMILY)[place], **known) is DomainVerdict.PROBATION


@settings(max_examples=25)
@given(st.lists(RATES, min_size=2, max_size=12), st.lists(RATES, min_size=2, max_size=12))
def test_a_control_test_never_raises(treatment: list[float], control: list[float]) -> None:
    found = control_test(treatment, control, seed=3)
    assert isinstance(found, str) or 0.0 <= found.permutation_p <= 1.0


def test_the_hold_out_p_values_of_the_specification() -> None:
    """What the design's hit rates are worth: an exact binomial test against the base rate."""
    for hits, base, p in ((16, 0.5, 0.0059), (14, 0.5, 0.0577), (14, 0.6, 0.2500)):
        assert stats.binomtest(hits, 20, base, alternative="greater").pvalue == pytest.approx(p, abs=5e-5)
