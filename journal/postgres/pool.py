"""
A connection pool for Postgres: psycopg's pool, replaced by a new one when the server refuses connections.

psycopg's pool keeps callers that timed out in its queue until a connection comes, counts them as waiting, and opens no
connection while too many wait: after an outage of a few hundred calls it would never open one again. So when the server
refuses, the inner pool is closed with its queue, its waiters fail at once, and the next caller opens a new one.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from imem.journal.postgres.connection import Connection

# The pool logs every failed attempt with libpq's message, which quotes the URL; the caller gets the error anyway.
logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)

WAITING_FOR_EACH: Final = 64
"""How many callers may wait for each connection of the pool; any more are refused at once."""

LONGEST_IDLE_S: Final = 10
"""
How long a transaction may idle before the server ends it and closes the connection, in seconds.

A client that is stopped between a write and its COMMIT holds its actor's lock, and holds back the safe horizon.
"""

IDLE_LIMIT: Final = f"-c idle_in_transaction_session_timeout={LONGEST_IDLE_S}s"
""":data:`LONGEST_IDLE_S` as a connection option."""

_LONGEST_CLOSE_S: Final = 1.0
"""How long closing waits for a connection that is being opened, in seconds."""

_FULL: Final = re.compile(r"too many (?:clients|connections)|connection slots")
"""The English message of a server that has no free connection; in other languages it just refuses."""

_Inner = AsyncConnectionPool[Connection]


class ServerRefuses(PoolTimeout):
    """
    The server refuses connections, or accepted none within the connect timeout.

    Attributes:
        full: whether it is there, and has as many connections as it takes.
    """

    def __init__(self, message: str, *, full: bool) -> None:
        super().__init__(message)
        self.full = full


class Pool:
    """
    Connections of one process and one event loop, at most *size*.

    Opens lazily: making a pool touches no network, so that a server that is down is an error of the call, not of the
    start.

    Args:
        url: of the server.
        size: connections at most.
        options: options of each connection beside the time zone.

    Attributes:
        closed: whether it was closed; it lends no connection any more.
    """

    def __init__(self, url: str, *, size: int, options: str) -> None:
        self._url = url
        self._size = size
        self._kwargs: Mapping[str, Any] = {
            # Else the statement that sets the limit begins a transaction, in which those below are savepoints, and the
            # caller would not see the COMMIT fail.
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
        self._full = False
        self._ending: set[asyncio.Task[None]] = set()

    async def lend(self, wait_s: float) -> Connection:
        """
        Return a connection once one is free; the caller returns it with :meth:`take_back`.

        Raises:
            ServerRefuses: the server refuses connections.
            PoolTimeout: none was free within *wait_s* seconds.
            PoolClosed: the pool was closed.
            TooManyRequests: too many callers wait already.
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
            raise ServerRefuses("the server refuses connections", full=self._full) from error
        self._lent[conn] = inner
        return conn

    async def take_back(self, conn: Connection) -> None:
        """Return *conn* to the pool; a broken one is discarded."""
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
                        # A failed attempt is an error of the callers at once; no task retries for minutes.
                        reconnect_timeout=0.0,
                        reconnect_failed=self._refused,
                        kwargs={**self._kwargs, "failed": self._failed},
                    )
                    await inner.open(wait=False)
                    self._inner = inner
        return self._inner

    def _failed(self, error: psycopg.Error) -> None:
        # Before there is a connection, the driver knows no state of the error. Not kept: it may quote the URL.
        self._full = _FULL.search(str(error)) is not None

    def _refused(self, inner: _Inner) -> None:
        """Close *inner*, unless a connection of it is in use and will be returned to a waiter."""
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
