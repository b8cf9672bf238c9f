"""Records of sources: how often each was right, and its score, as of a day."""

from __future__ import annotations

import pytest

from imem.credibility.disputes.reading import SourceRecord, sources_known_at
from imem.kg.asof import AsOf

from ..conftest import World  # noqa: TID252 - a folder of its own
from .test_arbitration import ENOUGH, answer, tasks
from .test_detection import BLOOMBERG, NEWS, SEC, day, find, point


async def known(world: World, on: float) -> dict[str, SourceRecord]:
    found = await sources_known_at(world.database, AsOf(day(on)), deadline=ENOUGH)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    return {one.name: one for one in found}


@pytest.mark.spec("DC-1", "DC-2")
async def test_the_record_of_a_source_follows_from_outcomes_that_were_known(world: World) -> None:
    """The weight of the type until fifteen outcomes; a verdict of the system's own is none."""
    for number in range(15):
        of = {"metric": f"m{number}", "document": f"d{number}"}
        right, wrong = (BLOOMBERG, NEWS) if number < 12 else (NEWS, BLOOMBERG)
        await world.say(
            point(100.0, 0, right, **of), point(105.0, 1, wrong, **of), point(100.0, 10 + number / 10, SEC, **of)
        )
    await find(world)

    before = await known(world, 5)
    assert {name: (one.score, one.outcomes, one.contradictions) for name, one in before.items()} == {
        BLOOMBERG: (0.95, 0, 15),
        NEWS: (0.70, 0, 15),
    }
    fewer = (await known(world, 11.35))[BLOOMBERG]
    assert (fewer.outcomes, fewer.correct, fewer.score) == (14, 12, 0.95)
    after = await known(world, 11.4)
    one = after[BLOOMBERG]
    assert (one.outcomes, one.correct, one.type, one.weight) == (15, 12, BLOOMBERG, 0.95)
    assert one.score == pytest.approx(0.40 * 12 / 15 + 0.40 * 0.95 + 0.20)
    assert after[NEWS].score == pytest.approx(0.40 * 3 / 15 + 0.40 * 0.70 + 0.20)
    assert after[SEC].outcomes == 0, "it resolved those with the SEC itself"


async def test_an_answer_counts_for_the_record_from_then_on(world: World) -> None:
    await world.say(point(9.53, 0, SEC, metric="revenue"), point(95.3, 3, BLOOMBERG, metric="revenue"))
    await find(world)
    [task] = await tasks(world)
    await answer(world, task, fields={"document": "a"}, rationale="The filing.")
    assert (await known(world, 5))[SEC].outcomes == 0
    now = await known(world, 366 * 20)
    assert {name: (one.correct, one.outcomes) for name, one in now.items()} == {SEC: (1, 1), BLOOMBERG: (0, 1)}
