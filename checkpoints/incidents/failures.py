"""
Failures of agents, and their class: retry, pause, or fail.

Pure. There are no quorums and no partial completion: one agent's failure stops its analysis.
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
"""Attempts of a subtask before its analysis is paused."""

TIMEOUTS: Final = 3
"""Consecutive timeouts of one endpoint before its analysis is paused."""

FIRST_WAIT_S: Final = 1.0
"""Delay before the second attempt, in seconds; doubled before each further one."""

LONGEST_WAIT_S: Final = 300.0
"""Longest Retry-After, in seconds; beyond it the analysis is paused."""


LONGEST_MESSAGE: Final = 2_000
"""Characters of a stored error text."""

_SECONDS = re.compile(r"[0-9]{1,9}", re.ASCII)


class FailureKind(StrEnum):
    """Kind of a failure."""

    TIMEOUT = "timeout"
    NETWORK = "network"
    QUOTA = "quota"
    """Too many requests: 429."""
    OVERLOADED = "overloaded"
    """A 5xx with a Retry-After."""
    UPSTREAM = "upstream"
    """A 5xx without one, or any other failure of an upstream."""
    STORE = "store"
    """A store of ours cannot be reached, or has lost acknowledged writes."""
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
External causes.

Once they are resolved, the analysis may be resumed without a human. They hit agents of any type alike, so that the
agent's type is not part of the signature.
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
        kind: what failed.
        message: readable; part of the pattern.
        endpoint: the called endpoint, if any.
        attempt: the number of this attempt, from 1.
        timeouts: consecutive timeouts of that endpoint, this one among them.
        retry_after_s: Retry-After of the upstream, in seconds.
    """

    kind: FailureKind
    message: str
    endpoint: str | None = None
    attempt: int = 1
    timeouts: int = 1
    retry_after_s: float | None = None


def class_of(failure: AgentFailure) -> FailureClass:
    """Return the class of a failure."""
    if failure.kind in _FAILING:
        return FailureClass.FAIL
    if failure.attempt >= ATTEMPTS or (failure.retry_after_s or 0.0) > LONGEST_WAIT_S:
        return FailureClass.PAUSE
    if failure.kind is FailureKind.TIMEOUT:
        return FailureClass.RETRY if failure.timeouts < TIMEOUTS else FailureClass.PAUSE
    return FailureClass.RETRY if failure.kind in _REPEATABLE else FailureClass.PAUSE


def wait_s(failure: AgentFailure, chance: float = 0.0) -> float:
    """
    Return the delay before the next attempt, in seconds: exponential, never less than the Retry-After.

    Args:
        chance: jitter from 0 to 1, adds up to half of the exponential delay.
    """
    wait = FIRST_WAIT_S * 2.0 ** (failure.attempt - 1)
    return max(wait, failure.retry_after_s or 0.0) + wait * chance / 2.0


def failure_of(error: BaseException, *, attempt: int = ATTEMPTS, timeouts: int = 1) -> AgentFailure:
    """
    Return *error* as a failure.

    Args:
        attempt: its number; by default the last, since a program that raises an error has given up.
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
    """Yield the error and its causes, the outermost first, each once."""
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
    # A memory that lost writes, and a commit without an answer: the state is read before the next attempt.
    ((StoreUnavailable, NotOpen, OutcomeUnknown), FailureKind.STORE),
    ((httpx.TimeoutException, TimeoutError, BudgetExceeded), FailureKind.TIMEOUT),
    ((httpx.TransportError, ConnectionError), FailureKind.NETWORK),
    (BadInput, FailureKind.DATA_QUALITY),
)
"""The first match counts: narrow classes come before wide ones."""


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
        # Errors from before there was a request: its property raises.
        with suppress(RuntimeError):
            return error.request.url.host
    return None


def _retry_after_s(response: httpx.Response) -> float | None:
    """
    Return the Retry-After of an answer in seconds; None where it is invalid.

    A date is compared with the answer's own date, which is of the same clock; None without that.
    """
    text = response.headers.get("retry-after", "")
    if _SECONDS.fullmatch(text):
        return float(text)
    try:
        after, now = parsedate_to_datetime(text), parsedate_to_datetime(response.headers.get("date", ""))
        return max(0.0, (after - now).total_seconds())
    except (ValueError, TypeError):
        return None
