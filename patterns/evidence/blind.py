"""
Tier 2: pairs of forecasts, with the pattern and without it, whose outcomes came later. Pure.

As designed: the pattern must have helped more than 1.5 times as often as it hurt, in ten comparisons or more. Sound: an
exact sign-flip permutation test on the mean gain by blocks of time, at two planned looks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from math import isfinite
from statistics import fmean
from typing import Final, NamedTuple

import numpy as np
from scipy import stats

from imem.patterns.evidence.holdout import RESAMPLES, SEED, exceeds

HELPED: Final = 0.9
HURT: Final = 1.1
"""Share of the error without the pattern below which it helped, and above which it hurt."""

LEAST_COMPARISONS: Final = 10
MORE_OFTEN: Final = 1.5
"""How many times as often as it hurt a pattern must have helped."""

LEAST_BLOCKS: Final = 12
LEAST_VARIANCE: Final = 5.0
"""Sum of p(1-p) over the pairs without which rare events make sign flips find what is not there."""

ALPHA: Final = 0.025
"""Significance level of each of the two looks."""

UNDEFINED: Final = "undefined_predictions"
"""Why a test fails: a forecast or an outcome is no number."""

LOOKS: Final = (6, 12)
"""Months after the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """
    Two forecasts of one question, and what happened.

    Attributes:
        cluster: what is not independent of other pairs of it, as a company.
        target_at: of the question; aware.
        with_pattern, without_pattern: the forecasts, in the unit of the outcome.
        actual: what happened.
        event: whether the forecasts are probabilities of an event, and *actual* is 1.0 or 0.0.
    """

    cluster: str
    target_at: datetime
    with_pattern: float
    without_pattern: float
    actual: float
    event: bool

    @property
    def completed(self) -> bool:
        """Whether it can be compared: all three are numbers."""
        return all(map(isfinite, (self.with_pattern, self.without_pattern, self.actual)))

    @property
    def helped(self) -> bool | None:
        """Whether the pattern made the forecast better; None: no material difference."""
        return helped(abs(self.actual - self.with_pattern), abs(self.actual - self.without_pattern))

    def error(self, forecast: float) -> float:
        """
        Return the error of *forecast*: of a value the absolute one, of an event its square.

        Absolute errors of probabilities are smallest on average at 0 or 1, whatever the chance is: by them a pattern
        that only exaggerates would pass. The square is least at the chance itself (Brier 1950).
        """
        return abs(self.actual - forecast) ** (2 if self.event else 1)

    @property
    def gain(self) -> float:
        """By how much the error is smaller with the pattern."""
        return self.error(self.without_pattern) - self.error(self.with_pattern)


def helped(with_pattern: float, without_pattern: float) -> bool | None:
    """Return whether the first error is smaller than the second by a tenth; False if larger by one; None between."""
    if exceeds(HELPED * without_pattern, with_pattern):
        return True
    return False if exceeds(with_pattern, HURT * without_pattern) else None


class DesignedBlind(NamedTuple):
    """
    The gate of the design.

    Attributes:
        helped, hurt, neither: comparisons.
        ratio: helped to hurt; None where it never hurt.
        failure: why it failed; None if it passed.
    """

    helped: int
    hurt: int
    neither: int
    ratio: float | None
    failure: str | None


def designed_blind(pairs: Iterable[Pair]) -> DesignedBlind:
    """Return what the gate of the design says of the completed comparisons."""
    verdicts = [pair.helped for pair in pairs if pair.completed]
    good, bad = sum(one is True for one in verdicts), sum(one is False for one in verdicts)
    failure = None
    if len(verdicts) < LEAST_COMPARISONS:
        failure = "too_few_comparisons"
    elif not exceeds(good, MORE_OFTEN * bad):
        failure = "helped_too_seldom"
    return DesignedBlind(good, bad, len(verdicts) - good - bad, good / bad if bad else None, failure)


class Look(StrEnum):
    """The result of a planned look at a blind test."""

    PASSED = "passed"
    INCONCLUSIVE = "inconclusive"
    """Wait for the next look, or for data."""
    FAILED = "failed"


class SoundBlind(NamedTuple):
    """
    The sound test.

    Attributes:
        blocks: of time that the pairs are of.
        gain: mean over the blocks.
        p: one-sided; None where the evidence does not suffice.
        reason: why there is no p; None if there is one.
    """

    blocks: int
    gain: float | None
    p: float | None
    reason: str | None


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def sound_blind(pairs: Sequence[Pair], horizon: timedelta) -> SoundBlind:
    """
    Return the sign-flip test of the mean gain by blocks of ``target_at`` that are one *horizon* long.

    Of events the pairs count by Σp(1-p), p without the pattern; values have no such bound.
    """
    blocks: defaultdict[int, list[float]] = defaultdict(list)
    for pair in pairs:
        blocks[(pair.target_at - _EPOCH) // horizon].append(pair.gain)
    gains = [fmean(one) for one in blocks.values()]
    mean = fmean(gains) if gains else None
    if not np.isfinite(gains).all():
        return SoundBlind(len(gains), None, None, UNDEFINED)
    if len(gains) < LEAST_BLOCKS:
        return SoundBlind(len(gains), mean, None, f"fewer than {LEAST_BLOCKS} blocks of time")
    events = all(pair.event for pair in pairs)
    variance = sum(pair.without_pattern * (1.0 - pair.without_pattern) for pair in pairs) if events else None
    if variance is not None and variance < LEAST_VARIANCE:
        return SoundBlind(len(gains), mean, None, f"events too rare: Σp(1-p) is {variance:.2g}")
    return SoundBlind(len(gains), mean, sign_flip_p(gains), None)


def sign_flip_p(differences: Sequence[float]) -> float:
    """Return the one-sided p-value of a positive mean; exact up to 2^13 sign patterns, else by resamples."""
    found = stats.permutation_test(
        (np.asarray(differences, dtype=float),),
        lambda sample, axis=-1: np.mean(sample, axis=axis),
        permutation_type="samples",
        alternative="greater",
        n_resamples=RESAMPLES,
        vectorized=True,
        rng=np.random.default_rng(SEED),
    )
    return float(found.pvalue)


def look_of(month: int, found: DesignedBlind, sound: SoundBlind | None) -> tuple[Look, str | None]:
    """
    Return what a planned look says, and why where it did not pass.

    Args:
        month: of the look, 6 or 12; what is not passed at the first goes on to the second, and what has too few data
            for a verdict at the second waits for them.
        sound: the sound test; None where the design alone decides.
    """
    if sound is None:
        if found.failure is None:
            return Look.PASSED, None
        return (Look.INCONCLUSIVE if found.failure == "too_few_comparisons" else Look.FAILED), found.failure
    reason = found.failure or sound.reason
    if reason is None and sound.p is not None:
        if sound.p < ALPHA:
            return Look.PASSED, None
        reason = f"p {sound.p:.4f} is not below {ALPHA}"
    if sound.reason == UNDEFINED:
        return Look.FAILED, UNDEFINED
    short = found.failure == "too_few_comparisons" or (found.failure is None and sound.p is None)
    return (Look.INCONCLUSIVE if month < LOOKS[-1] or short else Look.FAILED), reason
