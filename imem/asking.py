"""What callers hand to :class:`imem.memory.Memory` beside records, checked before any store sees it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from journal.errors import BadInput
from kg.queries import named_queries

LEAST_BUDGET_MS: Final = 10
MOST_BUDGET_MS: Final = 2000
"""Bounds of the budget of a question, in milliseconds."""

MOST_WRITE_BUDGET_MS: Final = 2**31 - 1
"""Longest budget of a write, in milliseconds: the longest that Postgres keeps."""

_LONGEST_TEXT: Final = 10_000
_MOST_TEXTS: Final = 1000
_INTEGERS: Final = range(-(2**63), 2**63)
"""What the graph holds as a whole number."""


def budget_ms(given: object, *, default: int, least: int, most: int, name: str = "deadline_ms") -> float:
    """
    Return the budget that a call names, or *default* where it names none, in milliseconds.

    Raises:
        BadInput: it is no number, or out of bounds.
    """
    if given is None:
        return default
    number = given if isinstance(given, int | float) and not isinstance(given, bool) else math.nan
    if not least <= number <= most:  # NaN is within no bounds.
        raise BadInput(name, f"must be a number of milliseconds from {least:,} to {most:,}.")
    return number


def texts(**named: str | None) -> None:
    """
    Let pass what is text, and None.

    Raises:
        BadInput: one is no text, or holds what no store can hold; names the argument.
    """
    for name, value in named.items():
        if value is not None:
            _text(name, value)


def whole(name: str, value: object) -> None:
    """
    Let pass a whole number, and None.

    Raises:
        BadInput: it is something else, or too large for the graph; names the argument.
    """
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value not in _INTEGERS):
        raise BadInput(name, "must be a whole number.")


def share(name: str, value: object) -> None:
    """
    Let pass a number from 0 to 1.

    Raises:
        BadInput: it is something else; names the argument.
    """
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0.0 <= value <= 1.0:
        raise BadInput(name, "must be a number from 0 to 1.")


def parameters(query: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the parameters of a named query, each of the type that the query states; a time may be RFC 3339 text.

    Raises:
        BadInput: one has another type; names the parameter.
    """
    known = named_queries().get(query)
    wanted = known.parameters if known is not None else {}
    return {name: _typed(name, value, wanted[name]) if name in wanted else value for name, value in given.items()}


def _typed(name: str, value: Any, wanted: str) -> Any:
    if value is None and "null" in wanted:
        return None
    match wanted.partition(",")[0]:
        case "int":
            if value is None:
                raise BadInput(name, "must be a whole number.")
            whole(name, value)
        case "datetime":
            return _moment(name, value)
        case "list of strings":
            if not isinstance(value, list | tuple) or len(value) > _MOST_TEXTS:
                raise BadInput(name, f"must be a list of at most {_MOST_TEXTS:,} texts.")
            for one in value:
                _text(name, one)
        case _:
            _text(name, value)
    return value


def _moment(name: str, value: Any) -> datetime:
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        at = None
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise BadInput(name, "must be a time with its zone, such as 2026-06-01T10:27:49Z.")
    return at


def _text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise BadInput(name, "must be text.")
    if len(value) > _LONGEST_TEXT:
        raise BadInput(name, f"is longer than {_LONGEST_TEXT:,} characters.")
    if "\0" in value:
        raise BadInput(name, "holds a NUL character.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadInput(name, "is not UTF-8.") from None
