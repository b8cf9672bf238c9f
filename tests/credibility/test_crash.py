"""A settler killed before any of its statements loses nothing and does nothing twice."""

from __future__ import annotations

import asyncio
import sys

from imem.credibility.reconcile import reconcile

from .conftest import HALFLIFE, World
from .load import day, lines

DECISIONS = 8


async def test_killed_before_every_statement(world: World) -> None:
    """One settler after the other dies a statement later than the one before; in the end all is as if none had."""
    await world.say(*lines(DECISIONS))

    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.credibility.killed", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await program.communicate(world.pipeline_url.encode() + b"\n")

    assert program.returncode == 0
    assert int(out) >= 20
    stated = await world.rows(
        "SELECT record_key, known_at, payload -> 'groups' -> 'outcome' ->> 'outcome' AS outcome FROM event "
        "WHERE kind = 'record.Decision' AND actor = 'credibility' ORDER BY record_key, known_at"
    )
    assert [(row["record_key"], row["known_at"], row["outcome"]) for row in stated] == [
        (f"d-{number}", day(5 + number + after), outcome)
        for number in range(DECISIONS)
        for after, outcome in ((1, "success"), (90, "failure"))
    ]
    (count,) = await world.rows("SELECT count(*) AS scores FROM agent_outcome WHERE known_at IS NOT NULL")
    assert count["scores"] == DECISIONS * 3 * 2
    assert await world.rows("SELECT FROM due_row WHERE queue = 'credibility' UNION ALL SELECT FROM track_due") == []
    report = await reconcile(world.pipelines, world.engine, halflife_years=HALFLIFE)
    assert (report.differing, report.questions) == (0, DECISIONS)
