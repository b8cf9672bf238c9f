"""
Whether an agent gets better or worse, as designed and by an exact test (credibility-and-contradictions, 2, 4). Pure.

As designed a line is fitted to the accuracy of up to 52 weeks. Its R squared is no significance, so the flag beside the
score is a rank test on disjoint buckets of four weeks: exact Kendall tau, and the slope of Theil and Sen.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import correlation, linear_regression, median
from typing import Final, NamedTuple

from imem.credibility.posterior import DAYS_IN_YEAR
from imem.credibility.settlement import TOLERANCE
from imem.kg.kinds.enums import TrendDirection

WEEKS: Final = 52
"""Weeks before the moment that trends are fitted to; that many points are needed for the as-designed adjustment."""

STRONG: Final = 0.5
"""R squared above which an as-designed trend is to be reviewed."""

STEEP: Final = 0.05
"""Change of accuracy a year beyond which it is improving or degrading."""

BUCKET_WEEKS: Final = 4
BUCKET_OUTCOMES: Final = 5
"""Least outcomes (rows) of a bucket; its accuracy is the mean over observations."""

BUCKETS: Final = 8
"""Least buckets of a test."""

SIGNIFICANT: Final = 0.05

_YEARS_IN_WEEK: Final = 7 / DAYS_IN_YEAR


class WeekPoint(NamedTuple):
    """
    Outcomes of a week.

    Attributes:
        week: 0 for the seven days that end at the moment asked for, 1 for those before, and so on.
        observations: claims with one ``target_at`` count once.
        right: sum of the mean of each observation.
        rows: outcomes.
    """

    week: int
    observations: float
    right: float
    rows: int


@dataclass(frozen=True, slots=True)
class LinearTrend:
    """
    The as-designed trend.

    Attributes:
        points: weeks with outcomes.
        current: accuracy of the latest of them; None without any.
        slope: change of accuracy a year; None below two points.
        r_squared: share of the variance that the line explains.
        direction: by the slope.
        extrapolated: accuracy six months ahead, 0 to 0.95.
    """

    points: int
    current: float | None
    slope: float | None
    r_squared: float | None
    direction: TrendDirection | None
    extrapolated: float | None

    @property
    def strong(self) -> bool:
        """Whether it is to be reviewed."""
        return self.r_squared is not None and self.r_squared > STRONG + TOLERANCE


@dataclass(frozen=True, slots=True)
class RankTrend:
    """
    The rank test on buckets.

    Attributes:
        buckets: with enough outcomes.
        tau, p_value: Kendall's; None below :data:`BUCKETS` buckets, or where all are equal.
        slope: of Theil and Sen, a year.
        direction: of a significant trend; None otherwise.
    """

    buckets: int
    tau: float | None = None
    p_value: float | None = None
    slope: float | None = None
    direction: TrendDirection | None = None


def linear_trend(weeks: Sequence[WeekPoint]) -> LinearTrend:
    """Return the as-designed trend of the weeks before :data:`WEEKS`."""
    points = sorted((one for one in weeks if 0 <= one.week < WEEKS and one.observations > 0.0), reverse=True)
    shares = [one.right / one.observations for one in points]
    if len(points) < 2:
        return LinearTrend(len(points), shares[-1] if shares else None, None, None, None, None)
    years = [-one.week * _YEARS_IN_WEEK for one in points]
    slope = linear_regression(years, shares).slope
    # Of equal shares there is no correlation: nothing is there to explain.
    explained = correlation(years, shares) ** 2 if max(shares) > min(shares) else 0.0
    return LinearTrend(len(points), shares[-1], slope, explained, _direction(slope), extrapolated(shares[-1], slope))


def extrapolated(current: float, slope: float) -> float:
    """Return the accuracy six months ahead, clamped to 0 to 0.95."""
    return min(max(current + 0.5 * slope, 0.0), 0.95)


def rank_trend(weeks: Sequence[WeekPoint]) -> RankTrend:
    """Return the rank test on the disjoint four-week buckets of the weeks before :data:`WEEKS`."""
    sums: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for one in weeks:
        if 0 <= one.week < WEEKS:
            for place, value in enumerate((one.observations, one.right, one.rows)):
                sums[one.week // BUCKET_WEEKS][place] += value
    enough = {bucket: of for bucket, of in sums.items() if of[2] >= BUCKET_OUTCOMES}
    ordered = sorted(enough, reverse=True)
    return rank_test(
        [-bucket * BUCKET_WEEKS * _YEARS_IN_WEEK for bucket in ordered],
        [enough[bucket][1] / enough[bucket][0] for bucket in ordered],
    )


def rank_test(years: Sequence[float], shares: Sequence[float]) -> RankTrend:
    """Return the test of *shares* against their times, in years; ties leave it approximate."""
    if len(shares) < BUCKETS or max(shares) - min(shares) <= TOLERANCE:
        return RankTrend(len(shares))
    points = sorted(zip(years, shares, strict=True))
    tau, p_value = _kendall([share for _, share in points])
    slope = median((late - early) / (to - since) for (since, early), (to, late) in combinations(points, 2))
    found = None
    if p_value < SIGNIFICANT - TOLERANCE:
        found = TrendDirection.IMPROVING if tau > 0.0 else TrendDirection.DEGRADING
    return RankTrend(len(shares), tau, p_value, slope, found)


def _direction(slope: float) -> TrendDirection:
    if slope > STEEP + TOLERANCE:
        return TrendDirection.IMPROVING
    return TrendDirection.DEGRADING if slope < -STEEP - TOLERANCE else TrendDirection.STABLE


def _kendall(values: Sequence[float]) -> tuple[float, float]:
    """
    Return tau b of *values*, not all equal, against their order, and its two-sided p-value.

    The p-value is exact without ties, else by the normal approximation (Kendall, Rank Correlation Methods, 1970,
    chapters 1, 3 and 5). scipy.stats says the same; importing it takes longer than a read may take.
    """
    n = len(values)
    pairs = n * (n - 1) // 2
    score = sum(int(late > early) - int(late < early) for early, late in combinations(values, 2))
    ties = [number for number in Counter(values).values() if number > 1]
    tau = score / math.sqrt(pairs * (pairs - sum(number * (number - 1) // 2 for number in ties)))
    if ties:
        spread = n * (n - 1) * (2 * n + 5) - sum(number * (number - 1) * (2 * number + 5) for number in ties)
        return tau, math.erfc(abs(score) / math.sqrt(spread / 18) / math.sqrt(2))
    # How many orders of n values have 0, 1, 2 … pairs the wrong way round: each value stands before 0 to all of the
    # smaller ones.
    orders = [1]
    for more in range(1, n):
        orders = [sum(orders[max(0, wrong - more) : wrong + 1]) for wrong in range(len(orders) + more)]
    return tau, min(1.0, 2 * sum(orders[: (pairs - abs(score)) // 2 + 1]) / math.factorial(n))
