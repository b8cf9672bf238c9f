"""An analysis whose results are lost when all its agents have completed: made again, and put to a person in the end."""

from __future__ import annotations

from datetime import timedelta

import pytest

from imem.checkpoints.cleanup import Cleanup
from imem.checkpoints.deliverables import ResultChecks
from imem.checkpoints.incidents.reruns import LOOK_AGAIN, MOST
from imem.checkpoints.orchestration.programs import AgentRun, program
from imem.checkpoints.pauses.gate_memory import GateMemories
from imem.checkpoints.pauses.manager import PauseManager
from imem.journal.clock import SystemClock

from .delivered import deliver
from .world import PERSON, World, soon


def manager_of(world: World) -> PauseManager:
    """Return a manager that ends analyses."""
    its = ResultChecks(world.database, None)
    cleanup = Cleanup(world.database, world.definitions, its, durable=world.snapshots, working=world.working)
    gates = GateMemories(world.database, world.working, world.snapshots, SystemClock())
    return PauseManager(world.database, world.saga, world.incidents, world.batches, gates=gates, cleanup=cleanup)


async def completed(world: World) -> list[str]:
    """Run screening and news_monitor to their ends; return the subtasks as they are run, from now on."""
    ran: list[str] = []

    async def run(given: AgentRun) -> None:
        for name in given.session.pending:
            ran.append(name)
            await deliver(given.session, name)
            await given.session.complete(name)

    program("screening")(run)
    program("news_monitor")(run)
    agents = {"screening": "scr", "news_monitor": "new"}
    await world.orchestrator.start_analysis("a-1", "company:MU", agents, deadline=soon())
    for _ in agents:
        assert await world.parts.runner.run(world.sent.pop()) == "COMPLETED"
    ran.clear()
    return ran


def lose(world: World) -> None:
    world.owner("DELETE FROM workflow.agent_deliverable WHERE subtask = 'quantitative_filter'")


async def outcome(world: World) -> str | None:
    (found,) = await world.rows("SELECT outcome FROM workflow.analysis")
    return str(found["outcome"]) if found["outcome"] is not None else None


@pytest.mark.spec("CK-7")
async def test_a_result_that_was_lost_is_made_again_and_the_analysis_ends(world: World) -> None:
    """Its agent runs that subtask alone, nobody else begins anew; people are told once, and the card goes."""
    ran = await completed(world)
    manager = manager_of(world)
    lose(world)

    for _ in range(3):
        await manager.round(deadline=soon())
    assert [(one.agent_type, one.analysis_id) for one in world.sent] == [("screening", "a-1")]
    assert await world.alerts() == ["RESULTS_MISSING"]
    assert await world.parts.runner.run(world.sent.pop()) == "COMPLETED"
    assert ran == ["quantitative_filter"]
    await manager.round(deadline=soon())

    assert await outcome(world) == "succeeded"
    assert await world.rows("SELECT FROM workflow.agent_checkpoints") == []
    assert await world.rows("SELECT FROM workflow.alert WHERE closed_at IS NULL") == []
    assert len(await world.rows("SELECT FROM workflow.agent_deliverable")) == 5


async def test_what_does_not_come_back_is_put_to_a_person(world: World) -> None:
    """Three times, then the analysis is paused, and the rounds leave it alone; a resume lets it try again."""
    ran = await completed(world)
    manager = manager_of(world)
    for number in range(MOST):
        lose(world)
        # It is found in one round, and sent in the next.
        for _ in range(2):
            await manager.round(deadline=soon())
        assert await world.parts.runner.run(world.sent.pop()) == "COMPLETED"
        assert len(ran) == number + 1
    lose(world)
    for _ in range(3):
        await manager.round(deadline=soon())

    assert (await world.pause_row("a-1"))["status"] == "PAUSED"
    assert "quantitative_filter (not in postgres)" in (await world.pause_row("a-1"))["pause_reason"]
    assert sorted(await world.alerts()) == ["AGENT_FAILURE", "RESULTS_MISSING"]
    assert world.sent == []
    assert await outcome(world) is None

    await world.pauses.resume_analysis("company:MU", by=PERSON, deadline=soon())
    while world.sent:
        assert await world.parts.runner.run(world.sent.pop()) == "COMPLETED"
    await manager.round(deadline=soon())
    assert ran[:4] == ["quantitative_filter"] * 4
    assert await outcome(world) == "succeeded"
    assert await world.rows("SELECT FROM workflow.alert WHERE closed_at IS NULL") == []


async def test_a_person_who_gives_up_ends_it(world: World) -> None:
    """By the command that there is; no card outlives the analysis."""
    await completed(world)
    manager = manager_of(world)
    lose(world)
    world.owner("UPDATE workflow.agent_task SET reruns = %s", MOST)
    for _ in range(2):
        await manager.round(deadline=soon())
    assert (await world.pause_row("a-1"))["status"] == "PAUSED"

    await world.pauses.cancel("company:MU", "Never mind.", by=PERSON, deadline=soon())

    assert await outcome(world) == "failed"
    assert "RESULTS_MISSING" in await world.alerts()
    assert await world.rows("SELECT FROM workflow.alert WHERE closed_at IS NULL") == []


async def test_what_no_agent_of_ours_can_make_good_is_looked_at_seldom(world: World) -> None:
    """An agent that somebody runs by hand has not ended: told of once, and not asked after every few seconds."""
    await completed(world)
    by_hand = await world.begin("a-1", "business_research", stock_id="company:MU", done=1)
    manager = manager_of(world)

    assert (await manager.round(deadline=soon())).done["completed"] == 1
    for _ in range(2):
        assert "completed" not in (await manager.round(deadline=soon())).done
    assert (world.sent, await world.alerts()) == ([], ["RESULTS_MISSING"])

    for name in world.definitions.of_type("business_research").names[1:]:
        await world.complete(by_hand, name)
    await world.later(LOOK_AGAIN + timedelta(seconds=1))
    await manager.round(deadline=soon())
    assert await outcome(world) == "succeeded"
