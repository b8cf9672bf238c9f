"""Writes one batch of events into a graph, for the applier and for rebuilds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import neo4j

from imem.journal.clock import Clock
from imem.journal.deadline import Deadline
from imem.journal.errors import GraphDeadlock, OutcomeUnknown, StatementRejected
from imem.journal.retry import retry
from imem.kg.engine import Graph, given
from imem.kg.projection.rows import Event, Projection

GRAPH_BUDGET_MS: Final = 30_000
"""Timeout of one batch in the graph, in milliseconds."""

_DEADLOCK_ATTEMPTS: Final = 20
"""Most attempts of a batch that the server chooses as the victim of deadlocks; each loses to another writer."""


async def write_events(
    graph: Graph, events: Sequence[Event], clock: Clock, *, budget_ms: float = GRAPH_BUDGET_MS
) -> str | None:
    """
    Write a batch in one transaction and return the bookmark of its commit.

    If the outcome of the commit is unknown, the batch is written once more, which is idempotent.

    Raises:
        StatementRejected: nothing of the batch was written, and it never can be as it is.
        GraphUnavailable, BudgetExceeded: nothing was written; retryable.
        OutcomeUnknown: the second commit was lost as well.
    """
    try:
        projection = Projection()
        for event in events:
            projection.add(event)
    except (KeyError, ValueError) as error:
        # Recorded by a program with other kinds.
        raise StatementRejected(f"The event does not fit the catalogue: {error}.") from error
    works = list(projection.work())
    now = clock.now().isoformat()

    async def run(transaction: neo4j.AsyncTransaction) -> None:
        for work in works:
            result = await transaction.run(work.text, given(work.parameters, now=now))
            await result.consume()

    try:
        try:
            return await _retry_deadlocks(graph, run, Deadline.after_ms(budget_ms))
        except OutcomeUnknown:
            return await _retry_deadlocks(graph, run, Deadline.after_ms(budget_ms))
    except (ArithmeticError, TypeError, ValueError) as error:
        # The driver cannot send such a value: a fault of one event, which must not stop the others.
        raise StatementRejected(f"A value cannot be sent to Neo4j: {error}.") from error


async def _retry_deadlocks(
    graph: Graph, work: Callable[[neo4j.AsyncTransaction], Awaitable[None]], deadline: Deadline
) -> str | None:
    """Write *work*, retrying after deadlocks with other writers; return the bookmark."""
    _, bookmark = await retry(
        lambda: graph.write("apply", work, deadline=deadline),
        deadline=deadline,
        errors=GraphDeadlock,
        attempts=_DEADLOCK_ATTEMPTS,
    )
    return bookmark


async def write_bisecting(
    events: Sequence[Event],
    write: Callable[[Sequence[Event]], Awaitable[Any]],
    refused: Callable[[Event, StatementRejected], Awaitable[None]],
) -> None:
    """Write *events* in order; a batch that is refused is halved until the bad event is alone."""
    try:
        await write(events)
    except StatementRejected as error:
        if len(events) == 1:
            await refused(events[0], error)
            return
        middle = len(events) // 2
        await write_bisecting(events[:middle], write, refused)
        await write_bisecting(events[middle:], write, refused)
