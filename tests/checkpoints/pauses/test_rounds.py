"""Rounds: they end in time, everybody has a turn, and looking changes nothing."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Any

import pytest

from imem.checkpoints.pauses import manager
from imem.checkpoints.pauses.saga import AT_ONCE, STEP_BUDGET_MS
from imem.journal.deadline import Deadline
from imem.journal.errors import TransitionRefused
from tests.cache.working.servers import OwnServer

from .world import PERSON, World, soon


async def test_agents_that_only_wait_are_not_touched(world: World) -> None:
    """A round every few seconds over agents whose parents are at work locks none of them."""
    agents = {"screening": "scr-1", "valuation": "val-1", "business_research": "bus-1"}
    await world.orchestrator.start_analysis("a-1", "company:MU", agents, deadline=soon())
    before = await world.rows("SELECT ctid::text, xmin::text, xmax::text FROM workflow.agent_task ORDER BY agent_type")

    assert await world.orchestrator.start_ready(deadline=soon()) == 0

    after = await world.rows("SELECT ctid::text, xmin::text, xmax::text FROM workflow.agent_task ORDER BY agent_type")
    assert after == before


async def test_an_agent_that_somebody_changes_just_now_is_left_to_the_next_round(world: World) -> None:
    """Nobody waits for it, and what was chosen before does not count any more."""
    await world.orchestrator.start_analysis("a-1", "company:MU", {"screening": "scr-1"}, deadline=soon())
    world.owner("UPDATE workflow.agent_task SET state = 'WAITING'")
    async with world.database.transaction(soon()) as conn:
        await conn.execute("UPDATE workflow.agent_task SET begin_as = 'checkpoint'")
        assert await world.orchestrator.start_ready(deadline=soon(2_000)) == 0

    assert await world.orchestrator.start_ready(deadline=soon()) == 1
    assert [one.dispatch for one in world.sent] == [1, 2]


async def test_a_round_ends_in_time_although_a_server_is_silent(
    own: World, memories: tuple[OwnServer, OwnServer]
) -> None:
    """More pauses than it can get on with: it begins nothing after its deadline, and the next goes on with the rest."""
    count = 3 * AT_ONCE
    for number in range(count):
        await own.begin(f"a-{number:02}", stock_id=f"company:{number}", done=1)
        await own.pauses.pause_analysis(f"a-{number:02}", "A look.", by=PERSON, deadline=soon(300))
    # Their agents do not stop, and have to be fenced off.
    own.owner("UPDATE workflow.paused_analyses SET drain_until = imem_now()")
    memories[0].signal(signal.SIGSTOP)
    try:
        began = time.monotonic()
        await own.manager.round(deadline=Deadline.after_ms(1_000))
        took = time.monotonic() - began
    finally:
        memories[0].signal(signal.SIGCONT)

    assert took < 1 + STEP_BUDGET_MS / 1000
    left = await own.rows("SELECT step, troubles FROM workflow.paused_analyses WHERE status = 'PAUSING'")
    assert sum(row["step"] < 3 for row in left) >= count - AT_ONCE
    # What it did not reach has not failed.
    assert {row["troubles"] for row in left} == {0}
    async with asyncio.timeout(60):
        while await own.rows("SELECT FROM workflow.paused_analyses WHERE status = 'PAUSING'"):
            await own.manager.round(deadline=soon())


async def test_what_a_round_did_not_reach_comes_before_what_it_tried(world: World) -> None:
    """A pause that fails over and over does not keep later ones from their turn."""
    for name in ("a-1", "a-2"):
        await world.paused(name)
    world.owner(
        "UPDATE workflow.paused_analyses SET status = 'PAUSING', pause_timestamp = imem_now() - interval '1 hour'"
    )
    world.owner(
        "UPDATE workflow.paused_analyses SET pause_timestamp = imem_now() - interval '2 hours', "
        "next_attempt_at = imem_now() - interval '1 second' WHERE analysis_id = 'a-1'"
    )

    found = await world.database.named("sagas_due", {"limit": 1}, deadline=soon())

    assert [row["analysis_id"] for row in found] == ["a-2"]


class Refusing:
    """A clean-up that can end nothing."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def cleanup_success(self, analysis_id: str, *, deadline: Deadline) -> Any:
        deadline.check("a clean-up")
        self.asked.append(analysis_id)
        raise TransitionRefused("It cannot be ended.")


async def test_analyses_that_cannot_be_ended_keep_no_others_waiting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Page by page, and then from the first again."""
    monkeypatch.setattr(manager, "ROWS", 3)
    names = [f"a-{number}" for number in range(7)]
    for name in names:
        await world.orchestrator.start_analysis(name, "company:MU", {"screening": f"scr-{name}"}, deadline=soon())
    world.owner("UPDATE workflow.agent_task SET state = 'COMPLETED'")
    cleanup: Any = Refusing()
    parts = world.parts
    managing = manager.PauseManager(
        world.database, parts.saga, parts.incidents, parts.batches, gates=parts.manager._gates, cleanup=cleanup
    )

    for _ in range(4):
        await managing.round(deadline=soon())

    assert cleanup.asked == [*names, *names[:3]]
