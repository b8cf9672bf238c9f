"""Patterns from a proposal to agents and out again, on real servers."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from imem.gates.learning.gate import open_due_package
from imem.journal.actors import Actor
from imem.journal.errors import TransitionRefused
from imem.journal.settings import Role
from imem.kg.kinds.enums import PatternStatus
from imem.patterns.cases import featured_cases
from imem.patterns.definition import Period
from imem.patterns.life import ask_for_status, run_of
from imem.patterns.mining import mine
from imem.review import inbox
from imem.review.states import TaskState
from imem.services.task_kinds import TASK_KINDS
from tests.patterns.parts import DAY, ENOUGH, NOW, Lab, definition, weeks

ANN = Actor("ann", Role.HUMAN_ADMIN)
KEY = definition().key


async def validated(lab: Lab) -> None:
    """Have a pattern that passed its tests, 187 days from now."""
    await lab.history()
    assert await open_due_package(lab.runtime()) == {}
    await lab.propose(definition())
    await lab.test()
    await lab.half_a_year()
    async with lab.later(187 * DAY):
        assert await lab.test() == {"statistically_validated": 1}


async def answered(lab: Lab, action: str, by: timedelta, **more: Any) -> None:
    """Have the item of Gate 6 answered."""
    async with lab.later(by):
        assert (await open_due_package(lab.runtime()))["items"] == 1
        [task] = await inbox.list_tasks(
            lab.world.database, TASK_KINDS, kind="learning", states=(TaskState.OPEN,), deadline=ENOUGH
        )
        item = {"item": "1", "action": action, "rationale": "It holds.", **more}
        await inbox.answer_task(
            lab.world.database, TASK_KINDS, task.task_id, "decide", fields={"items": [item]}, by=ANN, deadline=ENOUGH
        )
        await lab.test()


@pytest.mark.spec("PV-2", "PV-24", "PV-30")
async def test_a_pattern_is_active_once_it_passed_three_tests_and_a_person_approved_it(lab: Lab) -> None:
    await lab.history()
    assert await open_due_package(lab.runtime()) == {}
    await lab.propose(definition())
    assert await lab.statuses() == {}
    done = await lab.test()
    assert {name: done[name] for name in ("opened", "tested", "passed", "begun")} == {
        "opened": 1, "tested": 1, "passed": 1, "begun": 1
    }  # fmt: skip
    assert await lab.statuses() == {KEY: "candidate"}
    await lab.half_a_year()
    async with lab.later(187 * DAY):
        assert await lab.test() == {"statistically_validated": 1}
        tests = await lab.validations()
        assert [(one["validation_type"], one["passed"]) for one in tests] == [
            ("holdout", True), ("blind_test", True), ("control_group", True)
        ]  # fmt: skip
        # A repeated run records nothing.
        before = await lab.world.written()
        assert await lab.test() == {}
        assert await lab.world.written() == before
    # No setting and no time approves it; a person does.
    async with lab.later(188 * DAY):
        await lab.test()
        assert await lab.statuses() == {KEY: "statistically_validated"}
    await answered(lab, "approve", 189 * DAY)
    assert await lab.statuses() == {KEY: "active"}
    [link] = await lab.world.rows("SELECT actor, payload FROM event WHERE kind = 'link.APPROVED_AT_GATE6'")
    assert (link["actor"], link["payload"]["to_key"]) == ("ann", "ann")


@pytest.mark.parametrize(
    ("effect", "count", "status"), [(0.35, 8, "active"), (-0.5, 2, "probationary"), (-0.5, 8, "deprecated")]
)
async def test_an_active_pattern_is_judged_at_the_end_of_a_window(
    lab: Lab, effect: float, count: int, status: str
) -> None:
    await validated(lab)
    await answered(lab, "approve", 188 * DAY)
    said, happened = weeks(0, count, start=NOW + 190 * DAY, effect=effect, seed=3)
    async with lab.later(270 * DAY):
        await lab.world.say(*said, *happened)
        await lab.world.settle()
        await lab.test()
        assert await lab.statuses() == {KEY: "active"}, "windows are judged at their end"
    async with lab.later(279 * DAY):
        await lab.test()
        assert await lab.statuses() == {KEY: status}
        data = (await lab.row()).data
        assert len(data["windows"]) == 1
        if status != "active":
            kinds = await lab.world.rows("SELECT kind FROM workflow.alert WHERE kind = 'PATTERN_DECAYED'")
            assert len(kinds) == 1


async def test_a_person_withdraws_a_pattern_and_approves_none_by_that_door(lab: Lab) -> None:
    await validated(lab)
    database = lab.world.database
    for status in (PatternStatus.HUMAN_APPROVED, PatternStatus.ACTIVE):
        with pytest.raises(TransitionRefused):
            await ask_for_status(database, KEY, status, by=ANN, reason="Quickly.", deadline=ENOUGH)
    await ask_for_status(
        database, KEY, PatternStatus.REJECTED_HUMAN_OVERRIDE, by=ANN, reason="A slip.", deadline=ENOUGH
    )
    await lab.test()
    assert await lab.statuses() == {KEY: "rejected_human_override"}
    assert (await lab.row()).data["reason"] == "A slip."
    with pytest.raises(TransitionRefused):
        await ask_for_status(database, KEY, PatternStatus.DEPRECATED, by=ANN, reason="Again.", deadline=ENOUGH)


async def test_a_pattern_that_a_person_changed_is_tested_on_later_forecasts_alone(lab: Lab) -> None:
    await validated(lab)
    changed = definition(condition=[{"feature": "forecast", "comparison": "at_least", "value": 0.45}])
    await answered(lab, "modify", 188 * DAY, fields={"definition": changed.model_dump(mode="json")})
    async with lab.later(188 * DAY):
        await lab.test()
    assert await lab.statuses() == {KEY: "rejected_gate6", changed.key: "candidate"}
    data = (await lab.row(changed.key)).data
    assert datetime.fromisoformat(data["since"]) >= NOW + 188 * DAY
    assert (data["stage"], "holdout" in data) == ("holdout", False)


async def test_what_a_run_mines_is_tested_as_one_family(lab: Lab) -> None:
    await lab.history()
    database = lab.world.database
    at = (await lab.world.rows("SELECT imem_now() AS at"))[0]["at"]
    found = await featured_cases(database, "up", "crowd", Period.WEEK, until=at, deadline=ENOUGH)
    assert len(found) == 400
    mined = mine(found, metric="up", reference="crowd", category="financial", period=Period.WEEK)
    assert 1 <= len(mined.proposals) <= mined.search_space
    await lab.propose(*mined.proposals, run=run_of("up", "crowd", Period.WEEK, at))
    done = await lab.test()
    assert done["opened"] == len(mined.proposals)
    tests = [one for one in await lab.validations() if one["validation_type"] == "holdout"]
    assert {f'"family":{len(tests)}' in one["test_metadata"] for one in tests} == {True}
