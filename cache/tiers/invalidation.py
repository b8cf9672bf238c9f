"""
Telling of changes, and hearing of them.

Whoever writes the graph tells of each batch once it is there and before anybody may know that it is. While something is
owed that could not be told, it also ceases to say that everything is: after :data:`LIFE_S` seconds nobody takes a kept
answer for the truth any more. So a batch waits for a server that is away for that long at most, once, and no answer
from before it is served after it. A crash between commit and telling leaves the batch unacknowledged: whoever repeats
it tells of it, and until then the silence lapses likewise.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from imem.cache.client import Client
from imem.cache.keys import ALIVE, CHANGES, TOLD, number_of_tag
from imem.cache.scripts import script
from imem.cache.tiers.local import Local
from imem.cache.tiers.tag_versions import TOLD_AT_ONCE, Changes
from imem.cache.tiers.tags import tags_of_derived, tags_of_events
from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError
from imem.journal.postgres.cancellation import heed_cancellation
from imem.journal.postgres.database import Database
from imem.kg.projection.rows import Event

log = structlog.get_logger()

LIFE_S: Final = 1.5
"""How long the word holds that everything was told, in seconds."""

BEAT_S: Final = 0.5
"""How often it is given, in seconds."""

BUDGET_MS: Final = 250.0
"""How long one telling may take, in milliseconds."""

LOOK_UP_MS: Final = 2_000.0
"""How long it may take to find out what a batch is about, in milliseconds; then it is about everything."""

AGAIN_S: Final = 0.05
"""Between two attempts to tell, in seconds."""

KEPT: Final = 4096
"""Changes that are kept for those who listen."""

MOST_OWED: Final = 20_000
"""Tags owed at most; beyond that everything that was kept is made useless, which is as good."""

MOST_TAGS: Final = 2_000
"""Tags told of in one change; listeners of more drop everything."""

LISTEN_S: Final = 0.5
"""How often listeners look, in seconds."""


@dataclass(slots=True)
class Teller:
    """
    Tells of changes, for the one process that writes the graph.

    Attributes:
        client: of the durable server.
        leads: whether this process is the one that writes; another must not speak for it.
        life_s: how long its word holds, in seconds.
    """

    client: Client
    leads: Callable[[], bool]
    life_s: float = LIFE_S
    _owed: set[str] = field(default_factory=set)
    _everything: bool = False
    _holds_until_s: float = 0.0
    _server_ms: tuple[int, float] | None = None
    _speaking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def tell(self, tags: Iterable[str], *, everything: bool = False) -> None:
        """
        Return when no kept answer that bears one of *tags* is served any more: they were told of, or the word lapsed.

        Args:
            everything: all answers; somebody cannot say which.
        """
        self._owed.update(tags)
        self._everything = self._everything or everything or len(self._owed) > MOST_OWED
        while self._owes:
            async with self._speaking:
                if await self._pay():
                    return
            if time.monotonic() >= self._holds_until_s:
                log.warning("changes.not_told", tags=len(self._owed))
                return
            await asyncio.sleep(AGAIN_S)

    async def run(self) -> None:
        """Give the word until cancelled, while nothing is owed; pay what is."""
        while True:
            heed_cancellation()
            if self.leads():
                async with self._speaking:
                    if await self._pay():
                        await self._beat()
            await asyncio.sleep(BEAT_S)

    @property
    def _owes(self) -> bool:
        return self._everything or bool(self._owed)

    async def _pay(self) -> bool:
        """Tell what is owed; return whether all of it was."""
        while self._owes:
            everything, tags = self._everything, sorted(self._owed)[:MOST_TAGS]
            deadline = Deadline.after_ms(BUDGET_MS)
            try:
                if everything:
                    await self.client.run(script("changes_forget"), (CHANGES, TOLD), (), deadline=deadline)
                else:
                    numbers = sorted({number_of_tag(tag) for tag in tags})
                    text = "\n".join(tags).encode("utf-8", "surrogatepass")
                    await self.client.run(
                        script("changes_tell"), (CHANGES, TOLD), (KEPT, text, *numbers), deadline=deadline
                    )
            except ImemError:
                # Told perhaps; telling twice costs a load.
                return False
            if everything:
                self._everything = False
            else:
                self._owed.difference_update(tags)
        return True

    async def _beat(self) -> None:
        """Say that everything was told, until a moment of the server's own clock: one that is late says nothing."""
        deadline = Deadline.after_ms(BUDGET_MS)
        begun_s = time.monotonic()
        until_ms = 0
        if self._server_ms is not None:
            told_ms, heard_s = self._server_ms
            until_ms = told_ms + int((begun_s - heard_s + self.life_s) * 1000)
            # Whether it arrives or not.
            self._holds_until_s = max(self._holds_until_s, begun_s + self.life_s)
        try:
            now_ms = int(
                await self.client.run(script("changes_beat"), (CHANGES, ALIVE), (until_ms,), deadline=deadline)
            )
        except ImemError:
            return
        first, self._server_ms = self._server_ms is None, (now_ms, time.monotonic())
        if first:
            await self._beat()


@dataclass(frozen=True, slots=True)
class Told:
    """
    Tells of what the applier writes: its ``written`` and ``derived``.

    Attributes:
        database: which knows what records are about.
        teller: who tells.
    """

    database: Database
    teller: Teller

    async def written(self, events: Sequence[Event]) -> None:
        """Tell of a batch that is in the graph."""
        await self._tell(tags_of_events(events, self.database, deadline=Deadline.after_ms(LOOK_UP_MS)))

    async def derived(self, sort: str, keys: Sequence[str]) -> None:
        """Tell of derived values that are in the graph."""
        await self._tell(tags_of_derived(sort, keys, self.database, deadline=Deadline.after_ms(LOOK_UP_MS)))

    async def _tell(self, found: Awaitable[set[str]]) -> None:
        try:
            tags, everything = await found, False
        except ImemError as error:
            log.warning("changes.of_everything", reason=str(error))
            tags, everything = set(), True
        await self.teller.tell(tags, everything=everything)


@dataclass(slots=True)
class Listener:
    """
    Drops from a process's own answers what it hears has changed; one that missed something drops everything.

    What it hears only frees memory sooner: whether an answer holds is asked when it is used.

    Attributes:
        changes: where to listen.
        local: what is kept here.
        sleep: waits, in seconds.
    """

    changes: Changes
    local: Local
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _server: str = ""
    _last: int = -1

    async def run(self) -> None:
        """Listen until cancelled."""
        while True:
            heed_cancellation()
            await self.listen()
            await self.sleep(LISTEN_S)

    async def listen(self) -> None:
        """Take in what was told since the last time."""
        if not len(self.local):
            self._last = -1
            return
        standing = await self.changes.standing(deadline=Deadline.after_ms(BUDGET_MS))
        if standing is None:
            return
        here = standing.bookmark
        if here.server != self._server or self._last < standing.since or here.number < self._last:
            if self._last >= 0:
                self.local.clear()
            self._server, self._last = here.server, here.number
            return
        if self._last < here.number:
            await self._hear(here.number)

    async def _hear(self, newest: int) -> None:
        """Drop what was told of; where that is more than is read at once, or one is missing, everything."""
        try:
            told = await self.changes.told_after(self._last, deadline=Deadline.after_ms(BUDGET_MS))
        except ImemError:
            return
        numbers = [number for number, _ in told]
        if len(told) == TOLD_AT_ONCE or numbers != list(range(self._last + 1, self._last + 1 + len(told))) or not told:
            self.local.clear()
            self._last = newest
        else:
            self.local.drop_tagged({tag for _, tags in told for tag in tags})
            self._last = numbers[-1]
