"""A process that has more to do than it can: answers come as soon as they can, say that they are late, and why."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from imem.journal.deadline import Deadline
from imem.journal.modes import Mode
from imem.memory import Memory
from imem.recall.model import Briefing
from imem.recall.timing.assembly import AssemblyTime
from imem.services.recall import recall_over
from tests.recall.conftest import RecallHarness
from tests.recall.test_kept import _season

BUDGET_MS = 500
HOGS = 2
"""Threads beside the event loop's, which has a third of a processor then."""

ASKERS = 4
EACH = 12


@contextmanager
def busy(threads: int) -> Iterator[None]:
    """
    Starve this process's event loop by so many threads that never rest.

    Not the machine: of that Postgres itself may answer nobody for two seconds, which is evidence.
    """
    over = threading.Event()

    def spin() -> None:
        while not over.is_set():
            pass

    hogs = [threading.Thread(target=spin) for _ in range(threads)]
    try:
        for hog in hogs:
            hog.start()
        yield
    finally:
        over.set()
        for hog in hogs:
            hog.join()


async def test_a_starved_process_is_no_evidence_that_postgres_is_away(telling: RecallHarness) -> None:
    """Every store is well: none of the answers says that nothing can be recorded; which are late, says so."""
    await _season(telling)
    settings = telling.settings.model_copy(update={"deadline_ms": BUDGET_MS})
    answers: list[tuple[float, Briefing]] = []
    async with Memory.open(settings) as memory:
        memory._recall = recall_over(memory._stores, use_cache=False)
        await memory.brief("T0", deadline_ms=30_000)

        async def ask() -> None:
            for _ in range(EACH):
                begun_s = time.monotonic()
                briefing = await memory.brief("T0")
                answers.append(((time.monotonic() - begun_s) * 1000, briefing))

        with busy(HOGS):
            await asyncio.gather(*(ask() for _ in range(ASKERS)))
    assert Mode.READ_ONLY not in {briefing.mode for _, briefing in answers}
    for took_ms, briefing in answers:
        # Measured around the call, which takes a little more than it says of itself.
        assert (briefing.late_ms or 0.0) <= max(0.0, took_ms - BUDGET_MS) + 1.0
        assert briefing.late_ms is not None or briefing.took_ms < BUDGET_MS + 1.0
        assert (briefing.late_ms is not None) == ("after its deadline" in briefing.to_markdown())
    took = sorted(ms for ms, _ in answers)
    assert took[len(took) // 2] < BUDGET_MS * 2, "what a busy machine is late by is learnt, and kept back"


async def test_what_is_late_is_left_behind_not_waited_for() -> None:
    """The end of work that is told to stop takes as long as it takes; what it had begun is ended all the same."""
    ended = asyncio.Event()

    async def stubborn() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.2)
            ended.set()

    begun_s = time.monotonic()
    with pytest.raises(TimeoutError):
        await AssemblyTime().in_time(stubborn(), Deadline.after_ms(10))
    assert not ended.is_set()
    assert time.monotonic() - begun_s < 10
    await ended.wait()


def test_what_a_slow_assembly_takes_is_kept_back_for_a_while() -> None:
    assembly = AssemblyTime()
    assert assembly.reserve_ms(500) == 40.0
    assert assembly.reserve_ms(100) == 8.0
    assembly.note(time.monotonic() - 0.2)
    assert 200.0 <= assembly.reserve_ms(500) <= 250.0
    assert assembly.reserve_ms(100) == 50.0
    for _ in range(10):
        assembly.note(time.monotonic())
    assert assembly.reserve_ms(500) == 40.0
