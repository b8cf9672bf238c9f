"""Waiting for what only asking shows: a server, or another process, has no event of ours to set."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

PATIENCE_S: Final = 60.0
"""After so many seconds it does not come any more; a machine that is busy takes some."""


async def until(check: Callable[[], Awaitable[Any]], *, within_s: float = PATIENCE_S) -> None:
    """
    Wait until *check* gives something true.

    Raises:
        TimeoutError: it did not within *within_s* seconds.
    """
    async with asyncio.timeout(within_s):
        while not await check():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.02)
