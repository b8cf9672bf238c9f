"""
The injected clock, and the rules for times without a zone.

No other module calls ``datetime.now``; SQL takes time from ``imem_now()``, which tests shift.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Protocol

from imem.journal.arguments import checks_arguments

LATEST_ZONE = timezone(timedelta(hours=-12))
"""The zone in which a local time comes last (UTC-12)."""


class Clock(Protocol):
    """Returns the current time."""

    def now(self) -> datetime:
        """Return the current time, aware and in UTC."""


class SystemClock:
    """The system's clock."""

    def now(self) -> datetime:
        """Return the current time, aware and in UTC."""
        return datetime.now(UTC)


@checks_arguments
@dataclass
class ManualClock:
    """
    A clock that tests set and advance.

    Attributes:
        at: the time that it returns, aware.
    """

    at: datetime = field(default_factory=lambda: datetime(2026, 1, 1, tzinfo=UTC))

    def now(self) -> datetime:
        """Return the time that was set."""
        return self.at

    def advance(self, by: timedelta) -> None:
        """Advance the clock."""
        self.at += by


def known_at_of_date(day: date) -> datetime:
    """
    Return the earliest ``known_at`` of a fact dated with a day alone: 12:00 UTC of the next day.

    By then the day is over in every zone.
    """
    return datetime.combine(day + timedelta(days=1), time(12), tzinfo=UTC)


def known_at_of_naive(local: datetime) -> datetime:
    """
    Return the latest ``known_at`` of a fact with a local time of unknown zone.

    The time is read in UTC-12, the zone in which it comes last, so that it never precedes the true moment.

    Raises:
        ValueError: the time names its zone.
    """
    if local.tzinfo is not None:
        raise ValueError("The time already names its zone.")
    return local.replace(tzinfo=LATEST_ZONE).astimezone(UTC)
