"""
The injected clock, and the rules for times without a zone.

No other module calls ``datetime.now``; SQL takes time from ``imem_now()``, which tests shift. A local trial stack has a
time of its own, for SQL and for every process that uses it (:func:`follow_trial`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from pathlib import Path
from typing import Protocol

from imem.journal.arguments import checks_arguments

LATEST_ZONE = timezone(timedelta(hours=-12))
"""The zone in which a local time comes last (UTC-12)."""


class Clock(Protocol):
    """Returns the current time."""

    def now(self) -> datetime:
        """Return the current time, aware and in UTC."""


class MachineClock:
    """The machine's clock: for keys that expire, and what else is compared with servers that have no other time."""

    def now(self) -> datetime:
        """Return the current time, aware and in UTC."""
        return datetime.now(UTC)


class SystemClock:
    """The system's clock: the machine's, or that of the local trial stack that this process uses."""

    def now(self) -> datetime:
        """Return the current time, aware and in UTC."""
        now = datetime.now(UTC)
        return now if _trial is None else now + _trial.ahead()


class TrialTime:
    """
    By how much the time of a local trial stack is ahead of the machine's, as the file in its home says.

    `imem clock advance` replaces the file. A running process reads the new one when it next asks for the time.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen: tuple[int, int] | None = None
        self._ahead = timedelta()

    def ahead(self) -> timedelta:
        """Return it; what was last read where the file is gone, since its stack was deleted."""
        try:
            found = self._file.stat()
            if (seen := (found.st_ino, found.st_mtime_ns)) != self._seen:
                self._ahead = timedelta(seconds=json.loads(self._file.read_bytes())["ahead_s"])
                self._seen = seen
        except FileNotFoundError:
            pass
        return self._ahead


_trial: TrialTime | None = None


def follow_trial(file: Path | None) -> None:
    """Let the system's clock of this process be that of the trial with *file*, or with None the machine's again."""
    global _trial  # noqa: PLW0603 - a process has one time, as it has one machine
    _trial = None if file is None else TrialTime(file)


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


def said_at_of_date(day: date, now: datetime) -> datetime:
    """Return the moment of what was said on a day: the last one of it in UTC, or *now*, where the day is not over."""
    return min(now, datetime.combine(day, time.max, tzinfo=UTC))


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


def months_after(moment: datetime, months: int) -> datetime:
    """Return *moment* so many calendar months later; a day that the month lacks is its last one."""
    month = moment.month - 1 + months
    year, month = moment.year + month // 12, month % 12 + 1
    day = moment.day
    while True:
        try:
            return moment.replace(year=year, month=month, day=day)
        except ValueError:
            day -= 1


def years_after(moment: datetime, years: int) -> datetime:
    """Return *moment* so many calendar years later; of 29 February the last day of the month."""
    return months_after(moment, 12 * years)
