"""
Rules of settlement: whether a claim was right. Pure.

The metric's kind decides. *Binary*: the probability is right when it lies on the side of what happened; 0.5 abstains.
*Direction*: the sign is compared with that of the outcome; neutral abstains, and against an outcome of exactly zero
any direction is wrong. *Value*: right within the metric's tolerance, relative to the outcome.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import Final, NamedTuple

from imem.kg.kinds.metrics import Metric

TOLERANCE = 1e-9
"""Tolerance of comparisons at a boundary (credibility-and-contradictions, section 0)."""

LOG_BOUNDS = (0.001, 0.999)
"""Bounds to which a probability is clipped in the log score."""

SIGNS = {"positive": 1.0, "negative": -1.0, "neutral": 0.0}
"""Directions as numbers."""


class QuestionScope(NamedTuple):
    """
    The fields that distinguish questions with the same subject, metric and ``target_at``.

    Attributes:
        period_start: start of the period that ends at ``target_at``; None for a metric of a moment.
        unit: unit of the value as recorded, else the metric's own; None if neither is given.
    """

    period_start: datetime | None = None
    unit: str | None = None


NO_SCOPE: Final = QuestionScope()


class Claim(NamedTuple):
    """
    An agent's claim about a question.

    Attributes:
        agent, domain: the track record in which it counts.
        predicted_at: when the claim was known.
        probability, direction, value: its content; the metric's kind tells which one counts.
        scope: its period and unit; only an outcome of the same scope settles it.
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
        happened: 1 or 0 for a binary metric, else None.
        y: 1 right, 0 wrong, None abstained.
        brier: squared error of the probability, for binary claims that did not abstain.
        log_score: minus the logarithm of the probability given to what happened, for the same claims.
    """

    stated: float
    happened: int | None
    y: int | None
    brier: float | None
    log_score: float | None


def judge(metric: Metric, claim: Claim, actual: float) -> Judgement | None:
    """Return how *claim* turned out, or None if claim or outcome has no value of the metric's kind."""
    match metric.kind:
        case "binary":
            return _binary(claim.probability, actual) if metric.permits(actual) else None
        case "direction":
            return _direction(SIGNS.get(claim.direction or ""), actual)
        case "value":
            return _value(claim.value, actual, metric.tolerance or 0.0)


def signed_error(metric: Metric, judged: Judgement, actual: float) -> float | None:
    """
    Return the signed error of a claim, -1 to 1; None if it abstained.

    Of a probability it is what it lacks to the answer, of a direction the wrong sign, of a value the relative error.
    Its square is the loss by which agents are compared on common questions; of a probability that is the Brier score.
    """
    if judged.y is None:
        return None
    if judged.happened is not None:
        return judged.stated - judged.happened
    if metric.kind == "direction":
        return 0.0 if judged.y else judged.stated
    difference = judged.stated - actual
    scale = max(abs(actual), abs(difference))
    return difference / scale if scale else 0.0


def brier(probability: float, happened: int) -> float:
    """Return the squared error of *probability*."""
    return (probability - happened) ** 2


def log_score(probability: float, happened: int) -> float:
    """Return minus the natural logarithm of the probability given to what happened, clipped to LOG_BOUNDS."""
    clipped = min(max(probability, LOG_BOUNDS[0]), LOG_BOUNDS[1])
    return -math.log(clipped if happened else 1.0 - clipped)


def _binary(probability: float | None, actual: float) -> Judgement | None:
    if probability is None:
        return None
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
