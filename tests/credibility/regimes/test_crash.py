"""Workers killed at every named point detect once, cache once, and publish each score once."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from imem.kg.kinds.enums import Regime

from ..conftest import World  # noqa: TID252 - a folder of its own beside it
from .killed import POINTS
from .test_runs import outcomes, regime, runs, scores

AGENTS = 5
KILLS = 143 if os.environ.get("IMEM_CHAOS") else 25
"""Kills at each point; in the long form a thousand in all."""


@pytest.mark.longer
@pytest.mark.spec("RS-5")
async def test_killed_at_every_point(world: World) -> None:
    for number in range(AGENTS):
        await outcomes(world, [True], agent=f"a{number}")
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.credibility.regimes.killed",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await program.communicate(f"{world.pipeline_url}\n{KILLS}\n".encode())

    assert program.returncode == 0
    assert int(out) == (len(POINTS) - 1) * KILLS + 1
    (run,) = await runs(world)
    assert (run["records"], run["published"], run["regime"]) == (AGENTS, AGENTS, "BULL_HIGH_RATES")
    found = await regime(world, limit=9)
    assert (found.regime, [one.reading.id for one in found.readings]) == (Regime.BULL_HIGH_RATES, [run["reading_id"]])
    assert [row["record_key"] for row in await scores(world)] == [f"a{number}/flu" for number in range(AGENTS)]
    assert await world.rows("SELECT FROM due_row WHERE queue IN ('scores', 'regimes')") == []
