"""What is long, late or wrong stops no other case, and takes no place for ever."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from imem.journal.errors import BadInput
from imem.review.states import TaskState
from tests.credibility.conftest import corrected, finding

from .conftest import DAY, DECIDED, HOUR, MONTH, Clinic, decided, happened


def unheard(key: str, characters: int) -> dict[str, Any]:
    return finding(
        key, DECIDED - DAY, DECIDED + DAY, subject_id="company:MU", agent="bob", importance=0.9, probability=0.9,
        statement="y" * characters,
    )  # fmt: skip


@pytest.mark.parametrize(("findings", "characters"), [(1, 2_000), (10, 2_000), (10, 175)])
async def test_long_statements_are_quoted_as_far_as_they_fit(clinic: Clinic, findings: int, characters: int) -> None:
    await clinic.world.say(*(unheard(f"f{number}", characters) for number in range(findings)))
    await clinic.world.say(decided(), happened(-0.40))
    await clinic.advance()
    assert await clinic.cases() == {"d/1": "in_review"}
    async with clinic.later(49 * HOUR):
        await clinic.advance()
    assert await clinic.cases() == {"d/1": "timeout"}


@pytest.mark.parametrize("length", [150, 161, 190, 200])
async def test_a_long_id_of_a_decision(clinic: Clinic, length: int) -> None:
    key = "k" * length
    await clinic.world.say(decided(key), happened(-0.40, key, id="o-long"), decided("e"), happened(-0.40, "e"))
    await clinic.advance()
    assert list((await clinic.cases()).values()) == ["in_review"] * 2
    for task in await clinic.tasks():
        await clinic.answer(task.task_id)
    await clinic.advance()
    assert list((await clinic.cases()).values()) == ["completed"] * 2


async def test_long_answers_are_refused_or_recorded(clinic: Clinic) -> None:
    await clinic.world.say(decided(), happened(-0.40))
    await clinic.advance()
    [task] = await clinic.tasks()
    with pytest.raises(BadInput, match="factors_missed"):
        await clinic.answer(task.task_id, factors_missed="y" * 2_001)
    await clinic.answer(task.task_id, factors_missed="y" * 2_000, future_actions="z" * 2_000)
    await clinic.advance()
    assert await clinic.cases() == {"d/1": "completed"}


async def test_a_case_that_cannot_be_read_is_put_off_and_the_next_has_its_place(clinic: Clinic) -> None:
    await clinic.world.say(decided("d", MONTH), happened(-0.90), decided("e", MONTH), happened(-0.40, "e"))
    await clinic.track()
    clinic.world.owner("ALTER TABLE event DISABLE TRIGGER USER")
    clinic.world.owner(
        "UPDATE event SET payload = jsonb_set(payload, '{core,agents_involved}', '7') WHERE record_key = 'd'"
        " AND kind = 'record.Decision'"
    )
    await clinic.advance()
    assert await clinic.cases() == {"d/1": "queued", "e/1": "in_review"}
    query = "SELECT payload ->> 'key' AS key FROM workflow.alert WHERE kind = 'WORK_SET_ASIDE'"
    alerts = await clinic.world.rows(query)
    assert [row["key"] for row in alerts] == ["d/1"]


async def test_a_case_whose_outcome_was_withdrawn_goes_to_nobody(clinic: Clinic) -> None:
    for number in range(6):
        key, subject = f"d{number}", f"company:C{number}"
        await clinic.world.say(decided(key, MONTH, subject=subject), happened(-0.9 + number / 10, key, subject=subject))
    await clinic.advance()
    assert (await clinic.cases())["d5/1"] == "queued"
    wrong = happened(-0.4, "d5", subject="company:C5")
    await clinic.world.say(corrected(wrong, DECIDED + 40 * DAY, withdrawn=True))
    [task] = [one for one in await clinic.tasks() if one.package.decision_id == "d0"]
    await clinic.answer(task.task_id)
    await clinic.advance()
    assert (await clinic.cases())["d5/1"] == "withdrawn"


async def test_a_checkpoint_that_joins_a_review_has_a_review_of_its_own(clinic: Clinic) -> None:
    await clinic.world.say(decided(), happened(-0.40))
    await clinic.advance()
    await clinic.world.say(happened(-0.90, days=90))
    await clinic.advance()
    [task] = await clinic.tasks()
    assert [one.days for one in task.package.checkpoints] == [30]
    await clinic.answer(task.task_id)
    await clinic.advance()
    [again] = await clinic.tasks(TaskState.OPEN)
    assert (again.package.case_id, [one.days for one in again.package.checkpoints]) == ("d/2", [90])


async def test_a_forecast_that_was_corrected_into_hindsight_is_looked_at_once(clinic: Clinic) -> None:
    line = decided(forecast=MONTH)
    await clinic.world.say(line)
    await clinic.advance()
    earlier = (DECIDED - 60 * DAY).isoformat()
    await clinic.world.say(corrected(line, DECIDED + timedelta(hours=1), decided_at=earlier))
    async with clinic.later(2 * DAY):
        await clinic.advance()
        rows = await clinic.world.rows("SELECT due_at FROM lifecycle WHERE kind = 'forecast'")
        assert [row["due_at"] for row in rows] == [None]
        assert not await clinic.move()
