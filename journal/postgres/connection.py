"""
A connection to Postgres that keeps its deadline, and does not wait for a server that has gone silent.

At the deadline the client asks the server to end the statement. One that is stopped, or whose network is gone, does not
answer that either: then the connection is dropped without a word, and the pool makes another. (The driver's own way of
asking waits for 10 s if nobody answers.) The server's statement timeout is but a ceiling, for statements whose client
is gone: setting it to each deadline would cost a round trip for every statement.

Everything that the driver waits for on an open connection passes :meth:`Connection.wait`, COMMIT and ROLLBACK included.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
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
"""How long after a deadline the server may take to end a statement, and to roll back, in seconds."""

BACKGROUND_TIMEOUT_S = 60.0
"""
How long one statement may take without a deadline, in seconds: nothing hangs for ever.

Work without a deadline goes in pages and batches, none of which takes a tenth of that; the graph's engine has the same
limit.
"""

_INTERVAL_S = 0.1
"""How often the driver looks up while it waits, in seconds: its own default."""


class SilentServer(psycopg.OperationalError):
    """The server did not answer in time, and the connection was dropped; *in_background* if there was no deadline."""

    def __init__(self, *, in_background: bool) -> None:
        super().__init__("the server did not answer in time")
        self.in_background = in_background


class LateStatement(psycopg.OperationalError):
    """The server ended a statement at its deadline, because the client asked it to; the connection is in order."""

    def __init__(self) -> None:
        super().__init__("the statement was ended at its deadline")


class Cursor(psycopg.AsyncCursor[dict[str, Any]]):
    """A cursor for one statement, run again and again: the driver chooses how to write and read its values once."""

    def rest(self) -> None:
        """Let go of the values of the last run, which may be large."""
        self._reset()


class Connection(psycopg.AsyncConnection[dict[str, Any]]):
    """
    A connection whose every wait ends, with an answer or without.

    Attributes:
        limit: when whoever holds the connection wants an end; set anew by each.
        ceiling_ms: the server's statement timeout, in milliseconds; 0 where it was not set yet.
    """

    limit: Deadline = Deadline.never()
    ceiling_ms: int = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._cursors: dict[LiteralString, Cursor] = {}

    async def answer(self, statement: LiteralString, parameters: Parameters | None = None) -> list[Row]:
        """
        Run a statement that is run often and has a small answer; return its rows.

        Its cursor stays with the connection, and with the cursor what the driver found out about the types of its
        values: a tenth of what a save takes. The answer stays too, until the next.
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
        Wait until the server has answered, at most until the limit; then end what is under way.

        A wait that begins after the limit has a little, so that there is still time to roll back what was ended. A
        *timeout* in seconds, which the driver itself gives only to those who listen for notifications (nobody here
        does), is a limit like the other.

        Raises:
            LateStatement: the server ended the statement when it was asked to; the connection is in order.
            SilentServer: it did not answer; the connection is closed.
            asyncio.CancelledError: the caller is no longer interested. The connection is in order if the server ended
                the statement at once, and closed otherwise.
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
        Ask the server to end the statement under way, so that it does not run on; drop it if it takes a while.

        Returns:
            Its result if it was done all the same (a COMMIT that is under way is not called off), else none.
        """
        try:
            # An older libpq can only ask in a thread, which a silent server would hold for ever.
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
