"""What people read of lessons: their states, and the effect of one on recorded decisions."""

from __future__ import annotations

import pytest

from imem.journal.errors import BadInput
from imem.kg.kinds.enums import LessonState
from imem.postmortem.lessons.effect import EffectVerdict
from imem.postmortem.lessons.gate import LessonDecision
from imem.postmortem.lessons.reading import lesson_effect, lessons_listed
from tests.credibility.conftest import World
from tests.postmortem.lessons.parts import (
    APPLIED,
    ENOUGH,
    PERSON,
    agent,
    applied,
    decide,
    decided,
    go_on,
    lesson,
    measured,
    record,
)


async def test_lessons_are_listed_with_their_states(world: World) -> None:
    await world.say(agent("ann"))
    await record(world, lesson("l1"), lesson("l2", category="timing"))
    await record(world, lesson("l3"), actor=PERSON)
    await go_on(world)
    await decide(world, "l2", LessonDecision.REJECT, "It is one case.")

    found = {one.lesson_id: one for one in await lessons_listed(world.database, None, deadline=ENOUGH)}
    assert {key: (one.state.value, one.reviewed, one.delivered) for key, one in found.items()} == {
        "l1": ("pending_gate6", False, 0), "l2": ("rejected", False, 0), "l3": ("pending_gate6", True, 1)
    }  # fmt: skip
    waiting = await lessons_listed(world.database, LessonState.PENDING_GATE6, deadline=ENOUGH)
    assert {one.lesson_id for one in waiting} == {"l1", "l3"}

    await record(world, lesson("l4", insight="A newer insight."))
    await decide(world, "l1", LessonDecision.APPROVE)
    await go_on(world)
    await decide(world, "l4", LessonDecision.REPLACE, replaces="l1")
    [over] = await lessons_listed(world.database, LessonState.SUPERSEDED, deadline=ENOUGH)
    assert (over.lesson_id, over.superseded_by) == ("l1", "l4")


async def test_an_effect_is_that_of_recorded_outcomes(world: World) -> None:
    """In the lesson's sector eight of ten are right after it, and two before; elsewhere nothing changed."""
    await applied(world, "l")
    made = measured({("MU", False): 2, ("MU", True): 8, ("XOM", False): 5, ("XOM", True): 5})
    others = decided("MU", 20, late=True, right=False, agents=("bob",))
    await record(world, *made[:-2], *others, writer="postmortem")
    found = await lesson_effect(world.database, "l", deadline=ENOUGH)
    assert (found.verdict, found.after_outside.decisions) == (EffectVerdict.INSUFFICIENT, 9)

    await record(world, *made[-2:], writer="postmortem")
    found = await lesson_effect(world.database, "l", deadline=ENOUGH)
    assert found.applied_at == APPLIED
    shown = (found.before_in_scope, found.after_in_scope, found.before_outside, found.after_outside)
    assert [(cell.decisions, cell.accuracy) for cell in shown] == [
        (10, pytest.approx(0.2)), (10, pytest.approx(0.8)), (10, 0.5), (10, 0.5)
    ]  # fmt: skip
    assert found.uplift == pytest.approx(0.6)
    with pytest.raises(BadInput, match="lesson_id"):
        await lesson_effect(world.database, "none", deadline=ENOUGH)
