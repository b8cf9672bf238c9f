"""
The supervisor: starts everything at once, keeps it running, stops it in order.

One event loop in one thread owns all children. That thread forks every one of them, because the kernel ties their
death signal to it (:mod:`imem.local.launch`); whatever blocks runs in other threads.

A crash of the supervisor leaves children that get a death signal from the kernel, a state file that names them, and a
released lock. The next start ends the remaining children and starts all servers over the same data.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from imem.journal.endpoints.urls import without_secrets
from imem.journal.errors import ImemError, StackError
from imem.journal.settings import Settings
from imem.local import state as states
from imem.local.folders import Folders, Secrets, translate_os_errors, trim_log
from imem.local.process import Child, Command, ProcessIdentity, clear, marked, start
from imem.local.servers import takeover
from imem.local.servers.neo4j import Neo4j
from imem.local.servers.postgres import Postgres
from imem.local.servers.server import Server, StartCancelled, StartRetry, free_port, is_free
from imem.local.servers.valkey import ROLES, Valkey
from imem.local.startup import StartProgress, await_answer
from imem.local.state import ChildState, StackState
from imem.local.workers import Worker, standard
from imem.metrics import clear_metrics

ALL = frozenset({"postgres", "neo4j", "valkey"})
ATTEMPTS = 5
FIRST_DELAY_S = 0.25
LOCK_TIMEOUT_S = 0.5
"""Timeout of taking the lock, in seconds: a process that only tests it holds it for less than a millisecond."""
LONGEST_DELAY_S = 30.0
HOUSEKEEPING_S = 60.0
WORKERS_TIMEOUT_S = 60.0
"""How long a start waits for a worker without progress, in seconds; workers warm query plans before they are ready."""
WORKERS_POLL_S = 0.5
READY_POLL_S = 0.1
"""Interval of looking for the file of a worker that is not ready yet, in seconds."""
STEADY_S = 60.0
"""A child that ran this long and then dies starts again without waiting."""

START_ERRORS = (StackError, OSError, RuntimeError)
"""Errors after which a start is retried: a full disk, or no process, thread (RuntimeError) or descriptor available."""

log = logging.getLogger(__name__)
Report = Callable[[StackState], None]
"""Called with every change of the state, in the supervisor's thread."""


def servers_of(settings: Settings, families: Collection[str], folders: Folders, secrets: Secrets) -> list[Server]:
    """Return the servers of *families* that the settings do not name by URL."""
    found: list[Server] = []
    if "postgres" in families and settings.postgres_url is None:
        found.append(Postgres(folders, secrets))
    if "neo4j" in families and settings.neo4j_url is None:
        found.append(Neo4j(folders, secrets, settings))
    if "valkey" in families:
        found += [
            Valkey(folders, secrets, role) for role in ROLES if getattr(settings, f"valkey_{role.name}_url") is None
        ]
    return found


def lock(folders: Folders) -> int:
    """
    Take the lock of a home and return its descriptor; a crash releases it.

    Raises:
        StackError: another process holds it.
    """
    give_up_s = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        with translate_os_errors(folders.lock):
            held = os.open(folders.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(held)
            if time.monotonic() < give_up_s:
                time.sleep(0.01)  # Polling: flock has no timeout, and who only tests the lock holds it for a moment.
                continue
            raise StackError(
                f"A stack already runs on {folders.home}.",
                mend="`imem status` shows it; another IMEM_HOME gives another stack.",
            ) from error
        if _is_at(held, folders.lock):
            return held
        os.close(held)  # A purge deleted the file between the two calls, so the lock would have no effect.


def _is_at(handle: int, path: Path) -> bool:
    """Whether *path* names the very file that *handle* has open."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


class Supervisor:
    """
    Supervises one stack; :meth:`run` is called once, in the thread that owns the children.

    Attributes:
        state: what the state file says; replaced, never changed.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        families: Collection[str] = ALL,
        workers: Sequence[Worker] = (),
        migrate: Callable[[Settings], Any] | None = None,
        report: Report | None = None,
    ) -> None:
        self.settings = settings
        self.folders = Folders(settings.home)
        self._families = families
        self._workers = workers
        self._migrate = migrate
        self._report = report
        self._children: dict[str, Child] = {}
        self._previous: dict[str, int] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = -1
        self._over = False
        self._at_work = {worker.name for worker in workers}
        self._working = asyncio.Event()
        self.state = StackState(ProcessIdentity(os.getpid(), 0, ""))

    async def run(self, stop: asyncio.Event) -> None:
        """
        Start everything, keep it running until *stop* is set, then stop everything.

        Raises:
            StackError: the start failed; everything that had begun is stopped again.
        """
        self._loop = asyncio.get_running_loop()
        self.folders.prepare()
        self._lock = lock(self.folders)
        try:
            clear_metrics(self.folders.home)
            await self._serve(stop)
        finally:
            await self._stop_all()
            with suppress(FileNotFoundError):
                self.folders.state.unlink()
            os.close(self._lock)

    async def _serve(self, stop: asyncio.Event) -> None:
        servers = await self._prepare()
        keepers: list[asyncio.Task[None]] = []
        starting = asyncio.ensure_future(self._begin(servers))
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                return
            await starting
            keepers = [asyncio.ensure_future(self._keep_server(server)) for server in servers]
            keepers += [asyncio.ensure_future(self._keep_worker(worker)) for worker in self._workers]
            keepers.append(asyncio.ensure_future(self._keep_house()))
            keepers.append(asyncio.ensure_future(self._announce()))
            await asyncio.wait([stopping, *keepers], return_when=asyncio.FIRST_COMPLETED)
            for keeper in keepers:
                if keeper.done():
                    keeper.result()
        finally:
            self._over = True
            tasks: list[asyncio.Future[Any]] = [starting, stopping, *keepers]
            await _cancel(*tasks)

    async def _prepare(self) -> list[Server]:
        """Clean up after a crash, and return the servers to start."""
        old = await asyncio.to_thread(self._clear_leftovers)
        secrets = Secrets.of(self.folders)
        servers = servers_of(self.settings, self._families, self.folders, secrets)
        self._previous = {name: child.port for name, child in old.children.items() if child.port} if old else {}
        identity = ProcessIdentity.of(os.getpid())
        if identity is None:
            raise StackError(
                "This system has no /proc.", mend="The local stack needs Linux; elsewhere, set the servers' URLs."
            )
        self.state = StackState(identity, endpoints=self._given())
        for server in servers:
            self._set(server.name, log=str(server.log))
        for url in states.SERVERS:
            if url in self.state.endpoints:
                name = url.removesuffix("_url").replace("_", "-")
                self._set(name, state="elsewhere", note=without_secrets(self.state.endpoints[url]))
        return servers

    async def _begin(self, servers: Sequence[Server]) -> None:
        """Start the servers in parallel, then migrate their schemas; a failure cancels the others."""
        starting = [asyncio.ensure_future(self._bring_up(server)) for server in servers]
        try:
            await asyncio.gather(*starting)
        finally:
            await _cancel(*starting)
        if self._migrate is not None:
            await asyncio.to_thread(self._migrate, states.fill(self.settings, self.state.endpoints))

    def _given(self) -> dict[str, str]:
        """Return the endpoints that the settings name, so that readers of the state file reach the same servers."""
        found = {}
        for url, others in {**states.SERVERS, **states.CARRIED}.items():
            for name in (url, *others) if getattr(self.settings, url) is not None else ():
                value = getattr(self.settings, name)
                if value is not None:
                    found[name] = value if isinstance(value, str) else value.get_secret_value()
        return found

    def _clear_leftovers(self) -> StackState | None:
        """End what a killed supervisor left behind; return its state, for the ports."""
        old = None
        with suppress(StackError):  # A damaged file names no processes; the mark in their environment finds them.
            old = states.read(self.folders)
        named = old.identities() if old is not None else []
        clear([*named, *(one for one in marked(self.folders.home) if one not in named)])
        return old

    # The start of one server

    async def _bring_up(self, server: Server) -> None:
        """
        Start *server* and wait for its first answer.

        Raises:
            StackError: it cannot be started.
        """
        try:
            await self._try_to_bring_up(server)
        except OSError as error:
            raise StackError(
                f"{server.name} cannot be started: {error.strerror or type(error).__name__}.",
                mend="Does this machine have memory, processes (`ulimit -u`) and open files (`ulimit -n`) to spare?",
            ) from error

    async def _try_to_bring_up(self, server: Server) -> None:
        wanted = self._previous.get(server.name, 0)
        server.port = wanted if wanted and is_free(wanted) else free_port()
        for attempt in range(1, ATTEMPTS + 1):
            self._set(server.name, state="preparing", note="")
            await asyncio.to_thread(server.prepare, lambda text: self._note(server.name, text))
            try:
                await self._start_once(server)
                await asyncio.to_thread(server.settle)
            except StartRetry as reason:
                if attempt == ATTEMPTS:
                    raise StackError(
                        f"{server.name} does not start.", mend=f"`imem logs {server.name}` shows why."
                    ) from reason
                if reason.other_port:
                    server.port = free_port()
                await asyncio.sleep(FIRST_DELAY_S * attempt)
            else:
                self.state = replace(self.state, endpoints={**self.state.endpoints, **server.endpoints()})
                self._set(server.name, state="ready", note="")
                return

    async def _start_once(self, server: Server) -> None:
        self._set(server.name, state="starting", note="", port=server.port)
        begin = server.log.stat().st_size if server.log.exists() else 0
        child = await self._spawn(server.name, server.command())
        await await_answer(server, child, begin)

    async def _spawn(self, name: str, command: Command) -> Child:
        starting = asyncio.ensure_future(start(command, self.folders.log(name), self.folders.home))
        try:
            child = await asyncio.shield(starting)
        except asyncio.CancelledError:  # Cancelled during the fork: wait for the child, so that it is not lost.
            with suppress(OSError, StackError):
                self._children[name] = await asyncio.shield(starting)
            raise
        self._children[name] = child
        self._set(name, pid=child.identity.pid, start_time=child.identity.start_time)
        return child

    # Keeping children running

    async def _keep_server(self, server: Server) -> None:
        delays = _RestartBackoff()
        while True:
            ran_s = await self._wait_ended(server.name)
            while True:
                await asyncio.sleep(delays.next(ran_s))
                ran_s = 0.0
                try:
                    await asyncio.to_thread(server.prepare, lambda text: self._note(server.name, text))
                    await self._start_once(server)
                except StartRetry as reason:
                    if reason.other_port:
                        self._set(server.name, note=f"waiting for port {server.port}, which another program holds")
                except START_ERRORS as error:
                    self._handle_start_error(server.name, error)
                    # It may have started all the same; two processes on one folder would damage it.
                    await self._children[server.name].stop()
                else:
                    self._set(server.name, state="ready", note="")
                    break

    async def _keep_worker(self, worker: Worker) -> None:
        delays = _RestartBackoff()
        while True:
            self._set(worker.name, state="starting", log=str(self.folders.log(worker.name)))
            ran_s = 0.0
            try:
                ready = self.folders.run / f"{worker.name}.ready"
                ready.unlink(missing_ok=True)  # What an earlier process left.
                await self._spawn(worker.name, worker.command(self.settings, ready))
                notified = asyncio.ensure_future(self._await_ready(worker, ready))
                try:
                    ran_s = await self._wait_ended(worker.name)
                finally:
                    await _cancel(notified)
            except START_ERRORS as error:
                self._handle_start_error(worker.name, error)
            await asyncio.sleep(delays.next(ran_s))

    def _handle_start_error(self, name: str, error: Exception) -> None:
        """Log the error and mark the child as restarting; the others are not affected."""
        why = str(error) if isinstance(error, StackError) else getattr(error, "strerror", None) or type(error).__name__
        log.warning("%s cannot be started: %s", name, why)
        self._set(name, state="restarting", note=why, pid=None, start_time=None)

    async def _await_ready(self, worker: Worker, ready: Path) -> None:
        """Mark a worker ready once its file is there."""
        while worker.notifies_ready and not ready.exists():  # noqa: ASYNC110, ASYNC240 - another process makes it; a look takes microseconds
            await asyncio.sleep(READY_POLL_S)
        self._set(worker.name, state="ready", note="")
        self._at_work.discard(worker.name)
        if not self._at_work:
            self._working.set()

    async def _announce(self) -> None:
        """Set the state to ready once every worker is ready, or makes no progress any more."""
        begun_s = time.monotonic()
        first: dict[str, StartProgress] = {}
        while self._at_work and not await self._all_stalled(first, begun_s):
            with suppress(TimeoutError):
                async with asyncio.timeout(WORKERS_POLL_S):
                    await self._working.wait()
        self.state = replace(self.state, ready=True)
        self._update_state()
        await asyncio.Event().wait()

    async def _all_stalled(self, first: dict[str, StartProgress], begun_s: float) -> bool:
        """
        Return whether no awaited worker makes progress any more.

        Args:
            first: the progress of each worker's first process, filled here; a restarted worker counts as stalled after
                WORKERS_TIMEOUT_S.
            begun_s: when the wait began.
        """
        too_long = time.monotonic() - begun_s > WORKERS_TIMEOUT_S
        for name in self._at_work:
            child = self._children.get(name)
            if child is not None and name not in first:
                first[name] = StartProgress(child, self.folders.log(name), WORKERS_TIMEOUT_S)
            progress = first.get(name)
            if progress is None or progress.child is not child:
                stalled = too_long
            else:
                stalled = await asyncio.to_thread(progress.stalled, listens=False)
            if not stalled:
                return False
        return True

    async def _keep_house(self) -> None:
        """Trim the logs every HOUSEKEEPING_S."""
        while True:
            await asyncio.sleep(HOUSEKEEPING_S)
            for name in (*self._children, "supervisor"):
                with suppress(StackError):  # A full disk is the doctor's to report.
                    await asyncio.to_thread(trim_log, self.folders.log(name))

    async def _wait_ended(self, name: str) -> float:
        """Wait until the child *name* has ended, end its own children, and return how many seconds it ran."""
        child = self._children[name]
        code = await child.process.wait()
        await asyncio.to_thread(child.kill_rest)
        restarts = self.state.children[name].restarts
        if name == Neo4j.name and await asyncio.to_thread(takeover.asked, self.folders):
            # The rebuild killed it on purpose.
            reason = "a graph made anew takes over"
            log.info("%s ended: %s.", name, reason)
        else:
            reason, restarts = f"ended with signal {-code}" if code < 0 else f"ended with code {code}", restarts + 1
            log.warning("%s %s.", name, reason)
        self._set(name, state="restarting", note=reason, pid=None, start_time=None, restarts=restarts)
        return time.monotonic() - child.started_s

    # Stopping

    async def _stop_all(self) -> None:
        """Stop workers first, then the servers together."""
        names = {worker.name for worker in self._workers}
        for group in (names, set(self._children) - names):
            await asyncio.gather(*(self._stop_one(name) for name in group if name in self._children))

    async def _stop_one(self, name: str) -> None:
        self._set(name, state="stopping", note="")
        await self._children[name].stop()
        self._set(name, state="stopped", pid=None, start_time=None)

    # State

    def _note(self, name: str, text: str) -> None:
        """Set a child's note, from any thread; raise StartCancelled there if the start was cancelled."""
        if self._over:
            raise StartCancelled("The start was called off.")
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(lambda: self._set(name, note=text))

    def _set(self, name: str, **changes: Any) -> None:
        before = self.state.children.get(name, ChildState())
        self.state = self.state.with_child(name, **changes)
        after = self.state.children[name]
        self._update_state(write=replace(before, note="") != replace(after, note=""))

    def _update_state(self, *, write: bool = True) -> None:
        if write:
            try:
                states.write(self.folders, self.state)
            except StackError as error:  # A full disk must not stop servers that run.
                log.warning("%s", error)
        if self._report is not None:
            self._report(self.state)


async def _cancel(*tasks: asyncio.Future[Any]) -> None:
    """Cancel *tasks* and wait until they have ended, however they do."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class _RestartBackoff:
    """Delay before a child is restarted: doubled each time, reset after a run of STEADY_S."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def next(self, ran_s: float) -> float:
        """Return the seconds to wait after a run of *ran_s* seconds."""
        delay = 0.0 if ran_s >= STEADY_S else self._next_s
        self._next_s = min(max(delay * 2, FIRST_DELAY_S), LONGEST_DELAY_S)
        return delay


class LocalStack:
    """
    A stack for the duration of a ``with`` block, owned by a thread of this process.

    >>> with LocalStack(settings, servers={"postgres"}, workers=False) as stack:  # doctest: +SKIP
    ...     connect(stack.settings.postgres_url)

    Several may run at once in different homes. They end with this process, however it ends.

    Attributes:
        settings: those given, with the addresses of what was started.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        servers: Collection[str] = ALL,
        workers: bool | Sequence[Worker] = True,
        migrate: Callable[[Settings], Any] | None = None,
        report: Report | None = None,
    ) -> None:
        chosen = workers if not isinstance(workers, bool) else standard(settings) if workers else ()
        self._supervisor = Supervisor(settings, families=servers, workers=chosen, migrate=migrate, report=self._changed)
        self._report = report
        self._thread = threading.Thread(target=self._main, name="local-stack", daemon=True)
        self._begun = threading.Event()
        self._asked = threading.Event()
        self._error: BaseException | None = None
        self._stop: Callable[[], object] = lambda: None
        self.settings = settings

    @property
    def state(self) -> StackState:
        """The servers that run now."""
        return self._supervisor.state

    def start(self) -> Self:
        """
        Start and wait until everything answers.

        Raises:
            ImemError: it does not start; nothing of it is left running.
        """
        self._thread.start()
        try:
            self._begun.wait()
        except BaseException:  # Ctrl-C while waiting: stop what has started.
            self.stop()
            raise
        if self._error is not None:
            self._thread.join()
            raise self._error
        self.settings = states.fill(self.settings, self.state.endpoints)
        return self

    def stop(self) -> None:
        """Stop everything and wait for it."""
        self._asked.set()
        self._stop()
        self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _changed(self, state: StackState) -> None:
        if self._report is not None:
            self._report(state)
        if state.ready:
            self._begun.set()

    def _main(self) -> None:
        async def life() -> None:
            loop, stop = asyncio.get_running_loop(), asyncio.Event()

            def ask() -> None:
                with suppress(RuntimeError):  # The loop is closed: it is over already.
                    loop.call_soon_threadsafe(stop.set)

            self._stop = ask
            if self._asked.is_set():  # stop() was called before the loop ran.
                stop.set()
            await self._supervisor.run(stop)

        try:
            asyncio.run(life())
        except (ImemError, OSError) as error:
            self._error = error
        finally:
            if not self._begun.is_set() and self._error is None:
                self._error = StackError("The start was given up.")
            self._begun.set()
