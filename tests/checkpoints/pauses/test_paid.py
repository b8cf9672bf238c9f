"""What an agent has paid for within a subtask outlives its pause, its failures and the loss of both Valkeys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest

from imem.checkpoints.orchestration.programs import AgentRun, program
from imem.checkpoints.session import Session
from tests.http_server import HttpServer, serving

from .delivered import deliver
from .test_retries import Waits
from .world import PERSON, World, soon

AGENT: dict[str, Any] = {
    "analysis_id": "a-1", "agent_type": "screening", "agent_id": "scr-1", "subject_id": "company:MU", "owner": "ann",
}  # fmt: skip


@pytest.fixture
def upstream() -> Iterator[HttpServer]:
    with serving() as server:
        yield server


async def pay(session: Session, upstream: HttpServer, key: str) -> str:
    async def call() -> str:
        async with httpx.AsyncClient() as client:
            return (await client.get(f"{upstream.url}/{key}")).raise_for_status().text + "ok"

    return await session.memoize(key, call)


async def broken_off(world: World, upstream: HttpServer, done: int) -> None:
    """Have an agent that ended in the middle of a subtask, with writes of it, after it had paid."""
    async with world.parts.runner.session_factory.begin(**AGENT) as session:
        for name in session.pending[:done]:
            await session.memory.set(name, "done")
            await deliver(session, name)
            await session.complete(name)
        await session.memory.list("log").append("begun")
        assert await pay(session, upstream, "prices") == "ok"


@pytest.mark.spec("CK-35")
@pytest.mark.parametrize("done", [0, 2])
@pytest.mark.parametrize("after", [timedelta(hours=18), timedelta(days=7), timedelta(days=13)], ids=str)
@pytest.mark.parametrize("lost", ["nothing", "working", "both"])
async def test_a_pause_within_a_subtask_keeps_what_was_paid_for(
    world: World, upstream: HttpServer, done: int, after: timedelta, lost: str
) -> None:
    """Its checkpoint holds the answers, proven by its digest, and nothing else of the subtask."""
    await broken_off(world, upstream, done)
    result = await world.pauses.pause_analysis("a-1", "A look.", by=PERSON, deadline=soon())
    assert result.status == "PAUSED"
    names = list(world.definitions.of_type("screening").names)
    latest = await world.checkpoints.load("a-1", "screening", deadline=soon())
    assert latest is not None
    assert latest.l1_snapshot is not None
    assert sorted(latest.l1_snapshot) == sorted([*names[:done], "calls:prices"])
    for server in {"nothing": [], "working": [world.working_redis], "both": [world.working_redis, world.durable_redis]}[
        lost
    ]:
        await server.flushall()
    await world.later(after)

    resumed = await world.pauses.resume_analysis("a-1", by=PERSON, deadline=soon())

    assert resumed.status == "RESUMED"
    async with world.parts.runner.session_factory.begin(**AGENT) as session:
        assert session.pending == tuple(names[done:])
        assert sorted(await session.memory.keys()) == sorted([*names[:done], "calls:prices"])
        assert await pay(session, upstream, "prices") == "ok"
        assert not session.recovered.rolled_back
    assert [one.path for one in upstream.asked] == ["/prices"]


async def test_another_attempt_and_a_failure_pay_for_nothing_twice(world: World, upstream: HttpServer) -> None:
    """Two attempts fail by a timeout, then the program by a mistake; after the pause the subtask is done at last."""
    troubles: list[Exception] = [httpx.ReadTimeout("slow"), ConnectionResetError(), ZeroDivisionError()]

    async def run(given: AgentRun) -> None:
        for name in given.session.pending:
            await given.session.memory.list("log").append(name)
            await pay(given.session, upstream, name)
            if name == "quantitative_filter" and troubles:
                raise troubles.pop(0)
            await deliver(given.session, name)
            await given.session.complete(name)

    program("screening")(run)
    await world.orchestrator.start_analysis("a-1", "company:MU", {"screening": "scr-1"}, deadline=soon())
    runner = replace(world.parts.runner, sleep=Waits(), chance=lambda: 0.0)
    assert await runner.run(world.sent[-1]) == "FAILED"
    await world.manager.round(deadline=soon())
    for server in (world.working_redis, world.durable_redis):
        await server.flushall()
    await world.pauses.resume_analysis("a-1", by=PERSON, deadline=soon())

    assert await runner.run(world.sent[-1]) == "COMPLETED"

    names = list(world.definitions.of_type("screening").names)
    assert [one.path.removeprefix("/") for one in upstream.asked] == names
    latest = await world.checkpoints.load("a-1", "screening", deadline=soon())
    assert latest is not None
    assert latest.working_memory["log"]["value"] == names
