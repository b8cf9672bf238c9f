"""
Invalidation of cached results by dependency tags.

The process that writes the graph (the applier) publishes the tags of each batch once the batch is in the graph and
before it is acknowledged. It publishes a heartbeat every :data:`HEARTBEAT_INTERVAL_S`, but only while no tags are
pending. The heartbeat expires after :data:`HEARTBEAT_TTL_S`; from then on readers serve cached results as stale.

So a batch waits for an unreachable server that long at most, and no older result is served as fresh after it. A crash
between commit and publication leaves the batch unacknowledged: the applier that repeats it publishes its tags, and
until then the heartbeat has expired.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from imem.cache.client import Client
from imem.cache.keys import APPLIER_HEARTBEAT, CHANGE_STREAM, CHANGES, tag_number
from imem.cache.scripts import script
from imem.cache.tiers.local import LocalCache
from imem.cache.tiers.tag_versions import CHANGES_PER_READ, TagVersionReader
from imem.cache.tiers.tags import tags_of_derived, tags_of_events
from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError
from imem.journal.postgres.cancellation import heed_cancellation
from imem.journal.postgres.database import Database
from imem.kg.projection.rows import Event

log = structlog.get_logger()

HEARTBEAT_TTL_S: Final = 1.5
"""Lifetime of a heartbeat, in seconds."""

HEARTBEAT_INTERVAL_S: Final = 0.5
"""Interval of heartbeats, in seconds."""

BUDGET_MS: Final = 250.0
"""Timeout of one publication, in milliseconds."""

TAG_LOOKUP_MS: Final = 2_000.0
"""Timeout of the look-up of a batch's tags, in milliseconds; after it everything is invalidated."""

RETRY_DELAY_S: Final = 0.05
"""Delay between two attempts to publish, in seconds."""

STREAM_LENGTH: Final = 4096
"""Changes kept in the stream for subscribers."""

MAX_PENDING_TAGS: Final = 20_000
"""Pending tags at most; beyond that everything is invalidated."""

MAX_TAGS_PER_CHANGE: Final = 2_000
"""Tags of one published change at most."""

POLL_INTERVAL_S: Final = 0.5
"""Interval at which subscribers read the stream, in seconds."""


@dataclass(slots=True)
class InvalidationPublisher:
    """
    Publishes invalidations, for the one process that writes the graph.

    Attributes:
        client: of the durable server.
        leads: whether this process is the one that writes; no other may send heartbeats.
        heartbeat_ttl_s: lifetime of a heartbeat, in seconds.
    """

    client: Client
    leads: Callable[[], bool]
    heartbeat_ttl_s: float = HEARTBEAT_TTL_S
    _pending_tags: set[str] = field(default_factory=set)
    _all_pending: bool = False
    _heartbeat_expires_s: float = 0.0
    _server_ms: tuple[int, float] | None = None
    _publish_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def publish(self, tags: Iterable[str], *, everything: bool = False) -> None:
        """
        Invalidate the cached results with one of *tags*; return once they were published, or the heartbeat expired.

        Args:
            everything: invalidate all: the tags are not known.
        """
        self._pending_tags.update(tags)
        self._all_pending = self._all_pending or everything or len(self._pending_tags) > MAX_PENDING_TAGS
        while self._has_pending:
            async with self._publish_lock:
                if await self._publish_pending():
                    return
            if time.monotonic() >= self._heartbeat_expires_s:
                log.warning("changes.not_published", tags=len(self._pending_tags))
                return
            await asyncio.sleep(RETRY_DELAY_S)

    async def run(self) -> None:
        """Publish pending tags, and a heartbeat while none are pending, until cancelled."""
        while True:
            heed_cancellation()
            if self.leads():
                async with self._publish_lock:
                    if await self._publish_pending():
                        await self._send_heartbeat()
            await asyncio.sleep(HEARTBEAT_INTERVAL_S)

    @property
    def _has_pending(self) -> bool:
        return self._all_pending or bool(self._pending_tags)

    async def _publish_pending(self) -> bool:
        """Publish pending tags; return whether none are left."""
        while self._has_pending:
            everything, tags = self._all_pending, sorted(self._pending_tags)[:MAX_TAGS_PER_CHANGE]
            deadline = Deadline.after_ms(BUDGET_MS)
            try:
                if everything:
                    await self.client.run(
                        script("changes_invalidate_all"), (CHANGES, CHANGE_STREAM), (), deadline=deadline
                    )
                else:
                    numbers = sorted({tag_number(tag) for tag in tags})
                    text = "\n".join(tags).encode("utf-8", "surrogatepass")
                    await self.client.run(
                        script("changes_publish"),
                        (CHANGES, CHANGE_STREAM),
                        (STREAM_LENGTH, text, *numbers),
                        deadline=deadline,
                    )
            except ImemError:
                # It may have been published; publishing twice costs one load.
                return False
            if everything:
                self._all_pending = False
            else:
                self._pending_tags.difference_update(tags)
        return True

    async def _send_heartbeat(self) -> None:
        """
        Publish a heartbeat.

        It expires at a moment of the server's clock, so that one that arrives late has no effect.
        """
        deadline = Deadline.after_ms(BUDGET_MS)
        begun_s = time.monotonic()
        until_ms = 0
        if self._server_ms is not None:
            published_ms, read_at_s = self._server_ms
            until_ms = published_ms + int((begun_s - read_at_s + self.heartbeat_ttl_s) * 1000)
            # Counts whether the heartbeat arrives or not.
            self._heartbeat_expires_s = max(self._heartbeat_expires_s, begun_s + self.heartbeat_ttl_s)
        try:
            now_ms = int(
                await self.client.run(
                    script("changes_heartbeat"), (CHANGES, APPLIER_HEARTBEAT), (until_ms,), deadline=deadline
                )
            )
        except ImemError:
            return
        first, self._server_ms = self._server_ms is None, (now_ms, time.monotonic())
        if first:
            await self._send_heartbeat()


@dataclass(frozen=True, slots=True)
class ProjectionInvalidator:
    """
    Publishes the tags of what the applier has written.

    Attributes:
        database: for looking up the subjects of records.
        publisher: publishes the tags.
    """

    database: Database
    publisher: InvalidationPublisher

    async def written(self, events: Sequence[Event]) -> None:
        """Publish the tags of a batch that is in the graph."""
        await self._publish_tags(tags_of_events(events, self.database, deadline=Deadline.after_ms(TAG_LOOKUP_MS)))

    async def derived(self, sort: str, keys: Sequence[str]) -> None:
        """Publish the tags of derived values that are in the graph."""
        await self._publish_tags(tags_of_derived(sort, keys, self.database, deadline=Deadline.after_ms(TAG_LOOKUP_MS)))

    async def _publish_tags(self, found: Awaitable[set[str]]) -> None:
        try:
            tags, everything = await found, False
        except ImemError as error:
            log.warning("changes.all_invalidated", reason=str(error))
            tags, everything = set(), True
        await self.publisher.publish(tags, everything=everything)


@dataclass(slots=True)
class InvalidationSubscriber:
    """
    Drops changed entries from this process's cache; drops all entries when a change was missed.

    It only frees memory sooner: validity is checked whenever a cached result is used.

    Attributes:
        changes: reads the stream.
        local: the cache of this process.
        sleep: waits, in seconds.
    """

    changes: TagVersionReader
    local: LocalCache
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _server: str = ""
    _last: int = -1

    async def run(self) -> None:
        """Read the stream until cancelled."""
        while True:
            heed_cancellation()
            await self.listen()
            await self.sleep(POLL_INTERVAL_S)

    async def listen(self) -> None:
        """Apply the changes since the last call."""
        if not len(self.local):
            self._last = -1
            return
        tag_versions = await self.changes.tag_versions(deadline=Deadline.after_ms(BUDGET_MS))
        if tag_versions is None:
            return
        here = tag_versions.bookmark
        if here.server != self._server or self._last < tag_versions.since or here.number < self._last:
            if self._last >= 0:
                self.local.clear()
            self._server, self._last = here.server, here.number
            return
        if self._last < here.number:
            await self._drop_changed(here.number)

    async def _drop_changed(self, newest: int) -> None:
        """Drop entries with changed tags; drop all if a change is missing or there are more than one read returns."""
        try:
            changes = await self.changes.changes_after(self._last, deadline=Deadline.after_ms(BUDGET_MS))
        except ImemError:
            return
        numbers = [number for number, _ in changes]
        if (
            len(changes) == CHANGES_PER_READ
            or numbers != list(range(self._last + 1, self._last + 1 + len(changes)))
            or not changes
        ):
            self.local.clear()
            self._last = newest
        else:
            self.local.drop_tagged({tag for _, tags in changes for tag in tags})
            self._last = numbers[-1]
