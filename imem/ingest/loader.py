"""
``imem load``: histories from files into the journal.

A thread parses the next batch while the one before is committed; memory holds two batches, whatever the size of the
file. Batches of one source are committed in order, one at a time, since later statements replace earlier ones.

A crash leaves whole batches. Running the same command again finds them identical, since an imported line is identified
by its content, its ``known_at`` and its source.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, Protocol

from imem.ingest.line_reader import Batch, LoadSource, RefusedLine, opened
from imem.ingest.recorder import record, refusal_of
from imem.journal.actors import Action, Actor, Resource, ResourceType
from imem.journal.deadline import Deadline
from imem.journal.errors import BudgetExceeded, StoreUnavailable
from imem.journal.events.entry import AppendStatus, JournalEntry, Receipt
from imem.journal.gateway import Gateway
from imem.journal.postgres.cancellation import heed_cancellation
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.database import Database
from imem.journal.retry import retry
from imem.journal.statements import sql
from imem.kg.kinds.catalog import REFERENCES
from imem.kg.load_format.entries import latest_date_of

BATCH_BUDGET_MS: Final = 30_000
"""Budget of one batch in Postgres, in milliseconds."""

FIRST_BUDGET_MS: Final = 5000
"""Budget of the authorization before the load, in milliseconds."""

REFERENCES_BUDGET_MS: Final = 300_000
"""Budget of the search for missing references after a load, in milliseconds."""

REFERENCES_PAGE: Final = 20_000
"""Positions of the journal per statement of that search, which keeps each far below the statement timeout."""

RETRY_TIMEOUT_S: Final = 10.0
"""How long a load retries while Postgres is away, in seconds."""

STALL_S: Final = 60.0
"""Time without progress of the graph after which the wait ends, in seconds."""

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0
_POLL_S: Final = 0.2
"""Least interval of polling the undelivered events, in seconds."""

_POLL_SHARE: Final = 20.0
"""Least interval as a multiple of the last poll's duration."""


@dataclass(frozen=True, slots=True)
class MissingReferences:
    """
    Records that lines refer to and that are not recorded.

    Attributes:
        kind: their kind.
        count: how many there are.
        examples: the first keys, at most three.
    """

    kind: str
    count: int
    examples: tuple[str, ...]


@dataclass(slots=True)
class LoadCounts:
    """
    Results of a load.

    Attributes:
        verdicts: lines by the journal's verdict.
        refused: lines refused, by the parser or the journal.
        seconds: duration so far.
        stopped_at: file and line after which nothing was loaded; None if the load ran to its end.
        first, upto: least and greatest position of the lines' events.
        missing: missing references; None if they were not searched, or not completely.
        unchecked_reason: why the search was not completed; empty if it was, or was not wanted.
        actors: the ordering actors.
        waiting, dead: events that the graph does not hold yet, and dead letters.
    """

    verdicts: Counter[AppendStatus] = field(default_factory=Counter)
    refused: int = 0
    seconds: float = 0.0
    stopped_at: str | None = None
    first: int = 0
    upto: int = 0
    missing: Sequence[MissingReferences] | None = None
    unchecked_reason: str = ""
    actors: set[str] = field(default_factory=set)
    waiting: int = 0
    dead: int = 0

    @property
    def stored(self) -> int:
        """Number of events written."""
        return self.verdicts[AppendStatus.NEW] + self.verdicts[AppendStatus.CHANGED]

    @property
    def lines(self) -> int:
        """Number of lines processed, without blank ones."""
        return self.stored + self.verdicts[AppendStatus.IDENTICAL] + self.refused

    @property
    def events_per_s(self) -> float:
        """Events written per second."""
        return self.stored / self.seconds if self.seconds else 0.0


class LoadListener(Protocol):
    """Receives progress of a load; called in the loop's thread, and must not block."""

    def refused(self, line: RefusedLine) -> None:
        """Receive a refused line."""

    def checked(self, source: LoadSource, batch: Batch) -> None:
        """Receive a batch that a strict load has checked."""

    def loaded(self, source: LoadSource, batch: Batch, counts: LoadCounts) -> None:
        """Receive a batch that was committed."""

    def waiting(self, counts: LoadCounts) -> None:
        """Receive the number of events that the graph does not hold yet."""


class Loader:
    """
    One load.

    Args:
        gateway: appends the lines; its actor needs the import right.
        listener: receives the progress.
        retry_timeout_s: how long to retry while Postgres is away, in seconds.
    """

    def __init__(self, gateway: Gateway, listener: LoadListener, *, retry_timeout_s: float = RETRY_TIMEOUT_S) -> None:
        self.counts = LoadCounts()
        self._gateway = gateway
        self._listener = listener
        self._retry_timeout_s = retry_timeout_s
        self._began = time.monotonic()

    async def authorize(self) -> None:
        """
        Check that the actor may import and Postgres answers, before anything is read.

        Raises:
            PermissionDenied: the actor may not; one denial row was written.
            PostgresUnavailable: Postgres cannot be reached.
        """
        deadline = Deadline.after_ms(FIRST_BUDGET_MS)

        async def reach() -> None:
            await self._gateway.database.named("safe_horizon", deadline=deadline)

        await self._gateway.authorize_and_execute(
            Resource(ResourceType.JOURNAL), Action.IMPORT, reach, deadline=deadline
        )

    async def check(self, sources: Sequence[LoadSource]) -> int:
        """
        Read everything and write nothing; return how many lines would be refused.

        Each line is checked by itself, against the journal, and against earlier lines of the same load. Writes by other
        actors before the load can still cause refusals then.

        Raises:
            PostgresUnavailable, UnreadableFile: it could not be finished.
        """
        found = 0
        # No transaction: one that has written would hold back the safe horizon until all files are read.
        async with self._gateway.database.connection(Deadline.never()) as conn:
            await conn.execute(sql("create_seen"))
            await conn.execute(sql("clear_seen"))
            before = 0
            for source in sources:
                async with aclosing(_batches(source)) as batches:
                    async for batch in batches:
                        refused = [*batch.refused, *await _judge(conn, source, batch, before)]
                        self._report(refused)
                        found += len(refused)
                        before += len(batch.lines)
                        self._listener.checked(source, batch)
        return found

    async def load(self, sources: Sequence[LoadSource]) -> None:
        """
        Load *sources* in order; :attr:`counts` has the results, also after an error.

        Raises:
            PermissionDenied: nothing of the source was written.
            PostgresUnavailable: Postgres stayed away; committed batches stay, and running again continues.
            UnreadableFile: a file is damaged; committed batches stay.
        """
        for source in sources:
            actor = self._gateway.actor.importing(source.name)
            self.counts.actors.add(actor.id)
            self.counts.stopped_at = f"{source.label}, before its first line"
            async with aclosing(_batches(source)) as batches:
                async for batch in batches:
                    receipts = await self._append(batch, actor)
                    self._count(source, batch, receipts)
                    self.counts.stopped_at = f"{source.label}, line {batch.upto_line:,}"
                    self._listener.loaded(source, batch, self.counts)
        self.counts.stopped_at = None

    async def _append(self, batch: Batch, actor: Actor) -> list[Receipt]:
        """Commit a batch, with retries; after OutcomeUnknown the batch is appended again, which is idempotent."""
        return await retry(
            lambda: record(self._gateway, batch.lines, actor=actor, deadline=Deadline.after_ms(BATCH_BUDGET_MS)),
            deadline=Deadline.after_ms(self._retry_timeout_s * 1000),
            first_pause_s=_FIRST_PAUSE_S,
            longest_pause_s=_LONGEST_PAUSE_S,
        )

    def _count(self, source: LoadSource, batch: Batch, receipts: Sequence[Receipt]) -> None:
        refused = list(batch.refused)
        for prepared, number, receipt in zip(batch.lines, batch.numbers, receipts, strict=True):
            if receipt.position is not None:
                self.counts.first = min(self.counts.first or receipt.position, receipt.position)
                self.counts.upto = max(self.counts.upto, receipt.position)
            refusal = refusal_of(receipt.verdict, prepared.line)
            if refusal is None:
                self.counts.verdicts[receipt.verdict] += 1
            else:
                refused.append(RefusedLine.by(refusal, source.label, number))
        self._report(refused)
        self.counts.refused += len(refused)
        self.counts.seconds = time.monotonic() - self._began

    def _report(self, refused: Sequence[RefusedLine]) -> None:
        for line in sorted(refused, key=attrgetter("line")):
            self._listener.refused(line)

    async def look_for_references(self) -> None:
        """
        Find the records that the lines refer to and that are not recorded, in this load or before.

        :attr:`LoadCounts.missing` has them. They are no error: they may be recorded later, and the graph has a node for
        each. If Postgres does not answer in time, :attr:`LoadCounts.unchecked_reason` has the reason.
        """
        counts = self.counts
        parameters = {
            "actors": sorted(counts.actors),
            "kinds": [f"record.{kind}" for kind, _, _ in REFERENCES],
            "fields": [name for _, name, _ in REFERENCES],
            "labels": [label for _, _, label in REFERENCES],
        }
        try:
            # In pages, collected in a temporary table: flat memory here, short statements there.
            async with self._gateway.database.connection(Deadline.after_ms(REFERENCES_BUDGET_MS)) as conn:
                await conn.execute(sql("create_missing"))
                await conn.execute(sql("clear_missing"))
                for first in range(counts.first, counts.upto + 1, REFERENCES_PAGE):
                    upto = min(first + REFERENCES_PAGE - 1, counts.upto)
                    await conn.execute(sql("note_missing"), {**parameters, "first": first, "upto": upto})
                rows = await (await conn.execute(sql("missing_references"))).fetchall()
        except (StoreUnavailable, BudgetExceeded) as error:
            counts.unchecked_reason = error.message
            return
        counts.missing = [MissingReferences(row["kind"], row["missing"], tuple(row["examples"])) for row in rows]

    async def wait_visible(self, *, stall_s: float = STALL_S) -> bool:
        """
        Wait until the graph holds what was loaded, and return whether it does; stop when it makes no progress.

        Raises:
            PostgresUnavailable: the number of waiting events could not be read.
        """
        least, moved = None, time.monotonic()
        while True:
            heed_cancellation()
            begun = time.monotonic()
            self.counts.waiting, self.counts.dead = await _undelivered(self._gateway.database, self.counts)
            took_s = time.monotonic() - begun
            self.counts.seconds = time.monotonic() - self._began
            self._listener.waiting(self.counts)
            if not self.counts.waiting:
                return not self.counts.dead
            if least is None or self.counts.waiting < least:
                least, moved = self.counts.waiting, time.monotonic()
            elif time.monotonic() - moved > stall_s:
                return False
            # Polling a long queue must not slow it down.
            await asyncio.sleep(min(max(_POLL_S, took_s * _POLL_SHARE), _LONGEST_PAUSE_S))


async def _undelivered(database: Database, counts: LoadCounts) -> tuple[int, int]:
    [row] = await database.named(
        "undelivered_of_actors",
        {"actors": sorted(counts.actors), "upto": counts.upto},
        deadline=Deadline.after_ms(BATCH_BUDGET_MS),
    )
    return row["waiting"], row["dead"]


async def _batches(source: LoadSource) -> AsyncGenerator[Batch]:
    """Yield batches; a thread reads and parses the next one while the caller works on this one."""
    with opened(source) as lines:
        due = asyncio.create_task(asyncio.to_thread(lines.next_batch))
        try:
            while (batch := await asyncio.shield(due)) is not None:
                heed_cancellation()
                due = asyncio.create_task(asyncio.to_thread(lines.next_batch))
                yield batch
        finally:
            # The file may be closed only after the thread has finished reading.
            await asyncio.wait({due})
            due.exception()  # Consumed, so that asyncio does not log it.


async def _judge(conn: Connection, source: LoadSource, batch: Batch, before: int) -> list[RefusedLine]:
    """Return the lines of a batch that the journal would refuse; their cores go to a temporary table."""
    if not batch.lines:
        return []
    entries = [prepared.entry for prepared in batch.lines]
    # Numbers within the whole load, since a row of a table may make several lines.
    numbers = list(range(before + 1, before + len(batch.lines) + 1))
    parameters = {
        "kind": [entry.head_kind for entry in entries],
        "key": [entry.key for entry in entries],
        "hash": [_core_hash(entry) for entry in entries],
        "ref_hash": [entry.ref_hash for entry in entries],
        "corrects": [entry.kind.startswith("correct.") for entry in entries],
        "known_at": [entry.known_at for entry in entries],
        "dated": [dated[0] if (dated := latest_date_of(one.line)) is not None else None for one in batch.lines],
        "line": numbers,
    }
    await conn.execute(sql("note_seen"), parameters)
    rows = await (await conn.execute(sql("validate_lines"), parameters)).fetchall()
    by_number = dict(zip(numbers, zip(batch.lines, batch.numbers, strict=True), strict=True))
    found = []
    for row in rows:
        prepared, number = by_number[row["line"]]
        refusal = refusal_of(AppendStatus(row["status"]), prepared.line)
        if refusal is not None:
            found.append(RefusedLine.by(refusal, source.label, number))
    return found


def _core_hash(entry: JournalEntry) -> bytes | None:
    return next((group.hash for group in entry.groups if group.name == "core"), None)
