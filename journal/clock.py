"""
The injected clock, and the rules for times that come without a zone.

Code never calls ``datetime.now`` outside this module; SQL takes time from ``imem_now()``, which tests shift.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Protocol

from imem.journal.arguments import checks_arguments

LATEST_ZONE = timezone(timedelta(hours=-12))
"""The zone in which a local time comes last (UTC-12)."""


class Clock(Protocol):
    """Where the time comes from."""

    def now(self) -> datetime:
        """Return the present moment, aware and in UTC."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the present moment, aware and in UTC."""
        return datetime.now(UTC)


@checks_arguments
@dataclass
class ManualClock:
    """
    A clock that tests set and move by hand.

    Attributes:
        at: the moment that it shows, aware.
    """

    at: datetime = field(default_factory=lambda: datetime(2026, 1, 1, tzinfo=UTC))

    def now(self) -> datetime:
        """Return the moment that was set."""
        return self.at

    def advance(self, by: timedelta) -> None:
        """Move the clock on."""
        self.at += by


def known_at_of_date(day: date) -> datetime:
    """
    Return when a fact dated with a day alone could first be known everywhere.

    That is 12:00 UTC of the next day: by then the day is over in every zone.
    """
    return datetime.combine(day + timedelta(days=1), time(12), tzinfo=UTC)


def known_at_of_naive(local: datetime) -> datetime:
    """
    Return when a fact stamped with a local time of unknown zone was known at the latest.

    The time is read in UTC-12, the zone in which it comes last, so that it never precedes the true moment.
    """
    if local.tzinfo is not None:
        raise ValueError("The time already names its zone.")
    return local.replace(tzinfo=LATEST_ZONE).astimezone(UTC)
