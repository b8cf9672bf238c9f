"""
The calendar of the New York exchanges, by rule: which days have a session, and when it opens and closes in UTC.

It holds for any year from 2007 on, when summer time got its present dates. Two things it does not know: closings by
decree (a day of mourning), and half days, whose close it gives as 16:00; a claim and its outcome name the same moment
either way, so that they meet.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from functools import cache

_OPEN, _CLOSE = time(13, 30), time(20)
"""09:30 and 16:00 in New York in summer time, in UTC; an hour later in winter."""

_MONDAY, _THURSDAY, _SATURDAY, _SUNDAY = 0, 3, 5, 6
_JUNETEENTH_SINCE = 2022


def opens_at(session: date) -> datetime:
    """Return the moment of *session*'s opening."""
    return _in_utc(session, _OPEN)


def closes_at(session: date) -> datetime:
    """Return the moment of *session*'s close."""
    return _in_utc(session, _CLOSE)


def is_session(day: date) -> bool:
    """Tell whether the exchange is open on *day*."""
    return day.weekday() < _SATURDAY and day not in _holidays(day.year)


def session_before(day: date) -> date:
    """Return the last session before *day*."""
    day -= timedelta(days=1)
    while not is_session(day):
        day -= timedelta(days=1)
    return day


def session_after(day: date) -> date:
    """Return the first session after *day*."""
    day += timedelta(days=1)
    while not is_session(day):
        day += timedelta(days=1)
    return day


def sessions_between(start: date, end: date) -> int:
    """Return how many sessions lie after *start*, up to and with *end*."""
    return sum(is_session(start + timedelta(days=n)) for n in range(1, (end - start).days + 1))


def _in_utc(day: date, summer: time) -> datetime:
    in_summer = _nth(day.year, 3, _SUNDAY, 2) <= day < _nth(day.year, 11, _SUNDAY, 1)
    return datetime.combine(day, summer, UTC) + timedelta(hours=0 if in_summer else 1)


def _nth(year: int, month: int, weekday: int, n: int) -> date:
    """Return the *n*-th *weekday* of a month."""
    first = date(year, month, 1)
    return first + timedelta(days=(weekday - first.weekday()) % 7 + 7 * (n - 1))


@cache
def _holidays(year: int) -> frozenset[date]:
    last_of_may = date(year, 5, 31)
    days = {
        _nth(year, 1, _MONDAY, 3),  # Martin Luther King
        _nth(year, 2, _MONDAY, 3),  # Washington
        _easter(year) - timedelta(days=2),  # Good Friday
        last_of_may - timedelta(days=last_of_may.weekday()),  # Memorial
        _nth(year, 9, _MONDAY, 1),  # Labor
        _nth(year, 11, _THURSDAY, 4),  # Thanksgiving
        _observed(date(year, 7, 4)),
        _observed(date(year, 12, 25)),
    }
    if date(year, 1, 1).weekday() != _SATURDAY:  # One that falls on a Saturday is not made up for.
        days.add(_observed(date(year, 1, 1)))
    if year >= _JUNETEENTH_SINCE:
        days.add(_observed(date(year, 6, 19)))
    return frozenset(days)


def _observed(day: date) -> date:
    """Return the day on which a holiday is kept: Friday for a Saturday, Monday for a Sunday."""
    return day + timedelta(days={_SATURDAY: -1, _SUNDAY: 1}.get(day.weekday(), 0))


def _easter(year: int) -> date:
    """Return Easter Sunday, by the Gregorian computus."""
    golden, century, rest = year % 19, year // 100, year % 100
    epact = (19 * golden + century - century // 4 - (century - (century + 8) // 25 + 1) // 3 + 15) % 30
    weekday = (32 + 2 * (century % 4) + 2 * (rest // 4) - epact - rest % 4) % 7
    late = (golden + 11 * epact + 22 * weekday) // 451
    month, day = divmod(epact + weekday - 7 * late + 114, 31)
    return date(year, month, day + 1)
