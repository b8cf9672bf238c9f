"""Waiting for what only asking shows: a server, or another process, has no event of ours to set."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database

TIMEOUT_S: Final = 60.0
"""After so many seconds it does not come any more; a machine that is busy takes some."""


async def until(check: Callable[[], Awaitable[Any]], *, within_s: float = TIMEOUT_S) -> None:
    """
    Wait until *check* gives something true.

    Raises:
        TimeoutError: it did not within *within_s* seconds.
    """
    async with asyncio.timeout(within_s):
        while not await check():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.02)


def asked_twice(monkeypatch: pytest.MonkeyPatch, statement: str) -> asyncio.Event:
    """Return an event that is set once *statement* was begun a second time from now on, on any connection."""
    named, begun, twice = Database.named, [0], asyncio.Event()

    async def noting(self: Database, name: str, *given: Any, **more: Any) -> list[Row]:
        begun[0] += name == statement
        if begun[0] == 2:
            twice.set()
        return await named(self, name, *given, **more)

    monkeypatch.setattr(Database, "named", noting)
    return twice
