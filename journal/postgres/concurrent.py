"""Work side by side, none of which is left alone with its connection when another fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any


async def all_finished(*work: Awaitable[Any]) -> list[Any]:
    """Return the results of all, or raise the first error once none is under way."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results
