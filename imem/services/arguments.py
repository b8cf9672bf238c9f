"""Validation of arguments of :class:`imem.memory.Memory`, before any store is used."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from imem.journal.arguments import check_int, check_text, usable_moment
from imem.journal.errors import BadInput
from imem.kg.queries import SEARCHES, named_queries

LEAST_BUDGET_MS: Final = 10
MOST_BUDGET_MS: Final = 30_000
"""Bounds of the budget of a read, in milliseconds."""

MOST_WRITE_BUDGET_MS: Final = 2**31 - 1
"""Longest budget of a write, in milliseconds: Postgres's longest timeout."""

_EXPRESSION: Final = "full-text expression"
"""Marks a full-text parameter in a query's header."""

_MOST_TEXTS: Final = 1000


def budget_ms(given: object, *, default: float, least: int, most: int, name: str = "deadline_ms") -> float:
    """
    Return the given budget, or *default* for None, in milliseconds.

    Raises:
        BadInput: it is no number, or out of bounds.
    """
    if given is None:
        return default
    number = given if isinstance(given, int | float) and not isinstance(given, bool) else math.nan
    if not least <= number <= most:  # NaN is within no bounds.
        raise BadInput(name, f"must be a number of milliseconds from {least:,} to {most:,}.")
    return number


def share(name: str, value: object) -> None:
    """
    Check that *value* is a number from 0 to 1.

    Raises:
        BadInput: it is not; names the argument.
    """
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0.0 <= value <= 1.0:
        raise BadInput(name, "must be a number from 0 to 1.")


def parameters(query: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the parameters of a named query, converted to the types that it declares; a time may be RFC 3339 text.

    Search text for a full-text index is escaped: it is plain text, not an expression of the index's language, so any
    text is valid.

    Raises:
        BadInput: one has another type; names the parameter.
    """
    known = named_queries().get(query)
    wanted = known.parameters if known is not None else {}
    typed = {name: _typed(name, value, wanted[name]) if name in wanted else value for name, value in given.items()}
    return {
        name: SEARCHES[query](value) if _EXPRESSION in wanted.get(name, "") else value for name, value in typed.items()
    }


def _typed(name: str, value: Any, wanted: str) -> Any:
    if value is None and "null" in wanted:
        return None
    match wanted.partition(",")[0]:
        case "int":
            check_int(name, value)
        case "datetime":
            return _moment(name, value)
        case "list of strings":
            if not isinstance(value, list | tuple) or len(value) > _MOST_TEXTS:
                raise BadInput(name, f"must be a list of at most {_MOST_TEXTS:,} texts.")
            for one in value:
                check_text(name, one)
        case _:
            check_text(name, value)
    return value


def _moment(name: str, value: Any) -> datetime:
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        at = None
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise BadInput(name, "must be a time with its zone, such as 2026-06-01T10:27:49Z.")
    usable_moment(name, at)
    return at
