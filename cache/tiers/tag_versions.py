"""
Whether kept answers still hold.

Whoever writes the graph tells of each write by tags, before anybody is told that it is applied
(:mod:`imem.cache.tiers.invalidation`); whoever uses a kept answer asks here what has changed since. That is one
question for all answers of a request, so that an agent always finds what it was told is there, in whichever process,
and a message that was missed can never let an old answer live.

Nobody can say so while the server is away, or while nobody who writes the graph says that he tells of it: then no kept
answer is more than a stale one.
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
    What had changed when it was asked.

    Attributes:
        bookmark: the newest change: what a load that begins now has seen.
        since: changes before that one are not known.
        changed: number of a tag → the change that last had it; of those that were asked about.
        read_at_s: when the answer came, by the monotonic clock: what was told of before is committed and in the graph.
    """

    bookmark: Bookmark
    since: int
    changed: Mapping[int, int]
    read_at_s: float

    def holds(self, entry: CacheEntry) -> bool:
        """Return whether nothing that *entry* hangs on has changed since it was loaded; see :meth:`unchanged`."""
        return self.unchanged(entry.bookmark, entry.tags)

    def unchanged(self, seen: Bookmark, tags: Collection[str]) -> bool:
        """
        Return whether nothing that bears one of *tags* has changed since *seen*.

        Raises:
            KeyError: one of the tags was not asked about.
        """
        if seen.server != self.bookmark.server or not self.since <= seen.number <= self.bookmark.number:
            return False
        return all(self.changed[tag_number(tag)] <= seen.number for tag in tags)


@dataclass(frozen=True, slots=True)
class TagVersionReader:
    """
    Reads what has changed.

    Attributes:
        client: of the durable server.
    """

    client: Client

    async def tag_versions(self, tags: Iterable[str] = (), *, deadline: Deadline) -> TagVersions | None:
        """Return how things stand, for *tags*; None where nobody can say."""
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
            ValkeyUnavailable, BudgetExceeded: nobody can say.
        """
        found = await self.client.run(
            script("changes_after"), (CHANGE_STREAM,), (number, CHANGES_PER_READ), deadline=deadline
        )
        return [
            (int(name.partition(b"-")[0]), frozenset(fields[1].decode("utf-8", "surrogatepass").split("\n")))
            for name, fields in found
        ]
