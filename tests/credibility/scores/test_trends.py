"""Trends: the line as designed, and the rank test on buckets."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from imem.credibility.scores.trends import WeekPoint, linear_trend, rank_test, rank_trend
from imem.kg.kinds.enums import TrendDirection

EXAMPLE = (0.65, 0.70, 0.68, 0.74, 0.77, 0.75, 0.80, 0.83)


def weeks(shares: list[float], rows: int = 5) -> list[WeekPoint]:
    """Return weeks, the oldest first."""
    last = len(shares) - 1
    return [WeekPoint(last - place, 1.0, share, rows) for place, share in enumerate(shares)]


def test_the_line_through_52_weeks() -> None:
    found = linear_trend(weeks([0.5 + 0.005 * week for week in range(52)]))

    assert found.points == 52
    assert found.slope == pytest.approx(0.005 * 365.25 / 7)
    assert found.r_squared == pytest.approx(1.0)
    assert found.strong
    assert found.direction is TrendDirection.IMPROVING
    assert found.current == pytest.approx(0.755)
    assert found.extrapolated == pytest.approx(0.755 + 0.5 * 0.005 * 365.25 / 7)


def test_older_weeks_and_empty_ones_do_not_count() -> None:
    found = linear_trend([*weeks([0.5, 0.6]), WeekPoint(52, 1.0, 0.0, 5), WeekPoint(7, 0.0, 0.0, 0)])

    assert (found.points, found.current) == (2, 0.6)


@pytest.mark.parametrize("shares", [[], [0.4]])
def test_below_two_weeks_there_is_no_line(shares: list[float]) -> None:
    found = linear_trend(weeks(shares))

    assert (found.slope, found.r_squared, found.direction, found.strong) == (None, None, None, False)


@pytest.mark.parametrize("share", [0.7, 1.0])
def test_an_even_course_is_stable(share: float) -> None:
    found = linear_trend(weeks([share] * 52))

    assert found.direction is TrendDirection.STABLE
    assert found.r_squared == pytest.approx(0.0)


def test_kendall_and_theil() -> None:
    """The worked example: eight buckets of four weeks."""
    found = rank_trend([week for place, share in enumerate(reversed(EXAMPLE)) for week in _bucket(place, share)])

    assert found.tau == pytest.approx(0.8571, abs=5e-5)
    assert found.p_value == pytest.approx(0.0017, abs=5e-5)
    assert found.slope == pytest.approx(0.3044, abs=5e-5)
    assert found.direction is TrendDirection.IMPROVING
    assert rank_test([0.0] * 7, EXAMPLE[:7]).tau is None


@given(st.lists(st.one_of(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), st.floats(0.0, 1.0)), min_size=8, max_size=13))
def test_the_rank_test_is_that_of_scipy(shares: list[float]) -> None:
    """With ties and without, at times in any order."""
    assume(max(shares) - min(shares) > 1e-6)
    years = [(7 * place % 29) / 13 for place in range(len(shares))]
    found, tau = rank_test(years, shares), stats.kendalltau(years, shares)

    assert found.tau == pytest.approx(tau.statistic, abs=1e-12)
    assert found.p_value == pytest.approx(tau.pvalue, abs=1e-12)
    assert found.slope == pytest.approx(stats.theilslopes(shares, years).slope, abs=1e-12)


def test_a_process_that_reads_does_not_wait_for_scipy_stats() -> None:
    """Importing it takes half a second of a processor, more than a read may take; nor for what summaries need."""
    heavy = "print([name for name in ('scipy.stats', 'scipy.sparse', 'celery', 'onnxruntime') if name in sys.modules])"
    ran = subprocess.run(
        [sys.executable, "-c", f"import sys, imem.memory; {heavy}"], check=True, capture_output=True, text=True
    )

    assert ran.stdout.strip() == "[]"


def _bucket(place: int, share: float) -> list[WeekPoint]:
    """Return a bucket of five outcomes in two of its weeks."""
    return [WeekPoint(4 * place, 2.0, 2.0 * share, 2), WeekPoint(4 * place + 3, 3.0, 3.0 * share, 3)]


def test_buckets_with_four_outcomes_do_not_count() -> None:
    points = [week for place, share in enumerate(EXAMPLE) for week in _bucket(place, share)]

    assert rank_trend([*points[:-1], points[-1]._replace(rows=2)]).buckets == 7


def test_a_constant_agent_is_seldom_flagged() -> None:
    """The exact test on disjoint buckets is wrong as often as it says: at most one time in twenty."""
    drawn = np.random.default_rng(3).binomial(40, 0.7, size=(400, 13)) / 40
    flagged = sum(
        rank_test([28 * bucket / 365.25 for bucket in range(13)], list(shares)).direction is not None
        for shares in drawn
    )

    assert flagged <= 0.075 * 400
