"""
Executors: threads on one connection pool, tasks of one event loop on another.

LangGraph gives its savers no deadline and calls them from many threads at once. So the statement timeout is set once
per connection, and the client has the same limit a little later: a statement costs one round trip and nothing else. A
pool never lends a connection that a server, a pooler or a firewall has closed.
"""

from __future__ import annotations

import asyncio
import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, LiteralString, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

from imem.checkpoints.langgraph.operations import StatementCall
from imem.journal.deadline import Deadline
from imem.journal.errors import OutcomeUnknown, SchemaError
from imem.journal.postgres.cancellation import heed_cancellation
from imem.journal.postgres.connection import BACKGROUND_TIMEOUT_S, GRACE_S, Connection, Parameters, Row, SilentServer
from imem.journal.postgres.database import translate_error
from imem.journal.postgres.pool import IDLE_LIMIT
from imem.journal.statements import sql

T = TypeVar("T")

_text = cache(sql)
"""Text of a statement, cached: the loader looks for its folder every time, which takes longer than a small put."""

LIMIT_S: Final = BACKGROUND_TIMEOUT_S
"""Timeout of one statement, in seconds."""

TRUSTED_S: Final = 5.0
"""How long after its last use a connection is lent without a check, in seconds."""

CHECK_MS: Final = 2000.0
"""Timeout of that check, in milliseconds."""

POOL_TIMEOUT_S: Final = 30.0
"""Longest wait for a free connection, in seconds."""

DOWN_S: Final = 3.0
"""Longest wait for a server that refuses connections, in seconds: it may be restarting."""

ASKING_S: Final = 0.25
"""Interval of requests to the pool, in seconds: the pool does not report that it gave up connecting."""

_SCHEMA_MISSING: Final = (
    psycopg.errors.InvalidSchemaName,
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedFunction,
)

CLOSING_S: Final = 1.0
"""Longest wait of closing for a connection that is being opened, in seconds."""


class PreparedCursor(psycopg.Cursor[Row]):
    """A cursor for one statement; see :class:`imem.journal.postgres.connection.Cursor`."""

    def rest(self) -> None:
        """Release the values of the last run, which may be large."""
        self._reset()


class ThreadConnection(psycopg.Connection[Any]):
    """
    A connection of threads, whose every wait is bounded; see :class:`imem.journal.postgres.connection.Connection`.

    Attributes:
        used_at_s: when a statement last succeeded, on the monotonic clock.
        limit: deadline of the current borrower.
    """

    used_at_s: float = 0.0
    limit: Deadline = Deadline.never()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._kept: dict[LiteralString, PreparedCursor] = {}

    def answer(self, statement: LiteralString, parameters: Parameters) -> list[Row]:
        """Run a statement with a small result; see :meth:`imem.journal.postgres.connection.Connection.answer`."""
        cursor = self._kept.get(statement)
        if cursor is None:
            cursor = self._kept[statement] = PreparedCursor(self, row_factory=dict_row)
        try:
            return cursor.execute(statement, parameters).fetchall()
        finally:
            cursor.rest()

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """
        Wait for the server's answer, at most until the limit and a grace period.

        Raises:
            SilentServer: it did not answer; the connection is closed.
        """
        left_s = min(self.limit.left_s(), LIMIT_S) if timeout is None else timeout
        ends_s = time.monotonic() + left_s + GRACE_S
        try:
            return super().wait(_until(gen, ends_s), interval)
        except SilentServer:
            self.pgconn.finish()
            raise


class TaskConnection(Connection):
    """
    A connection of tasks that records its last use.

    Attributes:
        used_at_s: when a statement last succeeded, on the monotonic clock.
    """

    used_at_s: float = 0.0


def _until(gen: PQGen[T], ends_s: float) -> PQGen[T]:
    """Pass on what *gen* waits for until *ends_s*; the driver resumes it at every interval, ready or not."""
    try:
        state = next(gen)
        while True:
            ready = yield state
            if not ready and time.monotonic() > ends_s:
                gen.close()
                raise SilentServer(in_background=True)
            state = gen.send(ready)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return] # what the inner generator returned


def _needs_check(conn: ThreadConnection | TaskConnection) -> bool:
    """Whether to check the connection: it is long unused, or has unread data, such as the server's close."""
    if time.monotonic() - conn.used_at_s > TRUSTED_S:
        return True
    poll = select.poll()
    poll.register(conn.pgconn.socket, select.POLLIN)
    return bool(poll.poll(0))


def _check(conn: ThreadConnection) -> None:
    conn.limit = Deadline.after_ms(CHECK_MS)
    if _needs_check(conn):
        ConnectionPool.check_connection(conn)
    conn.limit = Deadline.never()


async def _acheck(conn: TaskConnection) -> None:
    if _needs_check(conn):
        conn.limit = Deadline.after_ms(CHECK_MS)
        await AsyncConnectionPool.check_connection(conn)
    conn.limit = Deadline.never()


def _options(url: str) -> dict[str, Any]:
    """Return the options of every connection; those of the URL win."""
    given = conninfo_to_dict(url)
    defaults = {
        "application_name": "imem-langgraph",
        "connect_timeout": 3,
        # A peer that vanished is noticed by the kernel: after half a minute idle, or unacknowledged.
        "keepalives_idle": 20,
        "keepalives_interval": 5,
        "keepalives_count": 2,
        "tcp_user_timeout": 30_000,
    }
    return {
        **{name: value for name, value in defaults.items() if name not in given},
        "autocommit": True,
        "prepare_threshold": 0,
        # Every statement finds its rows by a key. A custom plan would copy its values, which may be large. Of two
        # settings of one name the later wins: the URL may change the idle limit, and nothing else.
        "options": f"{IDLE_LIMIT} {given.get('options') or ''} -c timezone=UTC "
        f"-c statement_timeout={int(LIMIT_S * 1000)} -c plan_cache_mode=force_generic_plan",
    }


class _PoolTimeout:
    """
    Decides how long to wait for a pool's connection.

    Attributes:
        failed_at_s: when the pool last failed to connect, on the monotonic clock.
    """

    def __init__(self) -> None:
        self.failed_at_s = 0.0

    def failed(self, _pool: object) -> None:
        """Record a failure of the pool; its callback."""
        self.failed_at_s = time.monotonic()

    def over(self, since_s: float) -> bool:
        """Whether to give up a wait that began at *since_s*."""
        waited_s = time.monotonic() - since_s
        return waited_s > POOL_TIMEOUT_S or (waited_s > DOWN_S and self.failed_at_s > since_s)


class ThreadExecutor:
    """Runs statements for the calling thread, each on a connection of its own."""

    def __init__(self, pool: ConnectionPool[Any], pool_timeout: _PoolTimeout | None = None) -> None:
        self._pool = pool
        self._pool_timeout = pool_timeout
        self._opening = threading.Lock()
        self._opened = pool_timeout is None

    @classmethod
    def to(cls, url: str, size: int) -> ThreadExecutor:
        """Return an executor on a pool of at most *size* connections to *url*, opened at the first use."""
        pool_timeout = _PoolTimeout()
        pool = ConnectionPool(
            url, connection_class=ThreadConnection, kwargs=_options(url), min_size=0, max_size=size, open=False,
            check=_check, reconnect_timeout=0.0, reconnect_failed=pool_timeout.failed, name="imem-langgraph",
        )  # fmt: skip
        return cls(pool, pool_timeout)

    def run(self, call: StatementCall) -> list[Row]:
        """
        Run *call* and return its rows.

        Raises:
            PostgresUnavailable: the server cannot be reached, or no connection was free; nothing was written.
            OutcomeUnknown: the connection broke before the server confirmed a write; repeating it is safe.
        """
        if not self._opened:
            with self._opening:
                self._pool.open(wait=False)
                self._opened = True
        with translate_errors(call) as lent:
            conn = self._connection()
            lent.append(conn)
            try:
                if not isinstance(conn, ThreadConnection):
                    # A connection of the caller's pool, which may be in a transaction.
                    with conn:
                        return _rows(conn, call)
                rows = conn.answer(_text(call.statement), call.parameters) if call.writes else _rows(conn, call)
                conn.used_at_s = time.monotonic()
                return rows
            finally:
                self._pool.putconn(conn)

    def _connection(self) -> psycopg.Connection[Any]:
        if self._pool_timeout is None:
            found: psycopg.Connection[Any] = self._pool.getconn()
            return found
        since_s = time.monotonic()
        while True:
            try:
                found = self._pool.getconn(timeout=ASKING_S)
            except PoolTimeout:
                if self._pool_timeout.over(since_s):
                    raise
            else:
                return found

    def close(self) -> None:
        """Close the pool, unless it is the caller's."""
        if self._pool_timeout is not None and self._opened:
            self._pool.close(timeout=CLOSING_S)


class TaskExecutor:
    """Runs statements for the tasks of one event loop."""

    def __init__(self, pool: AsyncConnectionPool[Any], pool_timeout: _PoolTimeout | None = None) -> None:
        self._pool = pool
        self._pool_timeout = pool_timeout
        self._opening = asyncio.Lock()
        self._opened = pool_timeout is None
        self._loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def to(cls, url: str, size: int) -> TaskExecutor:
        """Return an executor on a pool of at most *size* connections to *url*, opened at the first use."""
        pool_timeout = _PoolTimeout()
        pool = AsyncConnectionPool(
            url, connection_class=TaskConnection, kwargs=_options(url), min_size=0, max_size=size, open=False,
            check=_acheck, reconnect_timeout=0.0, reconnect_failed=pool_timeout.failed, name="imem-langgraph",
        )  # fmt: skip
        return cls(pool, pool_timeout)

    @property
    def here(self) -> bool:
        """Whether the running loop is the one of these connections; the first use binds it."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        return self._loop is loop

    async def run(self, call: StatementCall) -> list[Row]:
        """Run *call* and return its rows; see :meth:`ThreadExecutor.run`."""
        if not self._opened:
            async with self._opening:
                if not self._opened:
                    await self._pool.open(wait=False)
                    self._opened = True
        with translate_errors(call) as lent:
            conn = await self._connection()
            lent.append(conn)
            try:
                if not isinstance(conn, TaskConnection):
                    async with conn:
                        return await _arows(conn, call)
                if call.writes:
                    rows = await conn.answer(_text(call.statement), call.parameters)
                else:
                    rows = await _arows(conn, call)
                conn.used_at_s = time.monotonic()
                return rows
            finally:
                await self._pool.putconn(conn)

    async def _connection(self) -> psycopg.AsyncConnection[Any]:
        if self._pool_timeout is None:
            found: psycopg.AsyncConnection[Any] = await self._pool.getconn()
            return found
        since_s = time.monotonic()
        while True:
            try:
                found = await self._pool.getconn(timeout=ASKING_S)
            except PoolTimeout:
                heed_cancellation()
                if self._pool_timeout.over(since_s):
                    raise
            else:
                return found

    async def close(self) -> None:
        """Close the pool, unless it is the caller's."""
        if self._pool_timeout is not None and self._opened:
            await self._pool.close(timeout=CLOSING_S)


# Results of reads may be large: in binary, and released with their cursor.


def _rows(conn: psycopg.Connection[Any], call: StatementCall) -> list[Row]:
    with conn.cursor(binary=True, row_factory=dict_row) as cursor:
        return cursor.execute(_text(call.statement), call.parameters).fetchall()


async def _arows(conn: psycopg.AsyncConnection[Any], call: StatementCall) -> list[Row]:
    async with conn.cursor(binary=True, row_factory=dict_row) as cursor:
        await cursor.execute(_text(call.statement), call.parameters)
        return await cursor.fetchall()


@contextmanager
def translate_errors(call: StatementCall) -> Iterator[list[psycopg.Connection[Any] | psycopg.AsyncConnection[Any]]]:
    """
    Raise driver errors of *call* as :class:`ImemError`; the block appends its connection to the yielded list.

    A writing statement commits itself: a connection that breaks under it leaves its outcome unknown.
    """
    lent: list[psycopg.Connection[Any] | psycopg.AsyncConnection[Any]] = []
    try:
        yield lent
    except (psycopg.Error, PoolTimeout, PoolClosed, TooManyRequests) as error:
        if call.writes and isinstance(error, psycopg.OperationalError) and any(conn.closed for conn in lent):
            raise OutcomeUnknown(
                "Postgres did not confirm that it stored this.", mend="Repeating the very same call is safe."
            ) from error
        if isinstance(error, _SCHEMA_MISSING):
            raise SchemaError(
                "This database has no tables for LangGraph's threads.",
                mend="Run `imem migrate`, or call the saver's setup() once as the database's owner.",
            ) from error
        raise translate_error(error) from error
