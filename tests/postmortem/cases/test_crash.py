"""Whoever opens, admits and ends cases is killed around each transition: each happens once, with all it records."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Final

import pytest

from imem.postmortem.cases.queue import IN_REVIEW
from imem.review.states import TaskState
from tests.credibility.running.killed import POINTS, killed_at
from tests.killed_programs import killed_program

from .conftest import HOUR, MONTH, Clinic, decided, happened

KILLS: Final = 25 if os.environ.get("IMEM_CHAOS") else 1
"""At each point of each transition."""

LATE: Final = 49 * HOUR

Prepare = Callable[[Clinic, int], Awaitable[None]]


async def measured(clinic: Clinic, number: int) -> None:
    """Have a decision that is off, which the pipeline of cases has not seen."""
    key, subject = f"d{number}", f"company:C{number}"
    await clinic.world.say(decided(key, MONTH, subject=subject), happened(-0.40, key, subject=subject))
    await clinic.track()


async def reviewed(clinic: Clinic, number: int) -> None:
    await measured(clinic, number)
    await clinic.advance()


async def waiting(clinic: Clinic, number: int) -> None:
    """Have one case wait, and a place that has become free."""
    for other in range(IN_REVIEW):
        if number == 0:
            await measured(clinic, 1_000 + other)
    await clinic.advance()
    await reviewed(clinic, number)
    await clinic.answer((await clinic.tasks(TaskState.OPEN))[0].task_id)
    await clinic.move()


async def answered(clinic: Clinic, number: int) -> None:
    await reviewed(clinic, number)
    [task] = await clinic.tasks(TaskState.OPEN)
    await clinic.answer(task.task_id)


def too_late(action: str) -> Prepare:
    """Have a case whose time is over, and then an answer."""

    async def prepare(clinic: Clinic, number: int) -> None:
        await reviewed(clinic, number)
        async with clinic.later((number + 1) * LATE):
            await clinic.move()
            [task] = await clinic.tasks(TaskState.DEFAULTED)
            await clinic.answer(task.task_id, action, why="Nobody was there.")

    return prepare


@dataclass(frozen=True)
class Move:
    """
    What a round of the pipelines does to a case.

    Attributes:
        operation: which pipeline does it.
        prepare: makes a case of a number that the round moves.
        states: those that the case has entered in the end.
        ahead: how far ahead the clock of the round is.
    """

    operation: str
    prepare: Prepare
    states: tuple[str, ...]
    ahead: timedelta = timedelta()


MOVES: Final = {
    "opened": Move("open", measured, ("in_review",)),
    "admitted": Move("admit", waiting, ("in_review",)),
    "answered": Move("advance", answered, ("in_review", "completed")),
    "not answered": Move("advance", reviewed, ("in_review", "timeout"), LATE),
    "answered late": Move("advance", too_late("review"), ("in_review", "timeout", "completed"), LATE),
    "reopened": Move("advance", too_late("reopen"), ("in_review", "timeout", "queued", "in_review"), LATE),
}


ENDED: Final = ("opened", "reopened")
"""Transitions after which the case is answered, so that its place is free."""


@pytest.mark.longer
@pytest.mark.spec("PM-6", "PM-14")
@pytest.mark.parametrize("name", MOVES)
async def test_killed_around_a_transition(clinic: Clinic, name: str) -> None:
    """Killed before the commit it has moved nothing, and after it everything; the next round makes up for the first."""
    move, numbers = MOVES[name], count()

    async def run(point: str | None) -> Counter[str]:
        """Return what one case adds; the clock is where the round before left it."""
        number = next(numbers)
        begins, ends = number * move.ahead, (number + 1) * move.ahead
        if name == "admitted" and number == 0:
            await waiting(clinic, 0)
            await clinic.advance()
            number = next(numbers)
        async with clinic.later(begins):
            empty = await clinic.world.written()
            await move.prepare(clinic, number)
            before = await clinic.world.written()
        if point is not None:
            ahead_s = int(ends.total_seconds())
            await killed_at(clinic.world, program, point, move.operation, before, ahead_s=ahead_s)
        async with clinic.later(ends):
            await clinic.advance()
        if name in ENDED:
            async with clinic.later(ends):
                [task] = await clinic.tasks(TaskState.OPEN)
                await clinic.answer(task.task_id)
                await clinic.advance()
        states = await clinic.audit(f"d{number}/1")
        assert states == [*move.states, *(("completed",) if name in ENDED else ())]
        last = await clinic.world.written()
        last.subtract(empty)
        return Counter({what: n for what, n in last.items() if n})

    async with killed_program("tests.credibility.running.killed", clinic.world.pipeline_url) as program:
        undisturbed = await run(None)
        for point in POINTS:
            for _ in range(KILLS):
                assert await run(point) == undisturbed, point
