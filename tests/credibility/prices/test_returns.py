"""Total returns: with dividends and splits, at the end of trading, and where a price is missing. Pure."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from math import exp, log, sqrt
from statistics import stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imem.credibility.forecasts.sessions import closes_at, is_session
from imem.credibility.prices.providers import PriceRow
from imem.credibility.prices.returns import measured, series_of, total_return, volatility

LATER = datetime(2030, 1, 1, tzinfo=UTC)
SESSIONS = [day for n in range(600) if is_session(day := date(2024, 1, 2) + timedelta(days=n))]
MU = "company:MU"

CLOSES = st.floats(0.5, 1e4)
DAYS = st.lists(st.tuples(CLOSES, st.sampled_from([0.0, 0.1, 3.0]), st.sampled_from([1.0, 2.0, 0.1])), min_size=2)


def row(place: int, close: float, dividend: float = 0.0, split: float = 1.0, **more: object) -> PriceRow:
    session = SESSIONS[place]
    values = {"subject_id": MU, "known_at": closes_at(session), "delisted": False, **more}
    return PriceRow(session=session, close=close, dividend=dividend, split=split, **values)  # type: ignore[arg-type]


@given(DAYS)
def test_a_return_is_that_of_who_holds_and_reinvests(days: list[tuple[float, float, float]]) -> None:
    shares = 1.0
    for close, dividend, split in days[1:]:
        shares *= split
        shares += shares * dividend / close
    series = series_of([row(n, *one) for n, one in enumerate(days)], LATER).series[MU]
    found = total_return(series, SESSIONS[0], SESSIONS[len(days) - 1])
    assert found is not None
    assert 1 + found == pytest.approx(shares * days[-1][0] / days[0][0], rel=1e-9, abs=1e-11)


@given(DAYS, st.data())
def test_returns_of_two_times_make_that_of_both(days: list[tuple[float, float, float]], data: st.DataObject) -> None:
    series = series_of([row(n, *one) for n, one in enumerate(days)], LATER).series[MU]
    last = len(days) - 1
    middle = data.draw(st.integers(0, last))
    parts = [total_return(series, SESSIONS[a], SESSIONS[b]) for a, b in ((0, middle), (middle, last), (0, last))]
    first, second, both = (1 + one for one in parts if one is not None)
    assert first * second == pytest.approx(both, rel=1e-6, abs=1e-6)


@given(st.lists(CLOSES, min_size=3), st.sampled_from([2.0, 3.0, 0.1]), st.data())
def test_a_split_changes_no_return(closes: list[float], ratio: float, data: st.DataObject) -> None:
    place = data.draw(st.integers(1, len(closes) - 1))
    plain = series_of([row(n, one) for n, one in enumerate(closes)], LATER).series[MU]
    divided = [
        row(n, one if n < place else one / ratio, split=ratio if n == place else 1.0) for n, one in enumerate(closes)
    ]
    ends = SESSIONS[0], SESSIONS[len(closes) - 1]
    assert total_return(series_of(divided, LATER).series[MU], *ends) == pytest.approx(total_return(plain, *ends))


def test_boundaries_are_exact() -> None:
    series = series_of([row(0, 100.0), row(1, 120.0), row(2, 126.0)], LATER).series[MU]
    assert [total_return(series, SESSIONS[0], one) for one in SESSIONS[:4]] == [0.0, 0.2, 0.26, None]


def test_the_revision_that_is_known_counts() -> None:
    at = closes_at(SESSIONS[1]) + timedelta(days=3)
    rows = [row(0, 100.0), row(1, 120.0), row(1, 90.0, known_at=at)]
    ends = SESSIONS[0], SESSIONS[1]
    assert total_return(series_of(rows, at).series[MU], *ends) == -0.1
    assert total_return(series_of(reversed(rows), at).series[MU], *ends) == -0.1
    assert total_return(series_of(rows, at - timedelta(seconds=1)).series[MU], *ends) == 0.2
    other = row(0, 50.0, subject_id="market:M")
    contradicted = series_of([*rows, row(1, 91.0, known_at=at), other], at)
    assert "stated before" in contradicted.refused[MU]
    assert list(contradicted.series) == ["market:M"]


def test_the_volatility_is_that_of_the_days_before() -> None:
    closes = [100 * exp(0.01 * (n % 7) - 0.02 * (n % 3)) for n in range(400)]
    series = series_of([row(n, one) for n, one in enumerate(closes)], LATER).series[MU]
    start, end = 300, 320
    daily = [log(closes[n] / closes[n - 1]) for n in range(start - 252, start)]
    assert volatility(series, SESSIONS[start], SESSIONS[end]) == pytest.approx(stdev(daily) * sqrt(20))
    assert volatility(series, SESSIONS[60], SESSIONS[80]) is None, "59 returns"
    assert volatility(series, SESSIONS[61], SESSIONS[80]) is not None
    gaps = series_of([row(n, one) for n, one in enumerate(closes) if n % 2], LATER).series[MU]
    assert volatility(gaps, SESSIONS[start], SESSIONS[end]) is None, "no two days after another"


def test_benchmarks_that_are_not_known_are_unknown() -> None:
    rows = [row(0, 100.0), row(1, 110.0), row(0, 50.0, subject_id="market:M"), row(1, 60.0, subject_id="market:M")]
    decided, target = closes_at(SESSIONS[0]) - timedelta(hours=3), closes_at(SESSIONS[1])
    found = measured(series_of(rows, LATER).series, MU, ("market:M", "market:S"), decided, target)
    assert found is not None
    assert (found.stock, found.market, found.sector, found.volatility) == (0.1, 0.2, None, None)
    assert (found.begun_at, found.target_at, found.known_at) == (closes_at(SESSIONS[0]), target, target)
    later = closes_at(SESSIONS[0]) + timedelta(seconds=1)
    assert measured(series_of(rows, LATER).series, MU, (None, None), later, target) is None, (
        "the base is the next close"
    )
    assert measured(series_of(rows, LATER).series, MU, (None, None), decided, closes_at(SESSIONS[2])) is None


@pytest.mark.parametrize(("terminal", "expected"), [(0.0, -1.0), (130.0, 0.3)])
def test_after_the_end_of_trading_the_terminal_value_stands(terminal: float, expected: float) -> None:
    rows = [row(0, 100.0), row(5, terminal, delisted=True), row(6, 1.0)]
    prices = series_of(rows, LATER).series
    at = closes_at(SESSIONS[0])
    for place in (5, 6, 100):
        found = measured(prices, MU, (None, None), at, closes_at(SESSIONS[place]))
        assert found is not None
        assert (found.stock, found.delisted, found.target_at) == (expected, True, closes_at(SESSIONS[5]))
    assert measured(prices, MU, (None, None), at, closes_at(SESSIONS[4])) is None
    assert measured(prices, MU, (None, None), closes_at(SESSIONS[6]), closes_at(SESSIONS[100])) is None
