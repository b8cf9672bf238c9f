"""
Verifies that the graph is the projection of this journal, and empties it where it is not.

The graph holds the journal's identity (a mark among its ``AppliedEvent`` nodes), and one such node for each event. So
after a restore of Postgres a mismatch is detected: a graph that lacks events which the journal has marked applied, that
holds events which the journal does not know, or that projects another journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import neo4j
import structlog

from imem.jobs.lease import LeaderLease
from imem.journal.clock import Clock, SystemClock
from imem.journal.deadline import Deadline
from imem.journal.postgres.cancellation import heed_cancellation
from imem.journal.postgres.database import Database
from imem.journal.statements import cypher
from imem.kg.engine import Graph, given

log = structlog.get_logger()

STATEMENT_BUDGET_MS: Final = 120_000
"""Timeout of one statement while the graph is emptied, in milliseconds."""

_MARK_EVENTS: Final = 20_000
"""Positions marked as not applied in one statement."""

WIPE_NODES: Final = 2000
"""Nodes deleted in one transaction."""


@dataclass(frozen=True, slots=True)
class ProjectionStatus:
    """
    The journal's and the graph's account of what is applied.

    Attributes:
        journal: the journal's identity.
        events: events in the journal.
        applied: events marked applied in the journal.
        projected_journal: the identity in the graph; None before an applier has written it.
        incomplete: whether emptying the graph has begun and not ended.
        held: events that the graph holds.
        newest_known: whether the journal has the graph's newest event at its position.
    """

    journal: str
    events: int
    applied: int
    projected_journal: str | None
    incomplete: bool
    held: int
    newest_known: bool

    @property
    def mismatch(self) -> str | None:
        """Why the graph is no projection of this journal, as a sentence; None where it is."""
        if self.incomplete:
            return "The graph is being made anew: it is being emptied."
        if self.projected_journal not in {None, self.journal}:
            return "The graph is a projection of another journal."
        if not self.newest_known or self.held > self.events:
            return "The graph holds events that the journal does not know, as after an older dump was restored."
        if self.held < self.applied:
            lacking = self.applied - self.held
            return f"The graph lacks {lacking:,} of {self.applied:,} events that the journal calls applied."
        return None


async def compare(database: Database, graph: Graph, *, deadline: Deadline) -> ProjectionStatus:
    """
    Compare the journal with the graph, while both may be written.

    The journal is read before the graph, and again after it, so that what the applier does meanwhile is no mismatch.

    Raises:
        StoreUnavailable, BudgetExceeded: one of them could not be read; retryable.
    """
    said = (await database.named("journal_applied", deadline=deadline))[0]
    found = (await graph.read("projection", deadline=deadline))[0]
    position, events = found["position"], said["events"]
    known = position == 0
    at = await database.named("journal_event_at", {"position": position}, deadline=deadline)
    if at:
        asked = {"event_id": str(at[0]["event_id"]), "position": position}
        known = bool((await graph.read("holds_event", asked, deadline=deadline))[0]["holds"])
    if found["events"] > events:
        # Events may have been recorded since the first read.
        events = (await database.named("journal_applied", deadline=deadline))[0]["events"]
    return ProjectionStatus(
        said["journal"], events, said["applied"], found["journal"], found["incomplete"], found["events"], known
    )


async def ensure(
    database: Database, graph: Graph, lease: LeaderLease, *, rederived: Sequence[str] = (), clock: Clock | None = None
) -> ProjectionStatus:
    """
    Make the graph a projection of this journal before anything is applied; return the status found.

    Where it is not, it is emptied and every event is marked as not applied, so that the applier, which calls this,
    applies them all. After a crash the next call continues.

    Args:
        lease: the applier's, which the caller holds and keeps.
        rederived: names of statements that queue derived values.

    Raises:
        StoreUnavailable, BudgetExceeded: as after a crash.
    """
    clock = clock or SystemClock()
    found = await compare(database, graph, deadline=statement_deadline())
    if found.mismatch is None:
        if found.projected_journal is None:
            await _mark(graph, found.journal, clock, incomplete=False)
        return found
    log.warning("graph.made_anew", reason=found.mismatch, events=found.events)
    await _mark(graph, found.journal, clock, incomplete=True)
    upto = int((await database.named("journal_end", deadline=statement_deadline()))[0]["position"])
    await reopen(database, lease, upto)
    while await change(graph, "wipe_graph", limit=WIPE_NODES):
        heed_cancellation()
    await _mark(graph, found.journal, clock, incomplete=False)
    for name in rederived:
        await database.execute(name, deadline=statement_deadline())
    return found


async def reopen(database: Database, lease: LeaderLease, upto: int) -> None:
    """Mark every event up to a position as not applied, and renew the lease."""
    for start in range(0, upto, _MARK_EVENTS):
        span = {"after": start, "upto": min(start + _MARK_EVENTS, upto)}
        await database.execute("reopen_deliveries", {**span, **lease.fence}, deadline=statement_deadline())
    await lease.take()


async def _mark(graph: Graph, journal: str, clock: Clock, *, incomplete: bool) -> None:
    await change(graph, "mark_journal", journal=journal, incomplete=incomplete, now=clock.now().isoformat())


async def change(graph: Graph, name: str, **parameters: Any) -> int:
    """Run a statement that changes the graph and return its number, 0 if it returns none."""

    async def work(transaction: neo4j.AsyncTransaction) -> int:
        row = await (await transaction.run(cypher(name).text, given(parameters))).single()
        return int(row[0]) if row is not None else 0

    return (await graph.write(name, work, deadline=statement_deadline()))[0]


def statement_deadline() -> Deadline:
    """Return the deadline of one statement of a rebuild."""
    return Deadline.after_ms(STATEMENT_BUDGET_MS)
