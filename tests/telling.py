"""Telling of changes, as the applier's process does it, so that caches may keep answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from imem.cache.tiers.invalidation import InvalidationPublisher


@asynccontextmanager
async def publishing_heartbeat(publisher: InvalidationPublisher) -> AsyncIterator[None]:
    """Have *publisher* give its word while the block runs."""
    await publisher._send_heartbeat()
    word = asyncio.create_task(publisher.run())
    try:
        yield
    finally:
        word.cancel()
        await asyncio.gather(word, return_exceptions=True)
