"""Review tasks: who gets them, what their answers and defaults do, and who may answer."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from imem.journal.actors import Actor
from imem.journal.errors import BadInput, PermissionDenied, TransitionRefused
from imem.journal.settings import Role
from imem.review import inbox
from imem.review.states import TaskState, Why
from imem.review.tasks import close_windows, withdraw_task
from tests.review.conftest import ADMIN, EVE, Office, soon
from tests.review.figures import ENDLESS, FIGURE, KINDS
from tests.servers import asked
from tests.strategies import LONGER


async def test_a_task_waits_for_its_answer_and_has_it_applied(office: Office) -> None:
    await office.reviewer("eve")

    task = await office.open("t")
    assert (task.state, task.reviewer, task.why) == (TaskState.OPEN, "eve", None)
    assert task.due_at is not None
    assert task.due_at - task.opened_at == timedelta(hours=6)
    answered = await office.answer("t", by=EVE, rationale="The filing says so.")
    assert answered.answer is not None
    assert (answered.answer["by"], answered.answer["fields"]) == ("eve", {"value": 9.53})
    assert await office.applied() == []
    await office.advance()
    await office.advance()

    assert await office.applied() == [("t", "choose", "{'value': 9.53}")]
    assert (await office.task("t")).state is TaskState.ANSWERED
    assert await office.answer("t", by=EVE) == await office.task("t"), "the same answer again"
    with pytest.raises(TransitionRefused, match="was answered by eve: choose"):
        await office.answer("t", fields={"value": 95.3})


async def test_nobody_there_means_the_default_at_once(office: Office) -> None:
    """An empty roster; a reviewer of other kinds; one who is away without a deputy."""
    away = datetime.now(UTC) + timedelta(days=7)
    assert (await office.open("empty")).why is Why.NOBODY
    await office.reviewer("other", kinds=("endless",))
    assert (await office.open("others")).why is Why.NOBODY
    await office.reviewer("eve", away_until=away)
    assert (await office.open("away")).why is Why.NOBODY
    await office.reviewer("bob", kinds=("endless",))
    await office.reviewer("eve", away_until=away, deputy="bob")
    assert (await office.open("of others alone")).why is Why.NOBODY
    await office.reviewer("bob")
    assert (await office.open("deputy")).reviewer == "bob"
    names = ("empty", "others", "away", "of others alone")
    assert [row[:2] for row in await office.applied()] == [(name, "default") for name in names]


async def test_a_full_queue_defaults_what_cannot_displace(office: Office) -> None:
    """The least urgent goes first, the newest of several; what is as urgent displaces nothing."""
    await office.reviewer("eve", capacity=3)
    for name, rank in (("medium", 2), ("high", 1), ("medium-2", 2)):
        assert (await office.open(name, rank)).state is TaskState.OPEN

    assert (await office.open("high-2", 1)).why is Why.FULL, "only the most urgent displace"
    for number, displaced in enumerate(("medium-2", "medium", "high")):
        assert (await office.open(f"critical-{number}", 0)).state is TaskState.OPEN
        out = await office.task(displaced)
        assert (out.state, out.why) == (TaskState.DEFAULTED, Why.DISPLACED)
    assert (await office.open("critical-4", 0)).why is Why.FULL
    assert [row[0] for row in await office.applied()] == ["high-2", "medium-2", "medium", "high", "critical-4"]


async def test_capacity_counts_all_kinds_and_displaces_its_own_alone(office: Office) -> None:
    await office.reviewer("eve", capacity=1)
    await office.open("of another kind", 2, of=ENDLESS)
    assert (await office.open("critical", 0)).why is Why.FULL
    await office.reviewer("bob", capacity=2)
    assert (await office.open("next", 2)).reviewer == "bob"


async def test_the_default_applies_once_when_the_time_is_over(office: Office) -> None:
    """Whatever workers do meanwhile; the alert about the task is over."""
    await office.reviewer("eve")
    await office.open("t", 0)
    async with office.later(timedelta(hours=5.9)):
        await office.advance()
        assert (await office.task("t")).state is TaskState.OPEN
    async with office.later(timedelta(hours=6, seconds=5)):
        await asyncio.gather(*(office.advance() for _ in range(4)))
        task = await office.task("t")
    assert (task.state, task.why) == (TaskState.DEFAULTED, Why.LATE)
    assert [row[:2] for row in await office.applied()] == [("t", "default")]
    assert await office.rows("SELECT kind, severity, closed_at IS NULL AS open FROM workflow.alert") == [
        {"kind": "REVIEW_TASK", "severity": "HIGH", "open": False}
    ]


async def test_a_late_answer_reviews_the_default(office: Office) -> None:
    """Also one that comes before a worker has applied the default: first the default, then the answer."""
    await office.reviewer("eve")
    await office.open("t")
    async with office.later(timedelta(hours=7)):
        await office.answer("t", rationale="Still right.")
        await office.advance()
        assert (await office.task("t")).state is TaskState.OVERRIDDEN
    assert [row[:2] for row in await office.applied()] == [("t", "default"), ("t", "choose")]


async def test_a_default_is_confirmed_overridden_or_looked_into(office: Office) -> None:
    for name in ("a", "b", "c"):
        await office.open(name)
    await office.answer("a", "confirm")
    with pytest.raises(BadInput, match="rationale"):
        await office.answer("b")
    await office.answer("b", rationale="The filing.")
    await office.answer("c", "investigate")
    await office.advance()
    states = [(await office.task(name)).state for name in ("a", "b", "c")]
    assert states == [TaskState.CONFIRMED, TaskState.OVERRIDDEN, TaskState.INVESTIGATING]
    assert [await possible(office, name) for name in ("a", "b", "c")] == [set(), set(), {"choose", "confirm"}]
    await office.answer("c", "confirm")
    assert await possible(office, "c") == set(), "it was answered"
    await office.advance()
    assert (await office.task("c")).state is TaskState.CONFIRMED
    with pytest.raises(TransitionRefused, match="was answered by ann: confirm"):
        await office.answer("c", rationale="Not so.")


async def possible(office: Office, name: str) -> set[str]:
    return set(inbox.possible_actions(FIGURE, await office.task(name), datetime.now(UTC)))


async def test_what_can_be_done_with_a_task_follows_from_its_state(office: Office) -> None:
    await office.open("defaulted")
    await office.reviewer("eve")
    await office.open("open")
    assert await possible(office, "open") == {"choose", "more_time"}
    await office.answer("open", "more_time")
    await office.advance()
    assert await possible(office, "open") == {"choose"}, "more time is given once"
    assert await possible(office, "defaulted") == {"choose", "confirm", "investigate"}


async def test_a_gate_closes_windows(office: Office) -> None:
    """What nobody reviewed stands for good; what was reviewed, and open tasks, stay."""
    await office.open("unreviewed")
    await office.open("reviewed")
    await office.answer("reviewed", "confirm")
    await office.advance()
    await office.reviewer("eve")
    await office.open("open")
    async with office.database.transaction(soon()) as conn:
        runtime: Any = office
        await close_windows(runtime, conn, "a-1", "Gate 5 was passed.", datetime.now(UTC))

    states = [(await office.task(name)).state for name in ("unreviewed", "reviewed", "open")]
    assert states == [TaskState.CLOSED, TaskState.CONFIRMED, TaskState.OPEN]
    with pytest.raises(TransitionRefused):
        await office.answer("unreviewed", "confirm")


async def test_more_time_is_given_once(office: Office) -> None:
    await office.reviewer("eve")
    before = await office.open("t")
    await office.answer("t", "more_time", by=EVE)
    await office.advance()

    after = await office.task("t")
    assert before.due_at is not None
    assert after.due_at is not None
    assert (after.due_at - before.due_at, after.state) == (timedelta(hours=2), TaskState.OPEN)
    with pytest.raises(TransitionRefused, match="More time was given before"):
        await office.answer("t", "more_time", by=EVE)


async def test_a_task_is_handed_over_with_its_trail(office: Office) -> None:
    await office.reviewer("eve")
    before = await office.open("t")
    with pytest.raises(BadInput, match="answers no tasks"):
        await inbox.delegate_task(office.application, KINDS, "t", "bob", reason="Yours.", by=EVE, deadline=soon())
    await office.reviewer("bob")
    await inbox.delegate_task(office.application, KINDS, "t", "bob", reason="Yours.", by=EVE, deadline=soon())
    await office.advance()

    task = await office.task("t")
    assert (task.reviewer, task.due_at, task.state) == ("bob", before.due_at, TaskState.OPEN)
    assert [(step["from"], step["by"], step["reason"]) for step in task.trail] == [("eve", "eve", "Yours.")]


async def test_a_task_goes_to_nobody_without_room_for_it(office: Office) -> None:
    """Nor to who is away, or has it; what was handed over meanwhile counts when the request has its effect."""

    async def delegate(name: str, to: str) -> None:
        await inbox.delegate_task(office.application, KINDS, name, to, reason="Yours.", by=EVE, deadline=soon())

    await office.reviewer("eve", capacity=9)
    for name in ("t-1", "t-2", "t-3"):
        await office.open(name)
    with pytest.raises(TransitionRefused, match="who has it"):
        await delegate("t-1", "eve")
    await office.reviewer("bob", capacity=1, away_until=datetime.now(UTC) + timedelta(days=7))
    with pytest.raises(TransitionRefused, match="away until"):
        await delegate("t-1", "bob")
    await office.reviewer("bob", capacity=1)
    await delegate("t-1", "bob")
    await delegate("t-2", "bob")
    report = await office.advance()
    assert (report.refused, sorted([(await office.task(name)).reviewer or "" for name in ("t-1", "t-2")])) == (
        1,
        ["bob", "eve"],
    )
    with pytest.raises(TransitionRefused, match="has 1 of 1 tasks"):
        await delegate("t-3", "bob")


async def test_who_is_not_on_the_roster_answers_nothing(office: Office) -> None:
    await office.reviewer("bob")
    await office.open("t")
    with pytest.raises(PermissionDenied, match="not on the roster"):
        await office.answer("t", by=EVE)
    await office.reviewer("eve", kinds=("endless",))
    with pytest.raises(PermissionDenied):
        await office.answer("t", by=Actor("eve", Role.REVIEWER))
    await office.reviewer("eve", kinds=("figure",))
    assert (await office.answer("t", by=EVE)).answer is not None


async def test_wrong_answers_are_refused_with_the_field(office: Office) -> None:
    await office.reviewer("eve")
    await office.open("t")
    for action, fields, where in (
        ("choose", {"value": "many"}, "fields.value"), ("choose", {"value": float("nan")}, "fields.value"),
        ("choose", {}, "fields.value"), ("choose", {"value": 1, "other": 2}, "fields.other"), ("guess", {}, "action"),
    ):  # fmt: skip
        with pytest.raises(BadInput) as refused:
            await office.answer("t", action, fields=fields)
        assert refused.value.field == where
    with pytest.raises(BadInput, match="there is no task"):
        await office.answer("nothing")
    with pytest.raises(TransitionRefused, match="reviews a default"):
        await office.answer("t", "confirm")
    with pytest.raises(BadInput, match="characters"):
        await office.answer("t", rationale="x" * 5_000)
    assert (await office.task("t")).answer is None


async def test_a_withdrawn_task_is_no_question_any_more(office: Office) -> None:
    await office.reviewer("eve")
    await office.open("t")
    for _ in range(2):
        async with office.database.transaction(soon()) as conn:
            await withdraw_task(conn, "t", "A later filing says the same.")
    assert (await office.task("t")).state is TaskState.WITHDRAWN
    with pytest.raises(TransitionRefused):
        await office.answer("t")
    async with office.later(timedelta(hours=7)):
        assert (await office.advance()).moved == {}


async def test_the_same_task_is_opened_once(office: Office) -> None:
    await office.reviewer("eve")
    opened = await asyncio.gather(*(office.open("t") for _ in range(4)))
    assert {task.reviewer for task in opened} == {"eve"}
    assert len(await office.rows("SELECT FROM lifecycle WHERE kind = 'task'")) == 1


async def test_tasks_alike_are_answered_together(office: Office) -> None:
    await office.reviewer("eve", capacity=9)
    for name in ("a", "b"):
        await office.open(name)
    await office.open("c", metric="debt")
    alike = await inbox.tasks_alike(office.application, KINDS, "a", "choose", deadline=soon())
    answered = [await office.answer(name) for name in ("a", *alike)]
    assert [task.task_id for task in answered] == ["a", "b"]
    assert (await office.task("c")).answer is None


async def test_the_inbox_lists_the_most_urgent_first(office: Office) -> None:
    await office.reviewer("eve", capacity=9)
    for name, rank in (("low", 3), ("critical", 0), ("high", 1), ("high-2", 1)):
        await office.open(name, rank)
    listed = await inbox.list_tasks(office.application, KINDS, deadline=soon())
    assert [task.task_id for task in listed] == ["critical", "high", "high-2", "low"]
    await office.reviewer("eve", capacity=9, removed=True)
    await office.open("default", 0)
    first = await inbox.list_tasks(office.application, KINDS, limit=4, deadline=soon())
    assert [task.task_id for task in first] == ["critical", "high", "high-2", "low"], "a default is no open task"
    assert len(await inbox.list_tasks(office.application, KINDS, deadline=soon())) == 5
    assert await inbox.list_tasks(office.application, KINDS, reviewer="bob", deadline=soon()) == []
    with pytest.raises(BadInput, match="kind"):
        await inbox.list_tasks(office.application, KINDS, kind="nothing", deadline=soon())


async def test_answers_race_the_end_of_the_time_with_one_outcome_each(office: Office) -> None:
    """Whoever commits first: an answer in time, or the default and the answer as its review; never half of either."""
    await office.reviewer("eve", capacity=100)
    names = [f"t-{number}" for number in range(40)]
    for name in names:
        await office.open(name)
    async with office.later(timedelta(hours=6, seconds=1)):

        async def advances() -> None:
            while await office.rows("SELECT FROM lifecycle WHERE wake_at IS NOT NULL"):
                await office.advance()

        await asyncio.gather(*(office.answer(name, rationale="So.") for name in names), advances())
        await advances()
        states = {(await office.task(name)).state for name in names}
    assert states == {TaskState.OVERRIDDEN}
    applied = await office.applied()
    assert sorted(applied, key=lambda one: one[0]) != []
    for name in names:
        assert [row[1] for row in applied if row[0] == name] == ["default", "choose"]


RACES = 25 if LONGER else 2
"""Rounds of forty tasks: a thousand in the long form."""


@pytest.mark.spec("GT-13")
@pytest.mark.longer
@pytest.mark.parametrize("number", range(RACES))
async def test_two_answers_and_the_end_of_the_time_leave_one_outcome(office: Office, number: int) -> None:
    """The times end while both are given: one answer counts, or the default; with its effect, once, and audited."""
    await office.reviewer("eve", capacity=100)
    names = [f"t-{number}-{task}" for task in range(40)]
    for name in names:
        await office.open(name)
    asked(office.admin_url, "UPDATE lifecycle SET due_at = imem_now() + random() * interval '1 second'")
    accepted: dict[str, list[float]] = {name: [] for name in names}

    async def say(name: str, value: float, by: Actor) -> None:
        with suppress(TransitionRefused, BadInput):
            await office.answer(name, fields={"value": value}, by=by)
            accepted[name].append(value)

    async def advances() -> None:
        while await office.rows("SELECT FROM lifecycle WHERE state = 'open'"):
            await office.advance()

    said = [say(name, value, by) for name in names for value, by in ((9.53, ADMIN), (95.3, EVE))]
    await asyncio.gather(*said, advances(), advances())
    applied = await office.applied()
    audited = await office.rows(
        "SELECT request_context ->> 'key' AS key FROM memory_access_audit"
        " WHERE request_context ->> 'kind' = 'task' AND request_context ->> 'before' = 'open' AND outcome = 'done'"
    )
    for name in names:
        [(_, action, detail)] = [row for row in applied if row[0] == name]
        task = await office.task(name)
        if task.state is TaskState.DEFAULTED:
            assert (action, accepted[name], task.answer) == ("default", [], None)
        else:
            assert task.state is TaskState.ANSWERED
            assert (action, detail) == ("choose", f"{{'value': {accepted[name][0]}}}")
            assert len(accepted[name]) == 1
        assert sum(row["key"] == name for row in audited) == 1


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ({"person": " "}, "person"), ({"person": "x", "capacity": 0}, "capacity"),
        ({"person": "x", "kinds": ("nothing",)}, "kinds"), ({"person": "x", "deputy": "x"}, "deputy"),
        ({"person": "x", "deputy": "nobody"}, "deputy"),
        ({"person": "x", "away_until": datetime(2026, 1, 1)}, "away_until"),  # noqa: DTZ001 - that is what is tried
    ],
)  # fmt: skip
async def test_a_wrong_entry_of_the_roster_names_its_field(office: Office, entry: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInput) as refused:
        await office.reviewer(**entry)
    assert refused.value.field == field
