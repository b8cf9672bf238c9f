"""Workers killed at every named point detect once, cache once, and publish each score once."""

from __future__ import annotations

import os
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from imem.credibility.scores.published import credibility_of
from imem.credibility.scores.reading import agent_scores
from imem.journal.deadline import Deadline
from imem.kg.asof import AsOf
from imem.kg.kinds.enums import Regime
from imem.kg.model import AgentCredibility
from tests.killed_programs import printed

from ..conftest import HALFLIFE, World  # noqa: TID252 - a folder of its own beside it
from .killed import POINTS
from .test_runs import outcomes, regime, runs, scores

AGENTS = 5
KILLS = 143 if os.environ.get("IMEM_CHAOS") else 5
"""Kills at each point; in the long form a thousand in all."""


@pytest.mark.longer
@pytest.mark.spec("RS-5", "PF-10")
async def test_killed_at_every_point(world: World) -> None:
    for number in range(AGENTS):
        await outcomes(world, [True], agent=f"a{number}")
    out = await printed("tests.credibility.regimes.killed", given=f"{world.pipeline_url}\n{KILLS}\n")

    assert int(out) == (len(POINTS) - 1) * KILLS + 1
    (run,) = await runs(world)
    assert (run["records"], run["published"], run["regime"]) == (AGENTS, AGENTS, "BULL_HIGH_RATES")
    found = await regime(world, limit=9)
    assert (found.regime, [one.reading.id for one in found.readings]) == (Regime.BULL_HIGH_RATES, [run["reading_id"]])
    assert [row["record_key"] for row in await scores(world)] == [f"a{number}/flu" for number in range(AGENTS)]
    assert await world.rows("SELECT FROM due_row WHERE queue IN ('scores', 'regimes')") == []
    for row in await world.rows(
        "SELECT record_key, payload #> '{groups,score}' AS said FROM event WHERE kind = 'record.AgentCredibility'"
    ):
        agent, _, domain = row["record_key"].partition("/")
        await assert_score_of_its_moment(world, (agent, domain), row["said"], run["run_id"])


async def assert_score_of_its_moment(world: World, pair: tuple[str, str], said: dict[str, Any], run_id: UUID) -> None:
    """Assert that a published score is that of its moment, read by itself, to 1e-9."""
    at = datetime.fromisoformat(said["last_updated"])
    [score], _ = await agent_scores(
        world.database, [pair], AsOf(at), context=None, regime=Regime.BULL_HIGH_RATES, halflife_years=HALFLIFE,
        deadline=Deadline.never(),
    )  # fmt: skip
    wanted = credibility_of(score, at, run_id).score
    assert wanted is not None
    for name in AgentCredibility.Score.model_fields:
        value = getattr(wanted, name)
        if isinstance(value, float):
            assert said[name] == pytest.approx(value, abs=1e-9), name
    assert (said["sample_size"], said["regime_run"]) == (1, str(run_id))
