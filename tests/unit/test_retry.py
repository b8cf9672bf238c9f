"""Retries ask the error, wait for no longer than their bound, and end at the deadline."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, BudgetExceeded, ImemError, PostgresUnavailable, StoreUnavailable
from imem.journal.retry import retry


def _failing(*errors: ImemError) -> tuple[Callable[[], Awaitable[int]], list[int]]:
    """Return a call that raises *errors* one after another and then returns how often it was called."""
    calls: list[int] = []

    async def call() -> int:
        calls.append(len(calls) + 1)
        if len(calls) <= len(errors):
            raise errors[len(calls) - 1]
        return len(calls)

    return call, calls


def _away(retry_after_s: float = 0.0) -> PostgresUnavailable:
    error = PostgresUnavailable("It is away.")
    error.retry_after_s = retry_after_s
    return error


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Every pause at its bound, none of them waited for."""
    waited: list[float] = []

    async def sleep(pause_s: float) -> None:
        waited.append(pause_s)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(random, "uniform", lambda _, upto: upto)
    return waited


async def test_the_bound_of_pauses_doubles_up_to_the_longest(pauses: list[float]) -> None:
    call, _ = _failing(*(_away() for _ in range(5)))

    assert await retry(call, deadline=Deadline.never(), first_pause_s=0.1, longest_pause_s=0.5) == 6
    assert pauses == [0.1, 0.2, 0.4, 0.5, 0.5]


async def test_a_pause_is_as_long_as_the_server_asks(pauses: list[float]) -> None:
    call, _ = _failing(_away(7.0), _away())

    assert await retry(call, deadline=Deadline.after_ms(60_000)) == 3
    assert pauses == [7.0, 0.02]


@pytest.mark.parametrize(
    ("error", "tried"), [(BadInput("field", "is wrong."), 1), (BudgetExceeded("Late."), 1), (_away(), 4)]
)
async def test_only_retryable_errors_of_the_given_classes_are_retried(
    pauses: list[float], error: ImemError, tried: int
) -> None:
    call, calls = _failing(*[error] * 9)

    with pytest.raises(type(error)):
        await retry(call, deadline=Deadline.never(), errors=(StoreUnavailable, BadInput), attempts=4)
    assert len(calls) == tried
    assert len(pauses) == tried - 1


async def test_no_attempt_begins_after_the_deadline(pauses: list[float]) -> None:
    call, calls = _failing(_away(30.0))

    with pytest.raises(PostgresUnavailable):
        await retry(call, deadline=Deadline.after_ms(20_000))
    assert (calls, pauses) == ([1], [])


async def test_pauses_are_random_from_nothing_to_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds: list[tuple[float, float]] = []

    def uniform(least: float, most: float) -> float:
        bounds.append((least, most))
        return 0.0

    monkeypatch.setattr(random, "uniform", uniform)
    call, _ = _failing(_away(), _away())

    assert await retry(call, deadline=Deadline.after_ms(10_000)) == 3
    assert bounds == [(0.0, 0.01), (0.0, 0.02)]


async def test_the_error_before_the_deadline_says_why_there_was_another_attempt() -> None:
    """What ended the last attempt is its cause; without an attempt before, it is the error."""
    deadline, away = Deadline.after_ms(100), _away()
    failing, calls = _failing(away)

    async def call() -> int:
        if calls:
            await asyncio.sleep(deadline.left_s())
            deadline.check("another attempt")
        return await failing()

    with pytest.raises(PostgresUnavailable) as raised:
        await retry(call, deadline=deadline, errors=PostgresUnavailable)
    assert raised.value is away
    assert isinstance(raised.value.__cause__, BudgetExceeded)

    late, _ = _failing(BudgetExceeded("The time is over."))
    with pytest.raises(BudgetExceeded):
        await retry(late, deadline=Deadline.after_ms(0), errors=PostgresUnavailable)
