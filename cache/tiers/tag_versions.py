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
from imem.cache.keys import ALIVE, CHANGES, TOLD, number_of_tag
from imem.cache.metrics import UNREADABLE
from imem.cache.scripts import script
from imem.cache.tiers.cached_result import Bookmark, Entry
from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError

TOLD_AT_ONCE: Final = 500
"""Changes that are read in one go."""


@dataclass(frozen=True, slots=True)
class Standing:
    """
    What had changed when it was asked.

    Attributes:
        bookmark: the newest change: what a load that begins now has seen.
        since: changes before that one are not known.
        changed: number of a tag → the change that last had it; of those that were asked about.
        heard_s: when the answer came, by the monotonic clock: what was told of before is committed and in the graph.
    """

    bookmark: Bookmark
    since: int
    changed: Mapping[int, int]
    heard_s: float

    def holds(self, entry: Entry) -> bool:
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
        return all(self.changed[number_of_tag(tag)] <= seen.number for tag in tags)


@dataclass(frozen=True, slots=True)
class Changes:
    """
    Reads what has changed.

    Attributes:
        client: of the durable server.
    """

    client: Client

    async def standing(self, tags: Iterable[str] = (), *, deadline: Deadline) -> Standing | None:
        """Return how things stand, for *tags*; None where nobody can say."""
        numbers = sorted({number_of_tag(tag) for tag in tags})
        try:
            found = await self.client.run(script("changes_look"), (CHANGES, ALIVE), numbers, deadline=deadline)
        except ImemError:
            found = None
        if not found:
            UNREADABLE.inc()
            return None
        server, since, newest, *changed = found
        return Standing(
            Bookmark(server.decode("ascii"), int(newest)),
            int(since),
            dict(zip(numbers, (int(change or 0) for change in changed), strict=True)),
            time.monotonic(),
        )

    async def told_after(self, number: int, *, deadline: Deadline) -> list[tuple[int, frozenset[str]]]:
        """
        Return the changes after *number* with their tags, oldest first, at most :data:`TOLD_AT_ONCE`.

        Raises:
            ValkeyUnavailable, BudgetExceeded: nobody can say.
        """
        found = await self.client.run(script("changes_told_after"), (TOLD,), (number, TOLD_AT_ONCE), deadline=deadline)
        return [
            (int(name.partition(b"-")[0]), frozenset(fields[1].decode("utf-8", "surrogatepass").split("\n")))
            for name, fields in found
        ]
