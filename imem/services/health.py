"""The content of ``imem status``: the mode, by a check of all stores, and the work that pipelines still have to do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Final

from redis.exceptions import RedisError

from imem.alerts.memory_watch import memory_of
from imem.jobs.backlog import Waiting, backlog_parameters, read_backlog
from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError
from imem.journal.modes import Health
from imem.journal.settings import Settings
from imem.journal.valkey_memory import MemoryUse
from imem.services.stores import Stores, secret

TIMEOUT_MS: Final = 1000.0
"""Timeout of a store's answer, in milliseconds."""

BACKLOG_MS: Final = 10_000.0
"""Timeout of counting what the pipelines have to do, in milliseconds."""


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
        # A probe that timed out on a busy machine is no evidence that Postgres is away; the detector decides.
        postgres=behind is not None or not await stores.database.detector.settled(),
        graph=graph,
        working=working is not None,
        durable=durable is not None,
        cache=cache is not None,
        full=tuple(name for name, use in (("working", working), ("durable", durable)) if use is not None and use.full),
        behind_s=behind,
        applier_interval_s=stores.gateway.applier_interval_s,
    )


async def backlog(stores: Stores) -> tuple[Waiting, ...]:
    """
    Return what the pipelines and the applier still have to do; empty if nothing waits.

    Raises:
        PostgresUnavailable, BudgetExceeded: it could not be counted in time; retryable.
        SettingsError: see :func:`backlog_parameters_of`.
    """
    parameters = backlog_parameters_of(stores.settings)
    return await read_backlog(stores.database, parameters, deadline=Deadline.after_ms(BACKLOG_MS))


def backlog_parameters_of(settings: Settings) -> dict[str, Any]:
    """
    Return the parameters of the statement ``pipelines_behind`` under *settings*.

    Raises:
        SettingsError: an endpoint for vectors is set without its model or dimension.
    """
    from imem.services.embedders import embedder_of  # noqa: PLC0415 - numpy takes long to import

    embedder = embedder_of(settings)
    return backlog_parameters(embedder.model_id, embedder.dimension, situations=settings.situations_enabled)


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
    """Return the memory use of a Valkey; None if it does not answer."""
    try:
        async with asyncio.timeout(TIMEOUT_MS / 1000.0):
            return await memory_of(url, timeout_s=TIMEOUT_MS / 1000.0)
    except (RedisError, OSError, TimeoutError):
        return None
