"""
Validity of cached results: read which tags have changed.

The applier publishes the tags of each write before it acknowledges it (:mod:`imem.cache.tiers.invalidation`). A reader
asks here which of its entries' tags have changed: one call for all entries of a request. So an agent reads every write
that was acknowledged, in whichever process, and a missed message cannot keep an invalid entry alive.

While the server is unreachable or the applier's heartbeat has expired, validity is unknown: cached results are then
served as stale only.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from imem.cache.client import Client
from imem.cache.keys import APPLIER_HEARTBEAT, CHANGE_STREAM, CHANGES, tag_number
from imem.cache.metrics import UNREADABLE
from imem.cache.scripts import script
from imem.cache.tiers.cached_result import Bookmark, CacheEntry
from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError

CHANGES_PER_READ: Final = 500
"""Changes read by one call."""


@dataclass(frozen=True, slots=True)
class TagVersions:
    """
    The versions of tags at one moment.

    Attributes:
        bookmark: the newest change; what a load that begins now includes.
        since: changes before that one are not known.
        changed: number of a tag → its last change; for the requested tags.
        read_at_s: when they were read, by the monotonic clock: changes published before are in the graph.
    """

    bookmark: Bookmark
    since: int
    changed: Mapping[int, int]
    read_at_s: float

    def holds(self, entry: CacheEntry) -> bool:
        """Return whether no tag of *entry* has changed since it was loaded; see :meth:`unchanged`."""
        return self.unchanged(entry.bookmark, entry.tags)

    def unchanged(self, seen: Bookmark, tags: Collection[str]) -> bool:
        """
        Return whether none of *tags* has changed since *seen*.

        Raises:
            KeyError: the version of a tag was not read.
        """
        if seen.server != self.bookmark.server or not self.since <= seen.number <= self.bookmark.number:
            return False
        return all(self.changed[tag_number(tag)] <= seen.number for tag in tags)


@dataclass(frozen=True, slots=True)
class TagVersionReader:
    """
    Reads versions of tags, and the stream of changes.

    Attributes:
        client: of the durable server.
    """

    client: Client

    async def tag_versions(self, tags: Iterable[str] = (), *, deadline: Deadline) -> TagVersions | None:
        """Return the versions of *tags*; None if the server is unreachable or the applier's heartbeat expired."""
        numbers = sorted({tag_number(tag) for tag in tags})
        try:
            found = await self.client.run(
                script("changes_versions"), (CHANGES, APPLIER_HEARTBEAT), numbers, deadline=deadline
            )
        except ImemError:
            found = None
        if not found:
            UNREADABLE.inc()
            return None
        server, since, newest, *changed = found
        return TagVersions(
            Bookmark(server.decode("ascii"), int(newest)),
            int(since),
            dict(zip(numbers, (int(change or 0) for change in changed), strict=True)),
            time.monotonic(),
        )

    async def changes_after(self, number: int, *, deadline: Deadline) -> list[tuple[int, frozenset[str]]]:
        """
        Return the changes after *number* with their tags, oldest first, at most :data:`CHANGES_PER_READ`.

        Raises:
            ValkeyUnavailable, BudgetExceeded: the server did not answer.
        """
        found = await self.client.run(
            script("changes_after"), (CHANGE_STREAM,), (number, CHANGES_PER_READ), deadline=deadline
        )
        return [
            (int(name.partition(b"-")[0]), frozenset(fields[1].decode("utf-8", "surrogatepass").split("\n")))
            for name, fields in found
        ]
