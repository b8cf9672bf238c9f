"""Agents are told of a lesson when they may see it, and of nothing that people review."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from imem.journal.gateway import Gateway
from imem.kg.kinds.learning import PostMortem
from imem.kg.kinds.subjects import Agent
from imem.postmortem.lessons.gate import LessonDecision
from imem.sync.delivery.puller import PullFilter, Update
from tests.postmortem.lessons.parts import DAY0, MODEL, PERSON, decide, go_on, lesson, record

from .conftest import SyncHarness, soon
from .parts import member, synchronizer

APART = PullFilter.of(apart=True)


async def pulled(harness: SyncHarness) -> list[Update]:
    """Route what is due, and pull all of it, also what is of little relevance."""
    await harness.router.step()
    found = await synchronizer(harness).pull(await member(harness), wanted=APART, deadline=soon())
    assert found.waiting == 0
    return list(found.updates)


async def test_an_agent_is_told_of_a_lesson_once_it_may_see_it(harness: SyncHarness) -> None:
    world: Any = SimpleNamespace(pipelines=harness.pipelines, engine=Gateway(harness.pipelines, MODEL))
    await harness.begin()
    profile = Agent.Profile(specialization="margins", kind="model", domains=["flu"])
    await record(world, Agent(name="ann", profile=profile), actor=PERSON)
    await record(world, PostMortem(id="case", decision_id="d", checkpoint=90, deviation=0.5, trigger_date=DAY0))
    await record(world, lesson("l"))
    await go_on(world)
    assert await pulled(harness) == [], "nobody reviewed or approved it"

    await decide(world, "l", LessonDecision.APPROVE)
    await go_on(world)
    [told] = await pulled(harness)
    assert (told.kind, told.key, told.why) == ("Lesson", "l", "named")
    assert told.content["core"]["insight"] == lesson("l").insight
    assert told.content["groups"]["state"]["state"] == "approved"


async def test_an_update_about_a_withdrawn_lesson_is_not_delivered(harness: SyncHarness) -> None:
    world: Any = SimpleNamespace(pipelines=harness.pipelines, engine=Gateway(harness.pipelines, MODEL))
    await harness.begin()
    profile = Agent.Profile(specialization="margins", kind="model", domains=["flu"])
    await record(world, Agent(name="ann", profile=profile), actor=PERSON)
    await record(world, lesson("l", category="timing"), actor=PERSON)
    await record(world, lesson("kept"), actor=PERSON)
    await go_on(world)
    await harness.router.step()
    await decide(world, "l", LessonDecision.REJECT, "It is one case.")

    updates = await pulled(harness)
    assert {one.key for one in updates} == {"kept"}
    assert updates[-1].content["groups"]["state"]["state"] == "pending_gate6"
    again = await synchronizer(harness).pull(await member(harness), 0, deadline=soon())
    assert {one.key for one in again.updates} == {"kept"}, "from a number on, too"
