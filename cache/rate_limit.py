"""
Limits of calls: at most so many reads and writes of one identity within any minute, counted by all processes together.

The count is on the cache server. While that is away, each process counts by itself: nobody is refused for the server's
sake, and nobody is unlimited.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from cachetools import LRUCache

from imem.cache.client import Client
from imem.cache.keys import calls_within
from imem.cache.scripts import script
from imem.journal.actors import Actor
from imem.journal.circuit_breaker import CircuitBreaker
from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError, TooManyRequests

WINDOW_S: Final = 60.0
"""The window, in seconds."""

BUDGET_MS: Final = 30.0
"""How long a call waits for the server, in milliseconds; beyond it this process counts."""

CIRCUIT_OPEN_S: Final = 1.0
"""How long the circuit breaker is open before it admits a probe, in seconds; meanwhile this process counts."""

MOST_IDENTITIES: Final = 10_000
"""Identities whose calls one process counts; the least recently seen gives way."""


@dataclass(slots=True)
class LocalCalls:
    """
    The calls that this process admitted, by the rule of the script ``admit_call``.

    Attributes:
        clock: monotonic time in seconds.
    """

    clock: Callable[[], float] = time.monotonic
    _moments: LRUCache[bytes, deque[float]] = field(default_factory=lambda: LRUCache(MOST_IDENTITIES))

    def admit(self, key: bytes, limit: int) -> float:
        """Return 0.0 if the call is admitted, else the seconds until one may be."""
        now_s = self.clock()
        moments = self._moments.get(key)
        if moments is None:
            moments = self._moments[key] = deque()
        while len(moments) > limit or (moments and now_s - moments[0] >= WINDOW_S):
            moments.popleft()
        if len(moments) == limit:
            return WINDOW_S - (now_s - moments[0])
        moments.append(now_s)
        return 0.0


@dataclass(slots=True)
class RateLimiter:
    """
    Admits calls of identities; one serves all calls of a process.

    Attributes:
        client: of the cache server; None where there is none: then this process counts.
        writes_per_minute, reads_per_minute: the limits of one identity.
        local: counts while the server is away.
    """

    client: Client | None
    writes_per_minute: int = 60
    reads_per_minute: int = 600
    local: LocalCalls = field(default_factory=LocalCalls)
    _breaker: CircuitBreaker = field(
        default_factory=partial(
            CircuitBreaker, first_open_s=CIRCUIT_OPEN_S, longest_open_s=CIRCUIT_OPEN_S, overlapping=False
        )
    )

    async def admit(self, actor: Actor, *, writes: bool, deadline: Deadline) -> None:
        """
        Return if *actor* may make one more call now; the call is counted.

        Args:
            writes: whether the call writes; reads and writes are counted apart.

        Raises:
            TooManyRequests: as many were admitted within the last minute; says when one may be.
        """
        kind, limit = ("write", self.writes_per_minute) if writes else ("read", self.reads_per_minute)
        key = calls_within(actor.id, kind)
        wait_s = await self._shared(key, limit, deadline)
        if wait_s is None:
            wait_s = self.local.admit(key, limit)
        if wait_s > 0.0:
            raise TooManyRequests(wait_s)

    async def _shared(self, key: bytes, limit: int, deadline: Deadline) -> float | None:
        """Return what the server says, in seconds; None where it says nothing in time."""
        if self.client is None or self._breaker.refuses:
            return None
        answered: bool | None = None
        begun_s, probe = time.monotonic(), self._breaker.begin_probe()
        try:
            due = deadline.within_ms(BUDGET_MS)
            wait_ms = await self.client.run(script("admit_call"), (key,), (limit, int(WINDOW_S * 1000)), deadline=due)
            answered = True
            return int(wait_ms) / 1000.0
        except ImemError:
            answered = False
            return None
        finally:
            self._breaker.record_result(begun_s, answered=answered, probe=probe)
