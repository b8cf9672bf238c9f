"""A decision that was off, the review, the lesson, Gate 6, and the agent that has the lesson in the end."""

from __future__ import annotations

import pytest

from imem.gates.learning.gate import open_due_package
from imem.kg.asof import AsOf, dated
from imem.postmortem.lessons.life import open_lessons
from imem.review import inbox
from imem.review.states import TaskState
from imem.services.task_kinds import TASK_KINDS
from tests.credibility.conftest import cites, finding
from tests.postmortem.cases.conftest import (
    ANN,
    DAY,
    DECIDED,
    ENOUGH,
    Clinic,
    cites_pattern,
    clinic,
    decided,
    happened,
    world,
)  # fmt: skip
from tests.postmortem.lessons.parts import agent

__all__ = ["clinic", "world"]

PATTERN = {
    "record": "Pattern", "known_at": DECIDED.isoformat(),
    "core": {"pattern_id": "p-1", "name": "Inventories", "category": "cycle"},
}  # fmt: skip


async def links(clinic: Clinic) -> list[str]:
    found = await clinic.world.rows(
        "SELECT kind FROM event WHERE kind IN ('link.ADDED_TO_CHECKLIST', 'link.RECEIVED_LESSON', 'link.AFFECTS_AGENT',"
        " 'link.AFFECTS_PATTERN', 'link.REVISED_BY') ORDER BY kind"
    )
    return [row["kind"].removeprefix("link.") for row in found]


async def go_on(clinic: Clinic) -> None:
    await clinic.advance()
    while await open_lessons(clinic.runtime(), until=ENOUGH) or await clinic.move():
        pass


@pytest.mark.spec("PM-12", "GT-2")
async def test_from_a_decision_that_was_off_to_the_agents_that_learn_from_it(clinic: Clinic) -> None:
    claim = finding("f", DECIDED - DAY, DECIDED + DAY, subject_id="company:MU", probability=0.9)
    await clinic.world.say(
        agent("bob"), PATTERN, claim, decided(), cites("d", "f", DECIDED), cites_pattern("d", "p-1"), happened(-0.40)
    )
    await go_on(clinic)
    assert await open_due_package(clinic.runtime()) == {}
    [review] = await clinic.tasks()
    await clinic.answer(review.task_id, patterns_to_revise="p-1")
    await go_on(clinic)
    key = "d/1/lesson/1"
    assert (await clinic.group("Lesson", key, "state"))["state"] == "pending_gate6"
    # A person reviewed it: agents have it as advice, and the pattern is only proposed to be revised.
    advised = await links(clinic)
    assert advised == ["ADDED_TO_CHECKLIST", "AFFECTS_AGENT", "AFFECTS_PATTERN", "RECEIVED_LESSON"]

    async with clinic.later(31 * DAY):
        assert (await open_due_package(clinic.runtime()))["items"] == 1
    async with clinic.later(34 * DAY):
        # Nobody answers: it stays in quarantine, and comes up again.
        await go_on(clinic)
        assert (await clinic.group("Lesson", key, "state"))["state"] == "pending_gate6"
    async with clinic.later(65 * DAY):
        assert (await open_due_package(clinic.runtime()))["items"] == 1
        [task] = await inbox.list_tasks(
            clinic.world.database, TASK_KINDS, kind="learning", states=(TaskState.OPEN,), deadline=ENOUGH
        )
        await inbox.answer_task(
            clinic.world.database, TASK_KINDS, task.task_id, "decide",
            fields={"items": [{"item": 1, "action": "approve"}]}, by=ANN, deadline=ENOUGH,
        )  # fmt: skip
        await go_on(clinic)
        stated = await clinic.group("Lesson", key, "state")
        assert (stated["state"], stated["applied"]) == ("applied", True)
        assert await links(clinic) == sorted([*advised, "REVISED_BY"]), "who has it does not get it again"
    read = await dated(clinic.world.database, [("Pattern", "p-1")], AsOf(DECIDED + 900 * DAY), deadline=ENOUGH)
    assert set(read.records["Pattern", "p-1"].groups) == {"investigation"}, "nothing else of the pattern changed"
