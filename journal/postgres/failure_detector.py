"""
A failure detector for Postgres: whether the server is away, by evidence.

A call that missed its deadline is no evidence: the machine may be busy, or this process may not have been run. The
evidence is that the server refuses connections, or that it answered nobody in this process for :data:`PROBE_S`,
although it was asked, while this process' event loop ran. Any answer takes it back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError

PROBE_S: Final = 2.0
"""How long the server may leave a probe without an answer, in seconds: no question by default has a quarter of that."""

LEAST_WAIT_S: Final = 0.05
"""A call that was given up sooner, in seconds, is no reason for a probe."""

_TICK_S: Final = 0.05
_RESPONSIVE_SHARE: Final = 0.5
"""How often the loop notes that it runs, in seconds, and in what share of a probe's ticks it must have."""

Probe = Callable[[Deadline], Awaitable[object]]
"""Asks the server for anything, and reports the answer by :meth:`FailureDetector.answered`."""


class FailureDetector:
    """
    Keeps the evidence of one process and one event loop.

    Args:
        probe: asks the server for anything, by a deadline.

    Attributes:
        away: whether there is evidence that the server is away.
    """

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._answered_s = float("-inf")
        self._probing: asyncio.Task[None] | None = None
        self._closed = False
        self.away = False

    def answered(self) -> None:
        """Note that the server answered, be it with an error."""
        self._answered_s = time.monotonic()
        self.away = False

    def refused(self) -> None:
        """Note that the server refuses connections."""
        self.away = True

    def unanswered(self, begun_s: float) -> None:
        """Note that a call that began at *begun_s* of the monotonic clock ended without an answer; probe the server."""
        busy = self._probing is not None and not self._probing.done()
        if busy or self._closed or self.away or time.monotonic() - begun_s < LEAST_WAIT_S:
            return
        self._probing = asyncio.get_running_loop().create_task(self._probed())

    async def settled(self) -> bool:
        """Return whether the server is away, once a probe under way has ended."""
        if self._probing is not None and self._probing is not asyncio.current_task():
            await asyncio.wait([self._probing])
        return self.away

    async def close(self) -> None:
        """End the probe under way, and begin none for calls that end later: nothing would wait for it any more."""
        self._closed = True
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.gather(self._probing, return_exceptions=True)

    async def _probed(self) -> None:
        while True:
            begun_s = time.monotonic()
            ticking = asyncio.create_task(_ticks(begun_s + PROBE_S))
            try:
                await self._probe(Deadline.after_ms(PROBE_S * 1000.0))
            except ImemError:
                if not self.away:  # Unless it refuses, others may be answered until the time is over.
                    await asyncio.wait([ticking])
            finally:
                ticking.cancel()
            if self.away or self._answered_s >= begun_s:
                return
            if ticking.result() * _TICK_S >= PROBE_S * _RESPONSIVE_SHARE:
                self.away = True
                return


async def _ticks(until_s: float) -> int:
    """Return how often a timer of :data:`_TICK_S` has run until a moment of the monotonic clock."""
    ticks = 0
    while time.monotonic() < until_s:
        await asyncio.sleep(_TICK_S)
        ticks += 1
    return ticks
