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

from imem.journal.notifications.wakeups import valkey_client

CHANNEL: Final = "imem:applied"
"""Bears ids of events that were marked applied, 16 bytes each; an empty message has everybody look."""

MOST_IDS: Final = 500
"""Events that one message names; of more, everybody looks."""

RECENT_EVENTS: Final = 10_000
"""Events that a listener remembers for those who ask a moment too late."""

_ID_BYTES: Final = 16

_SOCKET_S: Final = 0.25
"""How long the server may take to accept a word, in seconds."""

_RECONNECT_S: Final = 0.5
"""Between two attempts to listen, in seconds."""


class VisibilityPublisher:
    """The applier's voice: it never waits, and what cannot be said is dropped."""

    def __init__(self, url: str) -> None:
        self._client = valkey_client(url, _SOCKET_S)
        self._pending: list[UUID] = []
        self._wake_all = False
        self._task: asyncio.Task[None] | None = None

    def publish(self, event_ids: Sequence[UUID]) -> None:
        """Say that the graph holds *event_ids*; of none, that something happened that waiters should look at."""
        self._wake_all = self._wake_all or not event_ids
        self._pending += event_ids
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._publish_pending())

    async def _publish_pending(self) -> None:
        while self._pending or self._wake_all:
            event_ids, self._pending = self._pending, []
            look, self._wake_all = self._wake_all or len(event_ids) > MOST_IDS, False
            with suppress(RedisError, OSError):
                await self._client.publish(CHANNEL, b"" if look else b"".join(one.bytes for one in event_ids))

    async def close(self) -> None:
        """Close the connections; what is being said has its moment."""
        if self._task is not None:
            await self._task
        await self._client.aclose()


class VisibilitySubscriber:
    """
    A process's ear on the channel; it begins to listen when somebody first waits.

    Attributes:
        subscribed: whether words are wait_applied now; while they are not, who waits has to look often.
    """

    def __init__(self, url: str) -> None:
        self._client = valkey_client(url, None, texts=False)
        self._task: asyncio.Task[None] | None = None
        self._waiters: dict[asyncio.Future[bool], set[bytes]] = {}
        self._recent: deque[bytes] = deque(maxlen=RECENT_EVENTS)
        self._known: set[bytes] = set()
        self.subscribed = False

    async def wait_applied(self, event_ids: Collection[UUID], timeout_s: float) -> bool:
        """
        Wait until the applier has said that the graph holds *event_ids*, at most *timeout_s* seconds.

        Returns:
            Whether it has; False also, and at once, where words are not wait_applied at present or there is a reason to
            look.
        """
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._listen())
        if not self.subscribed:
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
                    await self._receive(channel)
            self.subscribed = False
            self._notify_waiters(())
            await asyncio.sleep(_RECONNECT_S)

    async def _receive(self, channel: redis.asyncio.client.PubSub) -> None:
        while True:
            message: Any = await channel.get_message(timeout=None)
            if message is None:
                continue
            if message["type"] == "subscribe":
                self.subscribed = True
            elif message["type"] == "message":
                self._notify_waiters(_ids(message["data"]))

    def _notify_waiters(self, said: Sequence[bytes]) -> None:
        """Wake who waited for what was *said*; where nothing was, everybody, to look."""
        for one in said:
            if len(self._recent) == RECENT_EVENTS:
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
