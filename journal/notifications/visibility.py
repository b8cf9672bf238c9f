"""
Pub/sub channel on which the applier publishes the ids of events that the graph holds.

The applier publishes after Postgres has committed that the events are applied. A caller that waits for visibility
subscribes instead of polling Postgres. Messages may be lost: a waiter polls Postgres after 0.25 s in any case.
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
"""
Carries ids of events that were marked applied, 16 bytes each; an empty message wakes every waiter to poll Postgres.
"""

MOST_IDS: Final = 500
"""Most ids in one message; for a larger batch an empty message is published."""

RECENT_EVENTS: Final = 10_000
"""Published ids that a subscriber remembers, for waits that begin after the message came."""

_ID_BYTES: Final = 16

_SOCKET_S: Final = 0.25
"""Timeout of one publish, in seconds."""

_RECONNECT_S: Final = 0.5
"""Pause between two attempts to subscribe, in seconds."""


class VisibilityPublisher:
    """Publishes for the applier in the background; a message that cannot be published is dropped."""

    def __init__(self, url: str) -> None:
        self._client = valkey_client(url, _SOCKET_S)
        self._pending: list[UUID] = []
        self._wake_all = False
        self._task: asyncio.Task[None] | None = None

    def publish(self, event_ids: Sequence[UUID]) -> None:
        """Publish *event_ids* without waiting; an empty sequence has every waiter poll Postgres."""
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
        """Close the connections, once pending messages are sent or have failed."""
        if self._task is not None:
            await self._task
        await self._client.aclose()


class VisibilitySubscriber:
    """
    The subscription of one process; begins with the first wait and reconnects by itself.

    Attributes:
        subscribed: whether the subscription is live; while it is not, waiters poll Postgres.
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
        Wait until the applier has published all of *event_ids*, at most *timeout_s* seconds.

        Returns:
            Whether it has. False at once while there is no subscription, or when the waiter has to poll Postgres.
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
        """Wake the waiters of which every id was published; without ids wake all, to poll Postgres."""
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
    """Return the ids in a message; none of an empty message, or of one in another format."""
    if len(message) % _ID_BYTES:
        return []
    return [message[start : start + _ID_BYTES] for start in range(0, len(message), _ID_BYTES)]
