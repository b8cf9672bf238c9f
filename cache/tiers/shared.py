"""C1: cached results shared by processes, on the server that evicts. Every error there counts as a miss."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Final

import uuid_utils

from imem.cache.client import Argument, Client
from imem.cache.keys import loading
from imem.cache.metrics import ERRORS
from imem.cache.scripts import script
from imem.cache.tiers.cached_result import CacheEntry
from imem.journal.circuit_breaker import CircuitBreaker
from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError

LEASE_MS: Final = 600
"""Lifetime of a load lease, in milliseconds: how long a crashed process keeps others from loading."""

MAX_ENTRY_BYTES: Final = 1_000_000
"""Larger entries are not stored."""

POLL_INTERVAL_S: Final = 0.02
"""Poll interval while another process loads, in seconds."""

BUDGET_MS: Final = 30.0
"""Timeout of a read, in milliseconds; beyond it loading is faster."""

WRITE_TIMEOUT_MS: Final = 250.0
"""Timeout of a write, in milliseconds; no caller waits for it."""

CIRCUIT_OPEN_S: Final = 1.0
"""How long the circuit breaker is open before it admits a probe, in seconds; meanwhile every call is a miss."""

TIER: Final = "C1"


@dataclass(slots=True)
class SharedCache:
    """
    Cached results on the cache server, behind a circuit breaker.

    Attributes:
        client: of that server.
        budget_ms: timeout of a call that a caller waits for, in milliseconds.
        write_timeout_ms: timeout of a write, in milliseconds.
        sleep: waits, in seconds.
    """

    client: Client
    budget_ms: float = BUDGET_MS
    write_timeout_ms: float = WRITE_TIMEOUT_MS
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _breaker: CircuitBreaker = field(
        # A process that stood still finds all of its concurrent calls late: they count as one failure.
        default_factory=partial(
            CircuitBreaker, first_open_s=CIRCUIT_OPEN_S, longest_open_s=CIRCUIT_OPEN_S, overlapping=False
        )
    )

    async def get(self, keys: Sequence[bytes], *, deadline: Deadline) -> list[CacheEntry | None]:
        """Return the entry of each key; None where there is none or it cannot be read."""
        found = await self._ask("get_entries", keys, (), deadline=deadline) if keys else []
        return [_read(data) for data in found] if found else [None] * len(keys)

    async def begin(self, key: bytes, *, deadline: Deadline) -> tuple[bytes | None, CacheEntry | None]:
        """
        Acquire the lease to load *key*; return a token, or None where another process holds it, and the current entry.

        Without the server every process gets a token.
        """
        token = uuid_utils.uuid4().bytes
        answer = await self._ask("acquire_load_lease", (key, loading(key)), (token, LEASE_MS), deadline=deadline)
        if answer is None:
            return token, None
        return token if answer[0] else None, _read(answer[1])

    async def wait_for_entry(
        self, key: bytes, good: Callable[[CacheEntry], Awaitable[bool]], *, deadline: Deadline
    ) -> CacheEntry | None:
        """
        Wait for the entry that another process loads; return it once it is *good*.

        Return None once that process released its lease without one, or after *deadline*.
        """
        while not deadline.passed:
            found = await self._ask("poll_entry", (key, loading(key)), (), deadline=deadline)
            if found is None:
                return None
            entry = _read(found[0])
            if entry is not None and await good(entry):
                return entry
            if not found[1]:
                return None
            await self.sleep(min(POLL_INTERVAL_S, deadline.left_s()))
        return None

    async def end(self, key: bytes, token: bytes, entry: CacheEntry | None, *, now: datetime) -> None:
        """Release the lease, and store *entry* unless it is too large."""
        data, ttl_ms = b"", 0
        if entry is not None:
            data = entry.encoded()
            ttl_ms = int((entry.stale_until - now).total_seconds() * 1000)
            if len(data) > MAX_ENTRY_BYTES or ttl_ms <= 0:
                data, ttl_ms = b"", 0
        await self._ask(
            "release_load_lease",
            (key, loading(key)),
            (token, data, ttl_ms),
            deadline=Deadline.after_ms(self.write_timeout_ms),
            most_ms=self.write_timeout_ms,
        )

    async def _ask(
        self,
        name: str,
        keys: Sequence[bytes],
        arguments: Sequence[Argument],
        *,
        deadline: Deadline,
        most_ms: float | None = None,
    ) -> Any:
        """Return the script's answer, or None on an error or while the circuit breaker is open."""
        if self._breaker.refuses:
            return None
        answered: bool | None = None
        begun_s, probe = time.monotonic(), self._breaker.begin_probe()
        try:
            due = deadline.within_ms(self.budget_ms if most_ms is None else most_ms)
            answer = await self.client.run(script(name), keys, arguments, deadline=due)
        except ImemError:
            answered = False
            ERRORS.labels(TIER).inc()
            return None
        else:
            answered = True
            return answer
        finally:
            self._breaker.record_result(begun_s, answered=answered, probe=probe)


def _read(data: bytes | None) -> CacheEntry | None:
    if data is None:
        return None
    entry = CacheEntry.decoded(data)
    if entry is None:
        ERRORS.labels(TIER).inc()
    return entry
