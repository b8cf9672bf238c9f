"""
The context of a claim, and the evidence of one agent in one context. Pure.

A context has six dimensions (credibility-and-contradictions, section 2). A dimension is None where the claim has none,
as a question about influenza has no sector. Two contexts match in a dimension when they have the same value there; None
matches None.

The horizon is that from the claim to its ``target_at``, in four classes: ``week`` (up to 7 days), ``month`` (up to 31),
``year`` (up to 366) and ``longer``. The metric type is how the metric is settled: ``binary``, ``direction`` or
``value``.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, NamedTuple


class ClaimContext(NamedTuple):
    """
    The context in which a claim was made.

    Attributes:
        sector, company_size, growth_stage: of the subject, as known when the claim was made.
        metric_type: kind of the metric.
        time_horizon: class of the horizon; see :func:`horizon_of`.
        regime: of the market when the claim was made.
    """

    sector: str | None = None
    metric_type: str | None = None
    time_horizon: str | None = None
    company_size: str | None = None
    growth_stage: str | None = None
    regime: str | None = None


DIMENSIONS: Final = ClaimContext._fields


def matches(one: ClaimContext, other: ClaimContext) -> int:
    """Return in how many of the six dimensions two contexts have the same value."""
    return sum(mine == theirs for mine, theirs in zip(one, other, strict=True))


HORIZONS: Final = (("week", timedelta(days=7)), ("month", timedelta(days=31)), ("year", timedelta(days=366)))
"""Classes of the horizon with the longest that each includes; what is longer than all is :data:`LONGER`."""

LONGER: Final = "longer"


def horizon_of(predicted_at: datetime, target_at: datetime) -> str:
    """Return the class of the horizon of a claim made at *predicted_at*."""
    horizon = target_at - predicted_at
    return next((name for name, longest in HORIZONS if horizon <= longest), LONGER)


class ContextCell(NamedTuple):
    """
    The evidence of one agent in one domain and context, decayed to a moment.

    The rows of one observation, which have the same ``target_at``, may be in several cells; each counts 1/rows of it.

    Attributes:
        context: of its claims.
        weight: sum over the rows of their decayed shares of an observation.
        successes: the same, of the right rows.
        squares: sum over the observations of the squared decayed weight that each has in the cell.
        observations: like *weight*, not decayed.
        right: like *successes*, not decayed.
        rows: scored claims.
        newest_resolved_at: when the newest outcome of a claim in the cell was first known; None without claims.
    """

    context: ClaimContext
    weight: float
    successes: float
    squares: float
    observations: float
    right: float
    rows: int
    newest_resolved_at: datetime | None
