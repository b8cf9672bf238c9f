"""
A connection to Postgres that keeps its deadline even when the server does not answer.

At the deadline the client sends a cancel request. A server that is stopped or unreachable does not answer that either:
then the connection is closed, and the pool opens another. (The driver's own cancellation would wait for 10 s.) The
server's statement timeout is only a ceiling, for statements whose client is gone: setting it to each deadline would
cost a round trip for every statement.

Everything that the driver waits for on an open connection passes :meth:`Connection.wait`, COMMIT and ROLLBACK included.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg import capabilities, waiting
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from imem.journal.deadline import Deadline

T = TypeVar("T")

Row = dict[str, Any]
Parameters = Mapping[str, Any] | Sequence[Any]

GRACE_S = 0.05
"""How long after a deadline the server may take to cancel a statement, and to roll back, in seconds."""

BACKGROUND_TIMEOUT_S = 60.0
"""
Timeout of one statement without a deadline, in seconds.

Background work goes in pages and batches, none of which takes a tenth of that; the graph's engine has the same limit.
"""

_INTERVAL_S = 0.1
"""How often the driver checks for signals while it waits, in seconds: its own default."""


class SilentServer(psycopg.OperationalError):
    """The server did not answer in time, and the connection was closed; *in_background*: there was no deadline."""

    def __init__(self, *, in_background: bool) -> None:
        super().__init__("the server did not answer in time")
        self.in_background = in_background


class LateStatement(psycopg.OperationalError):
    """The server cancelled a statement at its deadline, as the client asked; the connection stays usable."""

    def __init__(self) -> None:
        super().__init__("the statement was ended at its deadline")


class Cursor(psycopg.AsyncCursor[dict[str, Any]]):
    """A cursor for one statement that is run repeatedly; the driver chooses the formats of its values once."""

    def rest(self) -> None:
        """Release the values of the last run, which may be large."""
        self._reset()


class Connection(psycopg.AsyncConnection[dict[str, Any]]):
    """
    A connection on which every wait is bounded.

    Attributes:
        limit: the deadline of the caller that holds the connection; each caller sets it.
        ceiling_ms: the server's statement timeout, in milliseconds; 0 before it was set.
    """

    limit: Deadline = Deadline.never()
    ceiling_ms: int = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._cursors: dict[LiteralString, Cursor] = {}

    @classmethod
    async def connect(  # type: ignore[override]  # the pool passes what it was given
        cls, conninfo: str = "", *, failed: Callable[[psycopg.Error], None] | None = None, **named: Any
    ) -> Connection:
        """Return a connection; *failed* is told why there is none, which the driver's pool keeps for itself."""
        try:
            return await super().connect(conninfo, **named)
        except psycopg.Error as error:
            if failed is not None:
                failed(error)
            raise

    async def answer(self, statement: LiteralString, parameters: Parameters | None = None) -> list[Row]:
        """
        Run a frequent statement with a small result, and return its rows.

        Its cursor is kept with the connection, and with it the driver's choice of types: a tenth of the time of a save.
        The last result is kept too, until the next run.
        """
        cursor = self._cursors.get(statement)
        if cursor is None:
            cursor = self._cursors[statement] = Cursor(self, row_factory=dict_row)
        try:
            await cursor.execute(statement, parameters)
            return await cursor.fetchall()
        finally:
            cursor.rest()

    async def wait(
        self,
        gen: PQGen[T],
        interval: float = _INTERVAL_S,
        timeout: float | None = None,  # noqa: ASYNC109 - the driver's signature
    ) -> T:
        """
        Wait for the server's reply until the limit; then cancel the statement.

        A wait that begins after the limit has :data:`GRACE_S`, so that a cancelled statement can be rolled back.
        *timeout*, in seconds, is a second limit; the driver sets it only for notifications, which are not used here.

        Raises:
            LateStatement: the server cancelled the statement; the connection stays usable.
            SilentServer: it did not answer; the connection is closed.
            asyncio.CancelledError: the caller was cancelled. The connection stays usable if the server cancelled the
                statement at once, and is closed otherwise.
        """
        in_background = self.limit.at_s == float("inf")
        left_s = BACKGROUND_TIMEOUT_S if in_background else self.limit.left_s()
        left_s = left_s if timeout is None else min(left_s, timeout)
        try:
            async with asyncio.timeout(max(left_s, GRACE_S)):
                return await waiting.wait_async(gen, self.pgconn.socket, interval=interval)
        except TimeoutError as error:
            if self.pgconn.transaction_status != TransactionStatus.ACTIVE:
                self.pgconn.finish()
            elif done := await self._stop(gen):
                return done[0]
            if self.closed:
                raise SilentServer(in_background=in_background) from error
            raise LateStatement from error
        except asyncio.CancelledError:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                await self._stop(gen)
            raise

    async def _stop(self, gen: PQGen[T]) -> tuple[T] | None:
        """
        Cancel the running statement; close the connection if that takes longer than :data:`GRACE_S`.

        Returns:
            The statement's result if it ended all the same (a running COMMIT is not cancelled), else None.
        """
        try:
            # An older libpq can cancel only in a thread, which a server that does not answer would block for ever.
            if not capabilities.has_cancel_safe():
                raise psycopg.NotSupportedError("this libpq cannot cancel without blocking")
            async with asyncio.timeout(GRACE_S):
                await self.cancel_safe(timeout=GRACE_S)
                return (await waiting.wait_async(gen, self.pgconn.socket, interval=_INTERVAL_S),)
        except psycopg.errors.QueryCanceled:
            return None
        except (TimeoutError, psycopg.Error):
            self.pgconn.finish()
            return None
        except asyncio.CancelledError:
            self.pgconn.finish()
            raise
