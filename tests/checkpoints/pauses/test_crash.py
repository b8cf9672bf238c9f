"""Managers that are killed at any point leave one pause and one alert, and never a half-started analysis."""

from __future__ import annotations

import json
from typing import Any

import pytest

from imem.cache.working.state import ExpiryMode
from tests.killed_programs import printed
from tests.servers import as_pipelines

from .world import World, soon


async def run(world: World, light_stack: Any, **task: Any) -> dict[str, int]:
    given = {
        "postgres": as_pipelines(light_stack.settings, world.url),
        "owner": world.admin_url,
        "working": light_stack.settings.valkey_working_url.get_secret_value(),
        "durable": light_stack.settings.valkey_durable_url.get_secret_value(),
        **task,
    }
    out = await printed("tests.checkpoints.pauses.killed", given=f"{json.dumps(given)}\n")
    found: dict[str, int] = json.loads(out.splitlines()[-1])
    return found


KILLS = [(25, 5), pytest.param(1_000, 1_000, marks=pytest.mark.chaos)]
"""How often processes die, and how often at each of two operations: in every run, and in `make chaos`."""


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
    found = await run(world, light_stack, operation="pause", most=120, again=0.2)

    assert found["points"] >= 60, "the last one came through"
    assert found["killed"] >= 100
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
    found = await run(world, light_stack, operation="resume", most=70, again=1.3)

    assert found["points"] >= 30, "the last one came through"
    assert found["killed"] >= 100
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


async def check_history(world: World, *, audited: bool) -> None:
    """Every pause and every resume was ordered once, told of once, and ended; what is paused is proven and kept."""
    counts = await world.rows(
        "SELECT count(*) AS pauses, count(*) FILTER (WHERE status = 'RESUMED') AS resumes, "
        "count(*) FILTER (WHERE status NOT IN ('PAUSED', 'RESUMED')) AS left, "
        "count(*) FILTER (WHERE status = 'PAUSED') - count(DISTINCT analysis_id) FILTER (WHERE status = 'PAUSED') "
        "AS twice FROM workflow.paused_analyses"
    )
    (count,) = counts
    assert (count["left"], count["twice"]) == (0, 0)
    told = await world.rows("SELECT kind, count(*) AS n, count(DISTINCT about) AS of FROM workflow.alert GROUP BY kind")
    assert {row["kind"]: (row["n"], row["of"]) for row in told} == {
        "ANALYSIS_PAUSED": (count["pauses"], count["pauses"]),
        "ANALYSIS_RESUMED": (count["resumes"], count["resumes"]),
    }
    plans = await world.rows("SELECT execution_status AS status, count(*) AS n FROM workflow.resume_plans GROUP BY 1")
    assert [(row["status"], row["n"]) for row in plans] == [("COMPLETED", count["resumes"])]
    if audited:
        orders = await world.rows(
            "SELECT action, count(*) AS n FROM memory_access_audit WHERE action IN ('pause', 'resume') "
            "GROUP BY action ORDER BY action"
        )
        assert [row["n"] for row in orders] == [count["pauses"], count["resumes"]]
    unproven = await world.rows(
        "SELECT FROM workflow.pause_agent_checkpoints AS c JOIN workflow.paused_analyses AS p ON p.id = c.pause_id "
        "WHERE p.status = 'PAUSED' AND (c.verified_at IS NULL OR NOT c.memory_kept)"
    )
    assert unproven == []
    gaps = await world.rows(
        "SELECT analysis_id FROM workflow.agent_checkpoints GROUP BY analysis_id, agent_type "
        "HAVING count(*) <> max(seq) + 1"
    )
    assert gaps == []


async def check_memories(world: World) -> None:
    """Every memory is what the newest checkpoint of its agent says, and lives as long as its analysis' state has it."""
    agents = await world.rows(
        "SELECT DISTINCT ON (c.agent_id) c.agent_id, c.working_memory_hash AS digest, "
        "EXISTS (SELECT FROM workflow.paused_analyses AS p "
        "WHERE p.analysis_id = c.analysis_id AND p.status = 'PAUSED') AS paused "
        "FROM workflow.agent_checkpoints AS c ORDER BY c.agent_id, c.seq DESC"
    )
    for agent in agents:
        meta = await world.working.verify(agent["agent_id"], agent["digest"], deadline=soon())
        assert meta.mode is (ExpiryMode.PAUSED if agent["paused"] else ExpiryMode.ACTIVE)


@pytest.mark.spec("CK-31", "CK-33", "CK-41")
@pytest.mark.parametrize(("kills", "each"), KILLS)
async def test_two_managers_at_once_that_both_die(world: World, light_stack: Any, kills: int, each: int) -> None:
    """Ordering, pausing and resuming the same analyses again and again: each pause and each resume is one."""
    of = ("pause", "resume")
    found = await run(world, light_stack, operation="both", of=of, kills=kills, each=each, at_once=2, analyses=6)

    assert sum(found.values()) >= kills
    assert min(found[one] for one in of) >= each
    await check_history(world, audited=True)
    await check_memories(world)


@pytest.mark.spec("CK-33", "CK-39")
@pytest.mark.parametrize(("kills", "each"), KILLS)
async def test_batches_whose_callers_and_managers_die(world: World, light_stack: Any, kills: int, each: int) -> None:
    """Five analyses paused and resumed together, again and again: each batch ends, and counts what it did."""
    of = ("pause batch", "resume batch")
    found = await run(world, light_stack, operation="batch", of=of, kills=kills, each=each, at_once=1, analyses=5)

    assert sum(found.values()) >= kills
    assert min(found[one] for one in of) >= each
    await check_history(world, audited=True)
    await check_memories(world)
    batches = await world.rows(
        "SELECT b.status, b.total_count AS total, b.paused_count + b.resumed_count AS done, "
        "count(m.analysis_id) FILTER (WHERE m.state = 'DONE') AS members FROM workflow.batch_pause_operations AS b "
        "JOIN workflow.batch_member AS m ON m.batch_id = b.id GROUP BY b.id"
    )
    assert {(row["status"], row["total"] - row["done"], row["total"] - row["members"]) for row in batches} == {
        ("COMPLETED", 0, 0)
    }


@pytest.mark.spec("CK-14", "CK-33")
@pytest.mark.parametrize(("kills", "each"), KILLS)
async def test_managers_that_die_while_gates_open_and_close(
    world: World, light_stack: Any, kills: int, each: int
) -> None:
    """Whatever they had moved: in the end each memory lives as its gate has it, and the rows say so."""
    of = ("gate",)
    found = await run(world, light_stack, operation="gate", of=of, kills=kills, each=each, at_once=2, analyses=8)

    assert found["gate"] >= kills
    agents = await world.rows(
        "SELECT l.agent_id, g.waits, k.agent_id IS NOT NULL AS kept "
        "FROM workflow.agent_leases AS l JOIN workflow.gate AS g ON g.analysis_id = l.analysis_id "
        "LEFT JOIN workflow.gate_memory AS k ON k.agent_id = l.agent_id"
    )
    assert len(agents) == 16
    for agent in agents:
        meta = await world.working.meta(agent["agent_id"], deadline=soon())
        assert meta is not None
        assert (meta.mode is ExpiryMode.GATED, agent["kept"]) == (agent["waits"], agent["waits"])
