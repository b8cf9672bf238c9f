"""
Correlation ids: an id that a caller gives its work, to find everything done for it.

It is in every line logged meanwhile, in the audit rows, and beside the events recorded. A call without an id gets a new
one, in its logs and audit rows alone.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

import structlog

from imem.journal.arguments import checks_call
from imem.journal.errors import BadInput

LONGEST: Final = 200
"""Longest correlation id, in characters."""


@dataclass(frozen=True, slots=True)
class Correlation:
    """
    The correlation id of the current call.

    Attributes:
        id: the id.
        given: whether the caller gave it.
    """

    id: str
    given: bool


_CURRENT: Final[ContextVar[Correlation | None]] = ContextVar("imem_correlation", default=None)


def correlation() -> Correlation | None:
    """Return the current correlation; None outside of every call."""
    return _CURRENT.get()


@checks_call
@contextmanager
def correlated(correlation_id: str | None = None) -> Iterator[str]:
    """
    Bind *correlation_id* to everything in the block, and yield it.

    Args:
        correlation_id: 1 to 200 printable characters. By default that of the block around, or a new one.

    Raises:
        BadInput: it is no such text.
    """
    now = _CURRENT.get()
    if correlation_id is None and now is not None:
        yield now.id
        return
    if correlation_id is not None and not (0 < len(correlation_id) <= LONGEST and correlation_id.isprintable()):
        raise BadInput("correlation_id", f"must be 1 to {LONGEST} printable characters.")
    found = Correlation(correlation_id or secrets.token_hex(8), correlation_id is not None)
    token = _CURRENT.set(found)
    try:
        with structlog.contextvars.bound_contextvars(correlation_id=found.id):
            yield found.id
    finally:
        _CURRENT.reset(token)
