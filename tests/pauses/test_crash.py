"""Managers that are killed at any point leave one pause and one alert, and never a half-started analysis."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest

from .world import World


async def run(world: World, light_stack: Any, **task: Any) -> dict[str, int]:
    given = {
        "postgres": world.url,
        "working": light_stack.settings.valkey_working_url.get_secret_value(),
        "durable": light_stack.settings.valkey_durable_url.get_secret_value(),
        **task,
    }
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.pauses.killed", stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, errors = await program.communicate(json.dumps(given).encode() + b"\n")
    assert program.returncode == 0, errors.decode()[-3_000:]
    found: dict[str, int] = json.loads(out.splitlines()[-1])
    return found


async def check_pauses(world: World) -> int:
    """Return how many analyses are paused; of each there is one pause, one alert, one proven checkpoint an agent."""
    pauses = await world.rows("SELECT id, analysis_id, status, step FROM workflow.paused_analyses")
    assert {row["status"] for row in pauses} <= {"PAUSED"}
    assert len({row["analysis_id"] for row in pauses}) == len(pauses)
    alerts = await world.rows("SELECT kind, about FROM workflow.alert")
    assert sorted(row["about"] for row in alerts) == sorted(row["id"] for row in pauses)
    assert {row["kind"] for row in alerts} <= {"ANALYSIS_PAUSED"}
    (counts,) = await world.rows(
        "SELECT count(*) AS agents, count(*) FILTER (WHERE verified_at IS NOT NULL AND memory_kept) AS proven, "
        "(SELECT count(*) FROM workflow.agent_checkpoints WHERE kind = 'pause') AS rows, "
        "(SELECT count(*) FROM workflow.pause_timer) AS timers FROM workflow.pause_agent_checkpoints"
    )
    assert counts == {
        "agents": 2 * len(pauses), "proven": 2 * len(pauses), "rows": 2 * len(pauses), "timers": 4 * len(pauses),
    }  # fmt: skip
    audited = await world.rows("SELECT FROM memory_access_audit WHERE action = 'pause'")
    assert len(audited) == len(pauses)
    return len(pauses)


@pytest.mark.spec("CK-33", "CK-41")
async def test_a_manager_killed_before_every_act_of_a_pause(world: World, light_stack: Any) -> None:
    """One process after the other dies an act later than the one before; each time the reconciler ends the pause."""
    found = await run(world, light_stack, operation="pause", most=150)

    assert found["killed"] == found["points"] - 1, "the last one came through"
    assert found["killed"] >= 60
    # Those that died before the order was committed left nothing at all, like those whose turn never came.
    assert found["points"] - 15 <= await check_pauses(world) < found["points"]
    assert (
        await world.rows(
            "SELECT FROM workflow.analysis AS a WHERE NOT EXISTS "
            "(SELECT FROM workflow.paused_analyses AS p WHERE p.analysis_id = a.analysis_id) "
            "AND EXISTS (SELECT FROM workflow.alert AS l WHERE l.analysis_id = a.analysis_id)"
        )
        == []
    )


@pytest.mark.spec("CK-33")
async def test_a_manager_killed_before_every_act_of_a_resume(world: World, light_stack: Any) -> None:
    """Each analysis is either resumed, once, with one plan and a proven memory, or still paused as it was."""
    found = await run(world, light_stack, operation="resume", most=80)

    assert found["killed"] == found["points"] - 1
    assert found["killed"] >= 30
    rows = await world.rows(
        "SELECT p.status, count(r.id) AS plans, count(r.id) FILTER (WHERE r.execution_status = 'COMPLETED') AS done "
        "FROM workflow.paused_analyses AS p LEFT JOIN workflow.resume_plans AS r ON r.paused_analysis_id = p.id "
        "GROUP BY p.id, p.status"
    )
    for row in rows:
        assert (row["status"], row["plans"], row["done"]) in {("RESUMED", 1, 1), ("PAUSED", 0, 0)}
    resumed = sum(row["status"] == "RESUMED" for row in rows)
    assert found["points"] - 15 <= resumed < found["points"]
    told = await world.rows("SELECT FROM workflow.alert WHERE kind = 'ANALYSIS_RESUMED'")
    assert len(told) == resumed


@pytest.mark.spec("CK-33")
async def test_two_managers_at_once_that_both_die(world: World, light_stack: Any) -> None:
    """Killed at random, as often as asked for; whatever they left, one pause and one alert come of it."""
    found = await run(world, light_stack, operation="pause", most=20, at_random=True)

    assert found["killed"] >= 20
    await check_pauses(world)


@pytest.mark.chaos
@pytest.mark.spec("CK-33")
async def test_two_managers_at_once_a_thousand_times(world: World, light_stack: Any) -> None:
    killed = 0
    for seed in range(10):
        killed += (await run(world, light_stack, operation="pause", most=80, at_random=True, seed=seed))["killed"]
    assert killed >= 1_000
    await check_pauses(world)
