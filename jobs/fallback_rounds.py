"""
Runs of pipelines while the broker is away.

Beat requests each run through the durable Valkey. While that or beat is away, pauses would not be driven, and alerts
would not be sent. So each worker process checks once a second when any of them last began a run of a pipeline that is
declared ``without_broker``, and begins an overdue one itself. The rows make a run that is done twice harmless.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing.sharedctypes import RawValue
from typing import Any, Final

import structlog

from imem.jobs.pipeline import Every, Pipeline
from imem.journal.settings import Settings

log = structlog.get_logger()

POLL_S: Final = 1.0
"""Interval between two checks, in seconds."""

MISSED: Final = 2.0
"""A run is overdue after so many times its cadence."""

STOP_WITHIN_S: Final = 5.0
"""How long a stopping process waits for a current run, in seconds; the next run makes up for it."""


class FallbackRound:
    """
    A pipeline, and when any process of this worker last began a run of it.

    Made before the worker forks: the moment is in memory that the processes share. It has no lock: two processes that
    find it overdue at the same instant do no harm, and a lock would outlive a process that was killed.

    Args:
        name: of the pipeline.
        every_s: its cadence, in seconds.
        work: does one run; blocks meanwhile.
    """

    def __init__(self, name: str, every_s: float, work: Callable[[], object]) -> None:
        self.name = name
        self.work = work
        self.overdue_after_s = MISSED * every_s
        # On the monotonic clock, which all processes of the machine share.
        self._begun = RawValue("d", time.monotonic())

    @property
    def overdue(self) -> bool:
        """Whether no run has begun for :data:`MISSED` times the cadence."""
        return time.monotonic() - float(self._begun.value) > self.overdue_after_s

    def note(self) -> None:
        """Record that a run begins now."""
        self._begun.value = time.monotonic()


def fallback_rounds(pipelines: Iterable[Pipeline[Any]], settings: Settings) -> tuple[FallbackRound, ...]:
    """Return the rounds of the pipelines declared ``without_broker``."""
    rounds = []
    for pipeline in pipelines:
        cadence = pipeline.cadence_of(settings)
        if pipeline.without_broker and isinstance(cadence, Every):
            rounds.append(FallbackRound(pipeline.name, cadence.seconds, pipeline.run))
    return tuple(rounds)


class FallbackWatch:
    """Begins overdue runs, in one thread for each round, since a run may take a minute."""

    def __init__(self, rounds: Sequence[FallbackRound]) -> None:
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._watch, args=(one,), name=f"imem-{one.name}", daemon=True) for one in rounds
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the threads; a current run has :data:`STOP_WITHIN_S` seconds to finish."""
        self._over.set()
        until = time.monotonic() + STOP_WITHIN_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _watch(self, one: FallbackRound) -> None:
        while not self._over.wait(POLL_S):
            if not one.overdue:
                continue
            one.note()
            log.info("round_without_broker", task=one.name)
            # In a thread of its own, so that an unexpected error ends this run alone.
            run = threading.Thread(target=one.work, name=f"imem-{one.name}-run", daemon=True)
            run.start()
            run.join()


def note_begun(rounds: Sequence[FallbackRound]) -> Callable[..., None]:
    """Return a receiver of Celery's ``task_prerun`` that records the runs that came through the broker."""
    by_name: Mapping[str, FallbackRound] = {one.name: one for one in rounds}

    def note(task: Any, **_: Any) -> None:
        one = by_name.get(task.name)
        if one is not None:
            one.note()

    return note
