"""
Timers of a pause: reminders, staleness, expiry.

Pure: days from the begin of the pause. The rows of ``workflow.pause_timer`` are made from :func:`due`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from imem.journal.errors import BadInput

REMINDER_AFTER: Final = timedelta(days=3)
WARNING_AFTER: Final = timedelta(days=7)
STALE_AFTER: Final = timedelta(days=14)
"""Unless extended; also how long the paused working memory is kept."""

LONGEST: Final = timedelta(days=30)
"""Latest moment to which a pause can be extended."""

EXPIRES_AFTER_STALE: Final = timedelta(days=16)
"""A pause that was not extended expires on day 30."""


class Timer(StrEnum):
    """Timers, in the order in which they are due."""

    REMINDER = "reminder"
    """A notice of severity MEDIUM."""
    WARNING = "warning"
    """A notice of severity HIGH."""
    STALE = "stale"
    EXPIRE = "expire"


def stale_at(paused_at: datetime, extended_until: datetime | None = None) -> datetime:
    """Return when a pause becomes stale."""
    return extended_until or paused_at + STALE_AFTER


def expires_at(paused_at: datetime, extended_until: datetime | None = None) -> datetime:
    """Return when a pause expires."""
    return stale_at(paused_at, extended_until) + EXPIRES_AFTER_STALE


def due(paused_at: datetime, extended_until: datetime | None = None) -> Mapping[Timer, datetime]:
    """Return when each timer of a pause is due."""
    return {
        Timer.REMINDER: paused_at + REMINDER_AFTER,
        Timer.WARNING: paused_at + WARNING_AFTER,
        Timer.STALE: stale_at(paused_at, extended_until),
        Timer.EXPIRE: expires_at(paused_at, extended_until),
    }


def check_extension(paused_at: datetime, extended_until: datetime | None, until: datetime, *, now: datetime) -> None:
    """
    Refuse an extension that the rules do not allow: one for each pause, and no longer than 30 days in all.

    Args:
        paused_at: begin of the pause.
        extended_until: its extension, if any.
        until: the requested end.

    Raises:
        BadInput: naming ``until``.
    """
    if until.utcoffset() is None:
        raise BadInput("until", "must name its zone, such as 2026-06-01T10:00:00Z.")
    if extended_until is not None:
        raise BadInput("until", f"it was extended already, until {extended_until:%Y-%m-%d %H:%M} UTC; once is all.")
    if until > paused_at + LONGEST:
        raise BadInput("until", f"a pause ends 30 days after it began, here {paused_at + LONGEST:%Y-%m-%d %H:%M} UTC.")
    if until <= max(now, stale_at(paused_at)):
        raise BadInput("until", f"it lasts until {stale_at(paused_at):%Y-%m-%d %H:%M} UTC anyhow.")
