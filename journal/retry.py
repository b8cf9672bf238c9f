"""Retries of failed calls with exponential backoff and full jitter, never past the caller's deadline."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from imem.journal.deadline import Deadline
from imem.journal.errors import BudgetExceeded, ImemError

T = TypeVar("T")

ATTEMPTS: Final = 4
"""Attempts of a transaction of which Postgres says that nothing was written; each loses to a different writer."""

FIRST_PAUSE_S: Final = 0.01
LONGEST_PAUSE_S: Final = 0.1
"""Longest pause before the second attempt, and before any, in seconds; the bound doubles with each attempt."""


async def retry(
    call: Callable[[], Awaitable[T]],
    *,
    deadline: Deadline,
    errors: type[ImemError] | tuple[type[ImemError], ...] = ImemError,
    attempts: int | None = None,
    first_pause_s: float = FIRST_PAUSE_S,
    longest_pause_s: float = LONGEST_PAUSE_S,
) -> T:
    """
    Return the result of *call*, which is called again after a retryable error of *errors*.

    A pause is random, up to a bound that doubles, so that callers that failed together do not return together; it is no
    shorter than the time that a server asks for.

    Args:
        deadline: no attempt begins after it; a call under way is not ended.
        attempts: most calls; without it only the deadline bounds them.

    Raises:
        ImemError: of the last attempt: not retryable, or no attempt is left before *deadline*. Of the one before, if
            *deadline* ended the last: it says why there was another.
    """
    attempt, bound_s = 1, first_pause_s
    before: ImemError | None = None
    while True:
        try:
            return await call()
        except errors as error:
            before = error
            pause_s = max(random.uniform(0.0, bound_s), error.retry_after_s)  # noqa: S311 - it protects no secret
            if not error.retryable or attempt == attempts or pause_s >= deadline.left_s():
                raise
        except BudgetExceeded as late:
            if before is None or not deadline.passed:
                raise
            raise before from late
        await asyncio.sleep(pause_s)
        attempt, bound_s = attempt + 1, min(2.0 * bound_s, longest_pause_s)
