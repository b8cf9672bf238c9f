"""Many checkpoints on one day: five cases are in review at a time, and all of them end while nobody answers."""

from __future__ import annotations

import pytest

from imem.postmortem.cases.queue import IN_REVIEW
from tests.strategies import LONGER

from .conftest import HOUR, MONTH, Clinic, decided, happened

CHECKPOINTS = 4_000 if LONGER else 200
PAGE = 500


@pytest.mark.longer
async def test_many_checkpoints_on_one_day(clinic: Clinic) -> None:
    """Every fourth is off, and every eighth by more than the rest."""
    for start in range(0, CHECKPOINTS, PAGE):
        lines = []
        for number in range(start, min(start + PAGE, CHECKPOINTS)):
            key, subject = f"d{number}", f"company:C{number}"
            actual = 0.02 if number % 4 else -0.50 if number % 8 else -0.90
            lines += [decided(key, MONTH, subject=subject), happened(actual, key, subject=subject)]
        await clinic.world.say(*lines)
    await clinic.advance()
    off = CHECKPOINTS // 4
    states = list((await clinic.cases()).values())
    assert (len(states), states.count("in_review"), states.count("queued")) == (off, IN_REVIEW, off - IN_REVIEW)
    measured = await clinic.world.rows(
        "SELECT data ->> 'verdict' AS verdict, count(*) AS n FROM lifecycle"
        " WHERE kind = 'forecast' AND state = 'measured' GROUP BY 1 ORDER BY 1"
    )
    assert {row["verdict"]: row["n"] for row in measured} == {"none": CHECKPOINTS - off, "off": off}
    for rounds in range(1, 4):
        async with clinic.later(rounds * 49 * HOUR):
            await clinic.advance()
        states = list((await clinic.cases()).values())
        assert (states.count("in_review"), states.count("timeout")) == (IN_REVIEW, rounds * IN_REVIEW)
    reviewed = await clinic.world.rows(
        "SELECT (data ->> 'deviation')::float8 AS deviation, state FROM lifecycle WHERE kind = 'postmortem'"
    )
    largest = max(row["deviation"] for row in reviewed)
    assert {row["deviation"] for row in reviewed if row["state"] != "queued"} == {largest}
    assert len(await clinic.records("PostMortem")) == off
    assert len(await clinic.records("Lesson")) == 3 * IN_REVIEW
