"""A worker killed before any of its statements loses no delivery, and delivers nothing twice."""

from __future__ import annotations

import pytest

from imem.postmortem.lessons.gate import LessonDecision
from tests.credibility.conftest import World
from tests.killed_programs import printed
from tests.postmortem.lessons.parts import LINKS, PERSON, agent, decide, go_on, lesson, links, record, states

AGENTS = [f"agent{number}" for number in range(5)]


async def killed(world: World) -> int:
    """Run workers that are killed until one ends by itself; return how many were."""
    return int(await printed("tests.postmortem.lessons.killed", given=f"{world.pipeline_url}\n"))


@pytest.mark.spec("PM-13")
async def test_killed_before_every_statement(world: World) -> None:
    """As advice after a review, and again after the approval, when one agent more is concerned."""
    await world.say(*map(agent, AGENTS))
    await record(world, lesson("l"), actor=PERSON)

    assert await killed(world) >= 12
    assert await states(world) == {"l": "pending_gate6"}
    assert await links(world) == [(link, name) for link in LINKS for name in AGENTS]

    await world.say(agent("new"))
    await decide(world, "l", LessonDecision.APPROVE)
    assert await killed(world) >= 3
    assert await states(world) == {"l": "applied"}
    assert await links(world) == [(link, name) for link in LINKS for name in (*AGENTS, "new")]

    await go_on(world)
    assert len(await links(world)) == len(LINKS) * 6, "nothing is due"
