"""
Rebuilds the graph from the journal.

:func:`replay` writes every event into an empty graph, in the journal's order, while the live one is in use. After a
crash it resumes, since the graph itself holds its progress. :class:`Replacement` then stops the applier by taking its
lease, brings both graphs to the same event, and compares their hashes; only if they are equal may the new graph replace
the live one. :func:`rebuild_in_place` empties the live graph and replays into it; meanwhile every event counts as not
applied, so that the safe horizon shows readers how far the graph is complete.

Memory is flat: journal and graphs are read by pages.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

import neo4j
import structlog

from imem.jobs.lease import LeaderLease
from imem.journal.clock import Clock, SystemClock
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, BudgetExceeded, ImemError, LeaseLost, StatementRejected
from imem.journal.postgres.database import Database
from imem.journal.statements import cypher
from imem.kg.engine import Graph, given
from imem.kg.projection.applier import MOST_REJECTIONS, STORE_BUDGET_MS
from imem.kg.projection.batches import write_bisecting, write_events
from imem.kg.projection.hash import GraphHash, graph_hash
from imem.kg.projection.rows import Event
from imem.kg.projection.verification import STATEMENT_BUDGET_MS, WIPE_NODES, change, reopen, statement_deadline

log = structlog.get_logger()

PAGE_EVENTS: Final = 2000
"""Events read and written at once; large, since no caller waits for one event."""

_WRITERS_S: Final = 30.0
"""Longest wait for open transactions of writers, in seconds."""

_LOOK_S: Final = 0.02

ReportProgress = Callable[[int, int], None]
"""Called with how many events are done, of how many."""


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """
    The result of a rebuild.

    Attributes:
        events: events in the graph.
        refused: positions of events that the new graph refused.
        left_out: events that both graphs refuse for good, after another attempt.
        before: hash of the old graph.
        after: hash of the new one.
    """

    events: int
    refused: tuple[int, ...]
    left_out: int
    before: GraphHash
    after: GraphHash

    @property
    def same(self) -> bool:
        """Whether the two graphs have equal content."""
        return self.before.digest == self.after.digest


def _store_deadline() -> Deadline:
    return Deadline.after_ms(STORE_BUDGET_MS)


async def settled_end(database: Database) -> int:
    """
    Return the journal's last position once no open transaction can commit at or below it.

    Positions are assigned before commit: without the wait, an event that commits late would be skipped.

    Raises:
        BudgetExceeded: a writer's transaction stayed open for too long; retryable.
    """
    row = (await database.named("journal_end", deadline=_store_deadline()))[0]
    wait_limit = Deadline.after_ms(_WRITERS_S * 1000)
    while not (await database.named("journal_settled", {"until": row["until"]}, deadline=_store_deadline()))[0][
        "settled"
    ]:
        if wait_limit.passed:
            raise BudgetExceeded("A transaction in Postgres has been open for too long to tell where the journal ends.")
        await asyncio.sleep(_LOOK_S)
    return int(row["position"])


# Replaying into another graph


async def begin(database: Database, live: Graph, target: Graph, *, clock: Clock | None = None) -> int:
    """
    Check that *target* may be written, and return the position after which the replay resumes.

    Raises:
        BadInput: it is the live graph, or holds something else than an unfinished rebuild of this journal.
        GraphUnavailable: one of them cannot be reached.
    """
    ids = [await one.read("graph_identity", deadline=statement_deadline()) for one in (live, target)]
    if ids[0] == ids[1]:
        raise BadInput("target", "is the graph that is in use.")
    now = (clock or SystemClock()).now().isoformat()

    async def mark(transaction: neo4j.AsyncTransaction) -> bool:
        row = await (await transaction.run(cypher("begin_rebuild").text, given(now=now))).single(strict=True)
        return bool(row["begun"])

    begun, _ = await target.write("begin_rebuild", mark, deadline=statement_deadline())
    if begun:
        end = (await target.read("applied_end", deadline=statement_deadline()))[0]
        position = int(end["position"])
        if position == 0:
            return 0
        found = await database.named("journal_event_at", {"position": position}, deadline=_store_deadline())
        if found and str(found[0]["event_id"]) == end["event_id"]:
            return position
    raise BadInput("target", "is not empty and is no unfinished rebuild of this journal.")


async def replay(
    database: Database,
    target: Graph,
    *,
    after: int,
    upto: int,
    report: ReportProgress | None = None,
    page: int = PAGE_EVENTS,
    clock: Clock | None = None,
) -> list[int]:
    """
    Write the events after one position up to another into *target*; return the positions that it refused.

    A crash leaves every event up to some position, none half; :func:`begin` finds that position.

    Raises:
        StoreUnavailable: as after a crash.
    """
    clock = clock or SystemClock()
    total = await _count(database, 0, upto)
    done = await _count(database, 0, after)
    refused: list[int] = []

    async def read(position: int) -> list[Event]:
        parameters = {"after": position, "upto": upto, "limit": page}
        return [
            Event.from_row(row) for row in await database.named("events_after", parameters, deadline=_store_deadline())
        ]

    async def write(events: Sequence[Event]) -> None:
        await write_events(target, events, clock, budget_ms=STATEMENT_BUDGET_MS)

    async def refuse(event: Event, error: StatementRejected) -> None:
        log.error("rebuild.refused", position=event.position, kind=event.kind, reason=str(error))
        refused.append(event.position)

    following = asyncio.create_task(read(after))
    try:
        while events := await following:
            # The next page is read while this one is written.
            following = asyncio.create_task(read(events[-1].position))
            await write_bisecting(events, write, refuse)
            done += len(events)
            if report is not None:
                report(done, total)
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError, ImemError):
            await following
    return refused


async def _count(database: Database, after: int, upto: int) -> int:
    row = (await database.named("journal_count", {"after": after, "upto": upto}, deadline=_store_deadline()))[0]
    return int(row["events"])


async def _rebuilt(
    database: Database, upto: int, refused: list[int], before: GraphHash, after: GraphHash
) -> RebuildReport:
    row = (await database.named("journal_count", {"after": 0, "upto": upto}, deadline=_store_deadline()))[0]
    events, dead = int(row["events"]), int(row["dead"])
    return RebuildReport(events - dead, tuple(refused), dead, before, after)


# While the applier is stopped


@asynccontextmanager
async def holding_applier_lease(database: Database) -> AsyncIterator[LeaderLease]:
    """
    Take the applier's lease and hold it for the block.

    The applier may be writing a batch. Writing its events again is idempotent, and it can no longer mark them applied.
    """
    lease = LeaderLease(database, "applier")
    await lease.seize()
    keeper = asyncio.create_task(lease.renew_until_cancelled())
    try:
        yield lease
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        await lease.drop()


async def catch_up(
    database: Database,
    graph: Graph,
    lease: LeaderLease,
    upto: int,
    *,
    report: ReportProgress | None = None,
    clock: Clock | None = None,
) -> list[int]:
    """
    Apply waiting events up to a position, in order, and mark them; return the positions that the graph refused.

    Dead events are tried once more, since the program may have been fixed.

    Raises:
        LeaseLost: another process has taken over.
    """
    clock = clock or SystemClock()
    refused: list[int] = []
    done = 0

    async def write(events: Sequence[Event]) -> None:
        bookmark = await write_events(graph, events, clock, budget_ms=STATEMENT_BUDGET_MS)
        positions = [event.position for event in events]
        marks = {"positions": positions, "bookmark": bookmark, **lease.fence}
        if await database.execute("settle_applied", marks, deadline=_store_deadline()) != len(positions):
            raise LeaseLost("Another process applies events again.")

    async def refuse(event: Event, error: StatementRejected) -> None:
        refused.append(event.position)
        marks = {"position": event.position, "error": str(error), "most": MOST_REJECTIONS, **lease.fence}
        for _ in range(MOST_REJECTIONS):
            rows = await database.named("settle_refused", marks, deadline=_store_deadline())
            if not rows:
                raise LeaseLost("Another process applies events again.")
            if rows[0]["state"] == "dead":
                return

    await database.execute("revive_dead", {"upto": upto, **lease.fence}, deadline=_store_deadline())
    while True:
        rows = await database.named("events_waiting", {"upto": upto, "limit": PAGE_EVENTS}, deadline=_store_deadline())
        if not rows:
            return refused
        await write_bisecting([Event.from_row(row) for row in rows], write, refuse)
        done += len(rows)
        if report is not None:
            report(done, await _count(database, 0, upto))


@dataclass(frozen=True, slots=True)
class Replacement:
    """
    A second graph that is to replace the live one.

    Attributes:
        database: the journal.
        live: the graph in use.
        target: the new one.
        report: called with the progress.
        clock: for bookkeeping.
    """

    database: Database
    live: Graph
    target: Graph
    report: ReportProgress | None = None
    clock: Clock = field(default_factory=SystemClock)

    async def fill(self) -> list[int]:
        """Replay the journal while the applier goes on; return the positions that were refused."""
        after = await begin(self.database, self.live, self.target, clock=self.clock)
        upto = await settled_end(self.database)
        return await replay(self.database, self.target, after=after, upto=upto, report=self.report, clock=self.clock)

    async def compare(self, lease: LeaderLease) -> RebuildReport:
        """
        Bring both graphs to the same event and return their hashes; the caller holds the applier's lease.

        Raises:
            LeaseLost: it does not hold it any more.
        """
        after = await begin(self.database, self.live, self.target, clock=self.clock)
        upto = await settled_end(self.database)
        await catch_up(self.database, self.live, lease, upto, clock=self.clock)
        refused = await replay(self.database, self.target, after=after, upto=upto, clock=self.clock)
        before, made = await asyncio.gather(graph_hash(self.live), graph_hash(self.target))
        await lease.take()
        return await _rebuilt(self.database, upto, refused, before, made)


async def clear_rebuild_mark(graph: Graph) -> None:
    """Remove the mark of a rebuild from a graph that has replaced the live one; the applier writes it from now on."""
    await change(graph, "end_rebuild")


async def rederive(database: Database, statements: Sequence[str]) -> None:
    """
    Queue derived values for a rebuilt graph, since no event holds them.

    Args:
        database: the journal.
        statements: names of the statements that queue them, each owned by the pipeline that derives them.
    """
    for name in statements:
        await database.execute(name, deadline=statement_deadline())


# In place


async def rebuild_in_place(
    database: Database, graph: Graph, *, report: ReportProgress | None = None, clock: Clock | None = None
) -> RebuildReport:
    """
    Empty the graph and replay the journal into it.

    Meanwhile every event counts as waiting, and the safe horizon shows how far the graph is complete. After a crash the
    applier finishes the replay; what the old graph held beyond the journal may then remain, until the next run.

    Raises:
        LeaseLost, StoreUnavailable: as after a crash.
    """
    async with holding_applier_lease(database) as lease:
        upto = await settled_end(database)
        await catch_up(database, graph, lease, upto, clock=clock)
        before = await graph_hash(graph)
        await reopen(database, lease, upto)
        while await change(graph, "wipe_graph", limit=WIPE_NODES):
            await lease.take()
        refused = await catch_up(database, graph, lease, upto, report=report, clock=clock)
        after = await graph_hash(graph)
        return await _rebuilt(database, upto, refused, before, after)
