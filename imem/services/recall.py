"""The reading part of :class:`imem.memory.Memory`, and cache warming for sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, TypeVar

import structlog

from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError
from imem.recall.brief import Recall
from imem.recall.request.context import RecallDependencies
from imem.recall.signals.reader import SignalPolicy
from imem.recall.timing.latency_watch import LatencyWatch
from imem.services.stores import Stores

S = TypeVar("S")

log = structlog.get_logger()

WARMING_MS: Final = 2_000.0
"""Budget of resolving a session's subject before warming, in milliseconds."""


def recall_over(stores: Stores, actor: Actor | None = None, *, use_cache: bool = True) -> Recall:
    """
    Return the reader over *stores*.

    Args:
        actor: who asks; the process' own actor by default.
        use_cache: whether to use the tiered cache.
    """
    return Recall(
        RecallDependencies(
            stores.gateway,
            lambda: stores.graph,
            stores.tiers if use_cache else None,
            halflife_years=stores.settings.credibility_halflife_years,
            seasons=stores.settings.panel_seasons,
            journal=stores.journal,
            watch=LatencyWatch(stores.database),
            shows_signals=SignalPolicy.of(stores.settings).shows,
        ),
        actor or stores.gateway.actor,
    )


@asynccontextmanager
async def while_warming(recall: Recall, subject_id: str, session: AbstractAsyncContextManager[S]) -> AsyncIterator[S]:
    """Hold *session* while a background task warms the cache for its subject; errors are logged and ignored."""

    async def warm() -> None:
        try:
            await recall.warm(subject_id, deadline=Deadline.after_ms(WARMING_MS))
        except ImemError as error:
            log.info("memory.not_warmed", subject=subject_id, reason=str(error))

    warming = asyncio.create_task(warm())
    try:
        async with session as begun:
            yield begun
    finally:
        warming.cancel()
        await asyncio.gather(warming, return_exceptions=True)
