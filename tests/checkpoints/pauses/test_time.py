"""What time does to a pause: notices once each, stale, expired; gates that nobody answered; what is put aside."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import uuid4

import pytest

from imem.alerts.notifiers import LogNotifier
from imem.alerts.sending import send_due
from imem.alerts.store import NewAlert, Severity, raise_alert
from imem.checkpoints.pauses import manager
from imem.journal.errors import TransitionRefused

from .world import PERSON, World, soon


@pytest.mark.spec("CK-36")
async def test_notices_go_out_once_each_whoever_looks(world: World) -> None:
    """Day 3 and day 7, with several managers at once and however often they look."""
    await world.paused("a-1")

    for days, expected in ((2.9, []), (3.1, ["PAUSE_REMINDER"]), (7.1, ["PAUSE_REMINDER", "PAUSE_WARNING"])):
        await world.later(timedelta(days=days))
        await asyncio.gather(*(world.round() for _ in range(4)))
        await world.round()
        assert [kind for kind in await world.alerts() if kind != "ANALYSIS_PAUSED"] == expected
    row = await world.pause_row("a-1")
    assert (row["alert_day3_sent"], row["alert_day7_sent"], row["status"]) == (True, True, "PAUSED")
    severities = await world.rows("SELECT kind, severity FROM workflow.alert ORDER BY kind")
    assert [(one["kind"], one["severity"]) for one in severities][1:] == [
        ("PAUSE_REMINDER", "MEDIUM"),
        ("PAUSE_WARNING", "HIGH"),
    ]


async def test_a_clock_that_jumps_skips_nothing(world: World) -> None:
    """Nobody ran for twenty days: both notices come, and it is stale, which a person alone can end."""
    await world.paused("a-1")
    await world.working_redis.flushall()
    await world.later(timedelta(days=20))

    await world.round()
    await world.round()

    assert sorted(await world.alerts()) == ["ANALYSIS_PAUSED", "PAUSE_REMINDER", "PAUSE_STALE", "PAUSE_WARNING"]
    assert (await world.pause_row("a-1"))["status"] == "STALE"
    with pytest.raises(TransitionRefused):
        await world.pauses.resume_analysis("a-1", by=None, deadline=soon())
    resumed = await world.pauses.resume_analysis("a-1", by=PERSON, deadline=soon())
    assert resumed.status == "RESUMED"
    assert await world.rows("SELECT FROM workflow.pause_timer") == []


async def test_a_clock_that_is_set_back_undoes_nothing(world: World) -> None:
    """What was due once is not due again."""
    await world.paused("a-1")
    await world.later(timedelta(days=8))
    await world.round()
    await world.later(timedelta(days=-1))
    await world.round()
    await world.later(timedelta(days=8))
    await world.round()

    assert sorted(await world.alerts()) == ["ANALYSIS_PAUSED", "PAUSE_REMINDER", "PAUSE_WARNING"]


async def test_a_pause_that_is_not_resumed_expires_and_stays_recorded(world: World) -> None:
    """Day 30: the row goes, the history and the audit stay, and so do its checkpoints for another thirty days."""
    await world.paused("a-1")
    for days in (14.01, 29.9):
        await world.later(timedelta(days=days))
        await world.round()
        assert (await world.pause_row("a-1"))["status"] == "STALE"
    await world.later(timedelta(days=30.01))
    await world.round()

    assert await world.rows("SELECT FROM workflow.paused_analyses") == []
    (past,) = await world.rows("SELECT outcome, body FROM workflow.paused_analyses_history")
    assert past["outcome"] == "EXPIRED"
    assert len(past["body"]["agents"]) == 1
    state = await world.pauses.get_pause_state("a-1", deadline=soon())
    assert (state.status, state.outcome) == ("EXPIRED", "failed")
    actions = await world.rows("SELECT action FROM memory_access_audit WHERE resource_type = 'workflow' ORDER BY id")
    assert [row["action"] for row in actions] == ["pause", "expire"]
    assert "PAUSE_EXPIRED" in await world.alerts()
    assert len(await world.rows("SELECT FROM workflow.agent_checkpoints")) == 4


async def test_an_extended_pause_goes_stale_at_its_new_end(world: World) -> None:
    await world.paused("a-1")
    pause = (await world.pauses.get_pause_state("a-1", deadline=soon())).pause
    assert pause is not None
    until = pause.paused_at + timedelta(days=25)
    await world.pauses.extend("a-1", until, "Leave.", by=PERSON, deadline=soon())

    for days, status in ((24.9, "PAUSED"), (25.1, "STALE"), (40.9, "STALE")):
        await world.later(timedelta(days=days))
        await world.round()
        assert (await world.pause_row("a-1"))["status"] == status
    await world.later(timedelta(days=41.1))
    await world.round()
    assert await world.rows("SELECT FROM workflow.paused_analyses") == []


@pytest.mark.spec("CK-40")
async def test_what_an_open_pause_refers_to_is_never_cleaned_up(world: World) -> None:
    """Even where the analysis has failed long ago by its row; once the pause is over, it goes like the rest."""
    await world.paused("a-1")
    world.owner("UPDATE workflow.analysis SET outcome = 'failed', ended_at = imem_now() - interval '31 days'")

    await world.cleanup.cleanup_failed(deadline=soon())

    kept = {row["id"] for row in await world.rows("SELECT id FROM workflow.agent_checkpoints")}
    (agent,) = await world.rows("SELECT checkpoint_id FROM workflow.pause_agent_checkpoints")
    assert kept == {agent["checkpoint_id"], (await world.pause_row("a-1"))["checkpoint_id"]}
    world.owner("UPDATE workflow.paused_analyses SET status = 'RESUMED', resume_timestamp = imem_now()")
    await world.cleanup.cleanup_failed(deadline=soon())
    assert await world.rows("SELECT FROM workflow.agent_checkpoints") == []
    assert (await world.pause_row("a-1"))["checkpoint_id"] is None


# Gates


async def test_a_gate_that_nobody_answers_pauses(world: World) -> None:
    """After its 24 hours, and once."""
    await world.release(await world.begin("a-1"))
    world.gate()
    await world.later(timedelta(hours=23.9))
    await world.round()
    assert await world.rows("SELECT FROM workflow.paused_analyses") == []

    await world.later(timedelta(hours=24.1))
    await asyncio.gather(*(world.round() for _ in range(3)))
    await world.round()

    row = await world.pause_row("a-1")
    assert (row["status"], row["pause_trigger"], row["created_by"]) == ("PAUSED", "GATE_TIMEOUT", "SYSTEM")
    (gate,) = await world.rows("SELECT state FROM lifecycle")
    assert gate["state"] == "TIMED_OUT"
    assert await world.alerts() == ["ANALYSIS_PAUSED"]


@pytest.mark.parametrize(
    ("state", "status", "outcome"), [("SOFT_REJECTED", "PAUSED", None), ("HARD_REJECTED", None, "failed")]
)
async def test_a_soft_rejection_pauses_and_a_hard_one_fails(
    world: World, state: str, status: str | None, outcome: str | None
) -> None:
    await world.release(await world.begin("a-1"))
    world.gate(state=state)

    await world.round()
    await world.round()

    found = await world.pauses.get_pause_state("a-1", deadline=soon())
    assert (found.status, found.outcome) == (status, outcome)
    assert await world.alerts() == (["ANALYSIS_PAUSED"] if status else ["ANALYSIS_FAILED"])


async def test_a_resume_passes_gates_that_were_validated(world: World) -> None:
    """The agent is told which; the one that timed out is not among them."""
    state = await world.orchestrator.start_analysis("a-1", "company:MU", {"screening": "s-1"}, deadline=soon())
    assert state.agents == {"screening": "SENT"}
    world.gate(gate=2, state="VALIDATED")
    world.gate(gate=3)
    await world.later(timedelta(hours=25))
    await world.round()
    assert (await world.pause_row("a-1"))["status"] == "PAUSED"

    await world.pauses.resume_analysis("a-1", by=PERSON, deadline=soon())
    started = await world.orchestrator.begin(world.sent[-1], deadline=soon())

    assert started is not None
    assert started.gates_passed == (2,)


# What is put aside


async def test_what_is_old_is_put_aside(world: World) -> None:
    """Resumed pauses after 30 days, their plans with them, batches after 90; not a day before, and once."""
    await world.paused("a-1")
    await world.batches.resume_batch(["company:MU"], by=PERSON, deadline=soon())
    assert (await world.pause_row("a-1"))["status"] == "RESUMED"
    await world.later(timedelta(days=29))
    assert set((await world.manager.retire(deadline=soon())).values()) == {0}

    await world.later(timedelta(days=31))
    done = await world.manager.retire(deadline=soon())

    assert done["pauses"] == 1
    (past,) = await world.rows("SELECT outcome, body FROM workflow.paused_analyses_history")
    assert past["outcome"] == "RESUMED"
    assert past["body"]["plans"][0]["execution_status"] == "COMPLETED"
    await world.later(timedelta(days=91))
    done = await world.manager.retire(deadline=soon())
    assert done["batches"] == 1
    (cold,) = await world.rows("SELECT body FROM workflow.batch_pause_operations_archive")
    assert len(cold["body"]["members"]) == 1
    assert sum((await world.manager.retire(deadline=soon())).values()) == 0


async def test_alerts_and_tasks_of_what_is_over_are_forgotten(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """90 days after they were closed, or their analysis ended; never what is open. The journal keeps the notices."""
    monkeypatch.setattr(manager, "ROWS", 2)
    for name in ("a-1", "a-2", "a-3"):
        await world.paused(name)
        await world.orchestrator.start_analysis(name, "company:MU", {"news_monitor": f"new-{name}"}, deadline=soon())
    await send_due(world.database, {"log": LogNotifier()}, until=soon())
    for name in ("a-1", "a-2"):
        await world.pauses.resume_analysis(name, by=PERSON, deadline=soon())
        await world.database.commit("analysis_end", {"analysis_id": name, "reason": "Over."}, deadline=soon())
    await send_due(world.database, {"log": LogNotifier()}, until=soon())
    before = len(await world.rows("SELECT FROM event WHERE kind LIKE 'notice.%%'"))
    await world.later(timedelta(days=89))
    await world.cleanup.cleanup_failed(deadline=soon())
    done = await world.manager.retire(deadline=soon())
    assert [done[name] for name in ("alerts", "messages", "overs", "tasks")] == [0] * 4

    await world.later(timedelta(days=91))
    done = await world.manager.retire(deadline=soon())

    assert done["overs"] == done["tasks"] == 2
    assert done["alerts"] >= 2
    assert done["messages"] >= 3
    open_ones = await world.rows("SELECT analysis_id, closed_at FROM workflow.alert")
    assert open_ones == [{"analysis_id": "a-3", "closed_at": None}]
    assert await world.rows("SELECT analysis_id FROM workflow.agent_task") == [{"analysis_id": "a-3"}]
    assert not await world.rows("SELECT FROM workflow.alert_send")
    assert len(await world.rows("SELECT FROM event WHERE kind LIKE 'notice.%%'")) == before


async def test_an_alert_that_was_forgotten_is_not_raised_again(world: World) -> None:
    """What was told, acknowledged and forgotten is over, however often whoever found it finds it again."""
    alert = NewAlert(
        alert_id=uuid4(), kind="RESULTS_MISSING", severity=Severity.HIGH, subject=None, analysis_id="a-1", about=None,
        payload={},
    )  # fmt: skip
    for expected in (True, False):
        async with world.database.transaction(soon()) as conn:
            assert await raise_alert(conn, alert) is expected
        world.owner("DELETE FROM workflow.alert")
