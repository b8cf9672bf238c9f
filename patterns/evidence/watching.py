"""Probation, and the decay of active patterns (pattern-validation, sections 8 and 9). Pure."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from scipy import stats

from imem.journal.errors import TransitionRefused
from imem.kg.kinds.enums import PatternStatus
from imem.patterns.evidence.holdout import LEAST_CORRELATION, TOLERANCE, exceeds

# Probation


class Frequency(StrEnum):
    """How often the condition of a pattern comes about."""

    MONTHLY = "monthly"
    QUARTERLY = "quarterly"
    ANNUAL = "annual"
    UNKNOWN = "unknown"


_DAYS: Final = {Frequency.MONTHLY: 90, Frequency.QUARTERLY: 180, Frequency.ANNUAL: 365, Frequency.UNKNOWN: 180}

EXTENSION: Final = timedelta(days=90)
MOST_EXTENSIONS: Final = 2
KEPT_SHARE: Final = 0.9
"""Share of its initial success that a pattern must keep through its probation."""


def probation_length(frequency: Frequency, extensions: int = 0) -> timedelta:
    """
    Return the length of a probation, its extensions included.

    Raises:
        TransitionRefused: there are more than :data:`MOST_EXTENSIONS`.
    """
    if extensions > MOST_EXTENSIONS:
        raise TransitionRefused(f"A probation is extended at most {MOST_EXTENSIONS} times.")
    return timedelta(days=_DAYS[frequency]) + extensions * EXTENSION


def required_occurrences(initial: float, occurrences: int) -> int:
    """Return the new occurrences that a probation asks for, by the *initial* success and its *occurrences*."""
    if not exceeds(0.8, initial) and occurrences >= 4:
        return 2
    return 5 if exceeds(0.75, initial) else 3


QUARTER: Final = 3
"""Calendar months after which new cases of a pattern from the archive are looked at."""

CONFIRMATIONS: Final = 2
"""Quarters that must confirm it; before so many have passed it is not deprecated again."""


class ProbationEnd(StrEnum):
    """The result of a probation at its deadline."""

    PASS = "pass"  # noqa: S105 - no password
    EXTEND = "extend"
    REJECT = "reject"


def probation_end(*, required: int, new: int, initial: float, updated: float | None, extensions: int) -> ProbationEnd:
    """
    Return what a probation ends with at its deadline.

    Args:
        required, new: occurrences.
        initial, updated: success before, and with the new occurrences; None where it is not defined.
        extensions: that it has had.
    """
    if new >= required:
        kept = updated is not None and updated >= KEPT_SHARE * initial - TOLERANCE
        return ProbationEnd.PASS if kept else ProbationEnd.REJECT
    return ProbationEnd.EXTEND if 2 * new >= required and extensions < MOST_EXTENSIONS else ProbationEnd.REJECT


# Decay

WINDOW: Final = timedelta(days=90)
"""Length of a window; windows do not overlap, and only the end of one decides."""

HEALTHY: Final = 0.85
DECAYED: Final = 0.80
"""Shares of the baseline's success."""

LOW: Final = 0.70
"""Success below which the design puts a pattern on probation that is watched."""

ALARMING: Final = 0.30
"""A fall of the success by more than this share of the baseline raises a critical alert."""

LEAST_WINDOW: Final = 10
ALPHA: Final = 0.0125
"""Cases of a window, and significance, with which decay is beyond doubt."""


class Counts(NamedTuple):
    """Successes among cases."""

    successes: int
    cases: int

    @property
    def rate(self) -> float | None:
        """The share of successes; None without cases."""
        return self.successes / self.cases if self.cases else None


def confirmed(new: Counts, baseline: Counts) -> bool | None:
    """
    Return whether new cases confirm a pattern that is back from the archive; None if they are too few.

    They do with a success above 0.65 (archives-and-retention, section 8) that keeps up with the baseline.
    """
    before, now = baseline.rate, new.rate
    if before is None or now is None or new.cases < required_occurrences(before, baseline.cases):
        return None
    return exceeds(now, LEAST_CORRELATION) and now >= KEPT_SHARE * before - TOLERANCE


class Health(StrEnum):
    """How an active pattern fares."""

    HEALTHY = "healthy"
    WATCH = "watch"
    PROBATION = "probation"
    DEPRECATED = "deprecated"
    UNKNOWN = "unknown"
    """There were no cases."""


class Decay(NamedTuple):
    """
    The verdict of a window.

    Attributes:
        ratio: success of the window to that of the baseline; None where one is not defined.
        designed: what the design would do.
        sound: what is done: the worse of both only where the sound test agrees.
        p: of Boschloo's exact test that the window's success is below the baseline's; None where it was not needed.
        alarming: whether the fall raises a critical alert.
    """

    ratio: float | None
    designed: Health
    sound: Health
    p: float | None
    alarming: bool

    @property
    def status(self) -> PatternStatus | None:
        """The status that the pattern enters; None: it stays active."""
        return {Health.PROBATION: PatternStatus.PROBATIONARY, Health.DEPRECATED: PatternStatus.DEPRECATED}.get(
            self.sound
        )


def decay(window: Counts, baseline: Counts) -> Decay:
    """
    Return what the close of a window says of an active pattern.

    Args:
        window: cases that match the condition in the window, whether or not a decision cited the pattern.
        baseline: of the test and blind cases, which did not shape it.
    """
    now, before = window.rate, baseline.rate
    if now is None or not before:
        return Decay(None, Health.UNKNOWN, Health.UNKNOWN, None, alarming=False)
    ratio = now / before
    if not exceeds(HEALTHY, ratio):
        designed = Health.HEALTHY
    elif exceeds(DECAYED, ratio):
        designed = Health.DEPRECATED
    else:
        designed = Health.PROBATION if exceeds(LOW, now) else Health.WATCH
    if designed is not Health.DEPRECATED:
        return Decay(ratio, designed, designed if designed is Health.HEALTHY else Health.WATCH, None, alarming=False)
    p = boschloo_p(window, baseline)
    sure = window.cases >= LEAST_WINDOW and p < ALPHA
    sound = Health.DEPRECATED if sure else Health.PROBATION
    return Decay(ratio, designed, sound, p, alarming=exceeds(1.0 - ALARMING, ratio))


def boschloo_p(window: Counts, baseline: Counts) -> float:
    """Return the p-value of Boschloo's exact test (1970), one-sided: the window's success is below the baseline's."""
    table = [
        [window.successes, baseline.successes],
        [window.cases - window.successes, baseline.cases - baseline.successes],
    ]
    return float(stats.boschloo_exact(table, alternative="less").pvalue)
