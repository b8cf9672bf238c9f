"""One batch of events into a graph: what the applier and a rebuild have in common."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import neo4j

from journal.clock import Clock
from journal.deadline import Deadline
from journal.errors import OutcomeUnknown, StatementRejected
from kg.engine import Graph, given
from kg.project import Event, Projection

GRAPH_BUDGET_MS: Final = 30_000
"""How long one batch may take in the graph, in milliseconds."""


async def write_events(
    graph: Graph, events: Sequence[Event], clock: Clock, *, budget_ms: float = GRAPH_BUDGET_MS
) -> str | None:
    """
    Write a batch in one transaction and return the bookmark of its commit.

    The outcome of a lost commit is settled by writing once more: a repeat changes nothing.

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
        # Written by a program that knew other kinds: this one cannot place it.
        raise StatementRejected(f"The event does not fit the catalogue: {error}.") from error
    works = list(projection.work())
    now = clock.now().isoformat()

    async def run(transaction: neo4j.AsyncTransaction) -> None:
        for work in works:
            result = await transaction.run(work.text, given(rows=work.rows, now=now))
            await result.consume()

    try:
        try:
            _, bookmark = await graph.write("apply", run, deadline=Deadline.after_ms(budget_ms))
        except OutcomeUnknown:
            _, bookmark = await graph.write("apply", run, deadline=Deadline.after_ms(budget_ms))
    except (ArithmeticError, TypeError, ValueError) as error:
        # The driver cannot send such a value: one event's trouble, which must not stop the others.
        raise StatementRejected(f"A value cannot be sent to Neo4j: {error}.") from error
    return bookmark


async def in_halves(
    events: Sequence[Event],
    write: Callable[[Sequence[Event]], Awaitable[Any]],
    refused: Callable[[Event, StatementRejected], Awaitable[None]],
) -> None:
    """Write *events* in order; a batch that is refused is halved until the bad event stands alone."""
    try:
        await write(events)
    except StatementRejected as error:
        if len(events) == 1:
            await refused(events[0], error)
            return
        middle = len(events) // 2
        await in_halves(events[:middle], write, refused)
        await in_halves(events[middle:], write, refused)
