"""Contradictions that only a person decides: one task a pair of documents, a fallback meanwhile, and answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from imem.checkpoints.pauses import human_gates
from imem.checkpoints.pauses.human_gates import GATES_OF_ANALYSES
from imem.credibility.disputes.reading import MetricValue, value_at
from imem.jobs.lifecycle import advance_due
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, TransitionRefused
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from imem.journal.settings import Role
from imem.kg.asof import AsOf
from imem.review import inbox
from imem.review.admission import Reviewer
from imem.review.kinds import Task
from imem.review.states import TaskState, Why
from imem.review.tasks import TASKS
from imem.services.task_kinds import TASK_KINDS
from tests.servers import ahead

from ..conftest import World, text  # noqa: TID252 - a folder of its own
from .test_detection import BLOOMBERG, NEWS, SEC, day, find, found, point, reviewing

ADMIN = Actor("ann", Role.HUMAN_ADMIN)
END = datetime(2019, 12, 31, tzinfo=UTC)
ENOUGH = Deadline.never()


async def reviewer(world: World, person: str = "eve", capacity: int = 3) -> None:
    entry = Reviewer(person=person, capacity=capacity)
    await inbox.set_reviewer(world.database, TASK_KINDS, entry, by=ADMIN, deadline=ENOUGH)


async def tasks(world: World, *states: TaskState) -> list[Task[Any]]:
    return await inbox.list_tasks(world.database, TASK_KINDS, states=states or tuple(TaskState), deadline=ENOUGH)


async def advance(world: World) -> None:
    report = await advance_due(reviewing(world), {TASKS.kind: TASKS}, until=ENOUGH)
    assert (report.failed, report.refused) == (0, 0)


async def answer(world: World, task: Task[Any], action: str = "choose", **more: Any) -> None:
    await inbox.answer_task(world.database, TASK_KINDS, task.task_id, action, by=ADMIN, **more, deadline=ENOUGH)
    await advance(world)


async def value(
    world: World, metric: str = "revenue", at: datetime | None = None, subject: str = "company:MU"
) -> MetricValue:
    moment = at or datetime.now(UTC) + timedelta(days=1)
    question = (subject, metric, END)
    return await value_at(world.database, AsOf(moment), question, unit=None, basis=None, guard=True, deadline=ENOUGH)


def slip(on: float = 3, metric: str = "revenue", document: str = "note", value: float = 95.3) -> dict[str, Any]:
    return point(value, on, BLOOMBERG, metric=metric, document=document)


def filed(metric: str = "revenue", value: float = 9.53) -> dict[str, Any]:
    return point(value, 0, SEC, metric=metric, document="10-K")


@asynccontextmanager
async def later(world: World, by: timedelta) -> AsyncIterator[World]:
    """Lend a world whose pipelines' clock is ahead."""
    database = Database(world.pipeline_url, size=4, options=ahead(world.admin_url, by))
    before = world.pipelines, world.engine
    world.pipelines, world.engine = database, Gateway(database, world.engine.actor)
    try:
        yield world
    finally:
        world.pipelines, world.engine = before
        await database.close()


@pytest.mark.spec("DC-15")
async def test_a_slip_waits_for_a_person_with_a_labelled_value_meanwhile(world: World) -> None:
    """The filing says 9.53, the vendor 95.3: the guard asks, and says so; the answer counts from then on."""
    await reviewer(world)
    await world.say(filed(), slip())
    await find(world)

    [task] = await tasks(world)
    assert (task.state, task.rank, task.reviewer) == (TaskState.OPEN, 0, "eve")
    assert [one.source for one in task.package.documents] == [SEC, BLOOMBERG]
    assert [(one.value_a, one.value_b) for one in task.package.items] == [(9.53, 95.3)]
    [before] = await found(world)
    assert (before["status"], before["provisional"]) == ("queued", True)
    meanwhile = await value(world)
    assert (meanwhile.value, meanwhile.provisional) == (None, True)

    await answer(world, task, fields={"document": "a"})

    [after] = await found(world)
    assert (after["status"], after["resolution_level"], after["resolution_method"]) == (
        "resolved",
        "3_human",
        "human_arbitration",
    )
    assert (after["final_value"], after["confidence"], after["decided_by"]) == (9.53, 0.90, "ann")
    assert (after["outcome_label"], after["outcome_provenance"]) == ("a", "human_label")
    now = await value(world)
    assert (now.value, now.confidence, now.provisional) == (9.53, 0.90, False)
    earlier = await value(world, at=day(5))
    assert (earlier.value, earlier.provisional) == (None, True), "nothing was known of the answer"
    assert (await find(world))["recorded"] == 0
    assert (await found(world)) == [after]


async def test_a_pair_of_documents_is_one_task(world: World) -> None:
    """With an item for each value in which they differ; what arrives while it waits joins it."""
    await reviewer(world)
    await world.say(filed(), slip(), filed("debt", 4.0), slip(metric="debt", value=40.0))
    await find(world)
    await world.say(filed("capex", 1.5), slip(metric="capex", value=15.0))
    await find(world)

    [task] = await tasks(world)
    assert sorted(item.metric for item in task.package.items) == ["capex", "debt", "revenue"]
    await answer(world, task, fields={"document": "a"})
    assert {one["final_value"] for one in await found(world)} == {9.53, 4.0, 1.5}

    await world.say(filed("ebitda", 3.0), slip(metric="ebitda", value=30.0))
    await find(world)
    assert [one.state for one in await tasks(world, TaskState.OPEN)] == [TaskState.OPEN], "a task of its own"


@pytest.mark.spec("DC-8")
async def test_without_anybody_the_fallback_counts_at_once(world: World) -> None:
    await world.say(filed(), slip())
    await find(world)
    [task] = await tasks(world)
    assert (task.state, task.why) == (TaskState.DEFAULTED, Why.NOBODY)
    [one] = await found(world)
    assert (one["status"], one["resolution_level"]) == ("uncertain", "4_fallback")


@pytest.mark.spec("DC-7")
async def test_at_six_hours_the_fallback_applies_once(world: World) -> None:
    """Whatever workers are restarted meanwhile; a minute before it does not."""
    await reviewer(world)
    await world.say(filed(), slip())
    await find(world)
    async with later(world, timedelta(hours=5, minutes=59)):
        await advance(world)
    assert [one["status"] for one in await found(world)] == ["queued"]
    async with later(world, timedelta(hours=6, minutes=1)):
        await asyncio.gather(*(advance(world) for _ in range(3)))
        await advance(world)
    [task] = await tasks(world)
    assert (task.state, task.why) == (TaskState.DEFAULTED, Why.LATE)
    assert [one["status"] for one in await found(world)] == ["uncertain"]
    written = await world.rows("SELECT FROM record_history WHERE kind = 'DataContradiction' AND grp = 'resolution'")
    assert len(written) == 2, "queued, and the fallback"


@pytest.mark.spec("DC-6")
async def test_a_full_queue_gives_way_to_what_is_critical(world: World) -> None:
    """MEDIUM before HIGH; four critical ones defer the fourth."""
    await reviewer(world)

    async def ask(metric: str, document: str) -> None:
        await world.say(
            point(9.53, 0, NEWS, metric=metric, document=f"{document}-1"),
            point(95.3, 3, NEWS + " B", metric=metric, document=f"{document}-2"),
        )
        await find(world)

    async def states() -> dict[str, tuple[TaskState, Why | None]]:
        return {one.package.items[0].metric: (one.state, one.why) for one in await tasks(world)}

    for metric in ("inventory", "capex", "goodwill"):
        await ask(metric, metric)
    assert {state for state, _ in (await states()).values()} == {TaskState.OPEN}
    for metric, displaced in (("revenue", "goodwill"), ("debt", "inventory"), ("net_income", "capex")):
        await ask(metric, metric)
        assert (await states())[displaced] == (TaskState.DEFAULTED, Why.DISPLACED)
    await ask("gross_margin", "gross_margin")
    assert (await states())["gross_margin"] == (TaskState.DEFAULTED, Why.FULL)
    assert sum(state is TaskState.OPEN for state, _ in (await states()).values()) == 3


@pytest.mark.spec("DC-11")
async def test_a_late_answer_supersedes_the_fallback(world: World) -> None:
    await world.say(filed(), slip())
    await find(world)
    [task] = await tasks(world)
    with pytest.raises(BadInput, match="rationale"):
        await answer(world, task, fields={"document": "a"})
    await answer(world, task, fields={"document": "b"}, rationale="The filing has a slip of the pen.")
    [one] = await found(world)
    assert (one["status"], one["resolution_level"], one["final_value"]) == ("resolved", "3_human", 95.3)
    assert one["reviewed_at_gate3"] is True
    assert (await value(world)).value == 95.3


@pytest.mark.spec("DC-10")
@pytest.mark.parametrize(
    ("action", "status", "confidence", "final"),
    [
        ("confirm", "resolved", 0.90, 100.0),
        ("uncertain", "uncertain", 0.50, 100.0),
        ("investigate", "investigating", None, 100.0),
    ],
)
async def test_each_review_of_a_fallback_has_its_effect(
    world: World, action: str, status: str, confidence: float | None, final: float
) -> None:
    """Reuters is trusted more than News by 0.20, which is not 0.25: its value counts provisionally."""
    await world.say(
        point(100.0, 0, "Reuters", metric="revenue", document="a"),
        point(120.0, 3, NEWS, metric="revenue", document="b"),
    )
    await find(world)
    [task] = await tasks(world)
    provisional = await value(world)
    assert (provisional.value, provisional.provisional) == (100.0, True)
    await answer(world, task, action, rationale="Seen.")
    [one] = await found(world)
    assert (one["status"], one["final_value"], one["reviewed_at_gate3"]) == (status, final, True)
    if confidence is not None:
        assert one["confidence"] == confidence
    if action == "confirm":
        counts = await value(world)
        assert (counts.value, counts.provisional, counts.confidence) == (100.0, False, 0.90)


def analysis(key: str) -> dict[str, Any]:
    core = {"id": key, "kind": "equity", "subject_id": "company:MU", "date": "2020-01-10T00:00:00Z"}
    return {"record": "Analysis", "core": core}


def uses(key: str, point: str) -> dict[str, Any]:
    return {"link": "USES_VALUE", "from": {"Analysis": key}, "to": {"DataPoint": point}}


@pytest.mark.spec("GT-6")
@pytest.mark.parametrize(
    ("action", "fields", "asked"),
    [
        ("choose", {"document": "a"}, {"on-b"}),
        ("choose", {"document": "b"}, {"on-a", "on-a-again"}),
        ("uncertain", {}, {"on-b"}),
        ("confirm", {}, set()),
        ("investigate", {}, set()),
    ],
)
async def test_an_answer_asks_to_run_again_what_rests_on_the_other_value(
    world: World, action: str, fields: dict[str, str], asked: set[str]
) -> None:
    """100 of Reuters counts provisionally, twice stated; marked as uncertain, the lower revenue counts."""
    await world.say(
        point(100.0, 0, "Reuters", metric="revenue", document="a"),
        point(100.0, 1, "Reuters", metric="revenue", document="a-again"),
        point(120.0, 3, NEWS, metric="revenue", document="b"),
        *map(analysis, ("on-a", "on-a-again", "on-b")),
    )
    await find(world)
    [task] = await tasks(world)
    [item] = task.package.items
    used = await value(world)
    assert used.point is not None
    assert used.point.key != item.point_a, "the newest document that states the value"
    await world.say(uses("on-a", item.point_a), uses("on-a-again", used.point.key), uses("on-b", item.point_b))
    await answer(world, task, action, fields=fields, rationale="Seen.")
    alerts = await world.rows("SELECT analysis_id, payload FROM workflow.alert WHERE kind = 'VALUE_OVERRIDDEN'")
    assert {one["analysis_id"] for one in alerts} == asked
    assert all(one["payload"]["reason"].startswith("Run it again") for one in alerts)


async def test_an_answer_leaves_what_was_withdrawn_meanwhile(world: World) -> None:
    """A point that was known between the two arrives late: the pair is none any more."""
    await reviewer(world)
    await world.say(filed(), slip())
    await find(world)
    [task] = await tasks(world)
    await world.say(point(9.6, 1, NEWS, metric="revenue", document="between"))
    await find(world)
    assert "withdrawn" in {one["status"] for one in await found(world)}
    assert {one.state for one in await tasks(world) if one.task_id == task.task_id} == {TaskState.WITHDRAWN}
    with pytest.raises(TransitionRefused, match="withdrawn"):
        await answer(world, task, fields={"document": "a"})


async def at_gate(world: World, gate: int, by: timedelta = timedelta()) -> str:
    """Open a gate of ``a-7``, pass it by a clock that is ahead, and return its state."""
    database = Database(world.url, size=2, options=ahead(world.admin_url, by))
    try:
        due_at = datetime.now(UTC) + timedelta(days=3)
        given = await human_gates.open_gate(database, "a-7", gate, due_at=due_at, by=ADMIN, deadline=ENOUGH)
        assert given.state == "WAITING_FOR_HUMAN"
        answered = await human_gates.answer_gate(
            database, "a-7", gate, "validate", reason="Seen.", by=ADMIN, deadline=ENOUGH
        )
    finally:
        await database.close()
    async with later(world, by):
        await advance_due(reviewing(world), {GATES_OF_ANALYSES.kind: GATES_OF_ANALYSES}, until=ENOUGH)
    return answered.state


@pytest.mark.parametrize("side", ["point_a", "point_b"])
async def test_gates_wait_for_contradictions_of_the_values_that_an_analysis_uses(world: World, side: str) -> None:
    """Of the same value in another document of the source, too; what it does not use keeps none."""
    world.owner(
        "INSERT INTO workflow.analysis (analysis_id, subject_id, began_at) VALUES ('a-7', 'company:MU', imem_now())"
    )
    again = point(9.53, 1, SEC, metric="revenue", document="10-K/A")
    await world.say(filed(), again, slip(), filed("debt", 4.0), slip(metric="debt", value=40.0, document="another"))
    await find(world)
    by_metric = {one.package.items[0].metric: one for one in await tasks(world)}
    task = by_metric["revenue"]
    assert (task.state, task.analysis_id, task.rank) == (TaskState.DEFAULTED, None, 0)
    used = getattr(task.package.items[0], side)
    if side == "point_a":
        [other] = await world.rows(
            "SELECT record_key AS key FROM event WHERE payload #>> '{core,document}' = '10-K/A' AND record_key <> %s",
            used,
        )
        used = other["key"]
    await world.say(analysis("a-7"), uses("a-7", used))
    for gate in (3, 5):
        with pytest.raises(TransitionRefused, match=f"Gate {gate} cannot be passed: 1 review"):
            await at_gate(world, gate)
    await answer(world, task, fields={"document": "a"}, rationale="Seen.")
    assert [await at_gate(world, gate) for gate in (3, 5)] == ["VALIDATED", "VALIDATED"]


@pytest.mark.spec("DC-9", "GT-5", "GT-10")
async def test_what_nobody_reviewed_keeps_gates_from_being_passed(world: World) -> None:
    """At gate 3 what is CRITICAL, after a day and more too; at gate 5 everything."""
    world.owner(
        "INSERT INTO workflow.analysis (analysis_id, subject_id, began_at) VALUES ('a-7', 'company:MU', imem_now())"
    )

    def reported(key: str, metric: str, other: str) -> dict[str, Any]:
        core = {
            "id": key, "subject_id": "company:MU", "analysis_id": "a-7", "data_point": metric, "source_a": NEWS,
            "source_b": other, "value_a": 100.0, "value_b": 103.0, "timestamp": text(day(5)),
        }  # fmt: skip
        return {"record": "DataContradiction", "known_at": text(day(5)), "core": core}

    await world.say(reported("critical", "revenue", "blog"), reported("high", "capex", "a vendor"))
    await find(world)
    by_metric = {one.package.items[0].metric: one for one in await tasks(world)}
    assert {one.state for one in by_metric.values()} == {TaskState.DEFAULTED}

    with pytest.raises(TransitionRefused, match="Gate 3 cannot be passed: 1 review"):
        await at_gate(world, 3)
    async with later(world, timedelta(hours=25)):
        await advance(world)
    assert by_metric.keys() == {one.package.items[0].metric for one in await tasks(world, TaskState.DEFAULTED)}
    with pytest.raises(TransitionRefused, match="Gate 3 cannot be passed: 1 review"):
        await at_gate(world, 3, timedelta(hours=25))
    await answer(world, by_metric["revenue"], "confirm")
    assert (await at_gate(world, 3)) == "VALIDATED"
    assert (await tasks(world, TaskState.DEFAULTED)) != [], "what is HIGH comes up again"
    with pytest.raises(TransitionRefused, match="Gate 5 cannot be passed"):
        await at_gate(world, 5)
    await answer(world, by_metric["capex"], "uncertain", rationale="Neither is sure.")
    assert (await at_gate(world, 5)) == "VALIDATED"
