"""
Due rows: what a pipeline has to recompute, made due by events as the pipeline declares it.

The journal inserts rows in the transaction of the event (:class:`DueRule`), so that no crash loses one. A pipeline
reads the next, does them and deletes them in one transaction; what becomes due meanwhile has a row of its own and
stays. Several rows of one key are one piece of work.

A batch that fails because of its contents is halved until the bad row stands alone (:func:`halving`); that is set aside
with its reason and an alert (:func:`set_due_aside`), and the rest goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

import structlog

from imem.alerts.store import NewAlert, Severity, close_alerts, raise_once
from imem.journal.errors import BadInput, StatementRejected
from imem.journal.events.ids import id_of, new_id
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.rows import execute, rows

log = structlog.get_logger()

T = TypeVar("T")

BAD_CONTENT: Final = (StatementRejected, BadInput, ArithmeticError, LookupError, TypeError, ValueError)
"""Errors caused by a batch's contents: retrying does not help."""

SET_ASIDE: Final = "WORK_SET_ASIDE"
"""Kind of the alert about rows that were set aside."""


class DueRule(NamedTuple):
    """
    The events that make rows of a queue due.

    Attributes:
        queue: of the pipeline.
        kind: of the rows, which says what their keys are of.
        event: kind of the event, as ``record.Finding``.
        keys: an SQL/JSON path into the event's payload that finds the keys. Its variables ``$key``, ``$analysis``,
            ``$subject`` and ``$metric`` are columns of the event. Events that it does not find make nothing due.
    """

    queue: str
    kind: str
    event: str
    keys: str


@dataclass(frozen=True, slots=True)
class DueRow:
    """
    A due row.

    Attributes:
        id: of the row.
        kind, key: what has to be recomputed.
        position: of the event that made it due; None where a pipeline did.
        created_at: when the oldest event that waits was recorded.
        later: whether it can wait for others of the queue, as imports can.
    """

    id: int
    kind: str
    key: str
    position: int | None
    created_at: datetime
    later: bool = False


def due_rows_of(found: Iterable[Row]) -> list[DueRow]:
    """Return rows of Postgres as values."""
    return [
        DueRow(row["id"], row["kind"], row["key"], row["position"], row["created_at"], bool(row.get("later")))
        for row in found
    ]


async def next_due(conn: Connection, queue: str, kinds: Collection[str], limit: int) -> list[DueRow]:
    """Return the next rows of *kinds*: those that can wait last, the oldest first."""
    return due_rows_of(await rows(conn, "due_next", {"queue": queue, "kinds": list(kinds), "limit": limit}))


async def due_of(conn: Connection, queue: str, kind: str, keys: Collection[str]) -> list[DueRow]:
    """Return all rows of *keys* that are due."""
    return due_rows_of(await rows(conn, "due_of", {"queue": queue, "kind": kind, "keys": list(keys)}))


async def make_due(
    conn: Connection, queue: str, kind: str, keys: Iterable[str], *, since: datetime | None = None, later: bool = False
) -> None:
    """
    Make *keys* due.

    Args:
        since: when the oldest event that waits was recorded; now if None.
        later: whether they can wait for others of the queue.
    """
    wanted = {"queue": queue, "kind": kind, "keys": sorted(set(keys)), "since": since, "later": later}
    await execute(conn, "due_add", wanted)


async def finish_due(conn: Connection, queue: str, due: Collection[DueRow]) -> int:
    """
    Delete rows that were done, with what had been set aside of the same keys; after the last the alert is over.

    Returns:
        How many of *due* were deleted; fewer where another process has deleted some.
    """
    if not due:
        return 0
    [row] = await rows(conn, "due_done", {"ids": sorted(one.id for one in due)})
    if await rows(conn, "due_alert_over", {"queue": queue, "about": _matter(queue)}):
        await close_alerts(conn, _matter(queue))
    done: int = row["done"]
    return done


async def halving(work: Callable[[int], Awaitable[T]], size: int, alone: Callable[[Exception], Awaitable[T]]) -> T:
    """
    Return the result of *work* on a batch of at most *size* rows; halve the batch while its contents make it fail.

    Args:
        work: takes the most rows, does the next of them in one transaction, and returns its result.
        size: most rows of the first attempt.
        alone: called with the error of a single row, which it sets aside.
    """
    while True:
        try:
            return await work(size)
        except BAD_CONTENT as error:
            if size == 1:
                return await alone(error)
            size //= 2


async def set_due_aside(conn: Connection, queue: str, due: Sequence[DueRow], error: Exception) -> None:
    """
    Set rows aside because of *error*; make it the last of the transaction.

    An alert is raised, unless one about the queue is open.
    """
    if not due:
        return
    reason = f"{type(error).__name__}: {error}"
    names = [f"{one.kind} {one.key}" for one in due]
    log.error("due.set_aside", queue=queue, due=names, reason=reason, exc_info=error)
    await execute(conn, "due_set_aside", {"ids": sorted(one.id for one in due), "reason": reason})
    text = f"The pipeline {queue} could not do {names[0]} and set it aside: {reason}"
    payload = {"queue": queue, "rows": names[:20], "reason": text}
    alert = NewAlert(alert_id=new_id(), kind=SET_ASIDE, severity=Severity.HIGH, about=_matter(queue), payload=payload)
    await raise_once(conn, alert)


def _matter(queue: str) -> UUID:
    """Return what the alert is about: rows of *queue* that were set aside."""
    return id_of("set aside", queue)
