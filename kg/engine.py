"""
Neo4j through its official async driver: bounded, with a deadline that the server keeps, and its errors in our words.

All graphs of one process that name the same server share one bound. A server that has gone silent is left alone for a
moment, and then asked by one reader alone: the others are told at once, and do without, instead of waiting in a queue
behind each other; and when it answers again, it is not run over.

A statement carries the time that is left as its transaction timeout, so that the server stops it when nobody waits any
more; the client waits a little longer than that and then drops the connection, for a server that does not answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
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

from imem.journal.deadline import Deadline
from imem.journal.errors import BudgetExceeded, GraphUnavailable, ImemError, OutcomeUnknown, StatementRejected
from imem.journal.statements import cypher
from imem.journal.telemetry.slow_queries import SlowLog
from imem.journal.telemetry.tracing import TRACER

T = TypeVar("T")
Record = dict[str, Any]

DATABASE = "neo4j"
"""The one database of the Community edition."""

_GRACE_S = 0.05
"""How much longer than the server the client waits, in seconds: the server's own answer is the better one."""

FAILURE_THRESHOLD: Final = 3
"""Readers in a row who were left without an answer, from when on the server counts as silent."""

LEAST_FAILURE_S: Final = 0.2
"""How long such a reader has waited at least, in seconds: who gives little time has learnt nothing."""

FIRST_OPEN_S: Final = 0.25
LONGEST_OPEN_S: Final = 2.0
"""How long a silent server is left alone before one reader tries, in seconds; each that tries in vain doubles it."""

_PLAN_MS: Final = 5_000.0
"""How long planning may take that nobody waits for, in milliseconds."""

RUNNING: Final = Gauge("graph_statements_running", "Statements of this process that run in the graph.")

_BACKGROUND_TIMEOUT_S = 60.0
"""Transaction timeout of work without a deadline, in seconds: nothing runs for ever."""

_TIMED_OUT = (
    "Neo.ClientError.Transaction.TransactionTimedOut",
    "Neo.ClientError.Transaction.TransactionTimedOutClientConfiguration",
    "Neo.TransientError.Transaction.LockAcquisitionTimeout",
    "Neo.TransientError.Transaction.Terminated",
    "Neo.ClientError.Transaction.TransactionTerminated",
)


def given(parameters: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """
    Return what a statement is sent with: one map, of which it takes ``$given.name``.

    Neo4j makes a plan of its own for every size class of each text or list among the parameters (measured: 10, 100 and
    1,000 characters, a second of planning for a large statement each time), but none for what a map holds.
    """
    return {"given": {**(parameters or {}), **more}}


_OF_THE_STATEMENT = ("Neo.ClientError.Statement.", "Neo.ClientError.Schema.", "Neo.ClientError.Procedure.")
"""How the codes begin that say that the statement, or a value in it, is wrong, and always will be."""

_MEND = "Is it running? `imem doctor` checks every server."


def translate_error(error: Neo4jError | DriverError) -> ImemError:
    """Return *error* in our words; the caller raises it ``from`` the original."""
    match error:
        case IncompleteCommit():
            return OutcomeUnknown("The connection to Neo4j broke while committing.")
        case AuthError():
            return GraphUnavailable("Neo4j refused the user or the password.", mend="Check the settings.")
        case Neo4jError(code=code) if code in _TIMED_OUT:
            return BudgetExceeded("Neo4j stopped a statement at its deadline.")
        case TransientError() | DatabaseError():
            # The server's own trouble (a deadlock, no memory, a full disk), not the statement's.
            return GraphUnavailable(f"Neo4j cannot do that now ({error.code}).", mend=_MEND)
        case ClientError(code=str(code)) if code.startswith(_OF_THE_STATEMENT):
            return StatementRejected(f"Neo4j refused a statement ({code}).")
        case ClientError():
            # A right that is missing, a database that is not there or only readable: no event is bad because of it.
            return GraphUnavailable(
                f"Neo4j does not let us do that ({error.code}).", mend="Check its user and settings."
            )
        case Neo4jError():
            return GraphUnavailable(f"Neo4j answered with {error.code}.", mend=_MEND)
        case _:
            return GraphUnavailable("Neo4j cannot be reached.", mend=_MEND)


_SLOTS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, int], asyncio.Semaphore]] = WeakKeyDictionary()


def _slots(url: str, concurrency: int) -> asyncio.Semaphore:
    """Return the slots that all graphs of this loop share that name one server and one bound."""
    of_loop = _SLOTS.setdefault(asyncio.get_running_loop(), {})
    return of_loop.setdefault((url, concurrency), asyncio.Semaphore(concurrency))


class CircuitBreaker:
    """
    Whether a server has gone silent: who was left without an answer says so, and whoever gets one takes it back.

    A server that answers others meanwhile is not silent, only slow.
    """

    def __init__(self) -> None:
        self._answered_s = float("-inf")
        self._failures = 0
        self._open_until_s = float("-inf")
        self._open_s = FIRST_OPEN_S
        self._probing = False

    @property
    def is_open(self) -> bool:
        """Whether readers are told so at once."""
        return self._failures >= FAILURE_THRESHOLD

    def admit(self) -> bool:
        """
        Let a reader pass; return whether it is the one that tries.

        Raises:
            GraphUnavailable: the server is silent, and somebody else tries whether it still is, or it rests.
        """
        if not self.is_open:
            return False
        if self._probing or time.monotonic() < self._open_until_s:
            raise GraphUnavailable("Neo4j has not answered lately; it is asked again in a moment.", mend=_MEND)
        self._probing = True
        return True

    def record_result(self, begun_s: float, *, answered: bool, tries: bool) -> None:
        """Take note of how a reader fared who began at *begun_s* of the monotonic clock."""
        now_s = time.monotonic()
        if tries:
            self._probing = False
        if answered:
            self._answered_s, self._failures, self._open_s = now_s, 0, FIRST_OPEN_S
        elif now_s - begun_s >= LEAST_FAILURE_S and self._answered_s < begun_s:
            self._failures += 1
            if self.is_open:
                self._open_until_s = now_s + self._open_s
                self._open_s = min(self._open_s * 2, LONGEST_OPEN_S)
        elif tries:
            self._open_until_s = now_s + self._open_s


class Graph:
    """
    The graph, for one process and one event loop; connects when first used.

    Args:
        url: ``bolt://`` or ``neo4j://``.
        user, password: credentials.
        pool_size: connections at most.
        concurrency: statements that run at once; the rest wait within their deadline.
        slow_ms: from when on a query is logged as slow, in milliseconds; without it none is.

    Attributes:
        slow: logs what was slow.
        running, most_running: statements under way, and the most there were at once.
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
        self._breaker = CircuitBreaker()
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
        if self._driver is not None:
            await self._driver.close()
            self._driver = None

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
        """Run *text*, a template that was bound; *name* goes to the server's query log. See :meth:`read`."""
        with TRACER.start_as_current_span("neo4j.read", kind=SpanKind.CLIENT, attributes={"imem.statement": name}):
            return await self._read_text(name, text, parameters, deadline)

    async def _read_text(
        self, name: str, text: LiteralString, parameters: Mapping[str, Any] | None, deadline: Deadline
    ) -> list[Record]:
        # Who has more time than a silent server is left alone for asks it all the same.
        in_hurry = deadline.left_s() <= LONGEST_OPEN_S
        begun_s, answered, late = time.monotonic(), False, False
        tries = in_hurry and self._breaker.admit()
        try:
            async with self._bounded(deadline):
                begun_s = time.monotonic()
                rows = await self._read(name, text, parameters, _timeout_s(deadline))
        except ImemError as error:
            answered, late = isinstance(error.__cause__, Neo4jError), isinstance(error, BudgetExceeded)
            raise
        else:
            answered = True
            return rows
        finally:
            self._breaker.record_result(begun_s, answered=answered, tries=tries)
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

    async def _explain(self, text: LiteralString, parameters: Mapping[str, Any] | None) -> str:
        """Return how the server would run *text*, without running it."""
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
        """Hold one of the slots, end with the deadline, and translate the driver's errors."""
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
            # Leaving the block cancelled the driver's call, which drops that connection.
            raise BudgetExceeded("Neo4j did not answer before the deadline.") from error
        except (Neo4jError, DriverError) as error:
            raise translate_error(error) from error


_SCALARS: Final = frozenset({str, int, float, bool, type(None)})


def _plain(record: neo4j.Record) -> Record:
    """Return a record as plain values; the driver's own way walks through every one of them, most of which are."""
    values = record.values()
    if all(type(value) in _SCALARS for value in values):
        return dict(zip(record.keys(), values, strict=True))
    return record.data()


def _operators(plan: Any) -> str:
    """Return a plan as its operators with the rows that each is expected to give, the last one first."""
    if not isinstance(plan, Mapping):
        return ""
    rows = plan.get("args", {}).get("EstimatedRows")
    children = ", ".join(_operators(child) for child in plan.get("children", ()))
    own = str(plan.get("operatorType", "")).partition("@")[0] + (f" {rows:.0f}" if isinstance(rows, float) else "")
    return f"{own} ({children})" if children else own


def _timeout_s(deadline: Deadline) -> float:
    """Return what the server may take, in seconds; zero would mean for ever to it."""
    return max(0.001, min(deadline.left_s(), _BACKGROUND_TIMEOUT_S))
