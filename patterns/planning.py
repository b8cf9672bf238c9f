"""
The effort of testing a pattern, before it is proposed: no outcome of validation or test cases is read.

To look at them would be a test that no family counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from math import ceil, sqrt
from typing import Final

from pydantic import BaseModel, ConfigDict
from scipy import stats

from imem.patterns.definition import PatternDefinition
from imem.patterns.evidence.holdout import LEAST_CASES, LEAST_CORRELATION, LEAST_PERIODS, evidence_of, exceeds, hit_rate
from imem.patterns.evidence.splits import Case, split

PART: Final = 0.15
"""Share of validation, and of test, in the cases."""

POWER: Final = 0.80
ALPHA: Final = 0.05
"""With which the smallest effect is stated that a test would find."""

RECENT: Final = timedelta(days=365)
"""From the cases of this time it follows how many are to come."""


class PlannedPart(BaseModel):
    """The matching cases of a part, and the periods that they are of; ``enough`` for the sound test."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cases: int
    matching: int
    periods: int
    enough: bool


class TestPlan(BaseModel):
    """
    The data that a test of a pattern would have.

    Attributes:
        key: the pattern's key.
        says: condition and claim in words.
        training, validation, test: the parts.
        embargoed: cases that are in none, since their outcome window crosses a boundary.
        subjects: of the matching cases.
        hit_rate: in the training cases; None without any.
        smallest_effect: in standard deviations of the outcome about the reference: what the test part would find with a
            probability of 80 %; None where it is too small for a test.
        verdict_at: when the parts can have enough at the earliest, if cases come as in the last year; None: none came.
        missing: what is missing until then, one sentence each; empty if nothing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    __test__ = False

    key: str
    says: str
    training: PlannedPart
    validation: PlannedPart
    test: PlannedPart
    embargoed: int
    subjects: int
    hit_rate: float | None
    smallest_effect: float | None
    verdict_at: datetime | None
    missing: tuple[str, ...]


def plan(definition: PatternDefinition, cases: Sequence[Case], now: datetime) -> TestPlan:
    """Return what a test of *definition* on *cases* would have to go by, as of *now*."""
    parts = split(cases)
    validation, test = _part(parts.validation), _part(parts.test)
    matching = [case for case in cases if case.matches]
    rate = hit_rate(parts.training, definition.claim)
    missing = []
    for name, part in (("validation", validation), ("test", test)):
        if part.matching < LEAST_CASES:
            missing.append(f"{name} has {part.matching} matching cases of {LEAST_CASES}.")
        if part.periods < LEAST_PERIODS:
            missing.append(f"{name} has matching cases in {part.periods} periods of {LEAST_PERIODS}.")
    if rate is None or not exceeds(rate, LEAST_CORRELATION):
        stated = "not defined" if rate is None else f"{rate:.2f}"
        missing.append(f"the hit rate in training is {stated}; later ones must be above {LEAST_CORRELATION}.")
    return TestPlan(
        key=definition.key,
        says=definition.words,
        training=_part(parts.training),
        validation=validation,
        test=test,
        embargoed=len(parts.embargoed),
        subjects=len({case.subject for case in matching}),
        hit_rate=rate,
        smallest_effect=smallest_effect(test.matching) if test.enough else None,
        verdict_at=now if validation.enough and test.enough else _verdict_at(definition, matching, now),
        missing=tuple(missing),
    )


def smallest_effect(matching: int) -> float:
    """Return the mean, in standard deviations, that a one-sided test of so many independent cases finds; normal."""
    return float((stats.norm.isf(ALPHA) + stats.norm.ppf(POWER)) / sqrt(matching))


def _part(cases: Sequence[Case]) -> PlannedPart:
    evidence = evidence_of(cases)
    return PlannedPart(cases=len(cases), matching=evidence.cases, periods=evidence.periods, enough=evidence.enough)


def _verdict_at(definition: PatternDefinition, matching: Sequence[Case], now: datetime) -> datetime | None:
    """Return when 15 hundredths of the matching cases, and of their periods, can be enough."""
    recent = [case for case in matching if case.known_at > now - RECENT]
    if not recent:
        return None
    more_cases = max(0, ceil(LEAST_CASES / PART) - len(matching))
    more_periods = max(0, ceil(LEAST_PERIODS / PART) - len({case.period for case in matching}))
    share = len({case.period for case in recent}) * definition.period.days / RECENT.days
    days = max(more_cases * RECENT.days / len(recent), more_periods * definition.period.days / min(1.0, share))
    return now + timedelta(days=ceil(days))
