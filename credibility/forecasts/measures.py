"""
How far an outcome is from what was forecast. Pure.

The deviation is |a - p| / max(|p|, floor), in exact decimals, so that a boundary means what it says
(postmortem-and-gates, section 1). A forecast is *off* if that is above 0.30 and more than noise: outside the interval
that the forecast states. Without an interval it cannot be said, and the deviation is only counted.
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


class DeviationClass(StrEnum):
    """What a deviation means."""

    NONE = "none"
    """It is 0.30 at most."""
    NOISE = "noise"
    """It is above, and inside the interval that was stated."""
    UNCERTAIN = "uncertain"
    """It is above, and nothing says how much is noise."""
    OFF = "off"
    """It is above, and outside the interval."""


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
    """Return |a - p| / max(|p|, floor); None where that divides by zero."""
    expected, happened = Decimal(repr(predicted)), Decimal(repr(actual))
    scale = max(abs(expected), Decimal(repr(floor)))
    if not scale:
        return None
    return abs(happened - expected) / scale


def measure(point: ForecastPoint, metric: Metric, actual: float) -> Measurement:
    """Return how *actual* compares with what was forecast."""
    found = deviation(point.predicted, actual, metric.floor or 0.0)
    exact = actual == point.predicted
    within = found <= Decimal(repr(metric.tolerance or 0.0)) if found is not None else exact
    large = found > DEVIATION if found is not None else not exact
    if not large:
        verdict = DeviationClass.NONE
    elif point.low is None or point.high is None:
        verdict = DeviationClass.UNCERTAIN
    else:
        verdict = DeviationClass.NOISE if point.low <= actual <= point.high else DeviationClass.OFF
    return Measurement(actual, found, float(within), verdict)
