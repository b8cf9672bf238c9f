"""Sessions of the exchange: on which days a stock has a closing price, and when."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from holidays import financial_holidays

EXCHANGE: Final = "XNYS"
"""The exchange, by its ISO 10383 code."""

ZONE: Final = ZoneInfo("America/New_York")

CLOSE: Final = time(16)
"""When a session closes, in the exchange's time; a shortened one closes earlier, which moves no day."""

_SATURDAY: Final = 5


@lru_cache(maxsize=128)
def _holidays(year: int) -> frozenset[date]:
    return frozenset(financial_holidays(EXCHANGE, years=year))


def is_session(day: date) -> bool:
    """Return whether the exchange is open on *day*."""
    return day.weekday() < _SATURDAY and day not in _holidays(day.year)


def closes_at(session: date) -> datetime:
    """Return the moment at which a session closes, in UTC."""
    return datetime.combine(session, CLOSE, ZONE).astimezone(UTC)


def checkpoint_at(decided_at: datetime, days: int) -> datetime:
    """
    Return when a checkpoint is due: the close of the last session at or before the day, *days* after the decision.

    Days are those of the exchange's time zone (postmortem-and-gates, section 1).
    """
    day = decided_at.astimezone(ZONE).date() + timedelta(days=days)
    while not is_session(day):
        day -= timedelta(days=1)
    return closes_at(day)


def session_from(at: datetime) -> date:
    """Return the first session that closes at or after a moment."""
    day = at.astimezone(ZONE).date()
    while not is_session(day) or closes_at(day) < at:
        day += timedelta(days=1)
    return day


def session_before(session: date) -> date:
    """Return the session before a day."""
    day = session - timedelta(days=1)
    while not is_session(day):
        day -= timedelta(days=1)
    return day


def sessions_after(start: date, end: date) -> int:
    """Return how many sessions there are after *start*, up to *end*."""
    return sum(is_session(start + timedelta(days=n)) for n in range(1, (end - start).days + 1))
