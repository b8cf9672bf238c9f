"""Parts of a page that are read side by side: one that fails says why, and the others are shown."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from imem.journal.errors import ImemError


@dataclass(frozen=True, slots=True)
class Part:
    """What was read, or why it could not be."""

    value: Any = None
    error: ImemError | None = None


async def read_parts(**reads: Awaitable[Any]) -> dict[str, Part]:
    """Read all parts at once, and return them by name."""
    found = await asyncio.gather(*map(_read, reads.values()))
    return dict(zip(reads, found, strict=True))


async def _read(read: Awaitable[Any]) -> Part:
    try:
        return Part(await read)
    except ImemError as error:
        return Part(error=error)
