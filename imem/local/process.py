"""
One child process: command, start, identity and end.

A process is identified by its id *and* its start time (in clock ticks since boot, with the id of that boot): ids are
reused, and a signal must not reach another process.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import psutil

from imem.journal.errors import StackError
from imem.local.folders import open_log

LOOPBACK = "127.0.0.1"
"""Where the servers listen."""

LAUNCHER = Path(__file__).with_name("launch.py")
MARK = "INSTITUTIONAL_MEMORY_STACK"
"""
Environment variable that every child carries: the home it belongs to. It finds orphans that no file names.

It lacks the prefix of settings, among which an unknown one is refused.
"""

PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""
Variables that servers inherit; nothing else of the caller's environment reaches them.

``LD_LIBRARY_PATH`` is among them for the launcher: some Pythons do not start without it.
"""


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """
    Unique identity of a process.

    Attributes:
        pid: its id.
        start_time: when it started, in clock ticks since boot.
        boot: the id of that boot.
    """

    pid: int
    start_time: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """Return the identity of the live process *pid*; None when there is none, or only its remains."""
        try:
            text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
            boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        except (FileNotFoundError, ProcessLookupError):
            return None
        fields = text.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else cls(pid, int(fields[19]), boot)

    @property
    def alive(self) -> bool:
        """Whether this very process still runs."""
        return ProcessIdentity.of(self.pid) == self


@dataclass(frozen=True, slots=True)
class RunAs:
    """The user and group that a child runs as."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Command:
    """
    How a child is started and stopped.

    Attributes:
        argv: the program, as an absolute path, and its arguments; never a secret.
        cwd: its folder.
        env: variables besides :data:`PASSED_ON`; never a secret.
        run_as: its user; None for the caller's.
        stop_signal: asks it to end.
        death_signal: what the kernel sends it when the supervisor is gone.
        timeout_s: seconds between *stop_signal* and SIGKILL.
    """

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    run_as: RunAs | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    death_signal: signal.Signals = signal.SIGKILL
    timeout_s: float = 10.0

    def wrapped(self) -> list[str]:
        """Return the argument list that starts it through the launcher, as a child of this process."""
        user = self.run_as or RunAs(-1, -1)
        numbers = (int(self.death_signal), os.getpid(), user.uid, user.gid)
        return [sys.executable, "-I", "-S", str(LAUNCHER), *map(str, numbers), *self.argv]

    def environment(self, home: Path) -> dict[str, str]:
        """Return its whole environment."""
        inherited = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        return {**inherited, **self.env, MARK: str(home)}


@dataclass(frozen=True, slots=True)
class Child:
    """
    A child that was started.

    Attributes:
        command: how.
        process: asyncio's handle; its ``wait`` tells of the end.
        identity: who it is, even after the handle is gone.
        started_s: when, in seconds of the monotonic clock.
        home: the home it belongs to.
    """

    command: Command
    process: asyncio.subprocess.Process
    identity: ProcessIdentity
    started_s: float
    home: Path

    async def stop(self) -> None:
        """Send the stop signal, wait *timeout_s*, then kill it and all that it started."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.send_signal(self.command.stop_signal)
            try:
                await asyncio.wait_for(self.process.wait(), self.command.timeout_s)
            except TimeoutError:
                with suppress(ProcessLookupError):
                    self.process.kill()
                await self.process.wait()
        await asyncio.to_thread(self.kill_rest)

    def listens(self, port: int) -> bool:
        """Return whether this process accepts connections on *port*; another process listening there does not count."""
        return listens(self.identity.pid, port)

    def kill_rest(self) -> None:
        """End what the child had started itself, once it is gone; what is not found now, the next start ends."""
        with suppress(OSError):
            for one in marked(self.home):
                with suppress(ProcessLookupError):
                    if os.getpgid(one.pid) == self.identity.pid:
                        os.kill(one.pid, signal.SIGKILL)


def listens(pid: int, port: int) -> bool:
    """Whether the process *pid* itself accepts connections on *port* of LOOPBACK."""
    if not _anybody_listens(port):
        return False
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        sockets = psutil.Process(pid).net_connections("tcp")
        return any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in sockets)
    return False


def _anybody_listens(port: int) -> bool:
    """Connect; finding out whose socket it is takes hundreds of times as long, as the kernel walks all it has."""
    with socket.socket() as caller:
        try:
            # A port that the kernel may hand out itself could else be connected to itself.
            caller.bind(("127.0.0.2", 0))
        except OSError:
            return True
        caller.settimeout(0.1)  # A server that is overloaded lets callers wait.
        return caller.connect_ex((LOOPBACK, port)) != errno.ECONNREFUSED


async def start(command: Command, log: Path, home: Path) -> Child:
    """
    Start *command* with its output appended to *log*.

    The calling thread must live as long as the child should: the kernel binds the death signal to it.
    """
    output = open_log(log)
    try:
        process = await asyncio.create_subprocess_exec(
            *command.wrapped(),
            cwd=command.cwd,
            env=command.environment(home),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            process_group=0,
        )
    finally:
        os.close(output)
    identity = ProcessIdentity.of(process.pid) or ProcessIdentity(process.pid, 0, "")
    return Child(command, process, identity, time.monotonic(), home)


def marked(home: Path) -> Iterator[ProcessIdentity]:
    """Yield every live process that carries the mark of *home*, except this one."""
    wanted = f"{MARK}={home}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                identity = ProcessIdentity.of(int(entry.name))
                if identity is not None:
                    yield identity


def clear(leftovers: list[ProcessIdentity], *, timeout_s: float = 3.0, kill_timeout_s: float = 30.0) -> None:
    """
    End the processes that a killed supervisor left behind.

    Most have received the kernel's death signal; those that live after *timeout_s* get SIGKILL, by which no server of
    the stack loses acknowledged writes.

    Raises:
        StackError: a process outlives SIGKILL for *kill_timeout_s*, as when its disk does not answer; names it.
    """
    end = time.monotonic() + timeout_s
    alive = [one for one in leftovers if one.alive]
    while alive and time.monotonic() < end:
        time.sleep(0.02)  # Polling: they are not children of this process, so it cannot wait for them.
        alive = [one for one in alive if one.alive]
    for one in alive:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(one.pid, signal.SIGKILL)
    end = time.monotonic() + kill_timeout_s
    while alive and time.monotonic() < end:
        time.sleep(0.005)  # As above.
        alive = [one for one in alive if one.alive]
    if alive:
        pids = ", ".join(str(one.pid) for one in alive)
        raise StackError(
            f"A process of an earlier stack does not end: process {pids}.",
            mend="It may wait for a disk; `ps` shows what it does. Start again once it is gone.",
        )
