"""
The applier: the one process that writes the graph.

It holds a lease, reads due events from Postgres in each actor's order, projects a batch into one graph transaction
together with ``AppliedEvent``, and marks it applied. The next batch is read while this one is written. A crash at any
step causes a repeat, which the statements' guards make harmless.

A batch that the graph refuses is bisected until the bad event stands alone; after :data:`MOST_REJECTIONS` it is dead,
with its reason, and the rest goes on. A graph that is away consumes no attempts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import neo4j
import structlog

from journal.cancelling import heed_cancellation
from journal.clock import Clock, SystemClock
from journal.database import Database, Row
from journal.deadline import Deadline
from journal.errors import ImemError, LeaseLost, StatementRejected
from journal.statements import cypher
from kg.engine import Graph, given
from kg.lease import Lease
from kg.project import Event
from kg.writing import GRAPH_BUDGET_MS, in_halves, write_events

log = structlog.get_logger()

MOST_REJECTIONS = 5
"""Rejections of one event after which it is dead."""

STORE_BUDGET_MS = 10_000
"""How long one statement may take in Postgres, in milliseconds."""

LONGEST_PAUSE_S = 2.0
"""Between two attempts while a store is away, in seconds."""

FIRST_BATCH = 50
"""Events in the first transaction, and in the first after trouble; each that succeeds doubles the next, up to the
batch. A server that has only just started plans and compiles every statement anew, and must not be asked for too much
at once."""

STEADY_BATCH = 500
"""Events up to which a batch grows whatever it takes: a small one spends its time on statements, not on rows."""

QUICK_S = 0.5
"""Above :data:`STEADY_BATCH` a batch grows only while it takes no longer, in seconds: urgent events wait behind it."""

SLOW_S = 1.5
"""A larger one that takes longer is halved, in seconds: a caller waits at most two for visibility."""

DERIVE_ROWS = 500
"""Derived values recomputed in one go."""


def next_size(size: int, took_s: float, most: int) -> int:
    """Return how many events the next transaction may hold after one of at most *size* that took *took_s* seconds."""
    if size < STEADY_BATCH or took_s <= QUICK_S:
        return min(size * 2, most)
    return max(STEADY_BATCH, size // 2) if took_s > SLOW_S else size


class Bell(Protocol):
    """What wakes the applier; losing a ring costs a moment, never an event."""

    async def wait(self) -> None:
        """Return when there may be work, or after a while."""


class Deriver(Protocol):
    """Recomputes one sort of derived value in the graph; owned by the pipeline that knows how."""

    async def rows(self, database: Database, keys: Sequence[str]) -> list[dict[str, Any]]:
        """Return the rows for its statement."""


@dataclass(slots=True)
class Applier:
    """
    Applies events until told to stop.

    Attributes:
        database: the journal.
        graph: where to.
        bell: what to wait for when nothing is due.
        written: told each batch once it is in the graph, before anybody is told that it is: who caches what the graph
            says drops it here. A failure of its own is for it to handle; a crash has it told again.
        applied: told each batch once it is marked applied.
        derived: told the keys of each sort of derived value once they are in the graph, like *written*.
        derivers: sort of derived value → what makes its rows; sorts without one need only the key.
        batch: events in one transaction at most.
        clock: for ``applied_at``.
    """

    database: Database
    graph: Graph
    bell: Bell
    written: Callable[[Sequence[Event]], Awaitable[None]] | None = None
    applied: Callable[[Sequence[Event]], Awaitable[None]] | None = None
    derived: Callable[[str, Sequence[str]], Awaitable[None]] | None = None
    derivers: dict[str, Deriver] = field(default_factory=dict)
    batch: int = 2000
    clock: Clock = field(default_factory=SystemClock)
    lease: Lease = field(init=False)
    _held: set[int] = field(default_factory=set)
    _size: int = FIRST_BATCH
    _marking: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        """Prepare the lease; nothing is taken yet."""
        self.lease = Lease(self.database, "applier")

    async def run(self) -> None:
        """
        Take the lease when it is free and apply events until cancelled.

        Another process that takes over sends this one back to waiting; a store that is away is waited for.
        """
        pause_s = 0.05
        while True:
            heed_cancellation()
            try:
                if await self.lease.take():
                    pause_s = 0.05
                    await self._lead()
                else:
                    await asyncio.sleep(LONGEST_PAUSE_S / 2)
            except LeaseLost as lost:
                log.warning("applier.superseded", reason=str(lost))
                self.lease = Lease(self.database, "applier")
            except ImemError as error:
                log.warning("applier.waiting", reason=str(error), pause_s=pause_s)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
            finally:
                self._held.clear()
                self._size = FIRST_BATCH

    async def stop(self) -> None:
        """Let the lease go; call it after the task of :meth:`run` has ended."""
        await self.lease.drop()

    async def _lead(self) -> None:
        """Apply while the lease is ours; ends by an exception."""
        keeper = asyncio.create_task(self.lease.keep())
        leader = asyncio.create_task(self._loop())
        try:
            await asyncio.wait({keeper, leader}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (keeper, leader):
                task.cancel()
            results = await asyncio.gather(keeper, leader, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
                raise result

    async def _loop(self) -> None:
        due = asyncio.create_task(self._claim())
        try:
            while True:
                events = await due
                heed_cancellation()
                if events:
                    self._held |= {event.position for event in events}
                    # The next batch is read while this one is written.
                    due = asyncio.create_task(self._claim())
                    await self._apply(events)
                    continue
                await self._marked()
                if not await self.derive():
                    await self.bell.wait()
                due = asyncio.create_task(self._claim())
        finally:
            due.cancel()
            with suppress(asyncio.CancelledError, ImemError):
                await due
            await self._marked()

    async def drain(self) -> int:
        """
        Apply everything that is due, without a lease loop, and return how many events that was.

        For rebuilds and tests; the caller must hold the lease or be alone.

        Raises:
            LeaseLost, GraphUnavailable, PostgresUnavailable: nothing half-applied is left.
        """
        if not await self.lease.take():
            raise LeaseLost("Another process applies events.")
        done = 0
        while True:
            events = await self._claim()
            if not events:
                await self._marked()
                if not await self.derive() and not await self._claim():
                    return done
                continue
            self._held |= {event.position for event in events}
            await self._apply(events)
            done += len(events)
            await self._marked()

    async def _claim(self) -> list[Event]:
        """Return the events that are due: urgent ones with their predecessors, else the oldest."""
        parameters = {
            "held": list(self._held),
            "upto": max(self._held, default=0),
            "limit": min(self._size, self.batch),
        }
        rows: list[Row] = []
        for name in ("claim_urgent", "claim_due"):
            rows = await self.database.named(name, parameters, deadline=Deadline.after_ms(STORE_BUDGET_MS))
            if rows:
                break
        return [Event.from_row(row) for row in rows]

    async def _apply(self, events: Sequence[Event]) -> None:
        """Apply a batch, or the halves of one that was refused."""
        await in_halves(events, self._write, self._refuse)

    async def _write(self, events: Sequence[Event]) -> None:
        """Write a batch and have it marked while the next one is written."""
        begun = time.monotonic()
        bookmark = await write_events(self.graph, events, self.clock)
        self._size = next_size(self._size, time.monotonic() - begun, self.batch)
        await self._marked()
        self._marking = asyncio.create_task(self._mark(events, bookmark))

    async def _mark(self, events: Sequence[Event], bookmark: str | None) -> None:
        positions = [event.position for event in events]
        if self.written is not None:
            await self.written(events)
        marked = await self.database.do(
            "settle_applied",
            {"positions": positions, "bookmark": bookmark, **self.lease.fence},
            deadline=Deadline.after_ms(STORE_BUDGET_MS),
        )
        if marked != len(positions):
            raise LeaseLost("The applier's lease was lost before its work was marked.")
        self._held.difference_update(positions)
        if self.applied is not None:
            await self.applied(events)

    async def _marked(self) -> None:
        """Wait until the last batch is marked; its failure is ours."""
        if self._marking is not None:
            marking, self._marking = self._marking, None
            await marking

    async def _refuse(self, event: Event, error: StatementRejected) -> None:
        rows = await self.database.named(
            "settle_refused",
            {"position": event.position, "error": str(error), "most": MOST_REJECTIONS, **self.lease.fence},
            deadline=Deadline.after_ms(STORE_BUDGET_MS),
        )
        if not rows:
            raise LeaseLost("The applier's lease was lost before a refusal was noted.")
        self._held.discard(event.position)
        note = log.error if rows[0]["state"] == "dead" else log.warning
        note("applier.refused", position=event.position, kind=event.kind, state=rows[0]["state"], reason=str(error))

    async def derive(self) -> bool:
        """
        Recompute derived values that are due and return whether there were any.

        They are no events: a failure leaves the work where it is.
        """
        budget = Deadline.after_ms(STORE_BUDGET_MS)
        due = await self.database.named("claim_derive", {"limit": DERIVE_ROWS}, deadline=budget)
        if not due:
            return False
        batches: dict[str, list[dict[str, Any]]] = {}
        for sort in {row["kind"] for row in due}:
            keys = sorted(row["key"] for row in due if row["kind"] == sort)
            deriver = self.derivers.get(sort)
            batches[sort] = await deriver.rows(self.database, keys) if deriver else [{"key": key} for key in keys]

        async def run(transaction: neo4j.AsyncTransaction) -> None:
            for sort, rows in sorted(batches.items()):
                result = await transaction.run(cypher(f"derive_{sort}").text, given(rows=rows))
                await result.consume()

        await self.graph.write("derive", run, deadline=Deadline.after_ms(GRAPH_BUDGET_MS))
        if self.derived is not None:
            for sort, rows in sorted(batches.items()):
                await self.derived(sort, [row["key"] for row in rows])
        done = {"kinds": [row["kind"] for row in due], "keys": [row["key"] for row in due]}
        versions = [row["version"] for row in due]
        if await self.database.do("settle_derive", {**done, "versions": versions}, deadline=budget) < len(due):
            # Another applier may have derived newer values before ours were written: the last word is a new look.
            await self.database.do("derive_again", done, deadline=budget)
        return True
