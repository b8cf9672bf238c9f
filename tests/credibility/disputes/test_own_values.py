"""A value that a person states: of which items, what is refused, and what arrives later."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from imem.journal.errors import BadInput, ImemError
from imem.kg.kinds.data_points import DataPoint
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import record_of
from imem.review.states import TaskState

from ..conftest import World, text  # noqa: TID252 - a folder of its own
from .test_arbitration import ENOUGH, analysis, answer, filed, reviewer, slip, tasks, uses, value
from .test_detection import BLOOMBERG, NEWS, SEC, find, found, point


async def stated(world: World, own: float = 9.6) -> None:
    await reviewer(world)
    await world.say(filed(), slip())
    await find(world)
    [task] = await tasks(world)
    await answer(world, task, "value", fields={"value": own}, rationale="Both have a slip.")
    await find(world)


def now(line: dict[str, Any]) -> dict[str, Any]:
    """Return a document that is filed, and known, now."""
    at = text(datetime.now(UTC))
    return {**line, "known_at": at, "core": {**line["core"], "filed_at": at}}


@pytest.mark.spec("GT-6")
async def test_of_several_items_each_value_is_named_by_its_number(world: World) -> None:
    """The document that counts of the others is named as well; it alone has an outcome."""
    await reviewer(world)
    metrics = ("capex", "debt", "revenue")
    for metric in metrics:
        await world.say(filed(metric), slip(metric=metric))
    await find(world)
    [task] = await tasks(world)
    number = str([item.metric for item in task.package.items].index("debt") + 1)
    for fields, where in (
        ({"value": 9.6}, "value"), ({}, "1"), ({number: 9.6}, "others"), ({"4": 1.0, "others": "a"}, "4"),
    ):  # fmt: skip
        with pytest.raises(BadInput) as refused:
            await answer(world, task, "value", fields=fields)
        assert refused.value.field == f"fields.{where}"
    await answer(world, task, "value", fields={number: 9.6, "others": "b"})
    await find(world)
    assert {metric: (await value(world, metric)).value for metric in metrics} == {
        "capex": 95.3, "debt": 9.6, "revenue": 95.3,
    }  # fmt: skip
    labels = {one["data_point"].split()[0]: one.get("outcome_label") for one in await found(world)
              if one["source_a"] == SEC and one["source_b"] == BLOOMBERG}  # fmt: skip
    assert labels == {"capex": "b", "debt": None, "revenue": "b"}


@pytest.mark.spec("GT-6")
@pytest.mark.parametrize("own", [float("nan"), float("inf"), float("-inf"), "9.6 bn", "nan", None, True, [9.6]])
async def test_what_is_no_number_is_refused_with_the_field(world: World, own: Any) -> None:
    await reviewer(world)
    await world.say(filed(), slip())
    await find(world)
    [task] = await tasks(world)
    with pytest.raises(BadInput) as refused:
        await answer(world, task, "value", fields={"value": own})
    assert refused.value.field == "fields.value"
    assert [one.state for one in await tasks(world)] == [TaskState.OPEN]


@pytest.mark.spec("GT-6")
async def test_a_new_value_asks_to_run_again_what_rests_on_either(world: World) -> None:
    await world.say(filed(), slip(), *map(analysis, ("on-a", "on-b", "on-neither")))
    await find(world)
    [task] = await tasks(world)
    [item] = task.package.items
    await world.say(uses("on-a", item.point_a), uses("on-b", item.point_b))
    await answer(world, task, "value", fields={"value": 9.6}, rationale="Both have a slip.")
    alerts = await world.rows(
        "SELECT analysis_id FROM workflow.alert WHERE kind = 'VALUE_OVERRIDDEN' ORDER BY analysis_id"
    )
    assert [row["analysis_id"] for row in alerts] == ["on-a", "on-b"]


async def test_a_later_document_that_agrees_changes_nothing(world: World) -> None:
    await stated(world)
    await world.say(now(point(9.6, 4, NEWS, metric="revenue", document="later")))
    await find(world)
    counts = await value(world)
    assert (counts.value, counts.confidence, counts.provisional) == (9.6, 0.90, False)
    assert await tasks(world, TaskState.OPEN) == []


async def test_a_later_filing_replaces_it(world: World) -> None:
    """With the SEC: level 1, as against every other source. It counts from when it is known."""
    await stated(world)
    before = datetime.now(UTC)
    await world.say(now(point(9.8, 4, SEC, metric="revenue", document="10-K/A")))
    await find(world)
    counts = await value(world)
    assert counts.point is not None
    assert (counts.value, counts.point.source, counts.confidence) == (9.8, SEC, 0.95)
    assert (await value(world, at=before)).value == 9.6


async def test_a_later_document_that_decides_nothing_asks_a_person_again(world: World) -> None:
    """The reviewer sees the person's value beside it; until the answer it counts provisionally."""
    await stated(world)
    await world.say(now(point(10.2, 4, NEWS, metric="revenue", document="later")))
    await find(world)
    counts = await value(world)
    assert (counts.value, counts.provisional) == (9.6, True)
    [task] = await tasks(world, TaskState.OPEN)
    assert [(one.source, one.score) for one in task.package.documents] == [("person:ann", 0.90), (NEWS, 0.70)]
    await answer(world, task, fields={"document": "b"})
    await find(world)
    counts = await value(world)
    assert (counts.value, counts.provisional) == (10.2, False)


async def test_what_was_known_before_the_answer_and_arrives_later_does_not_replace_it(world: World) -> None:
    await stated(world)
    await world.say(point(9.7, 4, NEWS, metric="revenue", document="loaded later"))
    await find(world)
    assert (await value(world)).value == 9.6


async def test_nobody_else_states_a_value_for_a_person(world: World) -> None:
    """A source that calls itself a person is an unknown one; the group that names the person is governed."""
    await world.say(filed(), point(9.6, 5, "person:ann", metric="revenue", document="task x"))
    counts = await value(world)
    assert (counts.value, counts.confidence) == (9.53, 0.95)
    line = point(9.6, 5, "person:ann", metric="revenue", document="task y")
    forged = {**line, "groups": {"answer": {"decided_by": "ann", "task_id": "y"}}}
    with pytest.raises(BadInput, match="answer"):
        await world.say(forged)
    core = {**line["core"], "answer": {"decided_by": "ann", "task_id": "y"}}
    written = entry_of(record_of(DataPoint.model_validate(core), known_at=datetime.now(UTC), writer="credibility"))
    with pytest.raises(ImemError):
        await world.gateway.append([written], actor=world.gateway.actor, deadline=ENOUGH)
