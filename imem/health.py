"""Asks every store whether it answers, all at once and briefly: what ``imem status`` says of the mode."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final

from redis.exceptions import RedisError

from imem.stores import Stores, secret
from journal.bell import client_of
from journal.deadline import Deadline
from journal.errors import ImemError
from journal.modes import Health

PATIENCE_MS: Final = 1000.0
"""How long a store may take to answer, in milliseconds; one that is slower serves nobody in time."""


async def look(stores: Stores) -> Health:
    """Return which stores of *stores* answer, and how far behind the graph is."""
    behind, graph, working, durable, cache = await asyncio.gather(
        _behind(stores),
        _answers(stores.graph.read("ping", deadline=Deadline.after_ms(PATIENCE_MS))),
        _answers(_pinged(secret(stores.settings, "valkey_working_url"))),
        _answers(_pinged(secret(stores.settings, "valkey_durable_url"))),
        _answers(_pinged(secret(stores.settings, "valkey_cache_url"))),
    )
    return Health(
        postgres=behind is not None,
        graph=graph,
        working=working,
        durable=durable,
        cache=cache,
        behind_s=behind,
        cycle_s=stores.gateway.cycle_s,
    )


async def _behind(stores: Stores) -> float | None:
    try:
        rows = await stores.database.named("delivery_behind", deadline=Deadline.after_ms(PATIENCE_MS))
    except ImemError:
        return None
    return float(rows[0]["behind_s"])


async def _answers(asking: Awaitable[object]) -> bool:
    try:
        async with asyncio.timeout(PATIENCE_MS / 1000.0):
            await asking
    except (ImemError, RedisError, OSError, TimeoutError):
        return False
    return True


async def _pinged(url: str) -> None:
    patience_s = PATIENCE_MS / 1000.0
    async with client_of(url, patience_s, connect_s=patience_s) as client:
        await client.ping()
