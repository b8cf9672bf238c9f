"""
What goes wrong in an agent's work, and what follows: retry, pause, or fail.

Pure. Quorums and partial completion do not exist: one agent's failure stops its analysis.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Final

import httpx

from imem.checkpoints.pauses.lifecycle import FailureClass
from imem.journal.errors import (
    BadInput,
    BudgetExceeded,
    ConsistencyError,
    NotOpen,
    NotResumable,
    OutcomeUnknown,
    PermissionDenied,
    ServerFull,
    SettingsError,
    StoreUnavailable,
)

ATTEMPTS: Final = 3
"""How often a subtask is tried at most before its analysis is paused."""

TIMEOUTS: Final = 3
"""Consecutive timeouts of one endpoint that pause."""

FIRST_WAIT_S: Final = 1.0
"""Before the second attempt, in seconds; doubled before each further one."""

LONGEST_WAIT_S: Final = 300.0
"""Longest wait that an upstream may ask for before the analysis is rather paused, in seconds."""


LONGEST_MESSAGE: Final = 2_000
"""Characters of an error's text that are kept."""

_SECONDS = re.compile(r"[0-9]{1,9}", re.ASCII)


class FailureKind(StrEnum):
    """What went wrong."""

    TIMEOUT = "timeout"
    NETWORK = "network"
    QUOTA = "quota"
    """Too many requests: 429."""
    OVERLOADED = "overloaded"
    """A 5xx that says when to come again."""
    UPSTREAM = "upstream"
    """A 5xx that does not, or any other failure of whom we ask."""
    STORE = "store"
    """A server of ours cannot be reached, or has lost what it acknowledged."""
    CRASH = "crash"
    DATA_QUALITY = "data_quality"
    OUT_OF_MEMORY = "out_of_memory"
    DISK_FULL = "disk_full"
    CHECKPOINT = "checkpoint"
    """Contradictory or unusable checkpoint data."""
    SECURITY = "security"
    CONFIGURATION = "configuration"
    DELISTED = "delisted"


EXTERNAL: Final = frozenset(
    {
        FailureKind.TIMEOUT,
        FailureKind.NETWORK,
        FailureKind.QUOTA,
        FailureKind.OVERLOADED,
        FailureKind.UPSTREAM,
        FailureKind.STORE,
    }
)
"""
Causes that lie outside the analysis.

Once they are over, the analysis may be resumed without a person; and they hit agents of any type alike, so that which
one it was says nothing about what failed.
"""

_FAILING: Final = frozenset(
    {FailureKind.CHECKPOINT, FailureKind.SECURITY, FailureKind.CONFIGURATION, FailureKind.DELISTED}
)
_REPEATABLE: Final = frozenset({FailureKind.NETWORK, FailureKind.QUOTA, FailureKind.OVERLOADED, FailureKind.STORE})


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFailure:
    """
    One failure of an agent.

    Attributes:
        kind: what went wrong.
        message: in words; part of the pattern by which failures are compared.
        endpoint: what was being asked, if anything.
        attempt: the number of this attempt of the call, from 1.
        timeouts: consecutive timeouts of that endpoint, this one among them.
        retry_after_s: when the upstream wants to be asked again, in seconds.
    """

    kind: FailureKind
    message: str
    endpoint: str | None = None
    attempt: int = 1
    timeouts: int = 1
    retry_after_s: float | None = None


def class_of(failure: AgentFailure) -> FailureClass:
    """Return what the failure does to its analysis."""
    if failure.kind in _FAILING:
        return FailureClass.FAIL
    if failure.attempt >= ATTEMPTS or (failure.retry_after_s or 0.0) > LONGEST_WAIT_S:
        return FailureClass.PAUSE
    if failure.kind is FailureKind.TIMEOUT:
        return FailureClass.RETRY if failure.timeouts < TIMEOUTS else FailureClass.PAUSE
    return FailureClass.RETRY if failure.kind in _REPEATABLE else FailureClass.PAUSE


def wait_s(failure: AgentFailure, chance: float = 0.0) -> float:
    """
    Return how long to wait before the next attempt, in seconds: exponential, never less than was asked for.

    Args:
        chance: from 0 to 1, adds up to half of the exponential wait, so that those who failed together come back apart.
    """
    wait = FIRST_WAIT_S * 2.0 ** (failure.attempt - 1)
    return max(wait, failure.retry_after_s or 0.0) + wait * chance / 2.0


def failure_of(error: BaseException, *, attempt: int = ATTEMPTS, timeouts: int = 1) -> AgentFailure:
    """
    Return *error* as a failure.

    Args:
        attempt: which one it was; by default the last, since a program that lets an error out has given up.
        timeouts: consecutive timeouts of the endpoint.
    """
    causes = list(_causes(error))
    kind = next((kind for kind in map(_kind_of, causes) if kind is not None), FailureKind.CRASH)
    answer = next((cause.response for cause in causes if isinstance(cause, httpx.HTTPStatusError)), None)
    return AgentFailure(
        kind=kind,
        message=f"{type(error).__name__}: {error}"[:LONGEST_MESSAGE],
        endpoint=next((host for host in map(_host_of, causes) if host is not None), None),
        attempt=attempt,
        timeouts=timeouts,
        retry_after_s=_retry_after_s(answer) if answer is not None else None,
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and what it was raised from, the outermost first, without going round."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__


_KINDS: Final[tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], FailureKind], ...]] = (
    ((ConsistencyError, NotResumable), FailureKind.CHECKPOINT),
    (PermissionDenied, FailureKind.SECURITY),
    (SettingsError, FailureKind.CONFIGURATION),
    ((ServerFull, MemoryError), FailureKind.OUT_OF_MEMORY),
    # A memory that lost writes, and a commit whose answer was lost: what stands is found out before the next attempt.
    ((StoreUnavailable, NotOpen, OutcomeUnknown), FailureKind.STORE),
    ((httpx.TimeoutException, TimeoutError, BudgetExceeded), FailureKind.TIMEOUT),
    ((httpx.TransportError, ConnectionError), FailureKind.NETWORK),
    (BadInput, FailureKind.DATA_QUALITY),
)
"""The first that fits counts: narrow classes stand before wide ones."""


def _kind_of(error: BaseException) -> FailureKind | None:
    if isinstance(error, httpx.HTTPStatusError):
        return _kind_of_status(error.response)
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return FailureKind.DISK_FULL
    return next((kind for classes, kind in _KINDS if isinstance(error, classes)), None)


def _kind_of_status(response: httpx.Response) -> FailureKind:
    if response.status_code == httpx.codes.TOO_MANY_REQUESTS:
        return FailureKind.QUOTA
    if response.is_server_error and _retry_after_s(response) is not None:
        return FailureKind.OVERLOADED
    return FailureKind.UPSTREAM


def _host_of(error: BaseException) -> str | None:
    if isinstance(error, httpx.HTTPStatusError | httpx.RequestError):
        # Some errors come from before there was a request; its property says so by raising.
        with suppress(RuntimeError):
            return error.request.url.host
    return None


def _retry_after_s(response: httpx.Response) -> float | None:
    """
    Return the Retry-After of an answer in seconds; nonsense is taken for none.

    A date is measured against the answer's own, which comes from the same clock; without that it is taken for none.
    """
    text = response.headers.get("retry-after", "")
    if _SECONDS.fullmatch(text):
        return float(text)
    try:
        after, now = parsedate_to_datetime(text), parsedate_to_datetime(response.headers.get("date", ""))
        return max(0.0, (after - now).total_seconds())
    except (ValueError, TypeError):
        return None
