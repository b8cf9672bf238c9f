"""
Rebuild of the graph from the journal, in two ways.

:func:`beside` fills a second local Neo4j and exchanges it for the one in use (blue/green); :func:`in_place` empties and
refills the one in use.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Final

import imem.kg.migrations
from imem.jobs.lease import LeaderLease
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, ImemError, StackError
from imem.journal.settings import Settings
from imem.kg.engine import Graph
from imem.kg.projection.rebuild import (
    RebuildReport,
    Replacement,
    ReportProgress,
    clear_rebuild_mark,
    holding_applier_lease,
    rebuild_in_place,
    rederive,
)
from imem.local import state
from imem.local.folders import PRIVATE_FILE, Folders, Secrets, translate_os_errors
from imem.local.process import Child, ProcessIdentity, start
from imem.local.servers import takeover
from imem.local.servers.neo4j import NewNeo4j
from imem.local.servers.server import StartRetry, free_port
from imem.local.startup import await_answer
from imem.services.stores import Stores

REDERIVED: Final = ("rederive_counters", "rederive_settled", "rederive_similar")
"""Statements that make derived values due again, which are in no event."""

_ATTEMPTS: Final = 3
_POLL_S: Final = 0.1
_ANSWER_MS: Final = 2000
_PATIENT_MS: Final = 60_000
_TAKE_OVER_S: Final = 120.0
"""Timeout of starting the new graph, in seconds."""


@dataclass(frozen=True, slots=True)
class RebuildResult:
    """
    Result of a rebuild.

    Attributes:
        rebuilt: both hashes, and the events that were refused.
        taken_over: whether the new graph is in use now.
    """

    rebuilt: RebuildReport
    taken_over: bool


async def in_place(stores: Stores, report: ReportProgress) -> RebuildResult:
    """
    Empty the graph in use and replay the journal into it.

    Raises:
        LeaseLost, StoreUnavailable: the replay is unfinished; the applier finishes it.
    """
    rebuilt = await rebuild_in_place(stores.database, stores.graph, report=report)
    await rederive(stores.database, REDERIVED)
    return RebuildResult(rebuilt, taken_over=True)


async def beside(stores: Stores, report: ReportProgress) -> RebuildResult:
    """
    Fill a second local Neo4j and, if its hash equals that of the one in use, exchange them.

    After a crash at any point either graph is in use; the next run continues.

    Raises:
        StackError: no local stack runs, its Neo4j is elsewhere, or the second one does not start.
        StoreUnavailable: the next run continues where this one stopped.
    """
    folders = Folders(stores.settings.home)
    with _rebuild_lock(folders):
        _live(folders)
        try:
            result = await _beside(stores, folders, report)
        except BadInput:
            # The second folder holds the graph of another journal. No server uses it, so it may be deleted.
            takeover.discard(folders, takeover.NEW)
            result = await _beside(stores, folders, report)
        if result.taken_over:
            takeover.discard(folders, takeover.OLD)
        return result


async def _beside(stores: Stores, folders: Folders, report: ReportProgress) -> RebuildResult:
    async with _second_neo4j(stores.settings, folders) as second:
        replacement = Replacement(stores.database, stores.graph, second.graph, report=report)
        refused = await replacement.fill()
        async with holding_applier_lease(stores.database) as lease:
            rebuilt = _with(await replacement.compare(lease), refused)
            if not rebuilt.same:
                return RebuildResult(rebuilt, taken_over=False)
            identity = await _identity(second.graph, _PATIENT_MS)
            await second.stop()
            await _take_over(stores, folders, lease, identity)
            await clear_rebuild_mark(stores.graph)
            await rederive(stores.database, REDERIVED)
            return RebuildResult(rebuilt, taken_over=True)


def _with(rebuilt: RebuildReport, refused: list[int]) -> RebuildReport:
    return replace(rebuilt, refused=tuple(sorted({*refused, *rebuilt.refused})))


async def _identity(graph: Graph, budget_ms: float) -> str:
    return str((await graph.read("graph_identity", deadline=Deadline.after_ms(budget_ms)))[0]["id"])


# The local stack


@contextmanager
def _rebuild_lock(folders: Folders) -> Iterator[None]:
    """Hold the lock under which a home's graph is rebuilt; a crash releases it."""
    with translate_os_errors(folders.home):
        handle = os.open(folders.home / "rebuild.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StackError("The graph of this stack is being made anew already.", mend="Wait for it.") from error
        yield
    finally:
        os.close(handle)


def _live(folders: Folders) -> ProcessIdentity:
    """Return the process of the Neo4j in use."""
    running = state.running(folders)
    if running is None:
        raise StackError(f"No stack runs on {folders.home}.", mend="Start it with `imem up`.")
    child = running.children.get("neo4j")
    if child is None:
        raise StackError("This stack's Neo4j is another server, named by its URL.", mend="Use --in-place.")
    if child.pid is None or child.start_time is None or child.state != "ready":
        raise StackError("The stack's Neo4j does not run now.", mend="`imem status` shows why; try again when it does.")
    return ProcessIdentity(child.pid, child.start_time, running.supervisor.boot)


@dataclass(slots=True)
class _SecondNeo4j:
    """
    The second Neo4j while it runs.

    Attributes:
        graph: the graph in it.
        child: its process.
    """

    graph: Graph
    child: Child

    async def stop(self) -> None:
        """Stop it cleanly; harmless when repeated."""
        await self.graph.close()
        await self.child.stop()


@asynccontextmanager
async def _second_neo4j(settings: Settings, folders: Folders) -> AsyncIterator[_SecondNeo4j]:
    """Start a second Neo4j on its own folder, with the newest schema, and stop it at the end."""
    server = NewNeo4j(folders, Secrets.of(folders), settings)
    child = await _started(server)
    found = server.endpoints()
    address = (found["neo4j_url"], found["neo4j_user"], found["neo4j_password"])
    second = _SecondNeo4j(Graph(*address), child)
    try:
        await asyncio.to_thread(imem.kg.migrations.migrate, *address)
        yield second
    finally:
        await second.stop()


async def _started(server: NewNeo4j) -> Child:
    for attempt in range(1, _ATTEMPTS + 1):
        server.port = free_port()
        await asyncio.to_thread(server.prepare, lambda _: None)
        begin = server.log.stat().st_size if server.log.exists() else 0
        child = await start(server.command(), server.log, server.folders.home)
        try:
            await await_answer(server, child, begin)
        except StartRetry as reason:
            await child.stop()
            if attempt == _ATTEMPTS:
                raise StackError("The second Neo4j does not start.", mend=f"{server.log} shows why.") from reason
        except BaseException:
            await child.stop()
            raise
        else:
            return child
    raise AssertionError


async def _take_over(stores: Stores, folders: Folders, lease: LeaderLease, identity: str) -> None:
    """
    Kill the Neo4j in use, have the supervisor start the new one in its place, and wait until it answers.

    Raises:
        LeaseLost: another applier writes to the old graph again, which stays in use.
        StackError: the stack did not start the new one in time; the old one stays in use.
    """
    live = _live(folders)
    await lease.take()
    takeover.ask(folders)
    # SIGKILL is safe: its data is about to be replaced by an identical graph.
    os.kill(live.pid, signal.SIGKILL)
    timeout = Deadline.after_ms(_TAKE_OVER_S * 1000)
    waiting = True
    while waiting:
        await asyncio.sleep(_POLL_S)
        if timeout.passed and takeover.withdraw(folders):
            raise StackError("The stack did not start the new graph in time; the old one stays.", mend="Try again.")
        await lease.take()
        waiting = takeover.ask(folders) or not await _answers_as(stores.graph, identity)


async def _answers_as(graph: Graph, identity: str) -> bool:
    try:
        return await _identity(graph, _ANSWER_MS) == identity
    except ImemError as error:
        if not error.retryable:
            raise
        return False
