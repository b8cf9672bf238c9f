"""Packages are opened when they are due, answered or not, and what an answer does."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from imem.credibility.scores.people import people_facts
from imem.gates.learning.package import HASTY_ALERT
from imem.gates.learning.scores import ERROR_ANALYSIS
from imem.journal.actors import Actor
from imem.journal.errors import BadInput, PermissionDenied
from imem.journal.settings import Role
from imem.kg.asof import AsOf
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import groups_of
from imem.kg.load_format.ownership import owner_of
from imem.kg.model import Agent
from imem.review.states import TaskState
from tests.postmortem.lessons.parts import states

from .conftest import ADMIN, DAY, ENOUGH, Desk, bias

WEEK, MONTH, HOUR = 7 * DAY, 30 * DAY, timedelta(hours=1)
APPROVE = {"action": "approve"}
LUCK = {"rationale": "Luck."}


@pytest.mark.spec("GT-1")
async def test_both_thresholds_open_one_package(desk: Desk) -> None:
    """Day 31 with 55 outcomes; two workers at once; the clock starts anew with it."""
    await desk.started()
    await desk.changed("ann", "flu", -0.06)
    await desk.settle(55)
    desk.shifted += 31 * DAY
    reports = await asyncio.gather(*(desk.validate() for _ in range(4)))

    assert sorted(report.get("items", 0) for report in reports) == [0, 0, 0, 1]
    [task] = await desk.tasks()
    package = task.package
    assert (package.number, package.urgency, package.outcomes, package.days) == (1, "normal", 55, 31.0)
    assert task.due_at is not None
    assert task.due_at - task.opened_at == 48 * HOUR
    assert await desk.later(6 * DAY) == {}


@pytest.mark.spec("GT-1")
@pytest.mark.parametrize(
    ("days", "outcomes", "opens"), [(5, 60, False), (7, 50, True), (30, 12, True), (29, 49, False)]
)
async def test_the_examples_of_the_trigger(desk: Desk, days: int, outcomes: int, *, opens: bool) -> None:
    await desk.started()
    await desk.changed("ann", "flu", -0.06)
    await desk.settle(outcomes)
    assert bool(await desk.later(days * DAY)) is opens
    assert len(await desk.tasks()) == opens


async def test_outcomes_are_counted_once(desk: Desk) -> None:
    """Those of the last package are not new; the urgency is that of the new ones."""
    await desk.started()
    await desk.changed("ann", "flu", -0.06)
    await desk.settle(50)
    assert await desk.later(WEEK)
    await desk.settle(30)
    assert await desk.later(WEEK) == {}
    await desk.settle(45)
    assert await desk.later(HOUR)
    package = (await desk.package()).package
    assert (package.number, package.outcomes, package.urgency) == (2, 75, "high")


async def test_where_nothing_waits_the_clock_starts_anew(desk: Desk) -> None:
    await desk.started()
    await desk.publish("ann", "flu", 0.7)
    assert await desk.later(MONTH) == {"items": 0, "left": 0}
    assert await desk.tasks() == []
    await desk.publish("ann", "flu", 0.6)
    assert await desk.later(29 * DAY) == {}
    assert await desk.later(DAY) == {"items": 1, "left": 0}


async def test_a_change_that_two_decimals_do_not_show_is_no_item(desk: Desk) -> None:
    await desk.started()
    await desk.changed("ann", "flu", 0.0049)
    await desk.changed("bob", "flu", 0.0051)
    await desk.later(MONTH)
    assert [one.key for one in (await desk.package()).package.items] == ["bob/flu"]


@pytest.mark.spec("GT-2")
async def test_without_an_answer_nothing_is_approved(desk: Desk) -> None:
    """The changed score stays applied, the bias a proposal; both come up in the next package."""
    await desk.started()
    await desk.changed("ann", "flu", -0.06)
    await desk.world.say(bias("b-1"))
    await desk.lesson("mu", times=5, confidence=0.95)
    await desk.later(MONTH)
    before = await desk.world.rows("SELECT count(*) AS n FROM event")
    assert await desk.later(48 * HOUR) == {}

    [task] = await desk.tasks()
    assert (task.state, task.why) == (TaskState.DEFAULTED, "late")
    assert await desk.world.rows("SELECT count(*) AS n FROM event") == before
    assert await desk.group("AgentCredibility", "ann/flu", "review") is None
    state = await desk.group("BiasCorrection", "b-1", "state")
    assert state is not None
    assert state["status"] == "proposed"
    assert (await states(desk.world))["mu"] == "pending_gate6"
    assert await desk.later(MONTH) == {"items": 3, "left": 0}
    first, second = await desk.tasks()
    assert (first.state, second.state) == (TaskState.WITHDRAWN, TaskState.OPEN)
    assert [one.id for one in second.package.items] == [one.id for one in first.package.items]


async def test_a_late_answer_counts_until_the_next_package(desk: Desk) -> None:
    await desk.started()
    await desk.world.say(bias("b-1"))
    await desk.later(MONTH)
    await desk.later(3 * DAY)
    with pytest.raises(BadInput, match="rationale"):
        await desk.say({"item": "1", **APPROVE})
    await desk.answer({"item": "1", **APPROVE}, rationale="Late, and right.")
    state = await desk.group("BiasCorrection", "b-1", "state")
    assert state is not None
    assert (state["status"], state["rationale"], state["by"]) == ("approved", "Late, and right.", ADMIN.id)
    assert (await desk.package()).state is TaskState.OVERRIDDEN


@pytest.mark.spec("GT-4")
async def test_changes_of_agents_on_probation_are_answered_alone(desk: Desk) -> None:
    """Only who may append everything states it, and the newest statement counts."""
    await desk.started()
    for agent in ("ann", "bob", "eve"):
        await desk.changed(agent, "flu", -0.04)
    for agent, probation in (("ann", True), ("bob", True), ("bob", False)):
        line = groups_of(Agent, agent, {"standing": Agent.Standing(on_probation=probation)})
        itself, owner = Actor(agent, Role.AGENT), owner_of(line, agent, {("Agent", agent): agent})
        with pytest.raises(PermissionDenied):
            await desk.world.gateway.append([entry_of(line)], actor=itself, owner=owner, deadline=ENOUGH)
        await desk.world.gateway.append([entry_of(line)], actor=ADMIN, owner=owner, deadline=ENOUGH)
    await desk.later(MONTH)
    items = (await desk.package()).package.items
    assert {one.key: one.bulk is not None for one in items} == {"ann/flu": False, "bob/flu": True, "eve/flu": True}


async def test_items_are_answered_one_by_one_and_in_bulk(desk: Desk) -> None:
    """What is not answered comes up again, what is approved only when the score changes anew."""
    await desk.started()
    for agent, by in (("alone", -0.06), ("bulk", -0.04), ("pinned", 0.1), ("why", 0.1), ("later", 0.1)):
        await desk.changed(agent, "flu", by)
    await desk.world.say(bias("b-1"))
    await desk.later(MONTH)
    task = await desk.package()
    assert {one.key: one.bulk is not None for one in task.package.items} == {
        "alone/flu": False, "bulk/flu": True, "pinned/flu": False, "why/flu": False, "later/flu": False, "b-1": False,
    }  # fmt: skip
    await desk.answer(
        {"item": "credibility:alone/flu", **APPROVE},
        {"item": "credibility:pinned/flu", "action": "override", "fields": {"score": 0.65, "days": 9}, **LUCK},
        {"item": "credibility:why/flu", "action": "error_analysis"},
        {"item": "bias:b-1", "action": "reject", "rationale": "Too few."},
        bulk=True,
    )  # fmt: skip

    answered = await desk.package()
    assert answered.state is TaskState.ANSWERED
    assert answered.answer is not None
    assert (answered.answer["answered"], answered.answer["over"], answered.answer["hasty"]) == (5, [], False)
    for agent, action, score in (("alone", "approve", 0.64), ("bulk", "approve", 0.66), ("pinned", "override", 0.8)):
        review = await desk.group("AgentCredibility", f"{agent}/flu", "review")
        assert review is not None
        assert (review["review_action"], review["by"], review["review_task"]) == (action, ADMIN.id, task.task_id)
        assert review["reviewed_score"] == pytest.approx(score)
    [pin] = await desk.pins()
    assert (pin["agent"], pin["score"], pin["reason"], pin["by"]) == ("pinned", 0.65, "Luck.", ADMIN.id)
    assert datetime.fromisoformat(pin["until"]) - datetime.fromisoformat(pin["pinned_at"]) == 9 * DAY
    at = AsOf(datetime.now(UTC) + 40 * DAY)
    facts = await people_facts(
        desk.world.database, [("pinned", "flu")], at, datetime.fromisoformat(pin["pinned_at"]) + DAY, deadline=ENOUGH
    )
    assert facts["pinned", "flu"].pin is not None
    assert facts["pinned", "flu"].pin.score == 0.65
    [wanted] = await desk.alerts(ERROR_ANALYSIS)
    assert wanted["agent"] == "why"
    state = await desk.group("BiasCorrection", "b-1", "state")
    assert state is not None
    assert (state["status"], state["by"]) == ("rejected", ADMIN.id)

    await desk.publish("alone", "flu", 0.7, 30)
    await desk.later(MONTH)
    items = (await desk.package()).package.items
    assert [one.key for one in items] == ["why/flu", "later/flu", "alone/flu"]
    assert (items[2].seen["old"], items[2].seen["reason"]) == (pytest.approx(0.64), "10 of them new")


async def test_a_score_is_reset_for_the_regime(desk: Desk) -> None:
    """To the accuracy in the present one, where it rests on enough."""
    await desk.started()
    regimes = {
        "BULL_HIGH_RATES": {"accuracy": 0.55, "sample_size": 12.0},
        "NORMAL": {"accuracy": 0.9, "sample_size": 9.0},
    }
    await desk.changed("ann", "flu", 0.1, regime="BULL_HIGH_RATES", regime_credibility=regimes)
    await desk.changed("bob", "flu", 0.1, regime="NORMAL", regime_credibility=regimes)
    await desk.later(MONTH)
    reset = {"action": "reset_for_regime", "rationale": "Rates rose."}
    with pytest.raises(BadInput, match="10 observations"):
        await desk.say({"item": "credibility:bob/flu", **reset})
    await desk.answer({"item": "credibility:ann/flu", **reset})
    [pin] = await desk.pins()
    assert (pin["agent"], pin["score"]) == ("ann", 0.55)
    assert datetime.fromisoformat(pin["until"]) - datetime.fromisoformat(pin["pinned_at"]) == 90 * DAY


async def test_what_was_decided_meanwhile_stays_decided(desk: Desk) -> None:
    await desk.started()
    await desk.world.say(bias("b-1"), bias("b-2", "bob"))
    await desk.later(MONTH)
    decided = {"state": {"status": "rejected", "decided_at": datetime.now(UTC).isoformat()}}
    await desk.world.say({"record": "BiasCorrection", "key": "b-1", "groups": decided})
    await desk.answer({"item": "bias:b-1", **APPROVE}, {"item": "bias:b-2", **APPROVE})
    states = [await desk.group("BiasCorrection", key, "state") for key in ("b-1", "b-2")]
    assert [state and state["status"] for state in states] == ["rejected", "approved"]
    answer = (await desk.package()).answer
    assert answer is not None
    assert answer["over"] == ["bias:b-1"]


@pytest.mark.parametrize(
    ("looked", "bulk", "hasty"), [(False, False, True), (True, False, False), (False, True, False)]
)
async def test_a_hasty_review_is_flagged(desk: Desk, *, looked: bool, bulk: bool, hasty: bool) -> None:
    """On what is stored, and by an alert; one answer to what may be approved in bulk is no haste."""
    await desk.started()
    await desk.changed("ann", "flu", -0.04)
    await desk.later(MONTH)
    await desk.answer(*([] if bulk else [{"item": "1", **APPROVE}]), bulk=bulk, looked=looked)
    review = await desk.group("AgentCredibility", "ann/flu", "review")
    assert review is not None
    assert review.get("review_hasty", False) is hasty
    answer = (await desk.package()).answer
    assert answer is not None
    assert answer["hasty"] is hasty
    assert len(await desk.alerts(HASTY_ALERT)) == hasty


@pytest.mark.spec("GT-2")
async def test_lessons_are_decided_each_for_itself(desk: Desk) -> None:
    """Approved, in other words, rejected or tested first; the last comes up again, with what was said."""
    await desk.started()
    for key in ("alpha", "bravo", "charlie", "delta"):
        await desk.lesson(key)
    await desk.lesson("echo", times=5, confidence=0.95)
    await desk.later(MONTH)
    assert (await desk.package()).package.minutes == 35.0
    await desk.answer(
        {"item": "lesson:alpha", **APPROVE},
        {"item": "lesson:bravo", "action": "add_caveats", "fields": {"insight": "Bravo fell, once."}},
        {"item": "lesson:charlie", "action": "reject", "rationale": "It is one case."},
        {"item": "lesson:delta", "action": "test_first"},
        bulk=True,
        rationale="As discussed.",
    )
    assert {key: state for key, state in (await states(desk.world)).items() if "-" not in key} == {
        "alpha": "applied", "bravo": "applied", "charlie": "rejected", "delta": "pending_gate6", "echo": "applied",
    }  # fmt: skip
    [said] = await desk.world.rows(
        "SELECT payload -> 'core' ->> 'insight' AS insight, actor FROM event WHERE kind = 'correct.Lesson'"
    )
    assert (said["insight"], said["actor"]) == ("Bravo fell, once.", ADMIN.id)
    await desk.later(MONTH)
    [item] = (await desk.package()).package.items
    assert (item.key, item.seen["notes"]) == ("delta", ["ann: As discussed."])
    other = item.seen["replaceable"][0]
    await desk.answer({"item": 1, "action": "replace", "fields": {"lesson_id": other}, "rationale": "It is newer."})
    assert [(await states(desk.world))[key] for key in ("delta", other)] == ["applied", "superseded"]


async def test_agents_own_outcomes_do_not_count(desk: Desk) -> None:
    await desk.started()
    await desk.changed("ann", "flu", -0.06)
    await desk.settle(49)
    core = {"subject_id": "market:q", "metric": "up", "target_at": "2026-01-05T00:00:00Z", "actual": 1.0}
    more = {"observed_at": "2026-01-06T00:00:00Z", "vintage": 0, "id": "own:ann/1"}
    await desk.world.say({"record": "Outcome", "core": {**core, **more}}, actor=Actor("ann", Role.AGENT))
    assert await desk.later(WEEK) == {}
    await desk.settle(1)
    assert await desk.validate()
