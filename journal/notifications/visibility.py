"""
How who waits for the graph learns that it holds an event: by a word of the applier, not by asking Postgres often.

The word is a message on a channel, said once Postgres has it that the events are applied: their ids, or nothing where
something happened that everybody should look at. Losing it costs the moment until the waiter looks for itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

import redis.asyncio
from redis.exceptions import RedisError

from imem.journal.notifications.wakeups import client_of

CHANNEL: Final = "imem:applied"
"""Bears ids of events that were marked applied, 16 bytes each; an empty message has everybody look."""

MOST_NAMED: Final = 500
"""Events that one message names; of more, everybody looks."""

REMEMBERED: Final = 10_000
"""Events that a listener remembers for those who ask a moment too late."""

_ID_BYTES: Final = 16

_SOCKET_S: Final = 0.25
"""How long the server may take to accept a word, in seconds."""

_AGAIN_S: Final = 0.5
"""Between two attempts to listen, in seconds."""


class Speaker:
    """The applier's voice: it never waits, and what cannot be said is dropped."""

    def __init__(self, url: str) -> None:
        self._client = client_of(url, _SOCKET_S)
        self._unsaid: list[UUID] = []
        self._look = False
        self._task: asyncio.Task[None] | None = None

    def say(self, event_ids: Sequence[UUID]) -> None:
        """Say that the graph holds *event_ids*; of none, that something happened that waiters should look at."""
        self._look = self._look or not event_ids
        self._unsaid += event_ids
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._speak())

    async def _speak(self) -> None:
        while self._unsaid or self._look:
            event_ids, self._unsaid = self._unsaid, []
            look, self._look = self._look or len(event_ids) > MOST_NAMED, False
            with suppress(RedisError, OSError):
                await self._client.publish(CHANNEL, b"" if look else b"".join(one.bytes for one in event_ids))

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
        self._client = client_of(url, None, texts=False)
        self._task: asyncio.Task[None] | None = None
        self._waiters: dict[asyncio.Future[bool], set[bytes]] = {}
        self._recent: deque[bytes] = deque(maxlen=REMEMBERED)
        self._known: set[bytes] = set()
        self.listening = False

    async def heard(self, event_ids: Collection[UUID], timeout_s: float) -> bool:
        """
        Wait until the applier has said that the graph holds *event_ids*, at most *timeout_s* seconds.

        Returns:
            Whether it has; False also, and at once, where words are not heard at present or there is a reason to look.
        """
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._listen())
        if not self.listening:
            return False
        missing = {one.bytes for one in event_ids} - self._known
        if not missing:
            return True
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = missing
        try:
            async with asyncio.timeout(timeout_s):
                return await waiter
        except TimeoutError:
            return False
        finally:
            self._waiters.pop(waiter, None)

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
            self._tell(())
            await asyncio.sleep(_AGAIN_S)

    async def _hear(self, channel: redis.asyncio.client.PubSub) -> None:
        while True:
            message: Any = await channel.get_message(timeout=None)
            if message is None:
                continue
            if message["type"] == "subscribe":
                self.listening = True
            elif message["type"] == "message":
                self._tell(_ids(message["data"]))

    def _tell(self, said: Sequence[bytes]) -> None:
        """Wake who waited for what was *said*; where nothing was, everybody, to look."""
        for one in said:
            if len(self._recent) == REMEMBERED:
                self._known.discard(self._recent[0])
            self._recent.append(one)
            self._known.add(one)
        for waiter, missing in self._waiters.items():
            missing.difference_update(said)
            if (not missing or not said) and not waiter.done():
                waiter.set_result(not missing)


def _ids(message: bytes) -> list[bytes]:
    """Return the ids that a message bears; none where it has everybody look, or is none of ours."""
    if len(message) % _ID_BYTES:
        return []
    return [message[start : start + _ID_BYTES] for start in range(0, len(message), _ID_BYTES)]
