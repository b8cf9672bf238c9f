"""Every transition of a contradiction is stored, with level, method, confidence and difference of scores."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from imem.review.states import TaskState

from ..conftest import World  # noqa: TID252 - a folder of its own
from .test_arbitration import advance, answer, reviewer, tasks, value
from .test_detection import NEWS, SEC, find, point
from .test_reviewed import OVER

Stored = tuple[str, str, str, float, float]
"""Status, level, method, confidence, difference of the scores."""


async def stored(world: World) -> list[Stored]:
    """Return all resolutions that were stored, in their order."""
    found = await world.rows(
        "SELECT (e.payload #> '{groups,resolution}')::text AS resolution FROM record_history AS y"
        " JOIN event AS e ON e.position = y.position"
        " WHERE y.kind = 'DataContradiction' AND y.grp = 'resolution' ORDER BY y.order_key"
    )
    resolutions: list[dict[str, Any]] = [orjson.loads(row["resolution"]) for row in found]
    names = ("status", "resolution_level", "resolution_method")
    return [
        (*(one[name] for name in names), round(one["confidence"], 4), round(one["credibility_differential"], 4))
        for one in resolutions
    ]


QUEUED: Stored = ("queued", "3_human", "provisional_credibility_weighted", 0.675, 0.20)
PROVISIONAL: Stored = ("provisional", "4_fallback", "provisional_credibility_weighted", 0.675, 0.20)


@pytest.mark.spec("DC-12")
@pytest.mark.parametrize(
    ("action", "fields", "end"),
    [
        ("confirm", {}, ("resolved", "4_fallback", "human_confirmation", 0.90, 0.20)),
        ("choose", {"document": "b"}, ("resolved", "3_human", "human_arbitration", 0.90, 0.20)),
        ("value", {"value": 110.0}, ("resolved", "3_human", "human_value", 0.90, 0.20)),
        ("uncertain", {}, ("uncertain", "3_human", "human_uncertainty", 0.50, 0.20)),
        ("investigate", {}, ("investigating", "4_fallback", "provisional_credibility_weighted", 0.675, 0.20)),
    ],
)
async def test_every_transition_is_stored(world: World, action: str, fields: dict[str, Any], end: Stored) -> None:
    """From detected to queued, after six hours provisional, and then what a person makes of it; with audit rows."""
    await reviewer(world)
    await world.say(
        point(100.0, 0, "Reuters", metric="revenue", document="a"),
        point(120.0, 3, NEWS, metric="revenue", document="b"),
    )
    await find(world)
    assert await stored(world) == [QUEUED]
    world.owner(OVER)
    await advance(world)
    assert await stored(world) == [QUEUED, PROVISIONAL]
    [task] = await tasks(world)
    await answer(world, task, action, fields=fields, rationale="Seen.")
    assert await stored(world) == [QUEUED, PROVISIONAL, end]
    audited = await world.rows(
        "SELECT actor_id FROM memory_access_audit"
        " WHERE request_context ->> 'kind' = 'task' AND outcome = 'done' ORDER BY id"
    )
    assert [row["actor_id"] for row in audited] == ["SYSTEM", "ann"]


@pytest.mark.spec("DC-12")
async def test_a_contradiction_that_evidence_resolves_has_one_transition(world: World) -> None:
    await world.say(point(100.0, 0), point(105.0, 3, "Bloomberg"))
    await find(world)
    assert await stored(world) == [("resolved", "1_evidence", "evidence_based", 0.95, 0.05)]


@pytest.mark.spec("GT-6", "DC-10")
@pytest.mark.parametrize("late", [False, True])
async def test_a_person_states_a_value_of_their_own(world: World, late: bool) -> None:  # noqa: FBT001 - a parameter
    """In time, or after the fallback: it counts from then on, names the person, and says nothing of the sources."""
    await reviewer(world)
    await world.say(
        point(9.53, 0, SEC, metric="revenue", document="10-K"),
        point(95.3, 3, "Bloomberg", metric="revenue", document="note"),
    )
    await find(world)
    if late:
        world.owner(OVER)
    await advance(world)
    [task] = await tasks(world)
    assert task.state is (TaskState.DEFAULTED if late else TaskState.OPEN)
    await answer(world, task, "value", fields={"value": 9.6}, rationale="Both have a slip.")
    await find(world)

    counts = await value(world)
    assert (counts.value, counts.confidence, counts.provisional) == (9.6, 0.90, False)
    assert counts.point is not None
    assert (counts.point.source, counts.point.decided_by) == ("person:ann", "ann")
    told = counts.to_dict()
    assert (told["level"], told["method"], told["decided_by"]) == ("3_human", "human_value", "ann")
    assert [row["n"] for row in await world.rows(
        "SELECT count(*) AS n FROM record_history WHERE kind = 'DataContradiction' AND grp = 'outcome'"
    )] == [0]  # fmt: skip
    assert await find(world) == {}, "the value stands against both, and nobody is asked again"
    assert {one.task_id for one in await tasks(world)} == {task.task_id}
