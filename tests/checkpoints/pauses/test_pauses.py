"""Orders: what a pause and a resume leave, who wins, and what is refused with nothing half-written."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from imem.checkpoints.incidents.failures import AgentFailure, FailureKind
from imem.checkpoints.pauses.pause_service import ResumeResult
from imem.journal.errors import BadInput, ImemError, TransitionRefused

from .world import FOUR, PERSON, World, soon


async def everything(world: World) -> list[Any]:
    """Return all that an order may write."""
    return [
        await world.rows(f"SELECT * FROM {table} ORDER BY 1")
        for table in (
            "workflow.paused_analyses", "workflow.resume_plans", "workflow.pause_timer", "workflow.alert",
            "workflow.batch_pause_operations", "workflow.batch_member", "workflow.pause_agent_checkpoints",
            "memory_access_audit",
        )
    ]  # fmt: skip


async def test_a_pause_and_a_resume(world: World) -> None:
    """One order each; in between nothing of the analysis starts, and its memory is proven in two places."""
    lease = await world.begin("a-1")
    before = await world.memory(lease)
    await world.release(lease)

    paused = await world.pauses.pause_analysis("company:MU", "Odd figures.", by=PERSON, deadline=soon())

    assert (paused.status, paused.new) == ("PAUSED", True)
    assert await world.alerts() == ["ANALYSIS_PAUSED"]
    with pytest.raises(TransitionRefused, match="paused since"):
        await world.begin("a-1")
    resumed = await world.pauses.resume_analysis("company:MU", by=PERSON, deadline=soon())
    assert resumed.status == "RESUMED"
    assert resumed.plan.to_dict() == {"restart": {"business_research": "checkpoint"}, "skip": [], "wait": []}
    assert await world.memory(lease) == before
    assert await world.alerts() == ["ANALYSIS_PAUSED", "ANALYSIS_RESUMED"]
    state = await world.pauses.get_pause_state("company:MU", deadline=soon())
    assert state.status is None
    assert state.pause is not None
    assert state.pause.status == "RESUMED"
    audited = await world.rows(
        "SELECT actor_id, action FROM memory_access_audit WHERE resource_type = 'workflow' ORDER BY id"
    )
    assert [(row["actor_id"], row["action"]) for row in audited] == [("priya", "pause"), ("priya", "resume")]


@pytest.mark.spec("CK-31")
async def test_of_resumes_at_once_one_wins(world: World) -> None:
    """Compare-and-set: the others are refused, there is one plan, and it runs once."""
    await world.paused("a-1")

    results = await asyncio.gather(
        *(world.pauses.resume_analysis("a-1", by=PERSON, deadline=soon()) for _ in range(6)),
        return_exceptions=True,
    )

    won = [result for result in results if isinstance(result, ResumeResult)]
    assert len(won) == 1, results
    assert {type(result) for result in results if result not in won} == {TransitionRefused}
    assert len(await world.rows("SELECT FROM workflow.resume_plans")) == 1
    assert (await world.pause_row("a-1"))["status"] == "RESUMED"


@pytest.mark.spec("CK-32")
async def test_pausing_one_of_four_leaves_the_others_alone(world: World) -> None:
    """They keep their leases and epochs, and complete what they are at while the fourth is being paused."""
    leases = [await world.begin(f"a-{number}", stock_id=f"company:{number}", done=1) for number in range(4)]
    await world.release(leases[0])

    async def work(lease: Any) -> None:
        for name in world.definitions.of_type("business_research").names[1:]:
            await world.complete(lease, name)

    order = asyncio.create_task(world.pauses.pause_analysis("company:0", "Only this one.", by=PERSON, deadline=soon()))
    await asyncio.gather(*(work(lease) for lease in leases[1:]))
    result = await order

    assert result.status == "PAUSED"
    for lease in leases[1:]:
        latest = await world.checkpoints.load(lease.analysis_id, lease.agent_type, deadline=soon())
        assert latest is not None
        assert (latest.pending_subtasks, latest.epoch, latest.kind) == ((), lease.epoch, "subtask")
        assert await world.leases.stop_reason(lease.analysis_id, deadline=soon()) is None
    assert await world.leases.stop_reason("a-0", deadline=soon()) is not None


async def test_the_same_order_after_it_was_resumed_pauses_nothing(world: World) -> None:
    """Whoever asks again late learns what became of it; under the id of another's pause nothing is ordered."""
    for name in ("a-1", "a-2"):
        await world.release(await world.begin(name, stock_id=f"company:{name}"))
    given: dict[str, Any] = {"by": PERSON, "pause_id": uuid4()}
    first = await world.pauses.pause_analysis("a-1", "Once.", **given, deadline=soon())
    await world.pauses.resume_analysis("a-1", by=PERSON, deadline=soon())

    again = await world.pauses.pause_analysis("a-1", "Once.", **given, deadline=soon())

    assert (again.pause_id, again.status, again.new) == (first.pause_id, "RESUMED", False)
    assert await world.leases.stop_reason("a-1", deadline=soon()) is None
    with pytest.raises(BadInput) as refused:
        await world.pauses.pause_analysis("a-2", "Once.", **given, deadline=soon())
    assert refused.value.field == "pause_id"


async def test_the_same_order_under_its_id_pauses_once(world: World) -> None:
    """Whoever did not hear the answer may ask again; another order of what is paused is refused."""
    lease = await world.begin("a-1")
    await world.release(lease)
    order: dict[str, Any] = {"by": PERSON, "pause_id": uuid4()}

    first = await world.pauses.pause_analysis("a-1", "Once.", **order, deadline=soon())
    second = await world.pauses.pause_analysis("a-1", "Once.", **order, deadline=soon())

    assert first.new
    assert not second.new
    assert (second.pause_id, second.status) == (first.pause_id, "PAUSED")
    assert await world.alerts() == ["ANALYSIS_PAUSED"]
    with pytest.raises(TransitionRefused):
        await world.pauses.pause_analysis("a-1", "Again.", by=PERSON, deadline=soon())


@pytest.mark.parametrize(
    ("order", "error", "field"),
    [
        ({"what": "company:XX"}, BadInput, "analysis"),
        ({"what": "no-such"}, BadInput, "analysis"),
        ({"what": "company:TWO"}, BadInput, "analysis"),
        ({"what": ""}, BadInput, "analysis"),
        ({"what": "x" * 201}, BadInput, "analysis"),
        ({"reason": " "}, BadInput, "reason"),
        ({"reason": "x" * 2_001}, BadInput, "reason"),
        ({"reason": "nul \x00"}, BadInput, "reason"),
        ({"checkpoint_id": "17"}, BadInput, "checkpoint_id"),
        ({"checkpoint_id": str(uuid4())}, BadInput, "checkpoint_id"),
        ({"trigger_source": "WHIM"}, BadInput, "trigger_source"),
        ({"trigger_source": "AUTO_TIER2"}, TransitionRefused, None),
        ({"trigger_source": "AUTO_BATCH_CORRELATION"}, TransitionRefused, None),
    ],
)
async def test_an_order_to_pause_that_is_wrong_writes_nothing(
    world: World, order: dict[str, Any], error: type[ImemError], field: str | None
) -> None:
    await world.release(await world.begin("a-1"))
    for name in ("two-1", "two-2"):
        await world.release(await world.begin(name, stock_id="company:TWO", done=0))
    before = await everything(world)

    given = {"what": "company:MU", "reason": "Why not.", **order}
    with pytest.raises(error) as refused:
        await world.pauses.pause_analysis(**given, by=PERSON, deadline=soon())

    assert getattr(refused.value, "field", None) == field
    assert await everything(world) == before


@pytest.mark.parametrize(
    ("plan", "field"),
    [
        ({"restart": ["astrologer"]}, "resume_plan.restart"),
        ({"skip": ["business_research"]}, "resume_plan.skip"),
        ({"wait": ["business_research"]}, "resume_plan.wait"),
        ({"restart": {"business_research": "sideways"}}, "resume_plan.restart.business_research"),
        ({"anew": []}, "resume_plan.anew"),
    ],
)
async def test_a_resume_whose_plan_is_wrong_changes_nothing(world: World, plan: dict[str, Any], field: str) -> None:
    await world.paused("a-1")
    before = await everything(world)

    with pytest.raises(BadInput) as refused:
        await world.pauses.resume_analysis("a-1", plan, by=PERSON, deadline=soon())

    assert refused.value.field == field
    assert await everything(world) == before


async def test_what_is_not_paused_is_neither_resumed_nor_extended_nor_given_up(world: World) -> None:
    await world.release(await world.begin("a-1"))
    before = await everything(world)

    for order in (
        lambda: world.pauses.resume_analysis("company:MU", by=PERSON, deadline=soon()),
        lambda: world.pauses.extend("company:MU", datetime.now(UTC), "More.", by=PERSON, deadline=soon()),
        lambda: world.pauses.cancel("company:MU", "Enough.", by=PERSON, deadline=soon()),
    ):
        with pytest.raises(TransitionRefused, match="not paused"):
            await order()

    assert await everything(world) == before


async def test_a_plan_of_a_person_is_completed_and_kept(world: World) -> None:
    """What is not named does what it would; a clean restart begins a run of its own, with an empty memory."""
    leases = {}
    for name in FOUR:
        leases[name] = await world.begin("a-1", name, done=99 if name == "screening" else 1)
        await world.release(leases[name])
    await world.pauses.pause_analysis("a-1", "A plan.", by=PERSON, deadline=soon())

    result = await world.pauses.resume_analysis(
        "a-1", {"restart": {"financial_analyst": "clean"}}, by=PERSON, deadline=soon()
    )

    assert result.status == "RESUMED"
    assert result.plan.to_dict() == {
        "restart": {"business_research": "checkpoint", "financial_analyst": "clean", "strategy_analyst": "checkpoint"},
        "skip": ["screening"],
        "wait": [],
    }
    anew = await world.checkpoints.load("a-1", "financial_analyst", deadline=soon())
    assert anew is not None
    assert (anew.kind, anew.run, anew.completed_subtasks) == ("start", 2, ())
    assert await world.memory(leases["financial_analyst"]) == {}
    assert await world.memory(leases["business_research"]) != {}
    (row,) = await world.rows("SELECT execution_status, restart_agents, skip_agents FROM workflow.resume_plans")
    assert row["execution_status"] == "COMPLETED"
    assert row["restart_agents"] == result.plan.to_dict()["restart"]


@pytest.mark.spec("CK-15", "CK-37")
async def test_an_extension_counts_once_and_extends_the_memories(world: World) -> None:
    """Working memory and snapshot live until then; a second one, or one past day 30, changes nothing."""
    lease = await world.paused("a-1")
    pause = (await world.pauses.get_pause_state("a-1", deadline=soon())).pause
    assert pause is not None
    late = pause.paused_at + timedelta(days=30, seconds=1)
    with pytest.raises(BadInput) as refused:
        await world.pauses.extend("a-1", late, "Too long.", by=PERSON, deadline=soon())
    assert refused.value.field == "until"
    until = pause.paused_at + timedelta(days=21)

    extended = await world.pauses.extend("a-1", until, "The audit is late.", by=PERSON, deadline=soon())

    assert extended.stale_at == until
    meta = await world.working.meta(lease.agent_id, deadline=soon())
    snapshot = await world.snapshots.get(lease.agent_id, deadline=soon())
    assert meta is not None
    assert snapshot is not None
    assert abs(meta.expires_at - until) < timedelta(seconds=1)
    assert snapshot[0].protects_until is not None
    assert snapshot[0].protects_until >= meta.expires_at - timedelta(seconds=1)
    due = {row["kind"]: row["due_at"] for row in await world.rows("SELECT kind, due_at FROM workflow.pause_timer")}
    assert due["stale"] == until
    assert due["expire"] == until + timedelta(days=16)
    before = await everything(world)
    with pytest.raises(BadInput) as refused:
        await world.pauses.extend("a-1", until + timedelta(days=1), "Again.", by=PERSON, deadline=soon())
    assert refused.value.field == "until"
    assert await everything(world) == before


async def test_what_a_person_gives_up_is_over(world: World) -> None:
    """The row is history, the audit says who, the memories are gone, and nothing of the analysis starts again."""
    lease = await world.paused("a-1")

    await world.pauses.cancel("a-1", "The mandate ended.", by=PERSON, deadline=soon())

    state = await world.pauses.get_pause_state("a-1", deadline=soon())
    assert (state.status, state.outcome) == ("EXPIRED", "failed")
    assert state.pause is not None
    assert await world.rows("SELECT FROM workflow.paused_analyses") == []
    assert await world.working.meta(lease.agent_id, deadline=soon()) is None
    assert await world.snapshots.get(lease.agent_id, deadline=soon()) is None
    assert await world.alerts() == ["ANALYSIS_PAUSED", "PAUSE_EXPIRED"]
    actions = await world.rows("SELECT action FROM memory_access_audit WHERE resource_type = 'workflow' ORDER BY id")
    assert [row["action"] for row in actions] == ["pause", "cancel"]
    with pytest.raises(TransitionRefused, match="has failed"):
        await world.begin("a-1")


async def test_an_analysis_that_fails_while_it_is_paused_takes_its_pause_along(world: World) -> None:
    await world.paused("a-1")

    for _ in range(2):
        await world.incidents.report(
            "a-1", "business_research", AgentFailure(kind=FailureKind.DELISTED, message="Gone."), deadline=soon()
        )

    assert await world.rows("SELECT FROM workflow.paused_analyses") == []
    (past,) = await world.rows("SELECT outcome FROM workflow.paused_analyses_history")
    assert past["outcome"] == "FAILED"
    assert await world.alerts() == ["ANALYSIS_FAILED", "ANALYSIS_PAUSED"] or await world.alerts() == [
        "ANALYSIS_PAUSED",
        "ANALYSIS_FAILED",
    ]
    with pytest.raises(TransitionRefused):
        await world.pauses.resume_analysis("a-1", by=PERSON, deadline=soon())


async def test_nothing_is_paused_while_a_gate_waits(world: World) -> None:
    await world.release(await world.begin("a-1"))
    world.gate()
    before = await everything(world)

    with pytest.raises(TransitionRefused, match="A gate of the analysis waits"):
        await world.pauses.pause_analysis("company:MU", "Now.", by=PERSON, deadline=soon())

    assert await everything(world) == before
