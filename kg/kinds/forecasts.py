"""Forecasts of decisions: what a decision expects of a metric of its subject, at up to four checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from math import expm1, log1p, sqrt
from typing import Any, Final, Self

from pydantic import Field, model_validator

from imem.kg.kinds.base import StrictModel
from imem.kg.kinds.fields import Number, ShortText, refuse
from imem.kg.kinds.metrics import metric_of

CHECKPOINTS: Final = (30, 90, 180, 365)
"""Days after a decision at which it is compared with what happened (postmortem-and-gates, section 1)."""

TOTAL_RETURN: Final = "total_return"
"""The metric of a forecast that names none: the return of the subject since the decision, with dividends."""


class ForecastPoint(StrictModel):
    """
    The expected value at one checkpoint.

    Attributes:
        days: of the checkpoint, one of :data:`CHECKPOINTS`.
        predicted: the value, in the unit of the metric.
        low, high: an interval that the value lies in as a rule; both or neither.
    """

    days: int
    predicted: Number
    low: Number | None = None
    high: Number | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.days not in CHECKPOINTS:
            raise refuse("days", f"must be one of {', '.join(map(str, CHECKPOINTS))}.")
        if (self.low is None) != (self.high is None):
            raise refuse("low" if self.low is None else "high", "is needed: an interval has two ends.")
        if self.low is not None and self.high is not None and not self.low <= self.predicted <= self.high:
            raise refuse("predicted", "must lie in the interval from low to high.")
        return self


class Forecast(StrictModel):
    """
    The expectation of a decision.

    ::

        Forecast.of_return(0.20, low=-0.10, high=0.50)  # in a year, and on the way there
        Forecast(metric="revenue", points=[ForecastPoint(days=365, predicted=9.5e9)])

    Attributes:
        metric: a registered metric that is settled by its value.
        points: by checkpoint, at least one.
    """

    metric: ShortText = TOTAL_RETURN
    points: tuple[ForecastPoint, ...] = Field(min_length=1, max_length=len(CHECKPOINTS))

    @model_validator(mode="after")
    def _measurable(self) -> Self:
        known = metric_of(self.metric)
        if known is None or known.kind != "value":
            raise refuse("metric", "is no registered metric with values, so that nothing could be compared with it.")
        days = [one.days for one in self.points]
        if days != sorted(set(days)):
            raise refuse("points", "must have each checkpoint once, in order.")
        least = min(one.predicted if one.low is None else one.low for one in self.points)
        if self.metric == TOTAL_RETURN and least < -1:
            raise refuse("points", "cannot lose more than everything: a return is at least -1.")
        return self

    @classmethod
    def of_return(
        cls, predicted: float, *, days: int = CHECKPOINTS[-1], low: float | None = None, high: float | None = None
    ) -> Self:
        """
        Return the forecast of a total return, with the checkpoints before *days* on its geometric path.

        A return r in D days is (1 + r)^(d / D) - 1 in d days; the distances of *low* and *high* from it grow with the
        square root of the time, as those of a random walk do.

        Args:
            predicted: as a fraction: 0.2 is 20 percent.
            days: when, one of :data:`CHECKPOINTS`.
            low, high: the interval then.

        Raises:
            BadInput: a value is wrong; names it.
        """
        last = ForecastPoint(days=days, predicted=predicted, low=low, high=high)
        return cls(points=tuple(_on_the_way(last, day) for day in CHECKPOINTS if day <= days))

    def stored(self) -> dict[str, Any]:
        """Return it as JSON types, as a decision stores it."""
        return self.model_dump(mode="json", exclude_none=True)

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        """
        Return a forecast that a decision stores.

        Raises:
            BadInput: it is none; names the field.
        """
        return cls(**stored)


def _on_the_way(last: ForecastPoint, days: int) -> ForecastPoint:
    if days == last.days:
        return last
    part = days / last.days
    predicted = expm1(log1p(last.predicted) * part) if last.predicted > -1 else -1.0
    if last.low is None or last.high is None:
        return ForecastPoint(days=days, predicted=predicted)
    wide = sqrt(part)
    low = max(predicted - (last.predicted - last.low) * wide, -1.0)
    return ForecastPoint(days=days, predicted=predicted, low=low, high=predicted + (last.high - last.predicted) * wide)
