"""
Neo4j through its official async driver: bounded concurrency, deadlines, and a circuit breaker.

All graphs of one event loop that name the same server share one bound. While the circuit breaker is open, reads with a
short deadline fail at once instead of queueing; a probe at a time tests whether the server answers again.

A statement carries the time left as its transaction timeout, so that the server ends it at the deadline. The client
waits a little longer and then drops the connection, for a server that does not answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, LiteralString, TypeVar
from weakref import WeakKeyDictionary

import neo4j
from neo4j.exceptions import (
    AuthError,
    ClientError,
    DatabaseError,
    DriverError,
    IncompleteCommit,
    Neo4jError,
    TransientError,
)
from opentelemetry.trace import SpanKind
from prometheus_client import Gauge

from imem.journal.circuit_breaker import CircuitBreaker
from imem.journal.deadline import Deadline
from imem.journal.errors import (
    BudgetExceeded,
    GraphDeadlock,
    GraphUnavailable,
    ImemError,
    OutcomeUnknown,
    StatementRejected,
)
from imem.journal.statements import cypher
from imem.journal.telemetry.slow_queries import SlowLog
from imem.journal.telemetry.tracing import TRACER

T = TypeVar("T")
Record = dict[str, Any]

DATABASE = "neo4j"
"""The one database of the Community edition."""

_GRACE_S = 0.05
"""How much longer than the server the client waits, in seconds, so that the server's own error arrives."""

LEAST_FAILURE_S: Final = 0.2
"""Least duration of a read that counts as a failure, in seconds; one with a shorter deadline is no evidence."""

FIRST_OPEN_S: Final = 0.25
LONGEST_OPEN_S: Final = 2.0
"""
First and longest time for which the circuit breaker is open before it admits a probe, in seconds; each failed probe
doubles it.
"""

_PLAN_MS: Final = 5_000.0
"""Timeout of an EXPLAIN in the background, in milliseconds."""

RUNNING: Final = Gauge("graph_statements_running", "Statements of this process that run in the graph.")

_BACKGROUND_TIMEOUT_S = 60.0
"""Transaction timeout of work without a deadline, in seconds."""

_TIMED_OUT = (
    "Neo.ClientError.Transaction.TransactionTimedOut",
    "Neo.ClientError.Transaction.TransactionTimedOutClientConfiguration",
    "Neo.TransientError.Transaction.LockAcquisitionTimeout",
    "Neo.TransientError.Transaction.Terminated",
    "Neo.ClientError.Transaction.TransactionTerminated",
)


def given(parameters: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """
    Return the parameters of a statement in one map, from which it takes ``$given.name``.

    Neo4j plans anew for every size class of each text or list among the parameters (measured: at 10, 100 and 1,000
    characters, a second of planning for a large statement each time), but not for values inside a map.
    """
    return {"given": {**(parameters or {}), **more}}


_OF_THE_STATEMENT = ("Neo.ClientError.Statement.", "Neo.ClientError.Schema.", "Neo.ClientError.Procedure.")
"""Prefixes of the codes for a statement, or a value in it, that is always wrong."""

_DEADLOCK = "Neo.TransientError.Transaction.DeadlockDetected"

_MEND = "Is it running? `imem doctor` checks every server."


def translate_error(error: Neo4jError | DriverError) -> ImemError:
    """Return *error* as one of the product's error tree; the caller raises it ``from`` the original."""
    match error:
        case IncompleteCommit():
            return OutcomeUnknown("The connection to Neo4j broke while committing.")
        case AuthError():
            return GraphUnavailable("Neo4j refused the user or the password.", mend="Check the settings.")
        case Neo4jError(code=code) if code in _TIMED_OUT:
            return BudgetExceeded("Neo4j stopped a statement at its deadline.")
        case TransientError() | DatabaseError():
            # A failure of the server (a deadlock, no memory, a full disk), not of the statement.
            unavailable = GraphDeadlock if error.code == _DEADLOCK else GraphUnavailable
            return unavailable(f"Neo4j cannot do that now ({error.code}).", mend=_MEND)
        case ClientError(code=str(code)) if code.startswith(_OF_THE_STATEMENT):
            return StatementRejected(f"Neo4j refused a statement ({code}).")
        case ClientError():
            # A missing right, or a missing or read-only database: the statement itself is not at fault.
            return GraphUnavailable(
                f"Neo4j does not let us do that ({error.code}).", mend="Check its user and settings."
            )
        case Neo4jError():
            return GraphUnavailable(f"Neo4j answered with {error.code}.", mend=_MEND)
        case _:
            return GraphUnavailable("Neo4j cannot be reached.", mend=_MEND)


_SLOTS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, int], asyncio.Semaphore]] = WeakKeyDictionary()


def _slots(url: str, concurrency: int) -> asyncio.Semaphore:
    """Return the slots that all graphs of this loop with the same server and bound share."""
    of_loop = _SLOTS.setdefault(asyncio.get_running_loop(), {})
    return of_loop.setdefault((url, concurrency), asyncio.Semaphore(concurrency))


class Graph:
    """
    The graph, for one process and one event loop; connects when first used.

    Args:
        url: ``bolt://`` or ``neo4j://``.
        user, password: credentials.
        pool_size: connections at most.
        concurrency: concurrent statements; others wait within their deadline.
        slow_ms: duration from which a query is logged as slow, in milliseconds; by default none is.

    Attributes:
        slow: logs slow queries.
        running, most_running: concurrent statements now, and the most so far.
    """

    def __init__(
        self,
        url: str,
        user: str,
        password: str,
        *,
        pool_size: int = 12,
        concurrency: int = 10,
        slow_ms: float = float("inf"),
    ) -> None:
        self._address = (url, user, password)
        self._pool_size = pool_size
        self._concurrency = concurrency
        self._driver: neo4j.AsyncDriver | None = None
        self._breaker = CircuitBreaker(
            first_open_s=FIRST_OPEN_S, longest_open_s=LONGEST_OPEN_S, least_failure_s=LEAST_FAILURE_S
        )
        self._planning: asyncio.Task[None] | None = None
        self.slow = SlowLog("graph", slow_ms)
        self.running = self.most_running = 0

    def __repr__(self) -> str:
        """Show the address without credentials."""
        return f"Graph({self._address[0]!r})"

    @property
    def driver(self) -> neo4j.AsyncDriver:
        """The driver, made on first use inside the running loop."""
        if self._driver is None:
            url, user, password = self._address
            self._driver = neo4j.AsyncGraphDatabase.driver(
                url,
                auth=(user, password),
                max_connection_pool_size=self._pool_size,
                connection_timeout=3.0,
                connection_acquisition_timeout=_BACKGROUND_TIMEOUT_S,
                max_transaction_retry_time=0.0,
                notifications_min_severity="OFF",
                telemetry_disabled=True,
                user_agent="imem",
            )
        return self._driver

    async def close(self) -> None:
        """Close every connection."""
        await self.slow.close()
        if self._planning is not None:
            self._planning.cancel()
            await asyncio.gather(self._planning, return_exceptions=True)
        if self._driver is not None:
            await self._driver.close()
            self._driver = None

    async def connect(self, deadline: Deadline) -> None:
        """
        Connect, unless an idle connection is there; the connection stays in the pool.

        Raises:
            GraphUnavailable, BudgetExceeded: the server cannot be reached, or not in time.
        """
        async with self._bounded(deadline):
            await self.driver.verify_connectivity()

    async def read(self, name: str, parameters: Mapping[str, Any] | None = None, *, deadline: Deadline) -> list[Record]:
        """
        Run the named query and return its rows.

        Raises:
            GraphUnavailable: the server cannot be reached; retryable.
            BudgetExceeded: the deadline passed, here or on the server; its transaction has ended or is ending.
            StatementRejected: the server refused the statement.
            TypeError: a parameter is missing, which the server would take for null.
        """
        statement = cypher(name)
        missing = statement.given.difference(parameters or ())
        if missing:
            raise TypeError(f"{name}: missing parameters {sorted(missing)}.")
        return await self.read_text(name, statement.text, parameters, deadline=deadline)

    async def read_text(
        self, name: str, text: LiteralString, parameters: Mapping[str, Any] | None = None, *, deadline: Deadline
    ) -> list[Record]:
        """Run *text*, a bound template; *name* goes to the server's query log. See :meth:`read`."""
        with TRACER.start_as_current_span("neo4j.read", kind=SpanKind.CLIENT, attributes={"imem.statement": name}):
            return await self._read_text(name, text, parameters, deadline)

    async def _read_text(
        self, name: str, text: LiteralString, parameters: Mapping[str, Any] | None, deadline: Deadline
    ) -> list[Record]:
        # A read with more time than the breaker stays open may run: it can outlast the outage.
        in_hurry = deadline.left_s() <= LONGEST_OPEN_S
        begun_s, sent, answered, late = time.monotonic(), False, False, False
        if in_hurry and self._breaker.refuses:
            raise GraphUnavailable("Neo4j has not answered lately; it is asked again in a moment.", mend=_MEND)
        probe = in_hurry and self._breaker.begin_probe()
        try:
            async with self._bounded(deadline):
                begun_s, sent = time.monotonic(), True
                rows = await self._read(name, text, parameters, _timeout_s(deadline))
        except ImemError as error:
            answered, late = isinstance(error.__cause__, Neo4jError), isinstance(error, BudgetExceeded)
            raise
        else:
            answered = True
            return rows
        finally:
            self._breaker.record_result(begun_s, answered=answered, probe=probe)
            if late and sent:
                self._plan_in_background(text, parameters)
            if answered or late:
                self.slow.note(
                    name, begun_s, lambda: self._explain(text, parameters), deadline=deadline, answered=not late
                )

    async def _read(
        self, name: str, text: LiteralString, parameters: Mapping[str, Any] | None, timeout_s: float
    ) -> list[Record]:
        query = neo4j.Query(text, metadata={"statement": name}, timeout=timeout_s)
        async with self.driver.session(database=DATABASE, default_access_mode=neo4j.READ_ACCESS) as session:
            result = await session.run(query, given(parameters))
            return [_plain(record) async for record in result]

    def _plan_in_background(self, text: LiteralString, parameters: Mapping[str, Any] | None) -> None:
        """
        Have the server plan a statement that was late, with the time that takes; one statement at a time.

        The server drops a plan whose statement ended before it was ready. Where planning takes longer than the deadline
        of every caller, as after a restart, none of them would ever be answered.
        """
        if self._planning is not None and not self._planning.done():
            return

        async def plan() -> None:
            with suppress(ImemError):
                await self._explain(text, parameters)

        self._planning = asyncio.get_running_loop().create_task(plan())

    async def _explain(self, text: LiteralString, parameters: Mapping[str, Any] | None) -> str:
        """Return the server's plan of *text*, without running it."""
        deadline = Deadline.after_ms(_PLAN_MS)
        query = neo4j.Query("EXPLAIN " + text, metadata={"statement": "explain"}, timeout=_timeout_s(deadline))
        async with (
            self._bounded(deadline),
            self.driver.session(database=DATABASE, default_access_mode=neo4j.READ_ACCESS) as session,
        ):
            plan: Any = (await (await session.run(query, given(parameters))).consume()).plan
        return _operators(plan)

    async def write(
        self, name: str, work: Callable[[neo4j.AsyncTransaction], Awaitable[T]], *, deadline: Deadline
    ) -> tuple[T, str | None]:
        """
        Run *work* in one transaction and return its result with the bookmark of the commit.

        Raises:
            GraphUnavailable, BudgetExceeded, StatementRejected: nothing was written.
            OutcomeUnknown: the connection broke, or the time ran out, while committing.
        """
        with TRACER.start_as_current_span("neo4j.write", kind=SpanKind.CLIENT, attributes={"imem.statement": name}):
            return await self._write(name, work, deadline)

    async def _write(
        self, name: str, work: Callable[[neo4j.AsyncTransaction], Awaitable[T]], deadline: Deadline
    ) -> tuple[T, str | None]:
        committing = False
        try:
            async with self._bounded(deadline), self.driver.session(database=DATABASE) as session:
                transaction = await session.begin_transaction(
                    metadata={"statement": name}, timeout=_timeout_s(deadline)
                )
                async with transaction:
                    result = await work(transaction)
                    committing = True
                    await transaction.commit()
                    committing = False
                marks = sorted((await session.last_bookmarks()).raw_values)
                return result, marks[-1] if marks else None
        except (BudgetExceeded, GraphUnavailable) as error:
            if committing and not isinstance(error.__cause__, Neo4jError):
                raise OutcomeUnknown("Neo4j did not confirm the commit.") from error
            raise

    @asynccontextmanager
    async def _bounded(self, deadline: Deadline) -> AsyncIterator[None]:
        """Hold a slot, end at the deadline, and translate the driver's errors."""
        deadline.check("a graph statement")
        left_s = deadline.left_s()
        try:
            async with (
                asyncio.timeout(None if left_s == float("inf") else left_s + _GRACE_S),
                _slots(self._address[0], self._concurrency),
            ):
                deadline.check("a graph statement")
                self.running += 1
                self.most_running = max(self.most_running, self.running)
                RUNNING.inc()
                try:
                    yield
                finally:
                    self.running -= 1
                    RUNNING.dec()
        except TimeoutError as error:
            # The timeout cancelled the driver's call, which drops the connection.
            raise BudgetExceeded("Neo4j did not answer before the deadline.") from error
        except (Neo4jError, DriverError) as error:
            raise translate_error(error) from error


_SCALARS: Final = frozenset({str, int, float, bool, type(None)})


def _plain(record: neo4j.Record) -> Record:
    """Return a record as a dictionary; the driver's conversion is slower for records of scalars, the usual ones."""
    values = record.values()
    if all(type(value) in _SCALARS for value in values):
        return dict(zip(record.keys(), values, strict=True))
    return record.data()


def _operators(plan: Any) -> str:
    """Return a plan as its operators with their estimated rows, the last one first."""
    if not isinstance(plan, Mapping):
        return ""
    rows = plan.get("args", {}).get("EstimatedRows")
    children = ", ".join(_operators(child) for child in plan.get("children", ()))
    own = str(plan.get("operatorType", "")).partition("@")[0] + (f" {rows:.0f}" if isinstance(rows, float) else "")
    return f"{own} ({children})" if children else own


def _timeout_s(deadline: Deadline) -> float:
    """Return the server's timeout in seconds, never zero, which would mean none."""
    return max(0.001, min(deadline.left_s(), _BACKGROUND_TIMEOUT_S))
