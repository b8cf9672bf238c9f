"""Whoever advances debates is killed around each transition: each ends once, with what it records and its audit."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any, Final

import pytest

from imem.debates.service import DebateProgress
from imem.debates.states import Act
from imem.debates.stored import task_id_of
from imem.journal.actors import Actor
from imem.journal.settings import Role
from imem.review import inbox
from imem.services.task_kinds import TASK_KINDS
from tests.killed_programs import killed_program

from .conftest import ADMIN, BEAR, BULL, ENOUGH, HOUR, Forum, claimed
from .killed import POINTS, killed_at
from .test_debates import opened_gate, rejected

KILLS: Final = 25 if os.environ.get("IMEM_CHAOS") else 2
"""At each point of each transition."""

MINUTE: Final = timedelta(minutes=1)
TUTOR: Final = Actor("tutor", Role.AGENT)


async def challenged(forum: Forum, number: int, **given: Any) -> DebateProgress:
    await forum.world.say(claimed(f"f-{number}", "bull", analysis=f"a-{number}"))
    return await forum.challenge(f"f-{number}", **given)


async def standing(forum: Forum, number: int, **given: Any) -> DebateProgress:
    """Have both sides stand, which the pipelines have not seen."""
    debate = await challenged(forum, number, **given)
    for side in (BULL, BEAR):
        await forum.act(debate, Act.STAND, side)
    return debate


async def escalated(forum: Forum, number: int, **given: Any) -> DebateProgress:
    """Have a debate at the judge, at a reviewer or, where there is none, at its default."""
    debate = await standing(forum, number, **given)
    await forum.advance()
    return debate


def acting(act: Act, by: Actor) -> Prepare:
    async def prepare(forum: Forum, number: int) -> DebateProgress:
        debate = await challenged(forum, number)
        return await forum.act(debate, act, by)

    return prepare


def answering(action: str, side: str | None = None) -> Prepare:
    async def prepare(forum: Forum, number: int) -> DebateProgress:
        debate = await escalated(forum, number)
        fields = {} if side is None else {"side": side}
        await inbox.answer_task(
            forum.world.database, TASK_KINDS, task_id_of(debate.debate_id), action, fields=fields, rationale="So.",
            by=ADMIN, deadline=ENOUGH,
        )  # fmt: skip
        return debate

    return prepare


async def judging(forum: Forum, number: int) -> DebateProgress:
    debate = await escalated(forum, number, judge="tutor")
    return await forum.act(debate, Act.JUDGE, TUTOR, winner="bear", text="They do shrink.")


async def at_the_judge(forum: Forum, number: int) -> DebateProgress:
    return await standing(forum, number, judge="tutor")


async def at_a_gate(forum: Forum, number: int) -> DebateProgress:
    """Have a person reject an analysis for good, a debate of which fell back."""
    debate = await escalated(forum, number)
    await opened_gate(forum, 5, f"a-{number}")
    await rejected(forum, 5, f"a-{number}")
    return debate


Prepare = Callable[[Forum, int], Awaitable[DebateProgress]]


@dataclass(frozen=True)
class Move:
    """
    What a round of the pipelines does to a debate.

    Attributes:
        prepare: makes a debate of a number that the round moves.
        states: the states that its audit rows enter, from its opening to the end of the round.
        resolutions: how many are recorded by then.
        ahead: how far ahead the clock of the round is.
        people: whether reviewers have room.
        facts: whether the round records something.
    """

    prepare: Prepare
    states: tuple[str, ...]
    resolutions: int
    ahead: timedelta = timedelta()
    people: bool = False
    facts: bool = True


MOVES: Final = {
    "acknowledged": Move(acting(Act.ACKNOWLEDGE, BULL), ("level1",), 0),
    "accepted": Move(acting(Act.ACCEPT, BULL), ("closed",), 1),
    "withdrawn": Move(acting(Act.WITHDRAW, BEAR), ("withdrawn",), 0),
    "not acknowledged": Move(challenged, ("level2", "level3"), 0, 16 * MINUTE, people=True),
    "nobody there": Move(challenged, ("level2", "provisional"), 1, 16 * MINUTE),
    "at the judge": Move(at_the_judge, ("level2",), 0),
    "judged": Move(judging, ("level2", "closed"), 1),
    "answered": Move(answering("choose", "challenger"), ("level2", "level3", "closed"), 1, people=True),
    "more time": Move(answering("evidence"), ("level2", "level3"), 0, people=True, facts=False),
    "not answered": Move(escalated, ("level2", "level3", "provisional"), 1, 7 * HOUR, people=True),
    "overridden": Move(answering("choose", "challenger"), ("level2", "provisional", "closed"), 2),
    "confirmed": Move(answering("confirm"), ("level2", "provisional", "closed"), 1),
    "debated again": Move(answering("redebate"), ("level2", "provisional", "superseded"), 1),
    "at a gate": Move(at_a_gate, ("level2", "provisional", "closed"), 1),
}  # fmt: skip


@pytest.mark.longer
@pytest.mark.spec("DB-11", "DB-12")
@pytest.mark.parametrize("name", MOVES)
async def test_killed_around_a_transition(forum: Forum, name: str) -> None:
    """
    Killed before the commit it has moved nothing, and after it everything; the next round makes up for the first.

    In the end there is what an undisturbed round leaves, once: events, audit rows, alerts and rows.
    """
    move, numbers = MOVES[name], count()
    if move.people:
        for person in ("eve", "joe"):
            await forum.reviewer(person, 100)

    async def run(point: str | None) -> Counter[str]:
        """Return what one debate adds; the clock is where the round before left it."""
        number = next(numbers)
        begins, ends = number * move.ahead, (number + 1) * move.ahead
        async with forum.clock(begins) if move.ahead else nullcontext():
            empty = await forum.world.written()
            debate = await move.prepare(forum, number)
            before = await forum.world.written()
        after = before
        if point is not None:
            ahead_s = int(ends.total_seconds())
            after = await killed_at(forum.world, program, point, "advance", before, ahead_s=ahead_s)
        await (forum.later(ends) if move.ahead else forum.advance())
        last = await forum.world.written()
        assert point != "after_commit" or after == last
        states = [state for _, _, state in await forum.audit(debate)]
        assert states == ["initiated", *move.states]
        assert len(await forum.resolutions(debate)) == move.resolutions
        last.subtract(empty)
        return Counter({what: n for what, n in last.items() if n})

    async with killed_program("tests.credibility.running.killed", forum.world.pipeline_url) as program:
        undisturbed = await run(None)
        for point in POINTS:
            for _ in range(KILLS if move.facts or point != "before_append" else 0):
                assert await run(point) == undisturbed, point
