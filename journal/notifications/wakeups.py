"""
Streams that say that there is something to do: ids of tiers, never content.

Writers ring after their commit; the applier listens. A stream that is away costs a moment: the listener looks for
itself every :data:`RETRY_S` seconds, and nothing is ever only in a stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from imem.journal.events.entry import Tier

STREAM = "imem:events:{tier}"
"""One stream a tier; entries bear nothing but a mark, and at most :data:`STREAM_ENTRIES` of them stay."""

STREAM_ENTRIES = 1000
RETRY_S = 0.25
"""How often the listener looks for itself while the streams are away, in seconds."""

BLOCK_S = 1.0
"""How long it listens before it looks for itself, in seconds."""

APPLIER_INTERVAL_S = 300.0
"""From one look of the applier to the next where tiers do not count, in seconds."""

_SOCKET_S = 0.25


def applier_interval_s(*, priority: bool) -> float:
    """Return how long an event may wait for the applier's next look, in seconds: where tiers count it is woken."""
    return 0.0 if priority else APPLIER_INTERVAL_S


class IntervalWakeups:
    """
    What the applier waits for where tiers do not count: nothing but the time.

    Args:
        every_s: from one look to the next, in seconds.
        sleep: waits, in seconds.
    """

    def __init__(
        self, every_s: float = APPLIER_INTERVAL_S, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._every_s = every_s
        self._sleep = sleep

    async def wait(self) -> None:
        """Return when the next cycle begins."""
        await self._sleep(self._every_s)

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


def valkey_client(
    url: str, timeout_s: float | None, *, connect_s: float = _SOCKET_S, texts: bool = True
) -> redis.asyncio.Redis:
    """
    Return a client that fails at once instead of trying again.

    Args:
        timeout_s: for an answer, in seconds; None waits for ever.
        connect_s: for a connection, in seconds.
        texts: whether answers are texts, and not bytes.
    """
    return redis.asyncio.Redis.from_url(
        url,
        socket_timeout=timeout_s,
        socket_connect_timeout=connect_s,
        retry=Retry(NoBackoff(), 0),
        decode_responses=texts,
    )


class WakeupPublisher:
    """Announces what was committed; a ring that fails is dropped, since the listener looks for itself."""

    def __init__(self, url: str) -> None:
        self._client = valkey_client(url, _SOCKET_S)

    async def publish_wakeup(self, tiers: Sequence[Tier]) -> None:
        """Say that events of *tiers* were committed."""
        try:
            async with self._client.pipeline(transaction=False) as pipe:
                for tier in tiers:
                    pipe.xadd(
                        STREAM.format(tier=int(tier)), {"committed": "1"}, maxlen=STREAM_ENTRIES, approximate=True
                    )
                await pipe.execute()
        except (RedisError, OSError):
            return

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


class WakeupSubscriber:
    """The applier's ear on the streams."""

    def __init__(self, url: str) -> None:
        self._client = valkey_client(url, BLOCK_S + _SOCKET_S)
        self._tiers: dict[str, int] = {STREAM.format(tier=int(tier)): int(tier) for tier in Tier}
        self._last: dict[Any, Any] = dict.fromkeys(self._tiers, "$")

    async def wait(self) -> Collection[int] | None:
        """
        Return when a writer rang, or after :data:`BLOCK_S` seconds, or sooner when the streams are away.

        Returns:
            The tiers that were rung for; None where nobody rang, or could have been heard.
        """
        try:
            answers: Any = await self._client.xread(self._last, block=int(BLOCK_S * 1000), count=STREAM_ENTRIES)
        except (RedisError, OSError):
            await asyncio.sleep(RETRY_S)
            return None
        for stream, entries in answers or []:
            self._last[stream] = entries[-1][0]
        return {self._tiers[stream] for stream, _ in answers} if answers else None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()
