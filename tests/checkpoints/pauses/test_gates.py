"""Working memory while its analysis waits for a person: it lives as long as a paused one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from imem.cache.keys import snapshot
from imem.cache.working.state import ACTIVE_TTL, PAUSED_TTL, ExpiryMode, ms_of
from imem.checkpoints.result_delivery import NO_RESULT
from imem.journal.clock import ManualClock
from tests.servers import as_pipelines, cloned

from .world import PERSON, World, close_world, make_world, soon

HOUR = timedelta(hours=1)
TWO = ("business_research", "financial_analyst")


class Waiting:
    """
    A world whose clocks, the processes' and the database's, are moved by hand.

    Attributes:
        began: when it began, by both clocks.
    """

    def __init__(self, world: World, clock: ManualClock) -> None:
        self.world = world
        self.clock = clock
        self.began = clock.now()

    async def at(self, after: timedelta) -> None:
        """Let it be *after* the beginning, and have a manager do its round."""
        self.clock.at = self.began + after
        await self.world.later(after)
        await self.round()

    async def round(self) -> None:
        told = await self.world.round()
        assert told.troubles == {}

    async def worked(self, agent_type: str = TWO[0], analysis_id: str = "a-1") -> str:
        """Have an agent that has completed a subtask and gave its lease up, and return its instance."""
        agent_id = f"{agent_type[:20]}-{uuid4().hex[:8]}"
        await self.session(agent_type, agent_id, analysis_id)
        return agent_id

    async def session(self, agent_type: str, agent_id: str, analysis_id: str = "a-1") -> None:
        """Have an agent begin or go on, complete its next subtask, and end."""
        async with self.world.parts.runner.session_factory.begin(
            analysis_id=analysis_id, agent_type=agent_type, agent_id=agent_id, subject_id="company:MU", owner="tester"
        ) as session:
            assert session.current is not None
            await session.memory.update(
                {f"of:{session.current}": ["found", "cached"], "text": "kept", "calls": {"n": "1"}}
            )
            await session.deliver(
                session.current, postgres=NO_RESULT, graph=NO_RESULT, cache=NO_RESULT, message=NO_RESULT
            )
            await session.complete(session.current)

    async def ends(self, agent_id: str) -> int:
        """Return when every key of the memory ends, in milliseconds since 1970: all of them at one moment."""
        names = await self.world.keys(agent_id)
        assert len(names) >= 5
        moments = {name: await self.world.working_redis.pexpiretime(name) for name in names}
        assert len(set(moments.values())) == 1, moments
        return int(next(iter(moments.values())))

    async def snapshot_ends(self, agent_id: str) -> int:
        its = snapshot(agent_id)
        moments = {int(await self.world.durable_redis.pexpiretime(name.decode())) for name in (its.body, its.meta)}
        assert len(moments) == 1
        return moments.pop()

    async def mode(self, agent_id: str) -> ExpiryMode:
        meta = await self.world.working.meta(agent_id, deadline=soon())
        assert meta is not None
        return meta.mode

    async def kept(self) -> int:
        """Return how many memories have a gate's expiry, by the rows."""
        return len(await self.world.rows("SELECT FROM workflow.gate_memory"))


@pytest_asyncio.fixture
async def waiting(light_stack: Any, light_template: str) -> AsyncIterator[Waiting]:
    clock = ManualClock(datetime.now(UTC).replace(microsecond=0))
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        made = make_world(
            light_stack.settings, url, admin_url, pipeline_url=as_pipelines(light_stack.settings, url), clock=clock
        )
        for plain in (made.working_redis, made.durable_redis):
            await plain.flushall()
        yield Waiting(made, clock)
        await close_world(made)


@pytest.mark.spec("CK-14")
async def test_thirty_hours_at_a_gate_lose_no_key(waiting: Waiting) -> None:
    """Two agents that have begun, and nobody who renews anything; at the end each has its 24 hours again, once."""
    agents = [await waiting.worked(name) for name in TWO]
    held = [await waiting.world.working.read(agent, deadline=soon()) for agent in agents]
    waiting.world.gate(answer_within=48 * HOUR)

    for hours in (0.0, 12.0, 23.9, 30.0):
        await waiting.at(hours * HOUR)
        for agent in agents:
            ends = await waiting.ends(agent)
            assert ends > ms_of(waiting.clock.now()), f"lost after {hours} hours"
            assert abs(ends - ms_of(waiting.began + PAUSED_TTL)) < 60_000
            assert await waiting.snapshot_ends(agent) >= ends
            assert await waiting.mode(agent) is ExpiryMode.GATED
    for agent, (_, contents) in zip(agents, held, strict=True):
        _, now = await waiting.world.working.read(agent, deadline=soon())
        assert {suffix: entry.leaves for suffix, entry in now.items()} == {
            suffix: entry.leaves for suffix, entry in contents.items()
        }

    waiting.world.gate(state="VALIDATED")
    await waiting.round()
    for _ in range(2):
        assert {await waiting.ends(agent) for agent in agents} == {ms_of(waiting.began + 30 * HOUR + ACTIVE_TTL)}
        assert {await waiting.mode(agent) for agent in agents} == {ExpiryMode.ACTIVE}
        assert await waiting.kept() == 0
        await waiting.at(30 * HOUR + timedelta(minutes=5))


@pytest.mark.spec("CK-14")
async def test_a_gate_that_may_be_answered_later_than_a_pause_lives(waiting: Waiting) -> None:
    """Day by day for forty days: the memory outlives its gate, though no memory may be kept longer than thirty."""
    agent = await waiting.worked()
    waiting.world.gate(answer_within=timedelta(days=45))

    for day in range(0, 41, 8):
        await waiting.at(timedelta(days=day))
        # It is looked at every hour; a manager that was away for most of a day comes in time.
        assert await waiting.ends(agent) > ms_of(waiting.clock.now() + 23 * HOUR), day


async def test_a_timeout_hands_the_memory_to_the_pause(waiting: Waiting) -> None:
    """Its expiry is then the pause's, and no gate's any more; what follows the resume is 24 hours."""
    agent = await waiting.worked()
    waiting.world.gate()
    await waiting.at(23 * HOUR)
    assert (await waiting.mode(agent), await waiting.kept()) == (ExpiryMode.GATED, 1)

    await waiting.at(25 * HOUR)

    row = await waiting.world.pause_row("a-1")
    assert (row["status"], row["pause_trigger"]) == ("PAUSED", "GATE_TIMEOUT")
    assert (await waiting.mode(agent), await waiting.kept()) == (ExpiryMode.PAUSED, 0)
    assert await waiting.ends(agent) == ms_of(row["pause_timestamp"] + PAUSED_TTL)
    await waiting.round()
    assert await waiting.mode(agent) is ExpiryMode.PAUSED
    resumed = await waiting.world.pauses.resume_analysis("a-1", by=PERSON, deadline=soon())
    assert resumed.status == "RESUMED"
    await waiting.round()
    assert await waiting.mode(agent) is ExpiryMode.ACTIVE
    assert await waiting.ends(agent) == ms_of(waiting.clock.now() + ACTIVE_TTL)


async def test_a_pause_that_waits_for_a_server_is_not_disturbed(waiting: Waiting) -> None:
    """What is PAUSING or PAUSED belongs to its saga, also where another gate opens by mistake."""
    agent = await waiting.worked()
    await waiting.world.pauses.pause_analysis("a-1", "A look.", by=PERSON, deadline=soon())
    before = await waiting.ends(agent)
    waiting.world.gate()

    await waiting.at(2 * HOUR)

    assert (await waiting.ends(agent), await waiting.mode(agent), await waiting.kept()) == (
        before,
        ExpiryMode.PAUSED,
        0,
    )


async def test_the_last_of_several_gates_lets_go(waiting: Waiting) -> None:
    agent = await waiting.worked()
    waiting.world.gate(gate=2)
    waiting.world.gate(gate=3)
    await waiting.round()
    waiting.world.gate(gate=2, state="VALIDATED")
    await waiting.round()
    assert await waiting.mode(agent) is ExpiryMode.GATED
    waiting.world.gate(gate=3, state="VALIDATED")
    await waiting.round()
    assert await waiting.mode(agent) is ExpiryMode.ACTIVE


async def test_agents_that_begin_or_are_restored_at_a_gate_wait_as_well(waiting: Waiting) -> None:
    """A branch beside the one that waits; and a process that died and was begun anew, on a memory put back."""
    first = await waiting.worked(TWO[0])
    waiting.world.gate()
    await waiting.round()
    second = await waiting.worked(TWO[1])
    await waiting.world.working_redis.delete(*await waiting.world.keys(first))
    await waiting.session(TWO[0], first)
    assert await waiting.mode(first) is ExpiryMode.ACTIVE, "a restored memory begins with 24 hours"

    await waiting.round()

    assert {await waiting.mode(agent) for agent in (first, second)} == {ExpiryMode.GATED}
    assert await waiting.kept() == 2


async def test_what_a_server_forgot_is_found_within_the_hour(waiting: Waiting) -> None:
    """A server that was killed comes back without its last second: the expiry is looked at again."""
    agent = await waiting.worked()
    waiting.world.gate()
    await waiting.round()
    await waiting.world.working.expire(agent, ExpiryMode.ACTIVE, deadline=soon())

    await waiting.at(timedelta(minutes=59))
    assert await waiting.mode(agent) is ExpiryMode.ACTIVE
    await waiting.at(timedelta(minutes=61))

    assert await waiting.mode(agent) is ExpiryMode.GATED


async def test_what_fails_at_a_gate_does_not_linger(waiting: Waiting) -> None:
    """A hard rejection ends the analysis: its memory has a day, like that of any other that failed."""
    agent = await waiting.worked()
    waiting.world.gate()
    await waiting.round()
    waiting.world.gate(state="HARD_REJECTED")

    await waiting.round()

    (row,) = await waiting.world.rows("SELECT outcome FROM workflow.analysis")
    assert row["outcome"] == "failed"
    assert await waiting.ends(agent) == ms_of(waiting.clock.now() + ACTIVE_TTL)
    assert await waiting.kept() == 0
