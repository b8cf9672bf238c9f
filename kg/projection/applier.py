"""
The applier: the one process that writes the graph.

It holds a lease, claims due events from Postgres in each actor's order, projects a batch into one graph transaction
together with ``AppliedEvent``, and marks it applied. It works in two lanes (:mod:`imem.kg.projection.lanes`); in each
the next batch is claimed while one is written. A crash at any step causes a repeat, which is idempotent.

A batch that the graph refuses is bisected until the bad event stands alone; later events of its actor wait for it.
After :data:`MOST_REJECTIONS` it is dead, recorded with its reason, and the rest goes on. While the graph is away no
attempts are counted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

import neo4j
import structlog

from imem.jobs.due import DueRow, due_rows_of, finish_due, make_due
from imem.jobs.leadership import run_as_leader, together
from imem.jobs.lease import LeaderLease
from imem.journal.clock import Clock, SystemClock
from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError, LeaseLost, StatementRejected
from imem.journal.events.entry import Tier
from imem.journal.postgres.cancellation import heed_cancellation
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.database import Database
from imem.journal.statements import cypher, sql
from imem.kg.engine import Graph, given
from imem.kg.projection.batches import GRAPH_BUDGET_MS, write_bisecting, write_events
from imem.kg.projection.derived_values import QUEUE
from imem.kg.projection.event_traces import event_spans
from imem.kg.projection.lanes import Lane, Lanes, next_size
from imem.kg.projection.rows import Event

log = structlog.get_logger()

MOST_REJECTIONS = 5
"""Rejections after which an event is dead."""

STORE_BUDGET_MS = 10_000
"""Timeout of one statement in Postgres, in milliseconds."""

TURN_EVENTS = 50
"""Events of one actor that are claimed before another actor's turn."""

URGENT_FOR_S = 5.0
"""For how long after an urgent batch bulk batches stay small, in seconds."""

DERIVE_ROWS = 500
"""Due rows of derived values that are read at once; their values are recomputed in one transaction."""


class WakeupSource(Protocol):
    """Wakes the applier; a lost wake-up delays an event, and loses none."""

    async def wait(self) -> Collection[int] | None:
        """Return on a wake-up or after a while: the tiers with work, or None if unknown."""


class Deriver(Protocol):
    """Makes the rows of one kind of derived value; implemented by the pipeline that computes it."""

    async def rows(self, database: Database, keys: Sequence[str]) -> list[dict[str, Any]]:
        """Return the rows for its statement."""


@dataclass(frozen=True, slots=True)
class DeadEvent:
    """
    An event that the graph has refused for good.

    Attributes:
        event: which.
        tier: its tier.
        attempts: how often it was refused.
        reason: the graph's last error.
    """

    event: Event
    tier: Tier
    attempts: int
    reason: str


@dataclass(slots=True)
class Applier:
    """
    Applies events until it is cancelled.

    Attributes:
        database: the journal.
        graph: the projection.
        wakeups: wakes it when nothing is due.
        prepare: called with the lease whenever it was acquired, before anything is applied; verifies the graph.
        written: called with each batch once it is in the graph, before it is marked: drops what is cached of the graph.
            It handles its own errors; after a crash it is called again. Both lanes call it.
        applied: called with each batch once it is marked applied; by both lanes.
        derived: called with the keys of each kind of derived value once they are in the graph; otherwise like
            *written*.
        announce: called with the ids of each marked batch, to wake callers that wait for visibility; must not block.
        on_dead: called with an event that is refused for good, in the transaction that records it.
        derivers: kind of derived value → what makes its rows; kinds without one need only the key.
        batch: events in one transaction at most.
        lanes: whether tiers count; without them events are applied in the order of recording, in one lane.
        clock: for ``applied_at``.
    """

    database: Database
    graph: Graph
    wakeups: WakeupSource
    prepare: Callable[[LeaderLease], Awaitable[object]] | None = None
    written: Callable[[Sequence[Event]], Awaitable[None]] | None = None
    applied: Callable[[Sequence[Event]], Awaitable[None]] | None = None
    derived: Callable[[str, Sequence[str]], Awaitable[None]] | None = None
    announce: Callable[[Sequence[UUID]], None] | None = None
    on_dead: Callable[[Connection, DeadEvent], Awaitable[None]] | None = None
    derivers: dict[str, Deriver] = field(default_factory=dict)
    batch: int = 2000
    lanes: bool = True
    clock: Clock = field(default_factory=SystemClock)
    lease: LeaderLease = field(init=False)
    _lane_slots: Lanes = field(init=False)
    _marking: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _urgent_at: float = float("-inf")
    _later: tuple[list[DueRow], int] | None = None

    def __post_init__(self) -> None:
        """Create the lease without acquiring it."""
        self.lease = LeaderLease(self.database, "applier")
        self._lane_slots = Lanes(self.batch)

    async def run(self) -> None:
        """
        Apply events while holding the lease, until cancelled.

        When another process takes over, this one becomes a standby; while a store is away, it retries.
        """
        await run_as_leader(self.lease, self._serve, ended=self._let_go)

    def _let_go(self) -> None:
        """Release all claims; Postgres knows what is due."""
        self._lane_slots.clear()
        self._later = None

    @property
    def yielding(self) -> bool:
        """Whether bulk batches are small now, since the urgent lane was active."""
        return time.monotonic() - self._urgent_at < URGENT_FOR_S

    async def stop(self) -> None:
        """Release the lease; call it after the task of :meth:`run` has ended."""
        await self.lease.drop()

    async def _serve(self) -> None:
        """Run the lanes; ends by an exception of either."""
        if self.prepare is not None:
            await self.prepare(self.lease)
        lanes = [self._loop(lane) for lane in self._in_use]
        await together(self._listen(), *lanes)

    @property
    def _in_use(self) -> tuple[Lane, ...]:
        return (self._lane_slots.urgent, self._lane_slots.bulk) if self.lanes else (self._lane_slots.bulk,)

    async def _listen(self) -> None:
        """Wake the lanes on each wake-up."""
        while True:
            heed_cancellation()
            tiers = await self.wakeups.wait()
            self._lane_slots.wake(tiers if self.lanes else None)

    async def _loop(self, lane: Lane) -> None:
        due = asyncio.create_task(self._claim(lane))
        worked = False
        try:
            while True:
                await due
                heed_cancellation()
                events = lane.begin()
                if events:
                    worked = True
                    # The next batch is claimed while this one is written.
                    due = asyncio.create_task(self._claim(lane))
                    await self._apply(lane, events)
                    continue
                await self._marked(lane)
                if worked and lane is self._lane_slots.urgent:
                    # Later events of these actors may be due in the bulk lane, whose claims left them out.
                    self._lane_slots.bulk.wake.set()
                worked = False
                if lane is self._lane_slots.urgent or not await self._derived():
                    await lane.wake.wait()
                due = asyncio.create_task(self._claim(lane))
        finally:
            due.cancel()
            with suppress(asyncio.CancelledError, ImemError):
                await due
            await self._marked(lane)

    async def _claim(self, lane: Lane) -> None:
        """Claim due events for *lane*: urgent ones with their predecessors, otherwise the oldest."""
        lane.start_claim()
        urgent = lane is self._lane_slots.urgent
        held = self._lane_slots.held(lane)
        parameters = {
            "held": held,
            "upto": max(held, default=0),
            "share": TURN_EVENTS,
            "limit": lane.limit(beside_urgent=not urgent and self.yielding),
            "lanes": self.lanes,
        }
        names = ("claim_urgent",) if urgent else ("claim_high", "claim_due") if self.lanes else ("claim_due",)
        rows: list[Row] = []
        for name in names:
            rows = await self.database.named(name, parameters, deadline=Deadline.after_ms(STORE_BUDGET_MS))
            if rows:
                break
        self._lane_slots.take(lane, [Event.from_row(row) for row in rows])

    async def _apply(self, lane: Lane, events: Sequence[Event]) -> None:
        """Apply a batch, bisecting it where the graph refuses it."""

        async def write(part: Sequence[Event]) -> None:
            await self._write(lane, part)

        async def refuse(event: Event, error: StatementRejected) -> None:
            await self._refuse(lane, event, error)

        await write_bisecting(events, write, refuse)

    async def _write(self, lane: Lane, events: Sequence[Event]) -> None:
        """Write a batch, without events of blocked actors; it is marked while the next one is written."""
        left = lane.drop_stopped(events)
        if not left:
            return
        begun = time.monotonic()
        with await event_spans(self.database, left):
            bookmark = await write_events(self.graph, left, self.clock)
        ended = time.monotonic()
        lane.size = next_size(lane.size, ended - begun, lane.most)
        if lane is self._lane_slots.urgent:
            self._urgent_at = ended
        await self._marked(lane)
        self._marking[lane.name] = asyncio.create_task(self._mark(lane, left, bookmark))

    async def _mark(self, lane: Lane, events: Sequence[Event], bookmark: str | None) -> None:
        positions = [event.position for event in events]
        if self.written is not None:
            await self.written(events)
        marked = await self.database.execute(
            "settle_applied",
            {"positions": positions, "bookmark": bookmark, **self.lease.fence},
            deadline=Deadline.after_ms(STORE_BUDGET_MS),
        )
        if marked != len(positions):
            raise LeaseLost("The applier's lease was lost before its work was marked.")
        if self.announce is not None:
            self.announce([event.event_id for event in events])
        lane.done(positions)
        self._lane_slots.wake_other(lane)
        if self.applied is not None:
            await self.applied(events)

    async def _marked(self, lane: Lane) -> None:
        """Wait until the last batch of *lane* is marked; raises its error."""
        marking = self._marking.pop(lane.name, None)
        if marking is not None:
            await marking

    async def _refuse(self, lane: Lane, event: Event, error: StatementRejected) -> None:
        given_ = {"position": event.position, "error": str(error), "most": MOST_REJECTIONS, **self.lease.fence}
        async with self.database.transaction(Deadline.after_ms(STORE_BUDGET_MS)) as conn:
            row = await (await conn.execute(sql("settle_refused"), given_)).fetchone()
            if row is None:
                raise LeaseLost("The applier's lease was lost before a refusal was noted.")
            dead = row["state"] == "dead"
            if dead and self.on_dead is not None:
                await self.on_dead(conn, DeadEvent(event, Tier(row["tier"]), row["attempts"], str(error)))
        lane.done([event.position])
        if not dead:
            lane.stop(event.actor)
            asyncio.get_running_loop().call_later(max(0.0, row["retry_s"]), lane.wake.set)
        elif self.announce is not None:
            # An empty publish makes waiters poll, and find that it is dead.
            self.announce(())
        self._lane_slots.wake_other(lane)
        note = log.error if dead else log.warning
        note("applier.refused", position=event.position, kind=event.kind, state=row["state"], reason=str(error))

    async def _derivable(self, deadline: Deadline) -> list[DueRow]:
        """
        Return derived values due for recomputation, once the events that caused them are applied.

        Where an event always waits, as under a constant load, the values are kept with the newest waiting position, and
        returned once no event up to it waits.
        """
        if self._later is not None:
            due, upto = self._later
            [row] = await self.database.named("pending_upto", {"upto": upto}, deadline=deadline)
            if row["waits"]:
                return []
            self._later = None
            return due
        rows = await self.database.named("claim_derive", {"queue": QUEUE, "limit": DERIVE_ROWS}, deadline=deadline)
        due = due_rows_of(rows)
        if rows and rows[0]["upto"] is not None:
            self._later = (due, rows[0]["upto"])
            return []
        return due

    async def _derived(self) -> bool:
        """Recompute derived values; those that the graph refuses stay due, are logged, and hold up no event."""
        try:
            return await self.derive()
        except StatementRejected as error:
            log.warning("applier.not_derived", reason=str(error))
            return False

    async def derive(self) -> bool:
        """
        Recompute derived values that are due and return whether there were any.

        They are not events: after a failure they stay due.
        """
        budget = Deadline.after_ms(STORE_BUDGET_MS)
        due = await self._derivable(budget)
        if not due:
            return False
        batches: dict[str, list[dict[str, Any]]] = {}
        for sort in {one.kind for one in due}:
            keys = sorted({one.key for one in due if one.kind == sort})
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
        async with self.database.transaction(budget) as conn:
            if await finish_due(conn, QUEUE, due) < len(due):
                # Another applier may have written newer values before these: recompute them once more.
                for sort, rows in sorted(batches.items()):
                    await make_due(conn, QUEUE, sort, (row["key"] for row in rows))
        return True
