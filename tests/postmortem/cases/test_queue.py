"""Cases are opened for what is off by more than noise, and reviewed a few at a time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from imem.jobs.due import make_due
from imem.journal.errors import BadInput, TransitionRefused
from imem.kg.kinds.forecasts import Forecast
from imem.postmortem.cases.priorities import PriorityPolicy
from imem.review.states import TaskState
from tests.credibility.conftest import company

from .conftest import ANSWERS, DAY, DECIDED, ENOUGH, HOUR, Clinic, cites_pattern, decided, happened

SEVEN = (0.9, -0.3, 1.2, -0.5, 0.7, -0.9, 0.8)
"""What seven decisions saw after 30 days, that forecast 1.5 % with an interval of 14 to either side."""


async def seven(clinic: Clinic) -> None:
    for number, actual in enumerate(SEVEN):
        await clinic.world.say(
            decided(f"d{number}", subject=f"company:C{number}"),
            happened(actual, f"d{number}", subject=f"company:C{number}"),
        )


@pytest.mark.spec("PM-2")
@pytest.mark.parametrize(
    ("forecast", "actual", "opens"),
    [
        (Forecast.of_return(0.20, days=30, low=0.10, high=0.30), -0.50, True),
        (Forecast.of_return(0.20, days=30, low=0.15, high=0.25), 0.26, False),  # 0.30 itself is no deviation.
        (Forecast.of_return(-0.10, days=30, low=-0.15, high=-0.05), -0.20, True),
        (Forecast.of_return(0.0, days=30, low=-0.001, high=0.001), 0.01, False),
        (Forecast.of_return(0.0, days=30, low=-0.001, high=0.001), 0.02, True),
        (Forecast.of_return(0.20, days=30, low=-0.60, high=0.80), -0.50, False),  # Inside the stated interval.
    ],
)
async def test_what_opens_a_case(clinic: Clinic, forecast: Forecast, actual: float, *, opens: bool) -> None:
    await clinic.world.say(decided(forecast=forecast), happened(actual))
    await clinic.advance()
    assert await clinic.cases() == ({"d/1": "in_review"} if opens else {})


@pytest.mark.spec("PM-3")
async def test_a_passed_stock_that_rose_opens_a_case(clinic: Clinic) -> None:
    await clinic.world.say(
        decided(stance="avoid", action="pass", forecast=Forecast.of_return(0.05, days=365, low=-0.2, high=0.3)),
        happened(0.60, days=90),
    )
    await clinic.advance()
    [task] = await clinic.tasks()
    assert (task.package.stance, task.package.action) == ("avoid", "pass")
    assert (task.package.checkpoints[0].days, task.package.checkpoints[0].actual) == (90, 0.60)
    [record] = await clinic.records("PostMortem")
    assert (record["id"], record["decision_id"], record["checkpoint"]) == ("d/1", "d", 90)


@pytest.mark.spec("PM-4")
async def test_of_seven_the_five_that_are_off_most_are_in_review(clinic: Clinic) -> None:
    await seven(clinic)
    await clinic.advance()
    cases = await clinic.cases()
    smallest = {"d1/1", "d3/1"}
    assert {key for key, state in cases.items() if state == "queued"} == smallest
    assert {key for key, state in cases.items() if state == "in_review"} == {f"d{n}/1" for n in range(7)} - smallest
    assert (await clinic.group("PostMortem", "d1/1", "state"))["status"] == "queued"
    assert (await clinic.group("PostMortem", "d2/1", "state"))["status"] == "in_review"


@pytest.mark.spec("PM-5")
async def test_one_that_ends_makes_room_for_the_next(clinic: Clinic) -> None:
    await seven(clinic)
    await clinic.advance()
    task = (await clinic.tasks(TaskState.OPEN))[0]
    await clinic.answer(task.task_id)
    await clinic.advance()
    cases = await clinic.cases()
    assert (cases[task.package.case_id], cases["d3/1"], cases["d1/1"]) == ("completed", "in_review", "queued")
    async with clinic.later(47 * HOUR):
        await clinic.advance()
        assert list((await clinic.cases()).values()).count("in_review") == 5
    async with clinic.later(48 * HOUR + timedelta(minutes=1)):
        await clinic.advance()
        cases = await clinic.cases()
    assert cases["d1/1"] == "in_review"
    assert sorted(cases.values()) == ["completed", "in_review", *["timeout"] * 5]


@pytest.mark.spec("PM-6")
async def test_looking_twice_changes_nothing(clinic: Clinic) -> None:
    await clinic.world.say(decided(), happened(-0.40))
    await clinic.advance()
    before = await clinic.world.written()
    async with clinic.world.pipelines.transaction(ENOUGH) as conn:
        await make_due(conn, "postmortem", "Outcome", ["o-d-30-0"])
        await make_due(conn, "forecasts", "Decision", ["d"])
    await clinic.advance()
    assert await clinic.world.written() == before
    assert len(await clinic.records("PostMortem")) == len(await clinic.records("FailureAnalysis")) == 1


async def test_later_checkpoints_join_the_open_case(clinic: Clinic) -> None:
    await seven(clinic)
    await clinic.advance()
    await clinic.world.say(happened(-0.99, "d1", 90, subject="company:C1"))
    await clinic.advance()
    task = (await clinic.tasks(TaskState.OPEN))[0]
    await clinic.answer(task.task_id)
    await clinic.advance()
    cases = await clinic.cases()
    assert len(cases) == 7
    assert (cases["d1/1"], cases["d3/1"]) == ("in_review", "queued"), "the second checkpoint was off by more"
    [joined] = [one for one in await clinic.tasks(TaskState.OPEN) if one.package.case_id == "d1/1"]
    assert [one.days for one in joined.package.checkpoints] == [90, 30]


async def test_a_revision_takes_a_case_back_that_nobody_has_seen(clinic: Clinic) -> None:
    await seven(clinic)
    await clinic.advance()
    await clinic.world.say(
        happened(0.02, "d1", vintage=1, subject="company:C1"), happened(0.02, "d2", vintage=1, subject="company:C2")
    )
    await clinic.advance()
    cases = await clinic.cases()
    assert cases["d1/1"] == "withdrawn"
    assert cases["d2/1"] == "in_review", "a person is at it"
    await clinic.world.say(happened(-0.8, "d1", vintage=2, subject="company:C1"))
    await clinic.advance()
    assert (await clinic.cases())["d1/2"] == "queued"


async def test_what_was_reviewed_opens_no_second_case(clinic: Clinic) -> None:
    await clinic.world.say(decided(), happened(-0.40))
    await clinic.advance()
    [task] = await clinic.tasks()
    await clinic.answer(task.task_id)
    await clinic.advance()
    await clinic.world.say(happened(-0.50, vintage=1))
    await clinic.advance()
    assert await clinic.cases() == {"d/1": "completed"}, "the price was revised after the review"
    await clinic.world.say(happened(-0.60, days=90))
    await clinic.advance()
    assert await clinic.cases() == {"d/1": "completed", "d/2": "in_review"}


async def test_the_setting_orders_by_impact(clinic: Clinic) -> None:
    clinic.policy = PriorityPolicy.WEIGHTED
    for number in range(7):
        # The smaller the number, the smaller the deviation, and the larger the loss.
        key, subject = f"d{number}", f"company:C{number}"
        await clinic.world.say(
            decided(key, subject=subject, size_usd=10.0 ** (8 - number)),
            happened(-0.30 - number / 50, key, subject=subject),
        )
    await clinic.advance()
    cases = await clinic.cases()
    assert {key for key, state in cases.items() if state == "queued"} == {"d5/1", "d6/1"}


@pytest.mark.spec("PM-9")
async def test_the_two_cases_of_the_specification_as_they_are_recorded(clinic: Clinic) -> None:
    """Deviation, loss, share of the portfolio and failures of the sector: those of A, and those of B."""
    expected = Forecast.of_return(0.0, low=-0.1, high=0.1)
    for key, actual, loss, share in (("c", -0.1, 1e3, None), ("a", -0.175, 50e3, 0.05), ("b", -0.35, 3e3, 0.005)):
        sector, subject = ("Energy" if key == "b" else "Technology"), f"company:{key.upper()}"
        stated = {} if share is None else {"portfolio_share": share}
        await clinic.world.say(
            company(key.upper(), DECIDED, sector=sector),
            decided(key, expected, subject, stance="long", size_usd=loss / -actual, **stated),
            happened(actual, key, subject=subject),
        )
        await clinic.advance()
    found = await clinic.world.rows("SELECT key, data FROM lifecycle WHERE kind = 'postmortem'")
    cases = {row["key"]: (row["data"]["deviation"], row["data"]["impact"]) for row in found}
    assert cases["a/1"] == pytest.approx((3.5, 76.76), abs=0.01)
    assert cases["b/1"] == pytest.approx((7.0, 33.57), abs=0.01)


async def test_many_failures_of_a_sector_are_shown_first(clinic: Clinic) -> None:
    for number in range(5):
        key, subject = f"d{number}", f"company:C{number}"
        await clinic.world.say(
            company(f"C{number}", DECIDED, sector="Technology"), decided(key, subject=subject),
            happened(-0.9 + number / 10, key, subject=subject),
        )  # fmt: skip
        await clinic.advance()
    ranks = {one.package.case_id: (one.package.systemic, one.rank) for one in await clinic.tasks()}
    assert ranks["d3/1"] == (False, 1)
    assert ranks["d4/1"] == (True, 0)


@pytest.mark.spec("PM-7")
async def test_after_48_hours_the_automatic_cause_stands(clinic: Clinic) -> None:
    await clinic.world.say(decided(), happened(-0.40))
    await clinic.advance()
    async with clinic.later(48 * HOUR + timedelta(minutes=1)):
        await clinic.advance()
        await clinic.advance()
    assert await clinic.cases() == {"d/1": "timeout"}
    assert (await clinic.group("PostMortem", "d/1", "state"))["status"] == "timeout"
    [analysis], [lesson] = await clinic.records("FailureAnalysis"), await clinic.records("Lesson")
    assert (analysis["root_cause_category"], analysis["by"]) == ("black_swan", "postmortem")
    assert (lesson["source"], lesson["by"], lesson["priority"]) == ("ai_analysis", "postmortem", "low")
    links = await clinic.world.rows(
        "SELECT kind FROM event WHERE kind LIKE 'link.%%' AND payload::text LIKE '%%lesson%%'"
    )
    assert links == [], "nothing is broadcast"
    assert await clinic.records("HumanInsight") == []


@pytest.mark.spec("PM-14")
async def test_what_ended_while_nobody_ran_ends_once(clinic: Clinic) -> None:
    await clinic.world.say(decided(), happened(-0.40))
    await clinic.advance()
    async with clinic.later(30 * DAY):
        await clinic.advance()
        after = await clinic.world.written()
        await clinic.advance()
        assert await clinic.world.written() == after
    audited = await clinic.world.rows(
        "SELECT action FROM memory_access_audit WHERE request_context ->> 'kind' = 'postmortem' ORDER BY id"
    )
    assert [row["action"] for row in audited] == ["admit", "expire"]
    assert len(await clinic.records("Lesson")) == 1


async def test_a_day_before_its_end_a_reminder_is_sent_once(clinic: Clinic) -> None:
    await clinic.world.say(decided(), happened(-0.40))
    await clinic.advance()
    query = "SELECT closed_at IS NULL AS open FROM workflow.alert WHERE kind = 'POSTMORTEM_REMINDER'"
    async with clinic.later(23 * HOUR):
        await clinic.advance()
        assert await clinic.world.rows(query) == []
    async with clinic.later(25 * HOUR):
        await clinic.advance()
        await clinic.advance()
        assert [row["open"] for row in await clinic.world.rows(query)] == [True]
        [task] = await clinic.tasks()
        await clinic.answer(task.task_id)
        await clinic.advance()
        assert [row["open"] for row in await clinic.world.rows(query)] == [False]


@pytest.mark.spec("PM-8")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((name, None) for name in ANSWERS),
        *((name, "  ") for name in ANSWERS if name != "foreseeability"),
        *(("foreseeability", rating) for rating in (0, 6, -1, 2.5, "often")),
        ("primary_reason", "bad luck"),
        ("patterns_to_revise", "p-unknown"),
    ],
)
async def test_incomplete_answers_are_refused(clinic: Clinic, field: str, value: Any) -> None:
    await clinic.world.say(decided(), happened(-0.40))
    await clinic.advance()
    [task] = await clinic.tasks()
    with pytest.raises(BadInput, match=field):
        await clinic.answer(task.task_id, "review", None, **{field: value})
    await clinic.advance()
    assert await clinic.cases() == {"d/1": "in_review"}


async def test_a_persons_answers_are_recorded_in_the_persons_name(clinic: Clinic) -> None:
    pattern = {
        "record": "Pattern", "known_at": DECIDED.isoformat(),
        "core": {"pattern_id": "p-1", "name": "Inventories", "category": "cycle"},
    }  # fmt: skip
    await clinic.world.say(pattern, decided(), cites_pattern("d", "p-1"), happened(-0.40))
    await clinic.advance()
    assert await clinic.group("Pattern", "p-1", "investigation") == {"under_investigation": True}
    [task] = await clinic.tasks()
    assert task.package.patterns == ("p-1",)
    await clinic.answer(task.task_id, patterns_to_revise="p-1")
    await clinic.advance()
    [insight], [lesson] = await clinic.records("HumanInsight"), await clinic.records("Lesson")
    assert (insight["by"], insight["patterns_to_revise"], insight["foreseeability_rating"]) == ("ann", ["p-1"], 4)
    assert (lesson["by"], lesson["source"], lesson["priority"]) == ("ann", "human_insight", "high")
    assert (lesson["insight"], lesson["recommended_action"]) == ("Inventories.", "Ask for inventories.")
    assert lesson["postmortem_id"] == "d/1"
    assert await clinic.group("Pattern", "p-1", "investigation") == {"under_investigation": False}
    state = await clinic.group("PostMortem", "d/1", "state")
    assert state["status"] == "completed"
    assert datetime.fromisoformat(state["completion_date"]) > DECIDED


async def test_a_pattern_is_under_investigation_until_its_last_case_ends(clinic: Clinic) -> None:
    pattern = {
        "record": "Pattern", "known_at": DECIDED.isoformat(),
        "core": {"pattern_id": "p-1", "name": "Inventories", "category": "cycle"},
    }  # fmt: skip
    await clinic.world.say(pattern)
    for key in ("d1", "d2"):
        await clinic.world.say(decided(key), cites_pattern(key, "p-1"), happened(-0.40, key))
    await clinic.advance()
    for task, under in zip(await clinic.tasks(), (True, False), strict=True):
        await clinic.answer(task.task_id)
        await clinic.advance()
        assert await clinic.group("Pattern", "p-1", "investigation") == {"under_investigation": under}


async def test_a_late_answer_counts_and_a_review_may_be_repeated(clinic: Clinic) -> None:
    await clinic.world.say(decided("d1"), happened(-0.40, "d1"), decided("d2"), happened(-0.40, "d2"))
    await clinic.advance()
    async with clinic.later(49 * HOUR):
        await clinic.advance()
        tasks = {one.package.decision_id: one for one in await clinic.tasks()}
        await clinic.answer(tasks["d1"].task_id, why="I was away.")
        with pytest.raises(BadInput, match="rationale"):
            await clinic.answer(tasks["d2"].task_id, "reopen")
        await clinic.answer(tasks["d2"].task_id, "reopen", why="Nobody was there.")
        await clinic.advance()
        assert await clinic.cases() == {"d1/1": "completed", "d2/1": "in_review"}
        [again] = await clinic.tasks(TaskState.OPEN)
        assert (again.package.attempt, again.package.decision_id) == (2, "d2")
        assert again.due_at is not None
        assert again.due_at > tasks["d2"].opened_at + 96 * HOUR
        await clinic.answer(again.task_id)
        await clinic.advance()
    assert {one["id"] for one in await clinic.records("Lesson")} == {
        "d1/1/automatic/1", "d2/1/automatic/1", "d1/1/lesson/1", "d2/1/lesson/2",
    }  # fmt: skip


async def test_a_second_answer_is_refused(clinic: Clinic) -> None:
    await clinic.world.say(decided(), happened(-0.40))
    await clinic.advance()
    [task] = await clinic.tasks()
    await clinic.answer(task.task_id)
    with pytest.raises(TransitionRefused, match="answered by ann"):
        await clinic.answer(task.task_id, foreseeability=1)
