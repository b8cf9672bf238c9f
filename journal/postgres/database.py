"""
Statements in Postgres through the pool: deadlines that server and client keep, and errors of the product's own tree.

A connection lost before COMMIT was sent means that nothing was written, and a retry is safe. Lost afterwards, the
outcome is unknown. The two raise different errors.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, LiteralString

import psycopg
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from imem.journal.deadline import Deadline
from imem.journal.errors import (
    BudgetExceeded,
    ImemError,
    LeaseHeld,
    OutcomeUnknown,
    PermissionDenied,
    PostgresUnavailable,
    StaleEpoch,
    StatementRejected,
)
from imem.journal.postgres.connection import (
    BACKGROUND_TIMEOUT_S,
    Connection,
    LateStatement,
    Parameters,
    Row,
    SilentServer,
)
from imem.journal.postgres.failure_detector import FailureDetector
from imem.journal.postgres.pool import Pool, ServerRefuses
from imem.journal.retry import ATTEMPTS, retry
from imem.journal.statements import sql
from imem.journal.telemetry.slow_queries import SlowLog

_LONGEST_WAIT_S = 30.0
"""Longest wait for a connection without a deadline, in seconds."""

_CEILINGS_MS = (1_000, 2_500, 10_000, int(BACKGROUND_TIMEOUT_S * 1000.0))
"""Values of the server's statement timeout, in milliseconds: the first that is not below the deadline is set."""

LONGEST_TRANSACTION_S = 120
"""The server's transaction timeout, in seconds; an open transaction holds back the safe horizon."""

_PLAN_MS = 5_000.0
"""Timeout of an EXPLAIN in the background, in milliseconds."""

_DRIVERS = (psycopg.Error, PoolTimeout, PoolClosed, TooManyRequests)
"""Errors of the driver and its pool."""

_MEND = "Is it running? `imem doctor` checks every server."


def translate_error(error: psycopg.Error | PoolTimeout | PoolClosed | TooManyRequests) -> ImemError:
    """Return *error* as one of the product's error tree; the caller raises it ``from`` the original."""
    match error:
        case psycopg.errors.QueryCanceled():
            return BudgetExceeded("Postgres stopped a statement at its deadline.")
        case (
            psycopg.errors.SerializationFailure()
            | psycopg.errors.DeadlockDetected()
            | psycopg.errors.IdleInTransactionSessionTimeout()
            | psycopg.errors.TransactionTimeout()
        ):
            return PostgresUnavailable("Postgres asked for the transaction to be repeated; nothing was written.")
        case psycopg.errors.InvalidPassword() | psycopg.errors.InvalidAuthorizationSpecification():
            return PostgresUnavailable("Postgres refused the password.", mend="Check the URL's user and password.")
        case psycopg.errors.DiskFull():
            return PostgresUnavailable("Postgres has no disk space left.", mend="Free some space; nothing was written.")
        case psycopg.errors.InsufficientPrivilege():
            return StatementRejected("Postgres does not allow the application's role to do that.")
        case PoolTimeout() | PoolClosed() | TooManyRequests():
            return PostgresUnavailable("No connection to Postgres was to be had in time.", mend=_MEND)
        case psycopg.OperationalError() | psycopg.InterfaceError():
            return _unanswered(error)
        case _:
            return _refused(error)


def _refused(error: psycopg.Error) -> ImemError:
    match error.sqlstate:
        # Raised by the journal's functions; see imem_event_added and imem_own_facts_v1 in sql/schema.
        case "IM001":
            return LeaseHeld(
                "The actor's writes are locked while a snapshot is taken; nothing was written.",
                mend="Repeat the call: a lock lasts 5 s at most.",
            )
        case "IM002":
            return StaleEpoch("The actor's writes were locked again meanwhile; nothing was written.")
        case "IM003":
            return PermissionDenied(
                f"{error.diag.message_primary}; nothing was written.",
                mend="A process that may do so logs in as a curator: set IMEM_POSTGRES_CURATOR_URL.",
            )
        case "23514" if error.diag.constraint_name is None:
            # No constraint of ours: the row was for a partition that was added meanwhile, as the audit's of a month.
            return PostgresUnavailable("Postgres added a partition meanwhile; nothing was written.")
        case _:
            return StatementRejected(f"Postgres refused a statement ({error.sqlstate or 'unknown state'}).")


def _unanswered(error: psycopg.Error) -> ImemError:
    match error:
        case LateStatement():
            return BudgetExceeded("A statement of Postgres was ended at its deadline.")
        case SilentServer(in_background=True):
            return PostgresUnavailable(f"Postgres did not answer for {BACKGROUND_TIMEOUT_S:.0f} s.", mend=_MEND)
        case SilentServer():
            return BudgetExceeded("Postgres did not answer before the deadline.")
        case _:
            return PostgresUnavailable("Postgres cannot be reached.", mend=_MEND)


class Database:
    """
    A bounded pool of connections of one process and one event loop.

    Opens lazily: making one touches no network, so that a server that is down is an error of the call, not of the
    start. A server that refuses connections is an error at once, whatever the deadline.

    Attributes:
        slow: logs slow queries.
        detector: decides by evidence whether the server is away.
    """

    def __init__(self, url: str, *, size: int = 8, options: str = "", slow_ms: float = float("inf")) -> None:
        self._pool = Pool(url, size=size, options=options)
        self.slow = SlowLog("journal", slow_ms)
        self.detector = FailureDetector(self._ping)

    @property
    def closed(self) -> bool:
        """Whether it was closed; it runs no statement any more."""
        return self._pool.closed

    async def close(self) -> None:
        """Close every connection; running statements are cancelled."""
        await self.slow.close()
        await self.detector.close()
        await self._pool.close()

    def connection(self, deadline: Deadline) -> AbstractAsyncContextManager[Connection]:
        """
        Lend a connection in autocommit mode, on which no wait outlasts *deadline*.

        At *deadline* the running statement is cancelled on the server. If the server does not confirm within
        :data:`~imem.journal.postgres.connection.GRACE_S` seconds, the connection is closed. Without a deadline each
        statement has :data:`~imem.journal.postgres.connection.BACKGROUND_TIMEOUT_S` seconds. Statements of a client
        that was killed end by the server's own timeouts, seconds later.

        Raises:
            BudgetExceeded: *deadline* passed before a connection was requested, or before the server answered.
            PostgresUnavailable: no connection was free before *deadline*, or the server did not answer background work.
        """
        return _Loan(self._pool, self.detector, deadline)

    @asynccontextmanager
    async def transaction(self, deadline: Deadline) -> AsyncIterator[Connection]:
        """
        Lend a connection inside one transaction, committed at the end of the block.

        Raises:
            PostgresUnavailable: nothing was written; retryable.
            BudgetExceeded: the server did not answer before *deadline*; nothing was written.
            OutcomeUnknown: the connection broke, or the time ran out, while committing.
        """
        async with self.connection(deadline) as conn:
            committing = False
            try:
                async with conn.transaction():
                    yield conn
                    committing = True
            except psycopg.OperationalError as error:
                # An error with a reason means rolled back.
                if committing and conn.closed and error.sqlstate is None:
                    raise OutcomeUnknown("Postgres did not confirm the commit.") from error
                raise

    async def commit(self, name: str, parameters: Parameters | None = None, *, deadline: Deadline) -> list[Row]:
        """
        Run the named writing statement as a transaction of its own, in one round trip, and return its rows.

        A statement of which Postgres says that nothing was written is retried: a pooled connection was stale, or
        another writer held a lock.

        Raises:
            PostgresUnavailable: nothing was written; retryable.
            BudgetExceeded: the server stopped at *deadline*; nothing was written.
            OutcomeUnknown: the connection broke, or the time ran out, before the answer came.
        """
        return await retry(
            lambda: self._commit_once(name, parameters, deadline),
            deadline=deadline,
            errors=PostgresUnavailable,
            attempts=ATTEMPTS,
        )

    async def _commit_once(self, name: str, parameters: Parameters | None, deadline: Deadline) -> list[Row]:
        async with self.connection(deadline) as conn:
            try:
                return await conn.answer(sql(name), parameters)
            except psycopg.OperationalError as error:
                # An error with a reason means rolled back. Without one the server may have committed.
                if conn.closed and error.sqlstate is None:
                    raise OutcomeUnknown("Postgres did not confirm a write.") from error
                raise

    async def rows(
        self, query: LiteralString, parameters: Parameters | None = None, *, deadline: Deadline
    ) -> list[Row]:
        """
        Run one reading statement and return its rows.

        Raises:
            PostgresUnavailable: the server cannot be reached; retryable.
            BudgetExceeded: the server did not answer before *deadline*.
        """
        async with self.connection(deadline) as conn:
            # One statement is its own transaction. Measured, a pipeline of all four costs more here than it saves.
            cursor = await conn.execute(query, parameters)
            return await cursor.fetchall()

    async def named(self, name: str, parameters: Parameters | None = None, *, deadline: Deadline) -> list[Row]:
        """Run the named statement of ``sql/queries`` and return its rows; see :meth:`rows`."""
        begun_s, answered = time.monotonic(), False
        try:
            rows = await self.rows(sql(name), parameters, deadline=deadline)
            answered = True
            return rows
        finally:
            if not self.closed:
                self.slow.note(
                    name, begun_s, lambda: self._explain(name, parameters), deadline=deadline, answered=answered
                )

    async def _ping(self, deadline: Deadline) -> None:
        await self.rows(sql("ping"), deadline=deadline)

    async def _explain(self, name: str, parameters: Parameters | None) -> Any:
        """Return the server's plan of the named statement, without running it."""
        rows = await self.rows("EXPLAIN " + sql(name), parameters, deadline=Deadline.after_ms(_PLAN_MS))
        return "\n".join(next(iter(row.values())) for row in rows)

    async def execute(self, name: str, parameters: Parameters | None = None, *, deadline: Deadline) -> int:
        """Run the named statement that returns no rows; return how many rows it changed."""
        async with self.transaction(deadline) as conn:
            return (await conn.execute(sql(name), parameters)).rowcount


class _Loan:
    """
    A connection on loan for one block.

    A class and not a generator: each statement uses one, and it takes half the time.
    """

    __slots__ = ("_begun_s", "_conn", "_deadline", "_detector", "_pool")

    def __init__(self, pool: Pool, detector: FailureDetector, deadline: Deadline) -> None:
        self._pool = pool
        self._detector = detector
        self._deadline = deadline
        self._begun_s = time.monotonic()

    async def __aenter__(self) -> Connection:
        deadline = self._deadline
        deadline.check("a connection to Postgres")
        try:
            # Not the pool's own context manager, which ends with a COMMIT that autocommit does not need.
            conn = self._conn = await self._pool.lend(min(deadline.left_s(), _LONGEST_WAIT_S))
            try:
                await _limit(conn, deadline)
            except BaseException:
                await self._pool.take_back(conn)
                raise
        except _DRIVERS as error:
            self._note(error)
            raise translate_error(error) from error
        except asyncio.CancelledError as error:
            self._note(error)
            raise
        return conn

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        self._note(error)
        try:
            await self._pool.take_back(self._conn)
        except _DRIVERS as late:
            raise translate_error(late) from late
        if isinstance(error, _DRIVERS):
            raise translate_error(error) from error

    def _note(self, error: BaseException | None) -> None:
        """Report to the failure detector: a server's error is an answer; a timeout or a cancellation is none."""
        match error:
            case ServerRefuses():
                self._detector.refused()
            case PoolClosed() | ImemError():
                pass
            case LateStatement():
                self._detector.answered()
            case TimeoutError() | asyncio.CancelledError() | psycopg.OperationalError(sqlstate=None):
                self._detector.unanswered(self._begun_s)
            case _:
                self._detector.answered()


async def _limit(conn: Connection, deadline: Deadline) -> None:
    """
    Set the limits of client and server for the new holder of the connection.

    The client keeps the deadline itself, and cancels on the server. The server's own timeout is for statements whose
    client is gone: it need not be exact, and so is rarely set anew.
    """
    deadline.check("a statement")
    conn.limit = deadline
    left_ms = min(deadline.left_s(), BACKGROUND_TIMEOUT_S) * 1000.0
    ceiling_ms = next(step for step in _CEILINGS_MS if step >= left_ms)
    if conn.ceiling_ms != ceiling_ms:
        await conn.execute(sql("limit_statement"), (str(ceiling_ms), f"{LONGEST_TRANSACTION_S}s"))
        conn.ceiling_ms = ceiling_ms
