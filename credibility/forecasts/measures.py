"""
How far an outcome is from what was forecast. Pure.

The deviation is abs(a - p) / max(abs(p), floor), in exact decimals, so that a boundary means what it says
(postmortem-and-gates, section 1). A forecast is *off* if that is above 0.30 and more than noise: outside the interval
that the forecast states or, without one, farther from it than 1.645 standard deviations of what happens anyhow in the
time. Without either it cannot be said, and the deviation is only counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Final

from imem.kg.kinds.forecasts import ForecastPoint
from imem.kg.kinds.metrics import Metric

DEVIATION: Final = Decimal("0.30")
"""Above this a deviation is one; 0.30 itself is none."""

NOISE: Final = Decimal("1.645")
"""Within so many standard deviations on either side nine of ten values lie by chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviationPolicy:
    """
    Thresholds above which a difference counts as a deviation.

    Attributes:
        deviation: relative to the forecast; above it.
        noise: in standard deviations of the metric, where no interval was stated; above it.
    """

    deviation: Decimal = DEVIATION
    noise: Decimal = NOISE


POLICY: Final = DeviationPolicy()
"""The policy in force."""


class DeviationClass(StrEnum):
    """The meaning of a deviation."""

    NONE = "none"
    """It is 0.30 at most."""
    NOISE = "noise"
    """It is above, and inside the interval that was stated, or no more than what happens by chance."""
    UNCERTAIN = "uncertain"
    """It is above, and nothing says how much is noise."""
    OFF = "off"
    """It is above, and more than noise."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """
    An outcome beside its forecast.

    Attributes:
        actual: the outcome.
        deviation: relative to the forecast; None where the forecast is zero and the metric has no floor.
        accuracy: 1 inside the tolerance of the metric, else 0.
        verdict: what the deviation means.
    """

    actual: float
    deviation: Decimal | None
    accuracy: float
    verdict: DeviationClass


def deviation(predicted: float, actual: float, floor: float) -> Decimal | None:
    """Return abs(a - p) / max(abs(p), floor); None where that divides by zero."""
    expected, happened = Decimal(repr(predicted)), Decimal(repr(actual))
    scale = max(abs(expected), Decimal(repr(floor)))
    if not scale:
        return None
    return abs(happened - expected) / scale


def measure(
    point: ForecastPoint,
    metric: Metric,
    actual: float,
    volatility: float | None = None,
    policy: DeviationPolicy = POLICY,
) -> Measurement:
    """
    Return how *actual* compares with what was forecast.

    Args:
        volatility: standard deviation of the metric over the time of the forecast; None if it is unknown.
        policy: what counts as a deviation.
    """
    found = deviation(point.predicted, actual, metric.floor or 0.0)
    exact = actual == point.predicted
    within = found <= Decimal(repr(metric.tolerance or 0.0)) if found is not None else exact
    large = found > policy.deviation if found is not None else not exact
    verdict = _meaning(point, actual, volatility, policy) if large else DeviationClass.NONE
    return Measurement(actual, found, float(within), verdict)


def _meaning(point: ForecastPoint, actual: float, volatility: float | None, policy: DeviationPolicy) -> DeviationClass:
    """Return what a deviation above the limit means."""
    if point.low is not None and point.high is not None:
        noise = point.low <= actual <= point.high
    elif volatility is None:
        return DeviationClass.UNCERTAIN
    else:
        distance = abs(Decimal(repr(actual)) - Decimal(repr(point.predicted)))
        noise = distance <= policy.noise * Decimal(repr(volatility))
    return DeviationClass.NOISE if noise else DeviationClass.OFF
