"""A lesson after which decisions became worse comes back to Gate 6, where a person retires or keeps it."""

from __future__ import annotations

import pytest

from imem.journal.errors import BadInput
from imem.postmortem.lessons.measuring import measure_lessons
from tests.postmortem.lessons.parts import applied, measured, record, runtime_of, states

from .conftest import DAY, ENOUGH, Desk

HARM = {("MU", False): 10, ("MU", True): 0, ("XOM", False): 5, ("XOM", True): 5}
NONE = {("MU", False): 5, ("MU", True): 5, ("XOM", False): 5, ("XOM", True): 5}
MONTH = 31 * DAY


async def test_a_harmful_lesson_is_retired_by_a_person(desk: Desk) -> None:
    await applied(desk.world, "l")
    await record(desk.world, *measured(HARM), writer="postmortem")
    assert await measure_lessons(runtime_of(desk.world), until=ENOUGH) == {"measured": 1}
    await desk.started()
    await desk.later(MONTH)
    [item] = (await desk.package()).package.items
    assert (item.kind, item.key, item.bulk) == ("retirement", "l", None)
    assert item.seen["high"] < 0 < item.seen["decisions"] == 40
    await desk.answer({"item": 1, "action": "approve", "rationale": "It misleads."})
    assert await states(desk.world) == {"l": "retired"}
    stated = await desk.group("Lesson", "l", "state")
    assert stated is not None
    assert (stated["state"], stated["applied"]) == ("retired", False)
    assert await desk.later(MONTH) == {"items": 0, "left": 0}


async def test_one_that_is_kept_comes_back_after_90_days(desk: Desk) -> None:
    await applied(desk.world, "l")
    await record(desk.world, *measured(HARM), writer="postmortem")
    assert await measure_lessons(runtime_of(desk.world), until=ENOUGH) == {"measured": 1}
    await desk.started()
    await desk.later(MONTH)
    with pytest.raises(BadInput, match="rationale"):
        await desk.say({"item": 1, "action": "keep"})
    await desk.answer({"item": 1, "action": "keep", "rationale": "Ten decisions are few."})
    assert await states(desk.world) == {"l": "applied"}
    assert await desk.later(MONTH) == {"items": 0, "left": 0}
    await desk.later(2 * MONTH)
    [item] = (await desk.package()).package.items
    assert item.kind == "retirement"


async def test_one_without_an_effect_does_not(desk: Desk) -> None:
    await applied(desk.world, "l")
    await record(desk.world, *measured(NONE), writer="postmortem")
    assert await measure_lessons(runtime_of(desk.world), until=ENOUGH) == {"measured": 1}
    await desk.started()
    assert await desk.later(MONTH) == {"items": 0, "left": 0}
