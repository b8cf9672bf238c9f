"""
Tier 1: does a condition say more about outcomes that did not shape it than the best forecast did? Pure.

As designed: hit rates on validation and test cases (:func:`designed`). Sound: a permutation test (:func:`holdout_p`).
Its statistic is the sum, over matching cases, of (outcome - reference) / sd less the mean of the period. Its null
distribution comes from exchanging the subjects: each gets the series of another one, outcomes with the forecasts of
them, and keeps that substitute throughout, so that what is alike from one period to the next stays alike. Where the
substitute has no case in a period, the substitute's substitute stands in, and so on. The test holds if subjects are
exchangeable under the null hypothesis.

Source: Good, Permutation, Parametric and Bootstrap Tests of Hypotheses (2005), chapter 2; the p-value counts the
observed arrangement, as Phipson and Smyth (2010).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from imem.patterns.evidence.splits import Case, Split

TOLERANCE: Final = 1e-9
"""Fractions that differ by less are equal: 0.80 × 0.75 is 0.6000000000000001 in floating point."""

LEAST_CORRELATION: Final = 0.65
"""The bound that the hit rates of validation and test must exceed."""

KEPT_SHARE: Final = 0.80
"""Share of the training hit rate that the one of the test must exceed."""

LEAST_VALIDATION: Final = 3
"""Matching validation cases without which the design fails a pattern."""

LEAST_CASES: Final = 10
LEAST_PERIODS: Final = 6
"""Matching cases, and periods of them, without which the sound test says nothing about a part."""

RESAMPLES: Final = 9_999
SEED: Final = 20_260_101
"""Seed of the permutations: a repeated test gives the same p-value."""

_AT_ONCE: Final = 2_000_000
"""Cells that are permuted at once, which bounds the memory."""

Floats = NDArray[np.float64]


class Direction(StrEnum):
    """Where outcomes lie, by the claim of a pattern, against the best forecast."""

    HIGHER = "higher"
    LOWER = "lower"

    @property
    def sign(self) -> float:
        """1 for higher, -1 for lower."""
        return 1.0 if self is Direction.HIGHER else -1.0

    def hit(self, outcome: float, reference: float) -> bool:
        """Return whether an outcome lies there."""
        return self.sign * (outcome - reference) > 0.0


def exceeds(value: float, bound: float) -> bool:
    """Return whether *value* is above *bound* by more than the error of floats."""
    return value > bound + TOLERANCE


def matching(cases: Sequence[Case]) -> list[Case]:
    """Return the cases in which the condition held."""
    return [case for case in cases if case.matches]


def hit_rate(cases: Sequence[Case], direction: Direction) -> float | None:
    """Return the share of matching cases whose outcome lies where the claim says; None without any, or with a NaN."""
    held = matching(cases)
    if not held or not np.isfinite([case.outcome - case.reference for case in held]).all():
        return None
    return sum(direction.hit(case.outcome, case.reference) for case in held) / len(held)


class DesignedResult(NamedTuple):
    """
    The gate as designed.

    Attributes:
        training, validation, test: hit rates; None where they are not defined.
        failure: why it failed; None if it passed.
    """

    training: float | None
    validation: float | None
    test: float | None
    failure: str | None


def designed(parts: Split, direction: Direction) -> DesignedResult:
    """Return what the gate of the design says (pattern-validation, section 4)."""
    training, validation, test = (hit_rate(part, direction) for part in (parts.training, parts.validation, parts.test))
    failure = designed_failure(training, validation, test, len(matching(parts.validation)))
    return DesignedResult(training, validation, test, failure)


def designed_failure(
    training: float | None, validation: float | None, test: float | None, validation_cases: int
) -> str | None:
    """Return why hit rates fail the gate of the design; None if they pass."""
    if training is None or validation is None or test is None or not np.isfinite((training, validation, test)).all():
        return "undefined_correlation"
    if validation_cases < LEAST_VALIDATION:
        return "too_few_validation_cases"
    if not exceeds(validation, LEAST_CORRELATION):
        return "validation_correlation"
    if not exceeds(test, LEAST_CORRELATION):
        return "test_correlation"
    return None if exceeds(test, KEPT_SHARE * training) else "degradation"


class Evidence(NamedTuple):
    """How much a part holds: matching cases, and periods that they are of."""

    cases: int
    periods: int

    @property
    def enough(self) -> bool:
        """Whether the sound test says anything."""
        return self.cases >= LEAST_CASES and self.periods >= LEAST_PERIODS


def evidence_of(cases: Sequence[Case]) -> Evidence:
    """Return how much *cases* hold."""
    held = matching(cases)
    return Evidence(len(held), len({case.period for case in held}))


class Panel:
    """
    The standardised residuals of cases, by subject and period; several of one subject in one period are averaged.

    Args:
        cases: of one part.

    Attributes:
        subjects, periods: in order.
        residuals: (subjects, periods); NaN where there is no case.
        present: where there is one.
    """

    def __init__(self, cases: Sequence[Case]) -> None:
        self.subjects = sorted({case.subject for case in cases})
        self.periods = sorted({case.period for case in cases})
        self._rows = {subject: row for row, subject in enumerate(self.subjects)}
        self._columns = {period: column for column, period in enumerate(self.periods)}
        sums = np.zeros((len(self.subjects), len(self.periods)))
        self._counts = np.zeros_like(sums)
        for case in cases:
            cell = self._cell(case)
            sums[cell] += (case.outcome - case.reference) / case.sd
            self._counts[cell] += 1.0
        with np.errstate(invalid="ignore"):
            self.residuals: Floats = sums / self._counts
        self.present = self._counts > 0

    def _cell(self, case: Case) -> tuple[int, int]:
        return self._rows[case.subject], self._columns[case.period]

    def weights(self, cases: Sequence[Case]) -> Floats:
        """Return of each cell the number of its cases that match, as (subjects, periods)."""
        found = np.zeros_like(self._counts)
        for case in matching(cases):
            found[self._cell(case)] += 1.0
        return found

    def centred(self) -> Floats:
        """Return the residuals less the mean of their period, 0 where there is no case."""
        present = self.present
        means = np.where(present, self.residuals, 0.0).sum(axis=0) / np.maximum(present.sum(axis=0), 1)
        return np.where(present, self.residuals - means, 0.0)

    def centred_of(self, cases: Sequence[Case]) -> Floats:
        """Return by case what :meth:`centred` has in its cell."""
        centred = self.centred()
        return np.array([centred[self._cell(case)] for case in cases])

    def substitutes(self, permutations: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return who stands in for whom: (resamples, subjects, periods), from (resamples, subjects)."""
        present = self.present
        found = np.repeat(permutations[:, :, None], len(self.periods), axis=2)
        columns = np.arange(len(self.periods))
        rows = np.arange(len(permutations))[:, None, None]
        # Following the cycle of a permutation from a present subject ends at a present one.
        wanted = present[None, :, :]
        for _ in range(len(self.subjects)):
            absent = wanted & ~present[found, columns[None, None, :]]
            if not absent.any():
                break
            found = np.where(absent, permutations[rows, found], found)
        return np.where(wanted, found, np.arange(len(self.subjects))[None, :, None])


def holdout_p(
    cases: Sequence[Case],
    conditions: Sequence[Sequence[Case]],
    directions: Sequence[Direction],
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Floats:
    """
    Return a one-sided p-value for each candidate, all by the same permutations; NaN where a case is not finite.

    Args:
        cases: of the part, whatever matches.
        conditions: by candidate the same cases with its own matches.
        directions: by candidate.
        seed: of the permutations.
    """
    panel = Panel(cases)
    if np.isinf(panel.residuals).any() or np.isnan(panel.residuals[panel.present]).any():
        return np.full(len(conditions), np.nan)
    weights = np.stack([panel.weights(one).ravel() for one in conditions])
    signs = np.array([one.sign for one in directions])
    centred = panel.centred()
    observed = signs * (weights @ centred.ravel())
    bounds = observed - TOLERANCE * np.maximum(1.0, np.abs(observed))
    random = np.random.default_rng(seed)
    reached = np.zeros(len(conditions))
    columns = np.arange(len(panel.periods))
    chunk = max(1, _AT_ONCE // max(1, centred.size))
    for begin in range(0, resamples, chunk):
        size = min(chunk, resamples - begin)
        permutations = random.permuted(np.tile(np.arange(len(panel.subjects)), (size, 1)), axis=1)
        drawn = centred[panel.substitutes(permutations), columns[None, None, :]]
        statistics = signs[:, None] * (weights @ drawn.reshape(size, -1).T)
        reached += (statistics >= bounds[:, None]).sum(axis=1)
    return (1.0 + reached) / (1.0 + resamples)
