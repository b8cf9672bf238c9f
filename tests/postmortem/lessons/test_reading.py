"""What people read of lessons: their states, and the effect of one on recorded decisions."""

from __future__ import annotations

from datetime import timedelta

import pytest

from imem.jobs.lifecycle import Effects, finish
from imem.journal.actors import Action
from imem.journal.errors import BadInput
from imem.kg.kinds.enums import LessonState
from imem.kg.kinds.learning import Lesson
from imem.kg.kinds.work import Decision, Outcome
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import link_of
from imem.postmortem.lessons.effect import EffectVerdict
from imem.postmortem.lessons.gate import LessonDecision
from imem.postmortem.lessons.life import ACTOR
from imem.postmortem.lessons.reading import lesson_effect, lessons_listed
from tests.credibility.conftest import World, company
from tests.postmortem.lessons.parts import DAY0, ENOUGH, PERSON, agent, decide, go_on, lesson, record

DAY = timedelta(days=1)
APPLIED = DAY0 - 200 * DAY


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


def decided(subject: str, number: int, *, late: bool, right: bool, agents: tuple[str, ...] = ("ann",)) -> list[object]:
    """Return a decision and its outcome after 90 days, which was measured."""
    at = APPLIED + (number + 1) * (DAY if late else -DAY)
    key = f"{subject}-{late}-{number}"
    over = at + 90 * DAY
    return [
        Decision(id=key, subject_id=f"company:{subject}", type="portfolio", agents_involved=agents, decided_at=at),
        Outcome(
            id=f"o-{key}", subject_id=f"company:{subject}", decision_id=key, checkpoint=90, metric="total_return",
            period_start=at, target_at=over, actual=0.1, unit="fraction", observed_at=over, vintage=0,
            assessment=Outcome.Assessment(deviation=0.0, accuracy=float(right)),
        ),
    ]  # fmt: skip


async def test_an_effect_is_that_of_recorded_outcomes(world: World) -> None:
    """In the lesson's sector eight of ten are right after it, and two before; elsewhere nothing changed."""
    state = Lesson.State(state="applied", reviewed=True, applied=True, applied_date=APPLIED, effectiveness_tracked=True)
    one = lesson("l", state=state, scope_sector="Technology")
    await record(world, one, writer="postmortem", actor=PERSON)
    link = entry_of(link_of("AFFECTS_AGENT", ("Lesson", "l"), ("Agent", "ann")))
    async with world.pipelines.transaction(ENOUGH) as conn:
        await finish(conn, Effects(facts=[(ACTOR, Action.APPEND, link)]), world.engine, ENOUGH)
    await world.say(
        company("MU", DAY0 - 900 * DAY, sector="Technology"), company("XOM", DAY0 - 900 * DAY, sector="Energy")
    )
    await go_on(world)
    cells = {("MU", False): 2, ("MU", True): 8, ("XOM", False): 5, ("XOM", True): 5}
    made = [
        each
        for (subject, late), right in cells.items()
        for number in range(10)
        for each in decided(subject, number, late=late, right=number < right)
    ]
    others = decided("MU", 20, late=True, right=False, agents=("bob",))
    await record(world, *made[:-2], *others, writer="postmortem")  # type: ignore[arg-type]
    found = await lesson_effect(world.database, "l", deadline=ENOUGH)
    assert (found.verdict, found.after_outside.decisions) == (EffectVerdict.INSUFFICIENT, 9)

    await record(world, *made[-2:], writer="postmortem")  # type: ignore[arg-type]
    found = await lesson_effect(world.database, "l", deadline=ENOUGH)
    assert found.applied_at == APPLIED
    shown = (found.before_in_scope, found.after_in_scope, found.before_outside, found.after_outside)
    assert [(cell.decisions, cell.accuracy) for cell in shown] == [
        (10, pytest.approx(0.2)), (10, pytest.approx(0.8)), (10, 0.5), (10, 0.5)
    ]  # fmt: skip
    assert found.uplift == pytest.approx(0.6)
    with pytest.raises(BadInput, match="lesson_id"):
        await lesson_effect(world.database, "none", deadline=ENOUGH)
