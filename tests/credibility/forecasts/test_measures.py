"""Deviations are exact, and checkpoints lie on sessions. Pure."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imem.credibility.forecasts.measures import DeviationClass, deviation, measure
from imem.credibility.forecasts.sessions import ZONE, checkpoint_at, closes_at, is_session
from imem.journal.errors import BadInput
from imem.kg.kinds.forecasts import CHECKPOINTS, Forecast, ForecastPoint
from imem.kg.kinds.metrics import metric_of

RETURN = metric_of("total_return")
assert RETURN is not None


@pytest.mark.spec("PM-2")
@pytest.mark.parametrize(
    ("predicted", "actual", "expected", "large"),
    [
        (0.20, -0.50, "3.50", True),
        (0.20, 0.26, "0.30", False),
        (-0.10, -0.20, "1.00", True),
        (0.0, 0.01, "0.20", False),
        (0.0, 0.02, "0.40", True),
    ],
)
def test_the_table_of_deviations(predicted: float, actual: float, expected: str, *, large: bool) -> None:
    assert RETURN is not None
    assert deviation(predicted, actual, RETURN.floor or 0.0) == Decimal(expected)
    found = measure(ForecastPoint(days=365, predicted=predicted), RETURN, actual)
    assert found.verdict is (DeviationClass.UNCERTAIN if large else DeviationClass.NONE)


@pytest.mark.spec("PM-2")
def test_a_deviation_inside_the_stated_interval_is_noise() -> None:
    assert RETURN is not None
    point = ForecastPoint(days=365, predicted=0.2, low=-0.1, high=0.5)
    assert measure(point, RETURN, 0.5).verdict is DeviationClass.NOISE
    assert measure(point, RETURN, 0.51).verdict is DeviationClass.OFF
    assert measure(point, RETURN, -0.11).verdict is DeviationClass.OFF
    assert (measure(point, RETURN, 0.24).accuracy, measure(point, RETURN, 0.2401).accuracy) == (1.0, 0.0)


def test_without_a_floor_a_forecast_of_zero_has_no_deviation() -> None:
    revenue = metric_of("revenue")
    assert revenue is not None
    point = ForecastPoint(days=365, predicted=0.0)
    assert measure(point, revenue, 0.0).verdict is DeviationClass.NONE
    found = measure(point, revenue, 1.0)
    assert (found.deviation, found.accuracy, found.verdict) == (None, 0.0, DeviationClass.UNCERTAIN)


@pytest.mark.spec("PM-1")
@pytest.mark.parametrize(
    ("days", "session"), [(30, "2026-02-04"), (90, "2026-04-02"), (180, "2026-07-02"), (365, "2027-01-05")]
)
def test_checkpoints_are_due_at_the_last_session_at_or_before(days: int, session: str) -> None:
    """The third is a Saturday after a holiday on a Friday, the second a Sunday after Good Friday."""
    decided = datetime(2026, 1, 5, 15, tzinfo=UTC)
    assert checkpoint_at(decided, days) == closes_at(date.fromisoformat(session))


@given(
    st.integers(0, 20 * 365 * 24).map(lambda hours: datetime(2015, 1, 1, tzinfo=UTC) + timedelta(hours=hours)),
    st.sampled_from(CHECKPOINTS),
)
def test_a_checkpoint_is_a_session_of_the_days_before(decided: datetime, days: int) -> None:
    due = checkpoint_at(decided, days).astimezone(ZONE).date()
    wanted = decided.astimezone(ZONE).date() + timedelta(days=days)
    assert is_session(due)
    assert timedelta(0) <= wanted - due <= timedelta(days=4)
    assert not any(is_session(due + timedelta(days=n)) for n in range(1, (wanted - due).days + 1))


def test_the_path_of_a_return_is_geometric_and_widens_with_the_root_of_the_time() -> None:
    forecast = Forecast.of_return(0.44, days=180, low=0.0, high=1.0)
    assert [one.days for one in forecast.points] == [30, 90, 180]
    half = forecast.points[1]
    assert half.predicted == pytest.approx(0.2)
    assert half.low == pytest.approx(0.2 - 0.44 * 0.5**0.5)
    assert half.high == pytest.approx(0.2 + 0.56 * 0.5**0.5)
    assert Forecast.of(forecast.stored()) == forecast


@given(st.floats(-1.0, 10.0), st.floats(0.0, 5.0), st.floats(0.0, 5.0), st.sampled_from(CHECKPOINTS))
def test_any_path_of_a_return_is_a_forecast(predicted: float, down: float, up: float, days: int) -> None:
    low, high = max(predicted - down, -1.0), predicted + up
    forecast = Forecast.of_return(predicted, days=days, low=low, high=high)
    assert Forecast.of(forecast.stored()) == forecast
    assert forecast.points[-1].predicted == predicted


@pytest.mark.parametrize(
    ("given_", "field"),
    [
        ({"points": []}, "points"),
        ({"points": [{"days": 31, "predicted": 0.1}]}, "points.0.days"),
        ({"points": [{"days": 90, "predicted": 0.1}, {"days": 30, "predicted": 0.1}]}, "points"),
        ({"points": [{"days": 30, "predicted": 0.1, "low": 0.0}]}, "points.0.high"),
        ({"points": [{"days": 30, "predicted": 0.1, "low": 0.2, "high": 0.3}]}, "points.0.predicted"),
        ({"points": [{"days": 30, "predicted": -1.5}]}, "points"),
        ({"points": [{"days": 30, "predicted": float("nan")}]}, "points.0.predicted"),
        ({"metric": "beauty", "points": [{"days": 30, "predicted": 1.0}]}, "metric"),
        ({"metric": "up", "points": [{"days": 30, "predicted": 1.0}]}, "metric"),
    ],
)
def test_what_cannot_be_a_forecast_is_refused_by_its_field(given_: dict[str, object], field: str) -> None:
    with pytest.raises(BadInput) as refused:
        Forecast.of(given_)
    assert refused.value.field == field


@pytest.mark.spec("PM-2")
@pytest.mark.parametrize(
    ("predicted", "actual", "volatility", "verdict"),
    [
        (0.20, -0.50, 0.40, DeviationClass.OFF),
        (0.20, 0.26, 0.001, DeviationClass.NONE),
        (0.20, 0.27, 0.001, DeviationClass.OFF),
        (-0.10, -0.20, 0.05, DeviationClass.OFF),
        (-0.10, -0.20, 0.07, DeviationClass.NOISE),
        (0.0, 0.01, 0.001, DeviationClass.NONE),
        (0.0, 0.02, 0.01, DeviationClass.OFF),
        (0.0, 0.02, 0.02, DeviationClass.NOISE),
        (0.0, 0.02, None, DeviationClass.UNCERTAIN),
        (0.0, 0.3290, 0.2, DeviationClass.NOISE),
        (0.0, 0.3291, 0.2, DeviationClass.OFF),
        (0.0, 0.02, 0.0, DeviationClass.OFF),
    ],
)
def test_without_an_interval_volatility_says_what_is_noise(
    predicted: float, actual: float, volatility: float | None, verdict: DeviationClass
) -> None:
    """The rows of the table: 0.30 is no deviation in any case, and 1.645 standard deviations are noise still."""
    assert RETURN is not None
    assert measure(ForecastPoint(days=365, predicted=predicted), RETURN, actual, volatility).verdict is verdict


@pytest.mark.spec("PM-2")
def test_a_stated_interval_goes_before_the_volatility() -> None:
    assert RETURN is not None
    point = ForecastPoint(days=365, predicted=0.2, low=-0.1, high=0.5)
    assert measure(point, RETURN, 0.51, 1.0).verdict is DeviationClass.OFF
    assert measure(point, RETURN, 0.5, 0.001).verdict is DeviationClass.NOISE
