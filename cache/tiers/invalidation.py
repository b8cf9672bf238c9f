"""
Telling of changes, and hearing of them.

Whoever writes the graph tells of each batch once it is there and before anybody may know that it is. While something is
owed that could not be told, it also ceases to say that everything is: after :data:`HEARTBEAT_TTL_S` seconds nobody
takes a kept answer for the truth any more. So a batch waits for a server that is away for that long at most, once, and
no answer from before it is served after it. A crash between commit and telling leaves the batch unacknowledged: whoever
repeats it tells of it, and until then the silence lapses likewise.
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
"""How long the word holds that everything was told, in seconds."""

HEARTBEAT_INTERVAL_S: Final = 0.5
"""How often it is given, in seconds."""

BUDGET_MS: Final = 250.0
"""How long one telling may take, in milliseconds."""

TAG_LOOKUP_MS: Final = 2_000.0
"""How long it may take to find out what a batch is about, in milliseconds; then it is about everything."""

RETRY_DELAY_S: Final = 0.05
"""Between two attempts to publish, in seconds."""

STREAM_LENGTH: Final = 4096
"""Changes kept in the stream for subscribers."""

MAX_PENDING_TAGS: Final = 20_000
"""Tags owed at most; beyond that everything that was kept is made useless, which is as good."""

MAX_TAGS_PER_CHANGE: Final = 2_000
"""Tags told of in one change; listeners of more drop everything."""

POLL_INTERVAL_S: Final = 0.5
"""How often listeners look, in seconds."""


@dataclass(slots=True)
class InvalidationPublisher:
    """
    Tells of changes, for the one process that writes the graph.

    Attributes:
        client: of the durable server.
        leads: whether this process is the one that writes; another must not speak for it.
        heartbeat_ttl_s: how long its word holds, in seconds.
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
        Return when no kept answer that bears one of *tags* is served any more: they were told of, or the word lapsed.

        Args:
            everything: all answers; somebody cannot say which.
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
        """Give the word until cancelled, while nothing is owed; pay what is."""
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
        """Tell what is owed; return whether all of it was."""
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
        """Say that everything was told, until a moment of the server's own clock: one that is late says nothing."""
        deadline = Deadline.after_ms(BUDGET_MS)
        begun_s = time.monotonic()
        until_ms = 0
        if self._server_ms is not None:
            told_ms, read_at_s = self._server_ms
            until_ms = told_ms + int((begun_s - read_at_s + self.heartbeat_ttl_s) * 1000)
            # Whether it arrives or not.
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
    Tells of what the applier writes: its ``written`` and ``derived``.

    Attributes:
        database: which knows what records are about.
        publisher: who tells.
    """

    database: Database
    publisher: InvalidationPublisher

    async def written(self, events: Sequence[Event]) -> None:
        """Tell of a batch that is in the graph."""
        await self._publish_tags(tags_of_events(events, self.database, deadline=Deadline.after_ms(TAG_LOOKUP_MS)))

    async def derived(self, sort: str, keys: Sequence[str]) -> None:
        """Tell of derived values that are in the graph."""
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
    Drops from a process's own answers what it hears has changed; one that missed something drops everything.

    What it hears only frees memory sooner: whether an answer holds is asked when it is used.

    Attributes:
        changes: where to listen.
        local: what is kept here.
        sleep: waits, in seconds.
    """

    changes: TagVersionReader
    local: LocalCache
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _server: str = ""
    _last: int = -1

    async def run(self) -> None:
        """Listen until cancelled."""
        while True:
            heed_cancellation()
            await self.listen()
            await self.sleep(POLL_INTERVAL_S)

    async def listen(self) -> None:
        """Take in what was told since the last time."""
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
        """Drop what was told of; where that is more than is read at once, or one is missing, everything."""
        try:
            told = await self.changes.changes_after(self._last, deadline=Deadline.after_ms(BUDGET_MS))
        except ImemError:
            return
        numbers = [number for number, _ in told]
        if (
            len(told) == CHANGES_PER_READ
            or numbers != list(range(self._last + 1, self._last + 1 + len(told)))
            or not told
        ):
            self.local.clear()
            self._last = newest
        else:
            self.local.drop_tagged({tag for _, tags in told for tag in tags})
            self._last = numbers[-1]
