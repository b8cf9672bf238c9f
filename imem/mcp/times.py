"""
Times of the past in calls that write: what an actor may state, and what a result says of one that had no effect.

A fact is known from the moment at which it is recorded. An actor that may import states when it was known
(``occurred_at``).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import date, datetime, timedelta
from typing import Any, Final

from imem.journal.actors import Actor
from imem.journal.clock import SystemClock, said_at_of_date
from imem.journal.errors import BadInput
from imem.recall.memories.model import check_occurred_at
from imem.terminal.command import moment

PAST: Final = timedelta(days=1)
"""A date this long ago is one of the past: an analysis may be dated with the day on which it is recorded."""

_DAY: Final = timedelta(days=1)

_NOW: Final = "It is known from now on, and answers as of an earlier moment do not show it"


def stated_time(given: dict[str, Any], actor: Actor) -> dict[str, Any]:
    """
    Return the arguments with ``occurred_at`` as a time, and without it where *actor* may not state it.

    A day alone is the end of that day in UTC, or now, where it is not over.

    Raises:
        BadInput: it is no time, or lies ahead.
    """
    if "occurred_at" not in given:
        return given
    now = SystemClock().now()
    stated = _moment(given["occurred_at"], "occurred_at")
    with suppress(ValueError):
        # A day to come stays one: it begins later than now.
        stated = said_at_of_date(date.fromisoformat(given["occurred_at"]), max(now, stated - _DAY))
    check_occurred_at(stated)
    stated = min(now, stated)
    others = {name: value for name, value in given.items() if name != "occurred_at"}
    return {**others, "occurred_at": stated} if actor.may_import else others


def unheeded_time(given: Mapping[str, Any], actor: Actor) -> str:
    """Return which time of the past had no effect on answers as of a moment; empty for none."""
    if given.get("occurred_at") is not None:
        return "" if actor.may_import else f"occurred_at had no effect: this actor may not import. {_NOW}."
    for name in ("date", "decided_at"):
        with suppress(BadInput):
            if name in given and _moment(given[name], name) < SystemClock().now() - PAST:
                return f"{name} is of the past, and has no effect on when this is known. {_NOW}."
    return ""


def _moment(value: Any, name: str) -> datetime:
    at = moment(value, name) if isinstance(value, str) else None
    if at is None:
        raise BadInput(name, "must be a day or a time, such as 2026-06-01T10:27:49Z.")
    return at
