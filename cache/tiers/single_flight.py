"""
One load for concurrent callers of this process.

It runs in a task of its own, so that cancelling one caller does not cancel the others'. When the last caller is
cancelled, the load is cancelled with its calls of servers. A load has its own deadline: a caller with an earlier one
leaves it running.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from imem.journal.deadline import Deadline
from imem.journal.errors import BudgetExceeded

T = TypeVar("T")


@dataclass(slots=True)
class _Flight(Generic[T]):
    task: asyncio.Task[T]
    waiting: int = 0
    left: bool = False


class SingleFlight(Generic[T]):
    """The running loads of one event loop, by key."""

    def __init__(self) -> None:
        self._open: dict[bytes, _Flight[T]] = {}

    async def join(self, key: bytes, load: Callable[[], Awaitable[T]], *, deadline: Deadline) -> tuple[T, bool]:
        """
        Return the result of the running load of *key*, starting *load* if there is none; and whether one was running.

        Raises:
            BudgetExceeded: it did not end before *deadline*.
            ImemError: the load failed; every caller that waited gets the error, no later one.
        """
        flight = self._open.get(key)
        joined = flight is not None
        if flight is None:
            flight = self._begun(key, load)
        flight.waiting += 1
        try:
            async with asyncio.timeout(deadline.left_s()):
                return await asyncio.shield(flight.task), joined
        except TimeoutError as error:
            flight.left = True
            raise BudgetExceeded("The result did not come before the deadline.") from error
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.left and not flight.task.done():
                self._ended(key, flight)
                flight.task.cancel()

    async def close(self) -> None:
        """Cancel every load."""
        tasks = [flight.task for flight in self._open.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begun(self, key: bytes, load: Callable[[], Awaitable[T]]) -> _Flight[T]:
        async def run() -> T:
            return await load()

        flight = _Flight(asyncio.get_running_loop().create_task(run()))
        self._open[key] = flight

        def done(task: asyncio.Task[T]) -> None:
            self._ended(key, flight)
            if not task.cancelled():
                task.exception()  # The callers have the exception; marks it as retrieved when there are none left.

        flight.task.add_done_callback(done)
        return flight

    def _ended(self, key: bytes, flight: _Flight[T]) -> None:
        if self._open.get(key) is flight:
            del self._open[key]
