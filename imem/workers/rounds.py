"""
Rounds that come without the broker.

Beat asks for a manager's round every few seconds, for a pass over the alerts, and for what keeps memories of agents
together; all of it travels through the durable Valkey. While that is away, or beat is, nobody would drive a pause, push
what was published, or synchronise for a gate, and no alert would leave. So each process of the worker looks once a
second when any of them last began such a round, and begins it where none did for a while: the same round, which rows
guard against being done twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.sharedctypes import RawValue
from typing import Any, Final

import structlog

log = structlog.get_logger()

LOOK_S: Final = 1.0
"""Between two looks, in seconds."""

MISSED: Final = 2.0
"""So many times as long as beat takes between two rounds, and none is coming by the broker."""

LAST_S: Final = 5.0
"""How long the end of a process waits for a round under way, in seconds; the next round makes up for it."""


class Regular:
    """
    Work that is asked for regularly, and when any process of this worker last began it.

    Made before the worker forks: its moment is in memory that they share. Nothing locks it, since two processes that
    find it overdue at the same instant do no harm, and one that died holding a lock would.

    Args:
        name: of the Celery task.
        every_s: how often beat asks for it, in seconds.
        work: does it once; blocks meanwhile.
    """

    def __init__(self, name: str, every_s: float, work: Callable[[], object]) -> None:
        self.name = name
        self.work = work
        self._patience_s = MISSED * every_s
        # The moment on the monotonic clock, which is the machine's and not the process's.
        self._begun = RawValue("d", time.monotonic())

    @property
    def overdue(self) -> bool:
        """Whether it has not begun for so long that nobody can have asked for it."""
        return time.monotonic() - float(self._begun.value) > self._patience_s

    def note(self) -> None:
        """Say that it begins now."""
        self._begun.value = time.monotonic()


class Watch:
    """Begins what is overdue, in threads of this process: one for each, since a round may take a minute."""

    def __init__(self, regular: Sequence[Regular]) -> None:
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._look, args=(one,), name=f"imem-{one.name}", daemon=True) for one in regular
        ]

    def start(self) -> None:
        """Begin to look."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Look no more; a round under way has a moment to end."""
        self._over.set()
        until = time.monotonic() + LAST_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _look(self, one: Regular) -> None:
        while not self._over.wait(LOOK_S):
            if not one.overdue:
                continue
            one.note()
            log.info("round_without_broker", task=one.name)
            # What nobody thought of ends this round alone, and Python writes it to the log.
            once = threading.Thread(target=one.work, name=f"imem-{one.name}-once", daemon=True)
            once.start()
            once.join()


def noting(regular: Sequence[Regular]) -> Callable[..., None]:
    """Return a receiver of Celery's ``task_prerun`` that notes the rounds that came by the broker."""
    known: Mapping[str, Regular] = {one.name: one for one in regular}

    def note(task: Any, **_: Any) -> None:
        one = known.get(task.name)
        if one is not None:
            one.note()

    return note
