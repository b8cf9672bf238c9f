"""
Tier 3: a control group from the pairs of tier 2 (pattern-validation, section 6). Pure.

A recorded seed assigns each cluster to treatment or control; each case counts with the arm that it was assigned. The
pairs are those of tier 2, so that this checks it, and is no independent evidence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb, isfinite, sqrt
from statistics import fmean, stdev, variance
from typing import Final, NamedTuple

import numpy as np
from scipy import stats

from imem.patterns.evidence.holdout import RESAMPLES, exceeds

MOST_EXACT: Final = 20
"""Units up to which every assignment is tried."""

LEAST_VARIANCE: Final = 1e-18
"""Arms that vary less are constant: their differences are the error of floats."""


def assignment(clusters: Sequence[str], seed: int) -> Mapping[str, bool]:
    """Return whether each cluster is of the treatment; the arms differ by one at most; a seed repeats it."""
    ordered = sorted(set(clusters))
    shuffled = np.random.default_rng(seed).permutation(len(ordered))
    return {ordered[place]: rank % 2 == 0 for rank, place in enumerate(shuffled)}


class ControlResult(NamedTuple):
    """
    The control test.

    Attributes:
        treatment, control: mean accuracy of the arms.
        t, p: of the t-test as designed, two-sided; ``p`` is stored as ``control_p_value``.
        welch_p: of Welch's test, two-sided.
        permutation_p: one-sided.
        hedges_g: the standardised difference, corrected for small samples (Hedges 1981).
        failure: why it failed by the design; None if it passed.
    """

    treatment: float
    control: float
    t: float
    p: float
    welch_p: float
    permutation_p: float
    hedges_g: float
    failure: str | None


def control_test(
    treatment: Sequence[float], control: Sequence[float], seed: int, *, threshold: float = 0.05
) -> ControlResult | str:
    """
    Return the comparison of two arms, one value a cluster: its mean accuracy; why there is none, if there is none.

    Args:
        seed: of the resamples beyond :data:`MOST_EXACT` clusters.
        threshold: of the domain, below which the design passes a p-value.
    """
    if len(treatment) < 2 or len(control) < 2:
        return "too_few_clusters"
    if not all(map(isfinite, (*treatment, *control))):
        return "undefined_accuracy"
    if max(variance(treatment), variance(control)) <= LEAST_VARIANCE:
        return "constant_accuracy"
    means = fmean(treatment), fmean(control)
    arms = means[0], stdev(treatment), len(treatment), means[1], stdev(control), len(control)
    student = stats.ttest_ind_from_stats(*arms)
    welch = stats.ttest_ind_from_stats(*arms, equal_var=False)
    failure = None
    if not exceeds(means[0], means[1]):
        failure = "treatment_not_better"
    elif not student.pvalue < threshold:
        failure = "control_p_value"
    return ControlResult(
        *means, float(student.statistic), float(student.pvalue), float(welch.pvalue),
        _permutation_p(treatment, control, seed), hedges_g(treatment, control), failure,
    )  # fmt: skip


def _permutation_p(treatment: Sequence[float], control: Sequence[float], seed: int) -> float:
    units = len(treatment) + len(control)
    found = stats.permutation_test(
        (np.asarray(treatment, dtype=float), np.asarray(control, dtype=float)),
        lambda one, other, axis=-1: np.mean(one, axis=axis) - np.mean(other, axis=axis),
        permutation_type="independent",
        alternative="greater",
        n_resamples=comb(units, len(treatment)) if units <= MOST_EXACT else RESAMPLES,
        vectorized=True,
        rng=np.random.default_rng(seed),
    )
    return float(found.pvalue)


def hedges_g(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the difference of means by the pooled standard deviation, times 1 - 3 / (4N - 9), N cases in all."""
    n, m = len(one), len(other)
    pooled = sqrt(((n - 1) * variance(one) + (m - 1) * variance(other)) / (n + m - 2))
    return (fmean(one) - fmean(other)) / pooled * (1.0 - 3.0 / (4.0 * (n + m) - 9.0))
