"""When a package of Gate 6 is opened (postmortem-and-gates, section 5.3). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

OUTCOMES: Final = 50
AFTER: Final = timedelta(days=30)
"""So many new outcomes, or so much time since the last validation, make a package due."""

COOLDOWN: Final = timedelta(days=7)
"""Least time between two validations."""

URGENT_OUTCOMES: Final = 75
URGENT_AFTER: Final = timedelta(days=45)
"""So many, or so much, make it urgent."""


class Urgency(StrEnum):
    """How urgent a package is."""

    HIGH = "high"
    NORMAL = "normal"


@dataclass(frozen=True, slots=True)
class Due:
    """
    Why a package is due.

    Attributes:
        urgency: how urgent it is.
        outcomes: new ones since the last validation.
        since: how long ago that was.
    """

    urgency: Urgency
    outcomes: int
    since: timedelta


def due_package(outcomes: int, since: timedelta) -> Due | None:
    """Return why a package is due after so many new outcomes and so much time since the last validation, if it is."""
    if since < COOLDOWN or (outcomes < OUTCOMES and since < AFTER):
        return None
    urgent = outcomes >= URGENT_OUTCOMES or since >= URGENT_AFTER
    return Due(Urgency.HIGH if urgent else Urgency.NORMAL, outcomes, since)
