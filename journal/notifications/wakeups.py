"""
Wake-ups of the applier: one Valkey stream a tier, without content.

Writers publish after their commit; the applier subscribes. While Valkey is away the applier polls Postgres every
:data:`RETRY_S` seconds: what is due is stored in Postgres alone, so that no wake-up is needed to find it.
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
"""One stream a tier; an entry carries no content, and about :data:`STREAM_ENTRIES` of them are kept."""

STREAM_ENTRIES = 1000
RETRY_S = 0.25
"""Polling interval of the applier while the streams are away, in seconds."""

BLOCK_S = 1.0
"""How long one read of the streams blocks before the applier polls Postgres, in seconds."""

APPLIER_INTERVAL_S = 300.0
"""Polling interval of the applier where ``sync_priority`` is off, in seconds."""

_SOCKET_S = 0.25


def applier_interval_s(*, priority: bool) -> float:
    """Return the applier's polling interval in seconds; 0 where ``sync_priority`` is on, since wake-ups start it."""
    return 0.0 if priority else APPLIER_INTERVAL_S


class IntervalWakeups:
    """
    Wakes the applier by time alone, where ``sync_priority`` is off.

    Args:
        every_s: interval, in seconds.
        sleep: waits, in seconds.
    """

    def __init__(
        self, every_s: float = APPLIER_INTERVAL_S, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._every_s = every_s
        self._sleep = sleep

    async def wait(self) -> None:
        """Return when the interval is over."""
        await self._sleep(self._every_s)

    async def close(self) -> None:
        """Do nothing."""


def valkey_client(
    url: str, timeout_s: float | None, *, connect_s: float = _SOCKET_S, texts: bool = True
) -> redis.asyncio.Redis:
    """
    Return a client without retries.

    Args:
        timeout_s: for a reply, in seconds; None waits for ever.
        connect_s: for a connection, in seconds.
        texts: whether replies are decoded to text.
    """
    return redis.asyncio.Redis.from_url(
        url,
        socket_timeout=timeout_s,
        socket_connect_timeout=connect_s,
        retry=Retry(NoBackoff(), 0),
        decode_responses=texts,
    )


class WakeupPublisher:
    """Publishes wake-ups after a commit; one that fails is dropped, since the applier polls as well."""

    def __init__(self, url: str) -> None:
        self._client = valkey_client(url, _SOCKET_S)

    async def publish_wakeup(self, tiers: Sequence[Tier]) -> None:
        """Publish that events of *tiers* were committed; errors of Valkey are ignored."""
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
    """The applier's subscription to the streams."""

    def __init__(self, url: str) -> None:
        self._client = valkey_client(url, BLOCK_S + _SOCKET_S)
        self._tiers: dict[str, int] = {STREAM.format(tier=int(tier)): int(tier) for tier in Tier}
        self._last: dict[Any, Any] = dict.fromkeys(self._tiers, "$")

    async def wait(self) -> Collection[int] | None:
        """
        Return on a wake-up, or after :data:`BLOCK_S` seconds, or after :data:`RETRY_S` while the streams are away.

        Returns:
            The tiers of the wake-ups; None where there was none, or where the streams could not be read.
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
