"""
A connection to Postgres that does not wait for a server that has gone silent.

The server is told when to stop, by its statement timeout; but one that is stopped, or whose network is gone, keeps no
time. So the client keeps the same limit, a little later: at its end the connection is dropped without a word, and the
pool makes another. The driver's own way out, asking the server to cancel, waits for 10 s if nobody answers.

Everything that the driver waits for on an open connection passes :meth:`Connection.wait`, COMMIT and ROLLBACK included.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import psycopg
from psycopg import capabilities, waiting
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus

from journal.deadline import Deadline

T = TypeVar("T")

GRACE_S = 0.05
"""How much longer than the server the client waits, in seconds: the server's own answer is the better one."""

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


class Connection(psycopg.AsyncConnection[dict[str, Any]]):
    """
    A connection whose every wait ends, with an answer or without.

    Attributes:
        limit: when whoever holds the connection wants an end; set anew by each.
    """

    limit: Deadline = Deadline.never()

    async def wait(
        self,
        gen: PQGen[T],
        interval: float = _INTERVAL_S,
        timeout: float | None = None,  # noqa: ASYNC109 - the driver's signature
    ) -> T:
        """
        Wait until the server has answered, at most until the limit and a little.

        Every wait has that little, so that after a statement that the server stopped at the limit there is still time
        to roll back. A *timeout* in seconds, which the driver itself gives only to those who listen for notifications
        (nobody here does), is a limit like the other.

        Raises:
            SilentServer: it did not answer; the connection is closed.
            asyncio.CancelledError: the caller is no longer interested. The connection is in order if the server ended
                the statement at once, and closed otherwise.
        """
        in_background = self.limit.at_s == float("inf")
        left_s = BACKGROUND_TIMEOUT_S if in_background else self.limit.left_s()
        left_s = left_s if timeout is None else min(left_s, timeout)
        try:
            async with asyncio.timeout(left_s + GRACE_S):
                return await waiting.wait_async(gen, self.pgconn.socket, interval=interval)
        except TimeoutError as error:
            self.pgconn.finish()
            raise SilentServer(in_background=in_background) from error
        except asyncio.CancelledError:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                await self._stop(gen)
            raise

    async def _stop(self, gen: PQGen[Any]) -> None:
        """Ask the server to end the statement under way, so that it does not run on; drop it if it takes a while."""
        try:
            # An older libpq can only ask in a thread, which a silent server would hold for ever.
            if not capabilities.has_cancel_safe():
                raise psycopg.NotSupportedError("this libpq cannot cancel without blocking")
            async with asyncio.timeout(GRACE_S):
                await self.cancel_safe(timeout=GRACE_S)
                await waiting.wait_async(gen, self.pgconn.socket, interval=_INTERVAL_S)
        except psycopg.errors.QueryCanceled:
            return
        except (TimeoutError, psycopg.Error):
            self.pgconn.finish()
        except asyncio.CancelledError:
            self.pgconn.finish()
            raise
