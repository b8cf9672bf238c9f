"""What an answer decides of items that changed after the package was opened: what was shown, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from imem.jobs.lifecycle import Effects, finish
from imem.journal.actors import Action
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import correction_of
from imem.postmortem.lessons.measuring import measure_lessons
from tests.postmortem.lessons.parts import PERSON, applied, lesson, measured, record, runtime_of, states

from .conftest import DAY, ENOUGH, LONG_AGO, Desk
from .test_retirement import HARM

MONTH = 30 * DAY
APPROVE = {"action": "approve"}
PATTERN = {
    "record": "Pattern", "known_at": LONG_AGO.isoformat(),
    "core": {"pattern_id": "p", "name": "Inventories", "category": "cycle"},
}  # fmt: skip


def revises(key: str) -> dict[str, Any]:
    """Return that a lesson proposes to revise the pattern."""
    return {
        "link": "AFFECTS_PATTERN", "known_at": datetime.now(UTC).isoformat(), "from": {"Lesson": key},
        "to": {"Pattern": "p"},
    }  # fmt: skip


def on_probation(agent: str) -> dict[str, Any]:
    known_at = datetime.now(UTC).isoformat()
    return {"record": "Agent", "key": agent, "known_at": known_at, "groups": {"standing": {"on_probation": True}}}


async def correct(desk: Desk, key: str, **core: Any) -> None:
    """Have a person correct a lesson."""
    entry = entry_of(correction_of(lesson(key, **core), "It was written wrongly."))
    async with desk.world.pipelines.transaction(ENOUGH) as conn:
        await finish(conn, Effects(facts=[(PERSON, Action.APPEND, entry)]), desk.world.engine, ENOUGH)


async def revised(desk: Desk) -> list[str]:
    found = await desk.world.rows("SELECT payload ->> 'to_key' AS key FROM event WHERE kind = 'link.REVISED_BY'")
    return sorted(row["key"] for row in found)


async def undecided(desk: Desk) -> Mapping[str, str]:
    answer = (await desk.package()).answer
    assert answer is not None
    return {str(name): str(why) for name, why in answer["undecided"].items()}


@pytest.mark.spec("GT-3", "PM-12")
async def test_a_lesson_that_revises_a_pattern_is_answered_alone_and_shows_it(desk: Desk) -> None:
    await desk.started()
    await desk.world.say(PATTERN)
    for key in ("alpha", "bravo"):
        await desk.lesson(key, times=5, confidence=0.95)
    await desk.world.say(revises("alpha"))
    await desk.later(MONTH)
    items = {one.key: one for one in (await desk.package()).package.items}
    assert {key: one.bulk is not None for key, one in items.items()} == {"alpha": False, "bravo": True}
    assert {key: one.seen["patterns"] for key, one in items.items()} == {"alpha": {"p": "Inventories"}, "bravo": {}}
    await desk.answer(bulk=True)
    found = await states(desk.world)
    assert (found["alpha"], found["bravo"], await revised(desk)) == ("pending_gate6", "applied", [])

    await desk.later(MONTH)
    await desk.answer({"item": "lesson:alpha", **APPROVE})
    assert ((await states(desk.world))["alpha"], await revised(desk)) == ("applied", ["alpha"])


@pytest.mark.parametrize("bulk", [True, False])
async def test_a_revision_that_was_not_shown_is_not_approved(desk: Desk, *, bulk: bool) -> None:
    """The lesson is not approved either, until it is shown with the revision."""
    await desk.started()
    await desk.world.say(PATTERN)
    await desk.lesson("alpha", times=5, confidence=0.95)
    await desk.later(MONTH)
    await desk.world.say(revises("alpha"))
    await desk.answer(*([] if bulk else [{"item": 1, **APPROVE}]), bulk=bulk)
    assert await undecided(desk) == {"lesson:alpha": "it says something else than was shown: patterns"}
    assert ((await states(desk.world))["alpha"], await revised(desk)) == ("pending_gate6", [])

    await desk.later(MONTH)
    await desk.answer({"item": 1, **APPROVE})
    assert await undecided(desk) == {}
    assert ((await states(desk.world))["alpha"], await revised(desk)) == ("applied", ["alpha"])


@pytest.mark.spec("GT-4")
async def test_what_may_be_approved_in_bulk_is_looked_at_again(desk: Desk) -> None:
    """An agent is on probation by then, or a score differs by more; who names the item decides on what was shown."""
    await desk.started()
    for agent in ("ann", "bob", "cy", "dan", "eve"):
        await desk.changed(agent, "flu", -0.04)
    await desk.later(MONTH)
    assert all(one.bulk for one in (await desk.package()).package.items)
    await desk.world.say(on_probation("ann"), on_probation("bob"))
    for agent in ("cy", "dan"):
        await desk.publish(agent, "flu", 0.5)
    await desk.answer(*({"item": f"credibility:{agent}/flu", **APPROVE} for agent in ("bob", "dan")), bulk=True)

    why = "it may not be approved in bulk any more"
    assert await undecided(desk) == {"credibility:ann/flu": why, "credibility:cy/flu": why}
    answer = (await desk.package()).answer
    assert answer is not None
    assert (answer["answered"], answer["over"]) == (3, [])
    reviews = {agent: await desk.group("AgentCredibility", f"{agent}/flu", "review") for agent in ("ann", "cy")}
    assert reviews == {"ann": None, "cy": None}
    for agent in ("bob", "dan", "eve"):
        review = await desk.group("AgentCredibility", f"{agent}/flu", "review")
        assert review is not None
        assert review["reviewed_score"] == pytest.approx(0.66), "what was shown"
    await desk.later(MONTH)
    items = {one.key: one.seen["old"] for one in (await desk.package()).package.items}
    assert items == {"ann/flu": 0.7, "cy/flu": 0.7, "dan/flu": pytest.approx(0.66)}


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"insight": "Orders rise."}, "insight"),
        ({"contradicting_ids": ["x"]}, "contradicting ids"),
        ({"scope_sector": "Energy"}, "scope sector"),
    ],
)
async def test_a_lesson_that_was_corrected_comes_up_again(desk: Desk, change: Mapping[str, Any], name: str) -> None:
    await desk.started()
    await record(desk.world, lesson("alpha"))
    await desk.lesson("bravo")
    await desk.later(MONTH)
    await correct(desk, "alpha", **change)
    await desk.answer(
        {"item": "lesson:alpha", "action": "reject", "rationale": "It is one case."},
        {"item": "lesson:bravo", **APPROVE},
    )
    assert await undecided(desk) == {"lesson:alpha": f"it says something else than was shown: {name}"}
    assert await states(desk.world) == {"alpha": "pending_gate6", "bravo": "applied"}
    await desk.later(MONTH)
    [item] = (await desk.package()).package.items
    await desk.answer({"item": item.id, **APPROVE})
    assert (await states(desk.world))["alpha"] == "applied"


async def test_more_cases_that_say_the_same_change_no_answer(desk: Desk) -> None:
    await desk.started()
    await desk.lesson("alpha", times=2)
    await desk.later(MONTH)
    words = " ".join(f"alpha{place}" for place in ("one", "two", "three", "four", "five"))
    await record(desk.world, lesson("later", insight=words, recommended_action=f"Wait for {words}."))
    await desk.answer({"item": 1, **APPROVE})
    assert (await undecided(desk), (await states(desk.world))["alpha"]) == ({}, "applied")


async def test_a_lesson_is_replaced_and_retired_by_one_answer(desk: Desk) -> None:
    """The first of the two counts, and the other answers of the package have their effect."""
    await applied(desk.world, "l")
    await record(desk.world, *measured(HARM), writer="postmortem")
    assert await measure_lessons(runtime_of(desk.world), until=ENOUGH) == {"measured": 1}
    await desk.started()
    await record(desk.world, lesson("new", insight="A newer insight.", recommended_action="Look.", priority="high"))
    await desk.lesson("bravo")
    await desk.later(31 * DAY)
    await desk.answer(
        {"item": "lesson:new", "action": "replace", "fields": {"lesson_id": "l"}},
        {"item": "retirement:l", **APPROVE},
        {"item": "lesson:bravo", **APPROVE},
    )
    assert await states(desk.world) == {"l": "superseded", "new": "applied", "bravo": "applied"}
