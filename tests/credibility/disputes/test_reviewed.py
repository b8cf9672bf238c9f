"""What people decided, and what arrives beside it: other values, restatements, corrections, other tasks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from imem.journal.errors import BadInput, TransitionRefused
from imem.kg.asof import END_OF_TIME
from imem.review import inbox
from imem.review.kinds import Task
from imem.review.states import TaskState, Why
from imem.services.task_kinds import TASK_KINDS

from ..conftest import World, corrected, text  # noqa: TID252 - a folder of its own
from .test_arbitration import ADMIN, ENOUGH, advance, answer, filed, reviewer, slip, tasks, value
from .test_detection import BLOOMBERG, NEWS, SEC, day, find, found, point

OVER = "UPDATE lifecycle SET due_at = imem_now() - interval '1 minute' WHERE kind = 'task'"


async def store(world: World, task: Task[Any], side: str, rationale: str | None = None) -> None:
    """Answer a task, and give the answer no effect yet."""
    await inbox.answer_task(
        world.database, TASK_KINDS, task.task_id, "choose", fields={"document": side}, rationale=rationale, by=ADMIN,
        deadline=ENOUGH,
    )  # fmt: skip


def at_odds(metric: str = "revenue") -> tuple[dict[str, Any], dict[str, Any]]:
    """Return two values of which the first counts provisionally: 100 of Reuters, and 120 of the news."""
    one, other = {"metric": metric, "document": "a"}, {"metric": metric, "document": "b"}
    return point(100.0, 0, "Reuters", **one), point(120.0, 3, NEWS, **other)


async def test_an_answer_covers_what_was_seen(world: World) -> None:
    """A value of the same documents that arrives after the answer, or after the look at the task, is asked anew."""
    await reviewer(world)
    await world.say(filed(), slip())
    await find(world)
    [task] = await tasks(world)
    await store(world, task, "a")
    await world.say(filed("debt", 4.0), slip(metric="debt", value=40.0))
    await find(world)
    await advance(world)
    by_metric = {one["data_point"].split()[0]: one for one in await found(world)}
    assert by_metric["revenue"]["decided_by"] == "ann"
    assert by_metric["debt"]["status"] == "queued"


async def test_a_task_that_is_displaced_in_the_same_round_falls_back(world: World) -> None:
    await reviewer(world, capacity=1)
    for metric, subject in (("goodwill", "company:AA"), ("revenue", "company:ZZ")):
        of = {"metric": metric, "subject_id": subject}
        await world.say(
            point(9.53, 0, SEC, document=f"{metric}-1", **of), point(95.3, 3, BLOOMBERG, document=f"{metric}-2", **of)
        )
    await find(world)
    states = {one.package.subject_id: (one.state, one.why) for one in await tasks(world)}
    assert states["company:AA"] == (TaskState.DEFAULTED, Why.DISPLACED)
    assert {one["subject_id"]: one["status"] for one in await found(world)} == {
        "company:AA": "uncertain",
        "company:ZZ": "queued",
    }


@pytest.mark.spec("DC-11")
async def test_a_late_answer_supersedes_the_default_that_no_worker_had_applied(world: World) -> None:
    await reviewer(world)
    await world.say(filed(), slip())
    await find(world)
    [task] = await tasks(world)
    world.owner(OVER)
    with pytest.raises(BadInput, match="rationale"):
        await store(world, task, "b")
    await store(world, task, "b", "The filing has a slip.")
    await advance(world)
    [after] = await tasks(world)
    [one] = await found(world)
    assert (after.state, one["status"]) == (TaskState.OVERRIDDEN, "resolved")
    assert (await value(world)).value == 95.3


async def test_of_two_decisions_about_the_same_values_the_last_counts(world: World) -> None:
    """One source states its value in two documents, so that there are two contradictions, in any order of their ids."""
    await reviewer(world, capacity=20)
    for number in range(4):
        of = {"metric": "goodwill", "subject_id": f"company:C{number}"}
        await world.say(
            point(10.0, 0, "Reuters", document="r1", **of), point(20.0, 1, "Refinitiv", document="f1", **of),
            point(10.0, 2, "Reuters", document="r2", **of),
        )  # fmt: skip
    await find(world)
    waiting = await tasks(world, TaskState.OPEN)
    assert len(waiting) == 8
    counts = []
    for number in range(4):
        mine = [one for one in waiting if one.package.subject_id == f"company:C{number}"]
        one, other = sorted(mine, key=lambda task: task.package.documents[0].document == "f1")
        await answer(world, one, fields={"document": "a"})
        await answer(world, other, fields={"document": "a"})
        counts.append((await value(world, "goodwill", subject=f"company:C{number}")).value)
    assert counts == [20.0] * 4


@pytest.mark.parametrize(("source", "document"), [("Reuters", "c"), (SEC, "10-K")])
async def test_a_decision_is_about_the_sources_that_the_person_saw(world: World, source: str, document: str) -> None:
    """A source that restates what it was preferred for, and a filing, state 120 as well: then that counts."""
    await world.say(*at_odds())
    await find(world)
    [task] = await tasks(world)
    await answer(world, task, fields={"document": "a"}, rationale="It has a source.")
    assert (await value(world)).value == 100.0
    restated = point(120.0, 4, source, metric="revenue", document=document)
    await world.say({**restated, "known_at": text(datetime.now(UTC))})
    await find(world)
    assert (await value(world)).value == 120.0


@pytest.mark.parametrize(("metric", "cautious"), [("revenue", 100.0), ("debt", 120.0), ("capex", 120.0)])
async def test_what_is_marked_uncertain_counts_as_the_more_cautious_value(
    world: World, metric: str, cautious: float
) -> None:
    await world.say(*at_odds(metric))
    await find(world)
    [task] = await tasks(world)
    await answer(world, task, "uncertain", rationale="Neither says where it is from.")
    counts = await value(world, metric)
    assert (counts.value, counts.confidence, counts.provisional) == (cautious, 0.50, True)


async def test_a_pair_that_stands_again_is_asked_again(world: World) -> None:
    """It was withdrawn, and its task with it, since a document was corrected; then it is corrected back."""
    await reviewer(world)
    await world.say(filed(), slip())
    await find(world)
    await world.say(corrected(slip(), datetime.now(UTC), value=9.53))
    await find(world)
    assert [one["status"] for one in await found(world)] == ["withdrawn"]
    assert [one.state for one in await tasks(world)] == [TaskState.WITHDRAWN]
    await world.say(corrected(slip(), datetime.now(UTC), value=95.3))
    await find(world)
    assert [one["status"] for one in await found(world)] == ["queued"]
    assert sorted(one.state for one in await tasks(world)) == [TaskState.OPEN, TaskState.WITHDRAWN]


async def test_a_task_stays_for_what_is_asked_in_the_round_of_a_withdrawal(world: World) -> None:
    """A value that waits is corrected to another slip; or it is withdrawn as a second one of the documents arrives."""
    await reviewer(world)
    await world.say(filed(), slip())
    await find(world)
    await world.say(corrected(slip(), datetime.now(UTC), value=95.4))
    await find(world)
    assert {one["value_b"]: one["status"] for one in await found(world)} == {95.3: "withdrawn", 95.4: "queued"}
    [task] = await tasks(world)
    assert task.state is TaskState.OPEN
    await world.say(
        corrected(slip(), datetime.now(UTC), value=9.53), filed("debt", 4.0), slip(metric="debt", value=40.0)
    )
    await find(world)
    assert [one["status"] for one in await found(world)].count("queued") == 1
    [task] = await tasks(world)
    assert task.state is TaskState.OPEN
    await answer(world, task, fields={"document": "a"})
    assert {one["value_b"]: one["status"] for one in await found(world)} == {
        95.3: "withdrawn",
        95.4: "withdrawn",
        40.0: "resolved",
    }


async def test_a_default_is_withdrawn_with_its_last_contradiction(world: World) -> None:
    """Nobody can answer it any more."""
    await world.say(filed(), slip(), filed("debt", 4.0), slip(metric="debt", value=40.0))
    await find(world)
    [task] = await tasks(world)
    assert task.state is TaskState.DEFAULTED
    await world.say(corrected(slip(), datetime.now(UTC), value=9.53))
    await find(world)
    assert [one.state for one in await tasks(world)] == [TaskState.DEFAULTED], "one still stands"
    await world.say(corrected(slip(metric="debt", value=40.0), datetime.now(UTC), value=4.0))
    await find(world)
    assert [one.state for one in await tasks(world)] == [TaskState.WITHDRAWN]
    with pytest.raises(TransitionRefused, match="withdrawn"):
        await store(world, task, "a", "Seen.")


async def test_a_correction_of_a_report_leaves_what_a_person_decided(world: World) -> None:
    core = {
        "id": "c", "subject_id": "company:MU", "data_point": "revenue", "source_a": NEWS, "source_b": "blog",
        "value_a": 100.0, "value_b": 103.0, "timestamp": text(day(5)),
    }  # fmt: skip
    line = {"record": "DataContradiction", "known_at": text(day(5)), "core": core}
    await world.say(line)
    await find(world)
    [task] = await tasks(world)
    await answer(world, task, fields={"document": "a"}, rationale="It names its source.")
    await world.say(corrected(line, datetime.now(UTC), data_point="revenue of 2019"))
    await find(world)
    [one] = await found(world)
    assert (one["status"], one["decided_by"]) == ("resolved", "ann")


@pytest.mark.parametrize("state", [TaskState.OPEN, TaskState.DEFAULTED])
async def test_a_report_that_is_corrected_while_it_waits_is_decided_as_corrected(
    world: World, state: TaskState
) -> None:
    """Whether somebody has looked at it or not; an answer that was given before counts for what it says now, too."""
    if state is TaskState.OPEN:
        await reviewer(world)
    core = {
        "id": "c", "subject_id": "company:MU", "data_point": "revenue", "source_a": NEWS, "source_b": "Reuters",
        "value_a": 103.0, "value_b": 100.0, "timestamp": text(day(5)),
    }  # fmt: skip
    line = {"record": "DataContradiction", "known_at": text(day(5)), "core": core}
    await world.say(line)
    await find(world)
    [task] = await tasks(world)
    await inbox.read_task(world.database, TASK_KINDS, task.task_id, shown=True, deadline=ENOUGH)
    await world.say(corrected(line, datetime.now(UTC), value_a=104.0, value_b=101.0))
    await find(world)
    [task] = await tasks(world)
    [one] = await found(world)
    assert (task.state, [(item.value_a, item.value_b, item.fallback_value) for item in task.package.items]) == (
        state,
        [(104.0, 101.0, 101.0)],
    )
    assert one["final_value"] == 101.0
    await store(world, task, "a", "It names its source.")
    await world.say(corrected(line, datetime.now(UTC), value_a=105.0, value_b=101.0))
    await advance(world)
    await find(world)
    [one] = await found(world)
    assert (one["status"], one["final_value"]) == ("resolved", 105.0)


@pytest.mark.spec("DC-2")
async def test_a_later_withdrawal_changes_no_earlier_record_of_a_source(world: World) -> None:
    wrong = point(105.0, 1, BLOOMBERG)
    await world.say(point(100.0, 0, NEWS), wrong, point(100.0, 10, SEC))
    await find(world)
    asked = {"sources": [BLOOMBERG], "known_until": day(11), "recorded_until": END_OF_TIME}
    before = await world.database.named("source_outcomes", asked, deadline=ENOUGH)
    await world.say(corrected(wrong, day(20), value=100.0))
    await find(world)
    assert before
    assert await world.database.named("source_outcomes", asked, deadline=ENOUGH) == before
