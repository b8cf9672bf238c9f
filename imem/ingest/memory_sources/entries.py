"""What an export's entry becomes, and its fields, checked by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from imem.journal.clock import SystemClock
from imem.journal.errors import BadInput
from imem.recall.memories.model import NewMemory

Record = Mapping[str, Any]


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
        numbered: whether equal entries of the file are entries of their own, which the order tells apart.
    """

    id: str
    memory: NewMemory
    namespace: str | None = None
    user: str | None = None
    agent: str | None = None
    created_at: datetime | None = None
    numbered: bool = False


@dataclass(frozen=True, slots=True)
class ImportedItem:
    """An item of LangGraph's store."""

    labels: tuple[str, ...]
    key: str
    value: dict[str, Any] = field(default_factory=dict)
    created_at: datetime | None = None


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


def moment(record: Record, name: str) -> datetime | None:
    """
    Return a field that is a time, in ISO 8601 or as seconds since 1970; one without a zone is read as UTC.

    Raises:
        BadInput: it is none, lies outside the years 1 to 9999 in UTC, or is later than now.
    """
    value = record.get(name)
    if value is None:
        return None
    try:
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        at = datetime.fromtimestamp(value, UTC) if number else datetime.fromisoformat(value)
        # In UTC the first and the last day may lie outside the calendar.
        at = at.astimezone(UTC) if at.tzinfo is not None else at.replace(tzinfo=UTC)
        late = at > SystemClock().now()
    except (TypeError, ValueError, OverflowError, OSError):
        raise BadInput(name, "is no time in ISO 8601.") from None
    if late:
        raise BadInput(name, "lies in the future.")
    return at


def rest(record: Record, *names: str) -> dict[str, Any]:
    """Return the other fields that hold something."""
    return {name: value for name, value in record.items() if name not in names and value not in (None, [], {}, "")}
