"""
Total returns from prices: with dividends reinvested at the close of their day, and splits applied. Pure.

A split multiplies the shares that were held before its session; a dividend is paid for each share after the split. A
missing price makes a return unknown, never zero.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property
from itertools import pairwise
from math import isfinite, log, sqrt
from statistics import stdev
from typing import Final, NamedTuple

from imem.credibility.forecasts.sessions import ZONE, closes_at, session_before, session_from, sessions_after
from imem.credibility.prices.providers import PriceRow, RefusedPrice

DIGITS: Final = 12
"""Decimal digits of a return: the error of floats is below, so that a boundary means what it says."""

MOST_DAILY: Final = 252
"""Daily returns that a volatility is taken of, at most: those of a year."""

LEAST_DAILY: Final = 60
"""Daily returns without which a volatility is unknown."""


@dataclass(frozen=True)
class PriceSeries:
    """
    Prices of one subject.

    Attributes:
        rows: by session, one each; nothing after a delisting.
    """

    rows: Sequence[PriceRow]

    @cached_property
    def sessions(self) -> list[date]:
        """The sessions with a price."""
        return [row.session for row in self.rows]

    @cached_property
    def worth(self) -> Mapping[date, float]:
        """By session what one unit at the first close is worth, dividends reinvested."""
        worth = {self.rows[0].session: 1.0}
        for before, row in pairwise(self.rows):
            worth[row.session] = worth[before.session] * row.split * (row.close + row.dividend) / before.close
        return worth

    @property
    def delisted(self) -> date | None:
        """The last session, if trading ended."""
        return self.rows[-1].session if self.rows[-1].delisted else None

    def last(self, session: date) -> date:
        """Return *session*, or the last one where trading ended before."""
        return min(session, self.delisted or session)

    def known_at(self, start: date, end: date) -> datetime:
        """Return when all prices of a time could be known."""
        between = self.rows[bisect_left(self.sessions, start) : bisect_right(self.sessions, end)]
        return max((row.known_at for row in between), default=closes_at(end))


class Prices(NamedTuple):
    """
    The prices in a provider's rows.

    Attributes:
        series: by subject.
        refused: by subject why it is left out: a row cannot be read, or two of a session contradict each other. None
            stands for rows without a readable subject.
    """

    series: Mapping[str, PriceSeries]
    refused: Mapping[str | None, str]


def series_of(rows: Iterable[PriceRow | RefusedPrice], now: datetime) -> Prices:
    """Return the prices that can be known *now*; of several of one session the one that was known last counts."""
    found: dict[str, dict[date, PriceRow]] = {}
    refused: dict[str | None, str] = {}
    for number, row in enumerate(rows, start=1):
        if isinstance(row, RefusedPrice):
            refused.setdefault(row.subject_id, row.reason)
            continue
        if row.known_at > now:
            continue
        sessions = found.setdefault(row.subject_id, {})
        other = sessions.get(row.session)
        if other is not None and other.known_at == row.known_at and other != row:
            refused.setdefault(row.subject_id, f"row {number}.session was stated before, with other values.")
        if other is None or other.known_at < row.known_at:
            sessions[row.session] = row
    kept = {subject: sessions for subject, sessions in found.items() if subject not in refused}
    return Prices({one: PriceSeries(_until_delisted(sessions)) for one, sessions in kept.items()}, refused)


def _until_delisted(sessions: Mapping[date, PriceRow]) -> list[PriceRow]:
    ordered = [sessions[session] for session in sorted(sessions)]
    last = next((place for place, row in enumerate(ordered) if row.delisted), len(ordered))
    return ordered[: last + 1]


def total_return(series: PriceSeries | None, start: date, end: date) -> float | None:
    """Return the total return from the close of *start* to that of *end*; None where a price is missing."""
    before, after = (None, None) if series is None else (series.worth.get(start), series.worth.get(end))
    if not before or after is None or not isfinite(before) or not isfinite(after):
        return None
    return round(after / before - 1.0, DIGITS)


def volatility(series: PriceSeries, start: date, end: date) -> float | None:
    """
    Return the standard deviation of the total return from *start* to *end*, as it could be known before *start*.

    It is that of the daily logarithmic returns of the 252 sessions before, times the root of the sessions from then on;
    None with less than 60 such returns.
    """
    daily: list[float] = []
    day = session_before(start)
    for _ in range(MOST_DAILY):
        before = session_before(day)
        first, second = series.worth.get(before), series.worth.get(day)
        if first and second and isfinite(second / first):
            daily.append(log(second / first))
        day = before
    if len(daily) < LEAST_DAILY:
        return None
    return round(stdev(daily) * sqrt(sessions_after(start, end)), DIGITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredReturn:
    """
    The return from a decision to a checkpoint.

    Attributes:
        stock, market, sector: total returns, as fractions; None where they are unknown.
        volatility: standard deviation of such a return; None if unknown.
        begun_at, target_at: from when to when.
        delisted: whether trading had ended.
        known_at: when all of it could be known.
    """

    stock: float
    market: float | None
    sector: float | None
    volatility: float | None
    begun_at: datetime
    target_at: datetime
    delisted: bool
    known_at: datetime


def measured(
    prices: Mapping[str, PriceSeries],
    subject_id: str,
    benchmarks: tuple[str | None, str | None],
    decided_at: datetime,
    target_at: datetime,
) -> MeasuredReturn | None:
    """
    Return what happened; None where the price of the subject is missing.

    Args:
        benchmarks: subjects that stand for the market and for the sector.
        decided_at: the first close at or after it is the base.
        target_at: the close of a session; of one after the end of trading the terminal value stands.
    """
    series = prices.get(subject_id)
    if series is None:
        return None
    start, wanted = session_from(decided_at), target_at.astimezone(ZONE).date()
    end = series.last(wanted)
    stock = total_return(series, start, end) if start < end else None
    if stock is None:
        return None
    named = [prices.get(one) if one is not None else None for one in benchmarks]
    market, sector = (total_return(one, start, end) for one in named)
    used = [series, *(one for one, found in zip(named, (market, sector), strict=True) if one and found is not None)]
    return MeasuredReturn(
        stock=stock,
        market=market,
        sector=sector,
        volatility=volatility(series, start, end),
        begun_at=closes_at(start),
        target_at=closes_at(end),
        delisted=series.rows[-1].delisted and end == series.delisted,
        known_at=max(one.known_at(start, end) for one in used),
    )
