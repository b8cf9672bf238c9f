"""Turns an entry of an export into a memory, and checks its fields by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any, Final

from imem.journal.clock import SystemClock, known_at_of_date, known_at_of_naive, said_at_of_date
from imem.journal.errors import BadInput
from imem.recall.memories.model import NewMemory

Record = Mapping[str, Any]

_EARLIEST_ZONE: Final = timezone(timedelta(hours=14))


@dataclass(frozen=True, slots=True)
class ImportedMemory:
    """
    A memory of an export.

    Attributes:
        id: its identity there.
        memory: what is stored.
        namespace: where, if the export says it in our terms.
        user, agent: whose it is, otherwise.
        created_at: when it was stored there.
        known_at: since when it was known to say this: a source that changes a text in place says when it did so last.
        numbered: whether equal entries of the file are entries of their own, which the order tells apart.
    """

    id: str
    memory: NewMemory
    namespace: str | None = None
    user: str | None = None
    agent: str | None = None
    created_at: datetime | None = None
    known_at: datetime | None = None
    numbered: bool = False


@dataclass(frozen=True, slots=True)
class ImportedItem:
    """An item of LangGraph's store."""

    labels: tuple[str, ...]
    key: str
    value: dict[str, Any] = field(default_factory=dict)
    created_at: datetime | None = None
    known_at: datetime | None = None


def text(record: Record, name: str) -> str | None:
    """
    Return a field that is text; None if it is missing or null.

    Raises:
        BadInput: it is something else.
    """
    value = record.get(name)
    if value is None or isinstance(value, str):
        return value
    raise BadInput(name, f"must be text, not {type(value).__name__}.")


def required(record: Record, *names: str) -> str:
    """
    Return the first of some fields that is there, which must be text.

    Raises:
        BadInput: none is.
    """
    for name in names:
        if (value := text(record, name)) is not None:
            return value
    raise BadInput(names[0], "is missing.")


def mapping(record: Record, name: str) -> dict[str, Any]:
    """
    Return a field that is an object; an empty one if it is missing or null.

    Raises:
        BadInput: it is something else.
    """
    value = record.get(name)
    if value is None or isinstance(value, dict):
        return value or {}
    raise BadInput(name, f"must be an object, not {type(value).__name__}.")


def moment(record: Record, name: str, *, said: bool = False) -> datetime | None:
    """
    Return a field that is a time, in ISO 8601 or as seconds since 1970; see the page on time.

    A day alone means 12:00 UTC of the next day, a time without a zone is read in UTC-12, where it comes last; neither
    is later than now. Of what was *said* then a day is the end of that day in UTC, and a time is read in UTC.

    Raises:
        BadInput: it is none, lies outside the years 1 to 9999 in UTC, or is later than now.
    """
    value = record.get(name)
    if value is None:
        return None
    try:
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        at = datetime.fromtimestamp(value, UTC) if number else datetime.fromisoformat(value)
        now = SystemClock().now()
        if at.tzinfo is not None:
            # In UTC the first and the last day may lie outside the calendar.
            at = at.astimezone(UTC)
            late = at > now
        else:
            late = at.replace(tzinfo=_EARLIEST_ZONE) > now
            if _is_day(value):
                at = said_at_of_date(at.date(), now) if said else known_at_of_date(at.date())
            else:
                at = at.replace(tzinfo=UTC) if said else known_at_of_naive(at)
            at = min(now, at)
    except (TypeError, ValueError, OverflowError, OSError):
        raise BadInput(name, "is no time in ISO 8601.") from None
    if late:
        raise BadInput(name, "lies in the future.")
    return at


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def known_since(record: Record) -> datetime | None:
    """
    Return since when a record was known as it stands: when it was stored, or changed later; None if it does not say.

    Raises:
        BadInput: one of both is no time.
    """
    created_at, updated_at = moment(record, "created_at"), moment(record, "updated_at")
    return created_at if created_at is None or updated_at is None else max(created_at, updated_at)


def rest(record: Record, *names: str) -> dict[str, Any]:
    """Return the other fields that hold something."""
    return {name: value for name, value in record.items() if name not in names and value not in (None, [], {}, "")}
