"""
Whether a claim was right: the rules of settling, pure.

The kind of the metric says how a claim is read. *Binary*: its probability; right when it lies on the side of what
happened, 0.5 abstains. *Direction*: its sign against the sign of the outcome; neutral abstains, and against an outcome
of exactly zero any direction is wrong. *Value*: within the metric's tolerance, relative to the outcome.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import Final, NamedTuple

from imem.kg.kinds.metrics import Metric

TOLERANCE = 1e-9
"""Float noise never decides a boundary (credibility-and-contradictions, section 0)."""

LOG_BOUNDS = (0.001, 0.999)
"""The log score reads a probability no nearer to certainty than this."""

SIGNS = {"positive": 1.0, "negative": -1.0, "neutral": 0.0}
"""Directions as numbers."""


class QuestionScope(NamedTuple):
    """
    What tells questions apart that are answered at one moment.

    Attributes:
        period_start: when the period begins that ends then; None where the metric is of a moment.
        unit: of the value, as stated or else the metric's own; None where neither says.
    """

    period_start: datetime | None = None
    unit: str | None = None


NO_SCOPE: Final = QuestionScope()


class Claim(NamedTuple):
    """
    What an agent claimed about a question.

    Attributes:
        agent, domain: whose it is, and in which track record it counts.
        predicted_at: when the claim was known.
        probability, direction, value: what it says; the metric's kind tells which one counts.
        scope: of which period it speaks and in which unit; an outcome of another settles nothing of it.
    """

    agent: str
    domain: str
    predicted_at: datetime
    probability: float | None
    direction: str | None
    value: float | None
    scope: QuestionScope = NO_SCOPE


class Judgement(NamedTuple):
    """
    How a claim turned out.

    Attributes:
        stated: the probability, the sign, or the value claimed.
        happened: of a binary metric, 1 or 0.
        y: 1 right, 0 wrong, None abstained.
        brier: squared error of the probability, of binary claims that did not abstain.
        log_score: minus the logarithm of the probability given to what happened; likewise.
    """

    stated: float
    happened: int | None
    y: int | None
    brier: float | None
    log_score: float | None


def judge(metric: Metric, claim: Claim, actual: float) -> Judgement | None:
    """Return how *claim* on *metric* turned out, or None when one of the two cannot be read under that metric."""
    match metric.kind:
        case "binary":
            return _binary(claim.probability, actual)
        case "direction":
            return _direction(SIGNS.get(claim.direction or ""), actual)
        case "value":
            return _value(claim.value, actual, metric.tolerance or 0.0)


def brier(probability: float, happened: int) -> float:
    """Return the squared error of *probability*."""
    return (probability - happened) ** 2


def log_score(probability: float, happened: int) -> float:
    """Return minus the natural logarithm of the probability given to what happened, clipped to LOG_BOUNDS."""
    clipped = min(max(probability, LOG_BOUNDS[0]), LOG_BOUNDS[1])
    return -math.log(clipped if happened else 1.0 - clipped)


def _binary(probability: float | None, actual: float) -> Judgement | None:
    if probability is None or min(abs(actual), abs(actual - 1.0)) > TOLERANCE:
        return None  # An outcome that is neither yes nor no settles no question of yes or no.
    happened = round(actual)
    if abs(probability - 0.5) <= TOLERANCE:
        return Judgement(probability, happened, None, None, None)
    right = int((probability > 0.5) == (happened == 1))
    return Judgement(probability, happened, right, brier(probability, happened), log_score(probability, happened))


def _direction(sign: float | None, actual: float) -> Judgement | None:
    if sign is None:
        return None
    if sign == 0.0:
        return Judgement(sign, None, None, None, None)
    return Judgement(sign, None, int(sign * actual > TOLERANCE), None, None)


def _value(value: float | None, actual: float, tolerance: float) -> Judgement | None:
    if value is None:
        return None
    return Judgement(value, None, int(abs(value - actual) <= tolerance * abs(actual) + TOLERANCE), None, None)
