"""Many contradictions while nobody answers: all of them end, and nothing waits."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from imem.credibility.disputes import detection
from imem.credibility.disputes.reading import value_at
from imem.kg.asof import AsOf
from imem.review.states import TaskState
from tests.strategies import LONGER

from ..conftest import World, corrected  # noqa: TID252 - a folder of its own
from .test_arbitration import END, ENOUGH, advance, filed, reviewer, slip, tasks
from .test_detection import NEWS, SEC, find, found, point
from .test_reviewed import OVER

CONTRADICTIONS = 10_000 if LONGER else 200

PAIRS = (
    ("SEC_EDGAR", "Bloomberg", 1.05),  # evidence settles it
    ("Bloomberg", "Reuters", 1.05),  # nothing does
    ("Reuters", "News", 1.2),  # one counts provisionally
    ("SEC_EDGAR", "News", 10.0),  # a slip; one counts provisionally
)
"""Two sources, and the quotient of their values."""

ENDS = {("resolved", "1_evidence"): 1, ("uncertain", "4_fallback"): 1, ("provisional", "4_fallback"): 2}
"""How many of four end in which state, at which level."""


@pytest.mark.spec("DC-8")
@pytest.mark.longer
@pytest.mark.parametrize("people", [0, 1])
async def test_all_contradictions_end_while_nobody_answers(world: World, people: int) -> None:
    """
    With an empty roster at once; with a reviewer who answers nothing, when the time is over.

    Every fourth slip is corrected meanwhile: to another slip, or to the value of the filing.
    """
    if people:
        await reviewer(world, capacity=100)
    for start in range(0, CONTRADICTIONS, 500):
        points = []
        for number in range(start, min(start + 500, CONTRADICTIONS)):
            one, other, times = PAIRS[number % len(PAIRS)]
            cell = {"subject_id": f"company:C{number}", "metric": "revenue"}
            points += [point(100.0, 0, one, **cell), point(100.0 * times, 3, other, **cell)]
        await world.say(*points)
    await find(world)
    slips = range(3, CONTRADICTIONS, len(PAIRS))[::4]
    now, another, agreeing = datetime.now(UTC), slips[::2], slips[1::2]
    lines = {number: point(1000.0, 3, "News", subject_id=f"company:C{number}", metric="revenue") for number in slips}
    await world.say(*(corrected(lines[number], now, value=1010.0) for number in another))
    await world.say(*(corrected(lines[number], now, value=100.0) for number in agreeing))
    await find(world)
    if people:
        world.owner(f"{OVER} AND state = 'open'")
    while await world.rows("SELECT FROM lifecycle WHERE kind = 'task' AND state = 'open'"):
        await advance(world)
    await find(world)

    stored = await world.rows(
        "SELECT e.payload #>> '{groups,resolution,status}' AS status,"
        " e.payload #>> '{groups,resolution,resolution_level}' AS level, count(*) AS n"
        " FROM record_head AS h JOIN event AS e ON e.position = h.position"
        " WHERE h.kind = 'DataContradiction' AND h.grp = 'resolution' GROUP BY 1, 2"
    )
    share = CONTRADICTIONS // len(PAIRS)
    ends = {(row["status"], row["level"]): row["n"] for row in stored if row["status"] != "withdrawn"}
    expected = {end: n * share for end, n in ENDS.items()}
    expected["provisional", "4_fallback"] -= len(agreeing)
    assert ends == expected
    assert sum(row["n"] for row in stored if row["status"] == "withdrawn") == len(slips)
    numbers = await world.rows("SELECT state, count(*) AS n FROM lifecycle WHERE kind = 'task' GROUP BY state")
    states = {row["state"]: row["n"] for row in numbers}
    assert states.keys() == {TaskState.DEFAULTED, TaskState.WITHDRAWN}
    assert states[TaskState.DEFAULTED] == 3 * share - len(agreeing)
    assert await world.rows("SELECT FROM due_row WHERE queue = 'disputes'") == []
    counted = []
    for number in range(len(PAIRS)):
        question = (f"company:C{number}", "revenue", END)
        at = AsOf(datetime.now(UTC))
        counts = await value_at(world.database, at, question, unit=None, basis=None, guard=True, deadline=ENOUGH)
        counted.append((counts.value, counts.provisional))
    assert counted == [(100.0, False), (None, True), (100.0, True), (100.0, True)]


async def test_a_cell_of_thousands_of_points_keeps_nothing_else_waiting(world: World) -> None:
    """Each of its points contradicts the one before, and later filings confirm it."""
    many = 3_000
    lines = [point(100.0 + place % 7 * 10.0, place / 1000, SEC, document=f"d{place}") for place in range(many)]
    for start in range(0, many, 500):
        await world.say(*lines[start : start + 500])
    await world.say(filed(), slip())
    done = await find(world)
    assert (done["recorded"] >= many, done["asked"], done.get("stuck")) == (True, 0, None)
    assert await world.rows("SELECT FROM due_row WHERE queue = 'disputes'") == []
    assert {item.metric for task in await tasks(world) for item in task.package.items} == {"revenue"}


async def test_questions_beyond_those_of_one_round_are_asked_in_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detection, "MOST_QUESTIONS", 2)
    await world.say(*(point(100.0 + 10.0 * (place % 2), place, NEWS + str(place)) for place in range(8)))
    done = await find(world)
    assert (done["recorded"], done.get("stuck")) == (7, None)
    assert [one["status"] for one in await found(world)] == ["uncertain"] * 7
    assert len(await tasks(world)) == 7
    assert await world.rows("SELECT FROM due_row WHERE queue = 'disputes'") == []
