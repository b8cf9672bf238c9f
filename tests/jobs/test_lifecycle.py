"""Lifecycle rows: what moves them, who wins, and what is left of a process that dies."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import psycopg
import pytest
from psycopg.types.json import Jsonb

from imem.jobs.lifecycle import AdvanceReport, request_transition
from tests.jobs.conftest import PERSON, Desk, soon
from tests.jobs.questions import Question
from tests.killed_programs import killed_program

AUDITED = "SELECT actor_id, action, resource_id, action_reason FROM memory_access_audit ORDER BY timestamp, id"
KILLS = 25


async def test_the_end_of_its_time_moves_a_row_once(desk: Desk) -> None:
    """Not a moment before, by one of several processes; a row without a limit stays."""
    desk.open("q")
    desk.open("without a limit", None)
    assert await desk.advance() == AdvanceReport()
    async with desk.later(timedelta(minutes=61)):
        reports = await asyncio.gather(*(desk.advance() for _ in range(4)))

        assert sum(report.moved.get("question", 0) for report in reports) == 1
        row = await desk.row("q")
    assert (row.state, row.version, row.due_at) == ("CLOSED", 2, None)
    assert (await desk.row("without a limit")).state == "OPEN"
    assert await desk.rows(AUDITED) == [
        {"actor_id": "SYSTEM", "action": "close", "resource_id": "a-1", "action_reason": None}
    ]


async def test_a_request_has_its_effect_with_the_name_of_who_asked(desk: Desk) -> None:
    desk.open("q")

    stored = await desk.answer("q", details={"value": 9.53})
    assert stored is not None
    assert (stored.state, stored.request is not None) == ("OPEN", True)
    assert await desk.answer("q") is None, "the first counts"
    await desk.advance()
    await desk.advance()

    row = await desk.row("q")
    assert (row.state, row.request, row.data) == ("ANSWERED", None, {"said": {"value": 9.53}})
    assert [(one["actor_id"], one["action"], one["action_reason"]) for one in await desk.rows(AUDITED)] == [
        ("ann", "answer_question", "So it is."), ("ann", "answer", "So it is."),
    ]  # fmt: skip


async def test_a_request_that_was_stored_in_time_counts_although_the_pipeline_is_late(desk: Desk) -> None:
    desk.open("q")
    await desk.answer("q")
    async with desk.later(timedelta(days=3)):
        await desk.advance()
    assert (await desk.row("q")).state == "ANSWERED"


async def test_a_late_request_is_not_stored_unless_it_may_be_late(desk: Desk) -> None:
    desk.open("q", "-1 second")

    assert await desk.answer("q") is None
    assert await desk.rows(AUDITED) == []
    assert await desk.answer("q", late=True) is not None


async def test_requests_race_the_end_of_the_time_with_one_winner_each(desk: Desk) -> None:
    """The row says which, and so does the audit."""
    names = [f"q-{number}" for number in range(60)]
    for name in names:
        desk.open(name, "-1 second")

    async def answered(name: str) -> bool:
        stored = await request_transition(
            desk.application,
            "question",
            name,
            1,
            Question.ANSWERED,
            by=PERSON,
            reason="So.",
            late=True,
            deadline=soon(),
        )
        return stored is not None

    async def advances() -> None:
        while await desk.rows("SELECT FROM lifecycle WHERE state = 'OPEN'"):
            await desk.advance()

    answers, _ = await asyncio.gather(asyncio.gather(*map(answered, names)), advances())

    states = [(await desk.row(name)).state for name in names]
    assert states == [Question.ANSWERED if won else Question.CLOSED for won in answers]
    moved = await desk.rows("SELECT FROM memory_access_audit WHERE action IN ('answer', 'close')")
    assert len(moved) == len(names)


async def test_a_request_that_no_transition_allows_is_removed(desk: Desk) -> None:
    """It was stored under the application's login without the checks of the API; the row goes on."""
    desk.open("q")
    with psycopg.connect(desk.url, autocommit=True) as conn:
        forged = Jsonb({"state": "CLOSED", "details": {}})
        stored = conn.execute(
            "SELECT state FROM request_transition_v1('question', 'q', 1, %s, true, 'eve', 'agent', 'Mine.', '{}')",
            (forged,),
        ).fetchall()
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute("UPDATE lifecycle SET state = 'ANSWERED'")
    assert stored == [("OPEN",)]

    # The machine has this transition, but not for a request before the end of the time.
    report = await desk.advance()

    assert (report.refused, report.moved) == (1, {})
    row = await desk.row("q")
    assert (row.state, row.request) == ("OPEN", None)
    refused = (await desk.rows(AUDITED))[-1]
    assert (refused["actor_id"], refused["action"]) == ("eve", "refuse")
    assert await desk.answer("q") is not None


async def test_a_row_whose_step_fails_is_put_off_and_the_others_go_on(desk: Desk) -> None:
    """With an alert, once; longer each time; and the alert is over with the first success."""
    for name in ("bad", "good"):
        desk.open(name, "-1 second")
    desk.failing.add("bad")
    told = "SELECT kind, closed_at IS NULL AS open FROM workflow.alert"

    report = await desk.advance()
    assert (report.moved, report.failed) == ({"question": 1}, 1)
    assert await desk.advance() == AdvanceReport(), "put off"
    async with desk.later(timedelta(minutes=1)):
        assert (await desk.advance()).failed == 1
    assert await desk.rows(told) == [{"kind": "WORK_SET_ASIDE", "open": True}]
    assert ((await desk.row("bad")).state, (await desk.row("bad")).failures) == ("OPEN", 2)

    desk.failing.clear()
    async with desk.later(timedelta(hours=2)):
        assert (await desk.advance()).moved == {"question": 1}
    assert await desk.rows(told) == [{"kind": "WORK_SET_ASIDE", "open": False}]


async def test_a_row_that_waits_for_a_lock_is_tried_again_without_an_alert(desk: Desk) -> None:
    desk.open("q", "-1 second")
    desk.locked.add("q")
    assert await desk.advance() == AdvanceReport()

    desk.locked.clear()
    async with desk.later(timedelta(minutes=1)):
        assert (await desk.advance()).moved == {"question": 1}
    assert (await desk.row("q")).failures == 0
    assert await desk.rows("SELECT FROM workflow.alert") == []


async def test_a_process_that_is_killed_leaves_each_row_before_or_after_its_move(desk: Desk) -> None:
    """Killed before each of its statements in turn; what it leaves, the next finishes, with one audit row each."""
    async with killed_program("tests.jobs.killed", desk.pipeline_url) as program:
        for number in range(KILLS):
            desk.open(f"q-{number}", "-1 second")
            if number % 2:
                await desk.answer(f"q-{number}", late=True)
            await program.ended(str(number % 12 + 1))
            assert {(await desk.row(f"q-{at}")).version for at in range(number + 1)} <= {1, 2, 3}
        assert await program.ended("0") == 0

    states = [(await desk.row(f"q-{number}")).state for number in range(KILLS)]
    assert states == [Question.ANSWERED if number % 2 else Question.CLOSED for number in range(KILLS)]
    moved = await desk.rows("SELECT FROM memory_access_audit WHERE action IN ('answer', 'close')")
    assert len(moved) == KILLS
