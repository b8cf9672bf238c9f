"""
Errors as problem documents (RFC 9457), and back: what a server sends and a remote memory raises.

The ``type`` is ``urn:imem:error:`` and the name of the class, and does not change. Beside the members of the RFC stand
``mend``, ``retryable``, and the attributes of the error, such as ``field`` and ``nearest``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic_core import to_jsonable_python

from imem.journal import errors
from imem.journal.errors import ImemError

TYPE: Final = "urn:imem:error:"
MEDIA_TYPE: Final = "application/problem+json"

_STATUS: Final[Mapping[type[ImemError], int]] = {
    errors.NotAuthenticated: 401,
    errors.PermissionDenied: 403,
    errors.UnknownSubject: 404,
    errors.UnknownDebate: 404,
    errors.ObjectMissing: 404,
    errors.CoreConflict: 409,
    errors.AmbiguousSubject: 409,
    errors.LeaseHeld: 409,
    errors.LeaseLost: 409,
    errors.NotOpen: 409,
    errors.NotDelivered: 409,
    errors.NotResumable: 409,
    errors.TransitionRefused: 409,
    errors.SettingsError: 409,  # The installation does not offer that; the caller cannot change it, and nothing failed.
    errors.TooLarge: 413,
    errors.BadInput: 422,
    errors.StatementRejected: 422,
    errors.TooManyRequests: 429,
    errors.BudgetExceeded: 504,
    errors.StoreUnavailable: 503,
    errors.OutcomeUnknown: 503,
    errors.ConsistencyError: 500,
    ImemError: 500,
}
"""Class → status of HTTP; of a class that is not here that of the nearest one above it."""

STATUSES: Final = tuple(sorted(set(_STATUS.values())))
"""Every status with which an operation may fail."""

_OF_THE_DOCUMENT: Final = frozenset({"type", "title", "status", "detail", "mend", "retryable"})


def status_of(error: ImemError) -> int:
    """Return the status of HTTP for an error."""
    return next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)


def problem_of(error: ImemError) -> dict[str, Any]:
    """Return the document of an error; it says no more than the error itself."""
    more = {name: value for name, value in vars(error).items() if name not in {"message", "mend"}}
    return {
        "type": TYPE + type(error).__name__,
        "title": _title(type(error)),
        "status": status_of(error),
        "detail": error.message,
        "mend": error.mend,
        "retryable": error.retryable,
        **to_jsonable_python(more),
    }


def error_of(document: Mapping[str, Any]) -> ImemError:
    """Return the error that a document is of; of a class that this program does not know, the root of the tree."""
    name = str(document.get("type", "")).removeprefix(TYPE)
    kind = _CLASSES.get(name, ImemError)
    error = kind.__new__(kind)
    Exception.__init__(error, document.get("detail", ""))
    error.message = str(document.get("detail", ""))
    error.mend = str(document.get("mend", ""))
    if error.retryable != bool(document.get("retryable")):
        error.retryable = bool(document.get("retryable"))
    for member, value in document.items():
        if member not in _OF_THE_DOCUMENT:
            setattr(error, member, tuple(value) if isinstance(value, list) else value)
    return error


def _title(kind: type[ImemError]) -> str:
    """Return the first sentence of a class's documentation."""
    return (kind.__doc__ or kind.__name__).strip().splitlines()[0].split(";")[0].rstrip(".")


def _all(kind: type[ImemError]) -> Iterator[type[ImemError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _all(below)


_CLASSES: Final = {kind.__name__: kind for kind in _all(ImemError)}
