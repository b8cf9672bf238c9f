"""Telling of changes, as the applier's process does it, so that caches may keep answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from imem.cache.tiers.invalidation import Teller


@asynccontextmanager
async def giving_word(teller: Teller) -> AsyncIterator[None]:
    """Have *teller* give its word while the block runs."""
    await teller._beat()
    word = asyncio.create_task(teller.run())
    try:
        yield
    finally:
        word.cancel()
        await asyncio.gather(word, return_exceptions=True)
