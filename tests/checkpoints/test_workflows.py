"""Threads of workflows stand where their last save left them, and branches that finished are not run again."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from imem.checkpoints.orchestration.workflows import Workflows, iteration
from imem.journal.errors import BadInput, NotResumable, StaleEpoch

from .conftest import World, soon

KNOWN = (1,)


async def state_of(workflows: Workflows, workflow: str, thread: str) -> Any:
    found = await workflows.load(workflow, thread, understands=KNOWN, deadline=soon())
    return None if found is None else (found.step_name, found.state)


async def save(workflows: Workflows, step: str, state: Any = None, workflow: str = "w", thread: str = "t") -> int:
    saved = await workflows.save(workflow, thread, step, state, state_version=1, deadline=soon())
    return saved.seq


@pytest.mark.spec("CK-9")
async def test_saving_a_step_twice_leaves_one_row_with_the_latest_state_and_highest_seq(world: World) -> None:
    workflows = world.workflows
    for step, state in (("plan", {"n": 1}), ("debate_round", {"n": 2}), ("plan", {"n": 3})):
        await save(workflows, step, state)

    assert [(one["step_name"], one["seq"], one["parent_seq"]) for one in await world.steps()] == [
        ("debate_round", 2, 1),
        ("plan", 3, 2),
    ]
    assert await state_of(workflows, "w", "t") == ("plan", {"n": 3})
    await save(workflows, "plan", {"n": 4})
    assert [(one["step_name"], one["seq"], one["parent_seq"]) for one in await world.steps()] == [
        ("debate_round", 2, 1), ("plan", 4, 2),
    ]  # fmt: skip


async def test_rounds_of_a_repeated_step_are_named_apart(world: World) -> None:
    for number in (1, 2, 3):
        await save(world.workflows, iteration("debate_round", number), number)

    steps = await world.steps()
    assert [one["step_name"] for one in steps] == ["debate_round", "debate_round#2", "debate_round#3"]
    with pytest.raises(BadInput):
        iteration("debate_round", 0)


@pytest.mark.spec("CK-10")
async def test_saves_that_share_a_timestamp_load_in_the_order_of_saving(world: World) -> None:
    """The server's clock stands still, and then goes back."""
    for moment in ("2026-01-01 12:00Z", "2026-01-01 12:00Z", "2026-01-01 12:00Z", "2025-01-01 12:00Z"):
        world.owner(
            "CREATE OR REPLACE FUNCTION imem_now() RETURNS timestamptz LANGUAGE plpgsql AS "
            f"$$ BEGIN RETURN '{moment}'::timestamptz; END $$"
        )
        step = f"step-{len(await world.steps())}"
        await save(world.workflows, step, step)
        assert await state_of(world.workflows, "w", "t") == (step, step)

    steps = await world.steps()
    assert [one["step_name"] for one in steps] == [f"step-{number}" for number in range(4)]
    assert len({one["created_at"] for one in steps}) == 2


async def test_saves_at_once_get_different_places(world: World) -> None:
    seqs = await asyncio.gather(*(save(world.workflows, f"s{number}") for number in range(20)))

    assert sorted(seqs) == list(range(1, 21))


@pytest.mark.spec("CK-11")
async def test_one_of_three_branches_crashes_and_exactly_that_one_is_run_again(world: World) -> None:
    workflows, ran = world.workflows, []

    async def resume(*, crashing: str | None) -> bool:
        """Go on from what is stored alone; say whether all branches are through."""
        found = await workflows.load("w", "t", understands=KNOWN, deadline=soon())
        assert found is not None
        for branch in ("a", "b", "c"):
            if branch in found.pending:
                continue
            ran.append(branch)
            if branch == crashing:
                return False
            await workflows.finish_branch("w", "t", found.seq, branch, {"from": branch}, deadline=soon())
        return True

    await save(workflows, "fan_out")
    assert not await resume(crashing="c")
    del ran[:]

    assert await resume(crashing=None)

    assert ran == ["c"]
    found = await workflows.load("w", "t", understands=KNOWN, deadline=soon())
    assert found is not None
    assert found.pending == {branch: {"from": branch} for branch in "abc"}
    await save(workflows, "join", dict(found.pending))
    assert await world.rows("SELECT FROM workflow.workflow_pending_writes") == []


async def test_a_branch_keeps_its_first_result_and_a_late_one_is_refused(world: World) -> None:
    workflows = world.workflows
    seq = await save(workflows, "fan_out")

    assert await workflows.finish_branch("w", "t", seq, "a", 1, deadline=soon())
    assert not await workflows.finish_branch("w", "t", seq, "a", 2, deadline=soon())
    await save(workflows, "join")
    for late in (seq, seq + 5):
        with pytest.raises(StaleEpoch):
            await workflows.finish_branch("w", "t", late, "b", 1, deadline=soon())
    with pytest.raises(StaleEpoch):
        await workflows.finish_branch("w", "none", 1, "b", 1, deadline=soon())
    found = await workflows.load("w", "t", understands=KNOWN, deadline=soon())
    assert found is not None
    assert found.pending == {}


@pytest.mark.spec("CK-12")
async def test_threads_and_workflows_never_read_each_others_state(world: World) -> None:
    """Equal names in other places, and names that would run into one another, are different all the same."""
    workflows = world.workflows
    places = [("w", "t"), ("w", "u"), ("v", "t"), ("w:t", "x"), ("w", "t:x"), ("wt", "x"), ("w", "T"), ("w", "t ")]
    for number, (workflow, thread) in enumerate(places):
        seq = await save(workflows, "step", {"whose": number}, workflow, thread)
        await workflows.finish_branch(workflow, thread, seq, "task", number, deadline=soon())

    for number, (workflow, thread) in enumerate(places):
        found = await workflows.load(workflow, thread, understands=KNOWN, deadline=soon())
        assert found is not None
        assert (found.state, found.pending, found.seq) == ({"whose": number}, {"task": number}, 1)
    assert await workflows.complete("w", "t", deadline=soon()) == 1
    assert await state_of(workflows, "w", "t") is None
    assert await state_of(workflows, "w", "u") == ("step", {"whose": 1})


async def test_a_state_of_an_unknown_version_is_not_resumed(world: World) -> None:
    await world.workflows.save("w", "t", "step", {}, state_version=2, deadline=soon())

    with pytest.raises(NotResumable, match="version 2"):
        await world.workflows.load("w", "t", understands=(1, 3), deadline=soon())

    found = await world.workflows.load("w", "t", understands=(2,), deadline=soon())
    assert found is not None
    assert found.state == {}


async def test_completion_forgets_everything_and_failure_keeps_it_for_thirty_days(world: World) -> None:
    for thread in ("done", "failed", "taken up", "running"):
        seq = await save(world.workflows, "step", thread, thread=thread)
        await world.workflows.finish_branch("w", thread, seq, "a", 1, deadline=soon())
    assert await world.workflows.complete("w", "done", deadline=soon()) == 1
    assert await world.workflows.complete("w", "done", deadline=soon()) == 0
    for thread in ("failed", "taken up"):
        assert await world.workflows.fail("w", thread, deadline=soon()) == 1
    await save(world.workflows, "step", "again", thread="taken up")

    async with world.later(timedelta(days=29)) as day:
        await day.workflows.fail("w", "failed", deadline=soon())
        assert await day.workflows.cleanup_failed(deadline=soon()) == 0
    assert await state_of(world.workflows, "w", "failed") == ("step", "failed")
    async with world.later(timedelta(days=31)) as day:
        assert await day.workflows.cleanup_failed(deadline=soon()) == 1

    left = await world.rows("SELECT thread_id FROM workflow.workflow_thread ORDER BY thread_id")
    assert [row["thread_id"] for row in left] == ["running", "taken up"]
    for table in ("workflow_checkpoints", "workflow_pending_writes"):
        rows = await world.rows(f"SELECT DISTINCT thread_id FROM workflow.{table}")
        assert {row["thread_id"] for row in rows} <= {"running", "taken up"}
    assert await world.workflows.complete("w", deadline=soon()) == 2
    assert await world.rows("SELECT FROM workflow.workflow_checkpoints") == []


@pytest.mark.parametrize(
    ("named", "field"),
    [
        ({"workflow_id": ""}, "workflow_id"),
        ({"thread_id": "x" * 256}, "thread_id"),
        ({"step_name": "x" * 101}, "step_name"),
        ({"state": {"a": float("nan")}}, "state.a"),
        ({"state_version": 0}, "state_version"),
    ],
)
async def test_what_does_not_fit_is_refused_by_field(world: World, named: dict[str, Any], field: str) -> None:
    asked = {"workflow_id": "w", "thread_id": "t", "step_name": "s", "state": 1, "state_version": 1}

    with pytest.raises(BadInput) as refused:
        await world.workflows.save(**{**asked, **named}, deadline=soon())

    assert refused.value.field == field
    assert await world.rows("SELECT FROM workflow.workflow_thread") == []
