"""Asks every store whether it answers, all at once and briefly: what ``imem status`` says of the mode."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final

from redis.exceptions import RedisError

from imem.alerts.memory_watch import memory_of
from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError
from imem.journal.modes import Health
from imem.journal.valkey_memory import MemoryUse
from imem.services.stores import Stores, secret

TIMEOUT_MS: Final = 1000.0
"""How long a store may take to answer, in milliseconds; one that is slower serves nobody in time."""


async def check_health(stores: Stores) -> Health:
    """Return which stores of *stores* answer, and how far behind the graph is."""
    behind, graph, working, durable, cache = await asyncio.gather(
        _behind(stores),
        _answers(stores.graph.read("ping", deadline=Deadline.after_ms(TIMEOUT_MS))),
        _memory(secret(stores.settings, "valkey_working_url")),
        _memory(secret(stores.settings, "valkey_durable_url")),
        _memory(secret(stores.settings, "valkey_cache_url")),
    )
    return Health(
        # A probe that this process or the server was too busy for is no evidence.
        postgres=behind is not None or not await stores.database.detector.settled(),
        graph=graph,
        working=working is not None,
        durable=durable is not None,
        cache=cache is not None,
        full=tuple(name for name, use in (("working", working), ("durable", durable)) if use is not None and use.full),
        behind_s=behind,
        applier_interval_s=stores.gateway.applier_interval_s,
    )


async def _behind(stores: Stores) -> float | None:
    try:
        rows = await stores.database.named("delivery_behind", deadline=Deadline.after_ms(TIMEOUT_MS))
    except ImemError:
        return None
    return float(rows[0]["behind_s"])


async def _answers(asking: Awaitable[object]) -> bool:
    try:
        async with asyncio.timeout(TIMEOUT_MS / 1000.0):
            await asking
    except (ImemError, OSError, TimeoutError):
        return False
    return True


async def _memory(url: str) -> MemoryUse | None:
    """Return how full a Valkey is; None where it does not answer."""
    try:
        async with asyncio.timeout(TIMEOUT_MS / 1000.0):
            return await memory_of(url, timeout_s=TIMEOUT_MS / 1000.0)
    except (RedisError, OSError, TimeoutError):
        return None
