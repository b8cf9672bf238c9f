"""C1: answers that processes share, on the server that evicts and forgets. Whatever goes wrong there is a miss."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import uuid_utils

from imem.cache.client import Argument, Client
from imem.cache.keys import loading
from imem.cache.metrics import TROUBLE
from imem.cache.scripts import script
from imem.cache.tiers.cached_result import Entry
from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError

LEASE_MS: Final = 600
"""How long a process that died keeps others from loading, in milliseconds."""

MOST_BYTES: Final = 1_000_000
"""Larger entries are not shared."""

LOOK_S: Final = 0.02
"""How often whoever waits for another process's load looks, in seconds."""

BUDGET_MS: Final = 30.0
"""How long a call may take, in milliseconds: what takes longer is slower than loading."""

KEEP_MS: Final = 250.0
"""How long keeping an entry may take, in milliseconds; nobody waits for that."""

FAILURES: Final = 3
RESTS_S: Final = 1.0
"""
How long a server is left alone that did not answer three times in a row, in seconds: nobody should always wait.

Calls that were under way together are one: where the process itself stood still, all that it asked for at once is late.
"""

TIER: Final = "C1"


@dataclass(slots=True)
class Shared:
    """
    Entries on the cache server.

    Attributes:
        client: of it.
        budget_ms: how long a call may take that somebody waits for, in milliseconds.
        keep_ms: how long keeping an entry may take, in milliseconds.
        sleep: waits, in seconds.
    """

    client: Client
    budget_ms: float = BUDGET_MS
    keep_ms: float = KEEP_MS
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _failed: int = 0
    _failed_s: float = float("-inf")
    _rests_until_s: float = field(default=0.0)

    async def get(self, keys: Sequence[bytes], *, deadline: Deadline) -> list[Entry | None]:
        """Return the entry of each key, None where there is none or none that can be read."""
        found = await self._ask("take_answers", keys, (), deadline=deadline) if keys else []
        return [_read(data) for data in found] if found else [None] * len(keys)

    async def begin(self, key: bytes, *, deadline: Deadline) -> tuple[bytes | None, Entry | None]:
        """
        Return a token where this process is to load *key*, None where another one does; and what is kept there by now.

        A server that is away lets everybody load.
        """
        token = uuid_utils.uuid4().bytes
        answer = await self._ask("begin_loading", (key, loading(key)), (token, LEASE_MS), deadline=deadline)
        if answer is None:
            return token, None
        return token if answer[0] else None, _read(answer[1])

    async def awaited(
        self, key: bytes, good: Callable[[Entry], Awaitable[bool]], *, deadline: Deadline
    ) -> Entry | None:
        """Return what another process loads, once it is there and *good*; None when it gave up, or after *deadline*."""
        while not deadline.passed:
            found = await self._ask("look_for_loaded", (key, loading(key)), (), deadline=deadline)
            if found is None:
                return None
            entry = _read(found[0])
            if entry is not None and await good(entry):
                return entry
            if not found[1]:
                return None
            await self.sleep(min(LOOK_S, deadline.left_s()))
        return None

    async def end(self, key: bytes, token: bytes, entry: Entry | None, *, now: datetime) -> None:
        """Give the lease back, and keep what was loaded if it is not too large."""
        data, ttl_ms = b"", 0
        if entry is not None:
            data = entry.encoded()
            ttl_ms = int((entry.stale_until - now).total_seconds() * 1000)
            if len(data) > MOST_BYTES or ttl_ms <= 0:
                data, ttl_ms = b"", 0
        await self._ask(
            "end_loading",
            (key, loading(key)),
            (token, data, ttl_ms),
            deadline=Deadline.after_ms(self.keep_ms),
            most_ms=self.keep_ms,
        )

    async def drop(self, keys: Sequence[bytes], *, deadline: Deadline) -> None:
        """Drop entries, where the server answers."""
        if keys:
            await self._ask("drop_answers", keys, (), deadline=deadline)

    async def _ask(
        self,
        name: str,
        keys: Sequence[bytes],
        arguments: Sequence[Argument],
        *,
        deadline: Deadline,
        most_ms: float | None = None,
    ) -> Any:
        """Return the answer, or None where there is none: whoever asked does without."""
        begun_s = time.monotonic()
        if begun_s < self._rests_until_s:
            return None
        try:
            due = deadline.within_ms(self.budget_ms if most_ms is None else most_ms)
            answer = await self.client.run(script(name), keys, arguments, deadline=due)
        except ImemError:
            TROUBLE.labels(TIER).inc()
            if begun_s > self._failed_s:
                self._failed += 1
                self._failed_s = time.monotonic()
            if self._failed >= FAILURES:
                self._rests_until_s = time.monotonic() + RESTS_S
            return None
        self._failed = 0
        return answer


def _read(data: bytes | None) -> Entry | None:
    if data is None:
        return None
    entry = Entry.decoded(data)
    if entry is None:
        TROUBLE.labels(TIER).inc()
    return entry
