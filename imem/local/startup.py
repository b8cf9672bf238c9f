"""Progress of a starting process: it is waited for while it makes progress, on a busy machine for minutes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from imem.local.process import Child
from imem.local.servers.server import Server, tail_of

LONGEST_START_S: Final = 1800.0
"""After which a start has failed in any case, in seconds: a process in an endless loop looks busy for ever."""

BUSY_SHARE: Final = 0.03
"""
Share of one processor that a process must have used since its last progress for that to count as progress.

An idle Java takes about a hundredth; a starting one on a machine with thirty processes for each processor still gets
as much as this.
"""

POLL_S: Final = 0.05
"""Interval of asking a starting server, in seconds."""

LOOK_S: Final = 1.0
"""Interval of looking whether a start makes progress, in seconds; a look reads of every process of the machine."""

Process = tuple[int, float]
"""Its id, and when it started: ids are used again."""


@dataclass(slots=True)
class StartProgress:
    """
    Detects whether a child that does not answer yet still makes progress.

    Progress is a port that begins to listen, a log that grows, or processor time used. Without any for *timeout_s* the
    start counts as hung.

    Attributes:
        child: the process.
        log: where its output goes.
        timeout_s: seconds without evidence after which it has stalled.
        now: the monotonic clock, in seconds.
    """

    child: Child
    log: Path
    timeout_s: float
    now: Callable[[], float] = time.monotonic
    _begun_s: float = field(init=False)
    _since_s: float = field(init=False)
    _used: dict[Process, float] = field(default_factory=dict)
    _cpu_s: float = 0.0
    _logged: int = 0
    _listened: bool = False

    def __post_init__(self) -> None:
        """Begin to count."""
        self._begun_s = self._since_s = self.now()
        self._cpu_s, self._logged = self._spent_s(), _size(self.log)

    def stalled(self, *, listens: bool) -> bool:
        """Look once; *listens*: whether the child accepts connections by now."""
        now = self.now()
        cpu_s, logged = self._spent_s(), _size(self.log)
        waited_s = now - self._since_s
        busy = cpu_s - self._cpu_s >= BUSY_SHARE * self.timeout_s
        if busy or logged != self._logged or listens != self._listened:
            self._since_s, self._cpu_s, self._logged, self._listened = now, cpu_s, logged, listens
            return now - self._begun_s > LONGEST_START_S
        return waited_s > self.timeout_s or now - self._begun_s > LONGEST_START_S

    def _spent_s(self) -> float:
        """Return the processor time that it and all it started have used, by each look; what one has used stays."""
        for process, used in cpu_s(self.child.identity.pid).items():
            self._used[process] = max(used, self._used.get(process, 0.0))
        return sum(self._used.values())

    @property
    def lasted_s(self) -> float:
        """How long the start has taken until now, in seconds."""
        return self.now() - self._begun_s


async def await_answer(server: Server, child: Child, begin: int) -> None:
    """
    Wait for the first answer of *server*, which *child* is; its log was *begin* bytes long before.

    Raises:
        StackError: it ended, will never answer, or makes no progress any more and was stopped.
        StartRetry: another attempt is worth while.
    """
    progress = StartProgress(child, server.log, server.timeout_s)
    look_at_s = 0.0
    while True:
        listens = await asyncio.to_thread(child.listens, server.port)
        if listens and await asyncio.to_thread(server.ready):
            return
        if child.process.returncode is not None:
            raise server.explain(tail_of(server.log, begin))
        if progress.lasted_s >= look_at_s:
            look_at_s = progress.lasted_s + LOOK_S
            if await asyncio.to_thread(lambda seen: progress.stalled(listens=seen), listens):
                await child.stop()
                raise server.no_answer(progress.lasted_s, tail_of(server.log, begin))
        await asyncio.sleep(POLL_S)


def cpu_s(pid: int) -> dict[Process, float]:
    """Return the processor time that a process and those below it have used until now, in seconds each."""
    found: dict[Process, float] = {}
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with suppress(psutil.Error):
                times = one.cpu_times()
                found[one.pid, one.create_time()] = times.user + times.system
    return found


def _size(log: Path) -> int:
    try:
        return log.stat().st_size
    except OSError:
        return 0
