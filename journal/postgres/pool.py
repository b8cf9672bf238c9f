"""
Connections to Postgres, lent one at a time: psycopg's pool, and another one in its place when the server refuses.

psycopg's own keeps those who gave up waiting in its queue until a connection comes, counts them as waiting, and makes
no connection while too many do: after an outage of a few hundred calls it would never make one again. So the pool of
a server that refuses is given up with its queue, those who wait hear of it at once, and who comes next makes another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from imem.journal.postgres.connection import Connection

# The pool logs every failed attempt with libpq's words, which quote the URL; the caller gets the error anyway.
logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)

WAITING_FOR_EACH: Final = 64
"""How many callers may wait for each connection that there may be; what comes beyond them is refused at once."""

LONGEST_IDLE_S: Final = 10
"""
How long a transaction may wait for its client, in seconds; then the server ends it and closes the connection.

A client that is stopped between a write and its COMMIT holds its actor's lock and everybody's safe horizon.
"""

IDLE_LIMIT: Final = f"-c idle_in_transaction_session_timeout={LONGEST_IDLE_S}s"
"""The same as an option of a connection."""

_LONGEST_CLOSE_S: Final = 1.0
"""How long the end waits for a connection that is just being made, in seconds."""

_Inner = AsyncConnectionPool[Connection]


class ServerRefuses(PoolTimeout):
    """The server refuses connections, or gave none within the time that an attempt has."""


class Pool:
    """
    At most so many connections of one process and one event loop.

    Opens lazily: making one touches no network, so that a server that is down is an error of the call, not of the
    start.

    Args:
        url: where to.
        size: connections at most.
        options: what the server is given beside the time zone.

    Attributes:
        closed: whether it was closed: nothing is to be had from it any more.
    """

    def __init__(self, url: str, *, size: int, options: str) -> None:
        self._url = url
        self._size = size
        self._kwargs: Mapping[str, Any] = {
            # Else the statement that sets the limit begins a transaction, in which those below are savepoints, and
            # nobody here would see the COMMIT fail.
            "autocommit": True,
            "row_factory": dict_row,
            "application_name": "imem",
            "connect_timeout": 3,
            "options": f"-c timezone=UTC {IDLE_LIMIT} {options}".strip(),
        }
        self.closed = False
        self._inner: _Inner | None = None
        self._opening = asyncio.Lock()
        self._lent: dict[Connection, _Inner] = {}
        self._waiting: set[asyncio.Timeout] = set()
        self._ending: set[asyncio.Task[None]] = set()

    async def lend(self, wait_s: float) -> Connection:
        """
        Return a connection once there is one; :meth:`take_back` it in any case.

        Raises:
            ServerRefuses: the server refuses them.
            PoolTimeout: there was none within *wait_s* seconds.
            PoolClosed: the pool was closed.
            TooManyRequests: too many wait already.
        """
        scope = asyncio.timeout(None)
        try:
            async with scope:
                inner = self._inner or await self._opened()
                self._waiting.add(scope)
                try:
                    conn = await inner.getconn(wait_s)
                finally:
                    self._waiting.discard(scope)
        except TimeoutError as error:
            raise ServerRefuses("the server refuses connections") from error
        self._lent[conn] = inner
        return conn

    async def take_back(self, conn: Connection) -> None:
        """Keep *conn* for the next caller, unless it is broken."""
        await self._lent.pop(conn).putconn(conn)

    async def close(self) -> None:
        """Close every connection; running statements are cancelled."""
        self.closed = True
        inner, self._inner = self._inner, None
        if inner is not None:
            await inner.close(timeout=_LONGEST_CLOSE_S)
        if self._ending:
            await asyncio.wait(self._ending)

    async def _opened(self) -> _Inner:
        if self._inner is None:
            async with self._opening:
                if self.closed:
                    raise PoolClosed("the pool is closed")
                if self._inner is None:
                    inner: _Inner = AsyncConnectionPool(
                        self._url,
                        connection_class=Connection,
                        min_size=0,
                        max_size=self._size,
                        max_waiting=self._size * WAITING_FOR_EACH,
                        open=False,
                        # Failing attempts are the callers' error at once; no task goes on trying for minutes.
                        reconnect_timeout=0.0,
                        reconnect_failed=self._refused,
                        kwargs=dict(self._kwargs),
                    )
                    await inner.open(wait=False)
                    self._inner = inner
        return self._inner

    def _refused(self, inner: _Inner) -> None:
        """Give *inner* up, unless one of its connections is lent and will come back to those who wait."""
        if inner is not self._inner or inner in self._lent.values():
            return
        self._inner = None
        now = asyncio.get_running_loop().time()
        for scope in self._waiting:
            if not scope.expired():
                scope.reschedule(now)
        ending = asyncio.get_running_loop().create_task(inner.close(timeout=_LONGEST_CLOSE_S))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
