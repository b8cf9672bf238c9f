"""
How who waits for the graph learns that it holds an event: by a word of the applier, not by asking Postgres often.

The word is a message on a channel: positions, or nothing where something happened that everybody should look at. It is
never believed, only a reason to look; losing it costs the moment until the waiter looks for itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, Final

import redis.asyncio
from redis.exceptions import RedisError

from journal.bell import client_of

CHANNEL: Final = "imem:applied"
"""Bears positions that were marked applied, decimal and separated by commas; an empty message has everybody look."""

MOST_NAMED: Final = 500
"""Positions that one message names; of more, everybody looks."""

REMEMBERED: Final = 10_000
"""Positions that a listener remembers for those who ask a moment too late."""

_SOCKET_S: Final = 0.25
"""How long the server may take to accept a word, in seconds."""

_AGAIN_S: Final = 0.5
"""Between two attempts to listen, in seconds."""


class Speaker:
    """The applier's voice: it never waits, and what cannot be said is dropped."""

    def __init__(self, url: str) -> None:
        self._client = client_of(url, _SOCKET_S)
        self._unsaid: list[int] = []
        self._look = False
        self._task: asyncio.Task[None] | None = None

    def say(self, positions: Sequence[int]) -> None:
        """Say that the graph holds *positions*; of none, that something happened that waiters should look at."""
        self._look = self._look or not positions
        self._unsaid += positions
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._speak())

    async def _speak(self) -> None:
        while self._unsaid or self._look:
            positions, self._unsaid = self._unsaid, []
            look, self._look = self._look or len(positions) > MOST_NAMED, False
            with suppress(RedisError, OSError):
                await self._client.publish(CHANNEL, "" if look else ",".join(map(str, positions)))

    async def close(self) -> None:
        """Close the connections; what is being said has its moment."""
        if self._task is not None:
            await self._task
        await self._client.aclose()


class Listener:
    """
    A process's ear on the channel; it begins to listen when somebody first waits.

    Attributes:
        listening: whether words are heard now; while they are not, who waits has to look often.
    """

    def __init__(self, url: str) -> None:
        self._client = client_of(url, None)
        self._task: asyncio.Task[None] | None = None
        self._waiters: dict[asyncio.Future[None], set[int]] = {}
        self._recent: deque[int] = deque(maxlen=REMEMBERED)
        self._known: set[int] = set()
        self.listening = False

    async def heard(self, positions: Collection[int], timeout_s: float) -> bool:
        """
        Wait until there is a reason to look whether the graph holds *positions*, at most *timeout_s* seconds.

        Returns:
            Whether there was one; False at once where words are not heard at present.
        """
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._listen())
        if not self.listening:
            return False
        missing = set(positions) - self._known
        if not missing:
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = missing
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            return False
        finally:
            self._waiters.pop(waiter, None)
        return True

    async def close(self) -> None:
        """Close the connection."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._client.aclose()

    async def _listen(self) -> None:
        while True:
            with suppress(RedisError, OSError):
                async with self._client.pubsub() as channel:
                    await channel.subscribe(CHANNEL)
                    await self._hear(channel)
            self.listening = False
            self._tell(None)
            await asyncio.sleep(_AGAIN_S)

    async def _hear(self, channel: redis.asyncio.client.PubSub) -> None:
        while True:
            message: Any = await channel.get_message(timeout=None)
            if message is None:
                continue
            if message["type"] == "subscribe":
                self.listening = True
            elif message["type"] == "message":
                self._tell(_positions(message["data"]))

    def _tell(self, positions: Sequence[int] | None) -> None:
        """Wake who waited for *positions*; all of them where it is None."""
        for position in positions or ():
            if len(self._recent) == REMEMBERED:
                self._known.discard(self._recent[0])
            self._recent.append(position)
            self._known.add(position)
        for waiter, missing in self._waiters.items():
            missing.difference_update(positions or ())
            if (positions is None or not missing) and not waiter.done():
                waiter.set_result(None)


def _positions(text: str) -> list[int] | None:
    """Return what a message names; None where it names nothing, or is none of ours."""
    try:
        return [int(part) for part in text.split(",")] if text else None
    except ValueError:
        return None
