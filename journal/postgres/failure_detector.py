"""
A failure detector for Postgres: decides by evidence whether the server is away.

A missed deadline is no evidence: the machine may be busy, or this process may not have been scheduled. Evidence is that
the server refuses connections, or that it answered no call of this process for :data:`PROBE_S` after a probe, while
this process' event loop ran on time. Any answer clears it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError

PROBE_S: Final = 2.0
"""How long a probe may go unanswered, in seconds; the default budget of a question is under a quarter of that."""

LEAST_WAIT_S: Final = 0.05
"""A call that ended without an answer sooner than that, in seconds, starts no probe."""

_TICK_S: Final = 0.05
_RESPONSIVE_SHARE: Final = 0.9
"""
Tick of the event loop in seconds, and the share of a probe's ticks that must have run for it to count.

A connection takes dozens of turns of the loop to open: where each comes 10 ms late, two seconds may not be enough.
"""

Probe = Callable[[Deadline], Awaitable[object]]
"""Runs any statement, and reports the answer by :meth:`FailureDetector.answered`."""


class FailureDetector:
    """
    Keeps the evidence of one process and one event loop.

    Args:
        probe: runs any statement, by a deadline.

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
        """Record that the server answered, even with an error."""
        self._answered_s = time.monotonic()
        self.away = False

    def refused(self) -> None:
        """Record that the server refuses connections."""
        self.away = True

    def unanswered(self, begun_s: float) -> None:
        """Record a call that began at *begun_s* (monotonic) and ended without an answer, and start a probe."""
        busy = self._probing is not None and not self._probing.done()
        if busy or self._closed or self.away or time.monotonic() - begun_s < LEAST_WAIT_S:
            return
        self._probing = asyncio.get_running_loop().create_task(self._probed())

    async def settled(self) -> bool:
        """Wait for a running probe, and return whether the server is away."""
        if self._probing is not None and self._probing is not asyncio.current_task():
            await asyncio.wait([self._probing])
        return self.away

    async def close(self) -> None:
        """Cancel a running probe, and start none afterwards."""
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
                if not self.away:  # Unless it refuses, it may answer other calls until the time is over.
                    await asyncio.wait([ticking])
            finally:
                ticking.cancel()
            if self.away or self._answered_s >= begun_s:
                return
            if ticking.result() * _TICK_S >= PROBE_S * _RESPONSIVE_SHARE:
                self.away = True
                return


async def _ticks(until_s: float) -> int:
    """Return how often a timer of :data:`_TICK_S` fired until a moment of the monotonic clock."""
    ticks = 0
    while time.monotonic() < until_s:
        await asyncio.sleep(_TICK_S)
        ticks += 1
    return ticks
