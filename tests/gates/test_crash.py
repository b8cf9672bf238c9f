"""Whoever opens a package or applies its answer is killed around it: it is done once, with all that it records."""

from __future__ import annotations

import os
from collections import Counter
from itertools import count
from typing import Final

import pytest

from tests.credibility.running.killed import POINTS, killed_at
from tests.killed_programs import killed_program

from .conftest import DAY, Desk, bias

KILLS: Final = 25 if os.environ.get("IMEM_CHAOS") else 2
"""At each point."""

WORDS: Final = [
    f"{one}{other}" for one in ("ada", "bea", "cleo", "dora", "eva", "fay") for other in "bcdfghjklmnpqrstvwxyz"
]
"""Names of lessons, which are not alike."""


def added(before: Counter[str], after: Counter[str]) -> Counter[str]:
    """Return what was written between, but for the version of the clock."""
    found = Counter(after)
    found.subtract(before)
    return Counter({what: n for what, n in found.items() if n and not what.startswith("learning_clock")})


@pytest.mark.longer
@pytest.mark.spec("GT-1", "GT-2")
@pytest.mark.parametrize("operation", ["validate", "advance"])
async def test_killed_around_a_package(desk: Desk, operation: str) -> None:
    """
    Killed before the commit it has done nothing, and after it everything; the next round makes up for the first.

    In the end there is what an undisturbed round leaves, once: a package with its alert, or each answer's records.
    """
    await desk.started()
    numbers = count()

    async def run(point: str | None) -> Counter[str]:
        number = next(numbers)
        await desk.changed(f"a{number}", "flu", -0.06)
        await desk.changed(f"p{number}", "flu", 0.1)
        await desk.world.say(bias(f"b{number}"))
        await desk.lesson(WORDS[number])
        desk.shifted += 30 * DAY
        if operation == "advance":
            assert (await desk.validate())["items"] == 4
            answers = [
                {"item": f"credibility:p{number}/flu", "action": "override", "rationale": "Luck."},
                {"item": f"credibility:a{number}/flu", "action": "approve"},
                {"item": f"bias:b{number}", "action": "approve"},
                {"item": f"lesson:{WORDS[number]}", "action": "approve"},
            ]
            await desk.say(*answers)
        before = await desk.world.written()
        if point is not None:
            ahead_s = int(desk.shifted.total_seconds())
            await killed_at(desk.world, program, point, operation, before, ahead_s=ahead_s)
        if operation == "validate":
            await desk.validate()
        else:
            await desk.advance()
        found = added(before, await desk.world.written())
        if operation == "validate":
            # Nothing waits in the next round.
            task = await desk.package()
            await desk.answer(*({"item": str(n), "action": "approve"} for n in range(1, len(task.package.items) + 1)))
        return found

    async with killed_program("tests.credibility.running.killed", desk.world.pipeline_url) as program:
        undisturbed = await run(None)
        assert sum(undisturbed.values()) >= (3 if operation == "validate" else 5), undisturbed
        for point in POINTS:
            appends = operation == "advance" or point != "before_append"
            for _ in range(KILLS if appends else 0):
                assert await run(point) == undisturbed, point
