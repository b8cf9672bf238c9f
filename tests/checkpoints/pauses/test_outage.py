"""Servers that are killed, stand still, or have lost what they held, while analyses are paused and resumed."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from pydantic import SecretStr

from imem.cache.working.state import ExpiryMode
from imem.checkpoints.orchestration.programs import AgentRun, program
from imem.journal.errors import ImemError
from imem.journal.postgres.migrations import migrate
from imem.local.supervisor import LocalStack
from tests.cache.working.servers import OwnServer
from tests.conftest import settings_for, temporary_home

from .delivered import deliver
from .world import PERSON, World, close_world, make_world, soon


async def order(world: World, ms: float = 20_000) -> str:
    result = await world.pauses.pause_analysis("a-1", "A look.", by=PERSON, deadline=soon(ms))
    return result.status


def at_once(world: World) -> None:
    """Let the next attempt be due now."""
    world.owner("UPDATE workflow.paused_analyses SET next_attempt_at = NULL")


@pytest.mark.spec("CK-14")
@pytest.mark.parametrize("away", [0, 1], ids=["working", "durable"])
async def test_a_gate_opens_while_a_server_is_away(
    own: World, memories: tuple[OwnServer, OwnServer], away: int
) -> None:
    """Without the working server the round says so, and catches up; without the durable one memories are moved."""
    lease = await own.begin("a-1")
    await own.release(lease)
    memories[0].flush()
    memories[away].kill()
    own.gate()

    told = await own.manager.round(deadline=soon())
    assert ("waiting" in told.troubles) is (away == 0)
    memories[away].start()
    told = await own.manager.round(deadline=soon())

    assert told.troubles == {}
    meta = await own.working.meta(lease.agent_id, deadline=soon())
    assert meta is not None
    assert meta.mode is ExpiryMode.GATED


@pytest.mark.spec("CK-34")
async def test_a_pause_without_the_working_server_rests_on_the_last_checkpoint(
    own: World, memories: tuple[OwnServer, OwnServer]
) -> None:
    """That is when pauses are needed most; the memory's expiry follows when the server is back with what it had."""
    lease = await own.begin("a-1")
    latest = await own.checkpoints.load("a-1", "business_research", deadline=soon())
    assert latest is not None
    await own.release(lease)
    # What the server's file holds, it holds after the kill.
    await asyncio.sleep(1.1)
    memories[0].kill()

    assert await order(own) == "PAUSED"

    (agent,) = await own.rows("SELECT * FROM workflow.pause_agent_checkpoints")
    assert (agent["source"], agent["digest"], agent["memory_kept"]) == ("checkpoint", latest.working_memory_hash, False)
    memories[0].start()
    await own.manager.round(deadline=soon())
    (agent,) = await own.rows("SELECT * FROM workflow.pause_agent_checkpoints")
    assert agent["memory_kept"]
    result = await own.pauses.resume_analysis("a-1", by=PERSON, deadline=soon())
    assert result.status == "RESUMED"
    assert await own.memory(lease) != {}


async def test_a_pause_gets_over_a_working_server_that_stands_still(
    own: World, memories: tuple[OwnServer, OwnServer]
) -> None:
    """Each step waits a little for it, and the pause ends all the same; awake again, it refuses the straggler."""
    lease = await own.begin("a-1")
    await own.release(lease)
    memories[0].signal(signal.SIGSTOP)
    try:
        assert await order(own, ms=40_000) == "PAUSED"
    finally:
        memories[0].signal(signal.SIGCONT)
    await own.manager.round(deadline=soon())

    (agent,) = await own.rows("SELECT source, memory_kept FROM workflow.pause_agent_checkpoints")
    assert agent == {"source": "checkpoint", "memory_kept": True}


async def test_a_pause_waits_for_the_durable_server(own: World, memories: tuple[OwnServer, OwnServer]) -> None:
    """PAUSED means two proven snapshots: without the second it is PAUSING, says why, and tells people once."""
    await own.release(await own.begin("a-1"))
    memories[1].kill()

    assert await order(own, ms=3_000) == "PAUSING"
    row = await own.pause_row("a-1")
    assert (row["step"], row["last_trouble"]) == (3, "The durable Valkey cannot be reached.")
    for _ in range(7):
        at_once(own)
        await own.manager.round(deadline=soon())
    assert (await own.pause_row("a-1"))["status"] == "PAUSING"
    memories[1].start()
    at_once(own)
    await own.manager.round(deadline=soon())

    assert (await own.pause_row("a-1"))["status"] == "PAUSED"
    assert sorted(await own.alerts()) == ["ANALYSIS_PAUSED", "PAUSE_STUCK"]
    assert len(await own.rows("SELECT FROM workflow.agent_checkpoints WHERE kind = 'pause'")) == 1


async def test_a_resume_whose_servers_are_away_is_paused_again(
    own: World, memories: tuple[OwnServer, OwnServer]
) -> None:
    """Three attempts, then it is PAUSED as before: nothing started, one checkpoint, a failed plan, people know."""
    lease = await own.paused("a-1")
    before = await own.rows("SELECT id FROM workflow.agent_checkpoints ORDER BY seq")
    for server in memories:
        server.kill()

    result = await own.pauses.resume_analysis("a-1", by=PERSON, deadline=soon(400))
    assert result.status == "RESUMING"
    for _ in range(3):
        at_once(own)
        await own.manager.round(deadline=soon())

    row = await own.pause_row("a-1")
    assert row["status"] == "PAUSED"
    assert await own.rows("SELECT id FROM workflow.agent_checkpoints ORDER BY seq") == before
    (plan,) = await own.rows("SELECT execution_status, trouble FROM workflow.resume_plans")
    assert plan == {"execution_status": "FAILED", "trouble": "The working Valkey cannot be reached."}
    assert sorted(await own.alerts()) == ["ANALYSIS_PAUSED", "RESUME_FAILED"]
    assert own.sent == []
    for server in memories:
        server.start()
    again = await own.pauses.resume_analysis("a-1", by=PERSON, deadline=soon())
    assert again.status == "RESUMED"
    assert await own.memory(lease) != {}


async def test_postgres_killed_in_the_middle_of_pauses_and_resumes(memories: tuple[OwnServer, OwnServer]) -> None:
    """Whatever had been acknowledged is there when it is back; nothing is half-written; each pause has its alert."""
    with temporary_home() as folder, LocalStack(settings_for(folder), servers={"postgres"}, workers=False) as stack:
        assert stack.settings.postgres_url is not None
        assert stack.settings.postgres_admin_url is not None
        url, admin = (
            one.get_secret_value() for one in (stack.settings.postgres_url, stack.settings.postgres_admin_url)
        )
        migrate(admin, application_role=urlsplit(url).username)
        settings = SimpleNamespace(
            valkey_working_url=SecretStr(memories[0].url), valkey_durable_url=SecretStr(memories[1].url)
        )
        world = make_world(settings, url, admin)
        names = [f"a-{number}" for number in range(12)]
        for one in names:
            await world.release(await world.begin(one, stock_id=f"company:{one}", done=1))
        acknowledged = await _killed_while_pausing(world, names, stack)
        async with asyncio.timeout(120):
            await _until_settled(world)
        pauses = await world.rows("SELECT id, analysis_id, status FROM workflow.paused_analyses")
        assert acknowledged <= {row["analysis_id"] for row in pauses}
        assert {row["status"] for row in pauses} <= {"PAUSED"}
        alerts = await world.rows("SELECT about FROM workflow.alert WHERE kind = 'ANALYSIS_PAUSED'")
        assert sorted(row["about"] for row in alerts) == sorted(row["id"] for row in pauses)
        await close_world(world)


async def _killed_while_pausing(world: World, names: list[str], stack: LocalStack) -> set[str]:
    """Order pauses one after the other while Postgres is killed; return those whose order was acknowledged."""

    acknowledged: set[str] = set()

    async def pause(name: str) -> None:
        try:
            await world.pauses.pause_analysis(name, "Now.", by=PERSON, deadline=soon(5_000))
        except ImemError:
            return
        acknowledged.add(name)

    for number, name in enumerate(names):
        task = asyncio.create_task(pause(name))
        if number in {3, 8}:
            await asyncio.sleep(0.05 * number)
            pid = stack.state.children["postgres"].pid
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
        await task
    return acknowledged


async def _until_settled(world: World) -> None:
    while True:
        try:
            await world.manager.round(deadline=soon(2_000))
            left = await world.rows("SELECT FROM workflow.paused_analyses WHERE status = 'PAUSING'")
        except ImemError:
            left = [{}]
        if not left:
            return
        await asyncio.sleep(0.2)


async def test_an_agent_gets_over_a_working_server_that_comes_back(
    own: World, memories: tuple[OwnServer, OwnServer]
) -> None:
    """Class 1: the subtask that met it is tried again once, on the memory of its checkpoint, and nothing pauses."""
    begun: list[str] = []

    async def run(given: AgentRun) -> None:
        for name in given.session.pending:
            begun.append(name)
            await given.session.memory.list("log").append(name)
            if begun == ["screener_data_fetch", "quantitative_filter"]:
                memories[0].kill()
            await deliver(given.session, name)
            await given.session.complete(name)

    async def back(_: float) -> None:
        memories[0].start()

    program("screening")(run)
    await own.orchestrator.start_analysis("a-1", "company:MU", {"screening": "scr-1"}, deadline=soon())
    runner = replace(own.parts.runner, sleep=back, chance=lambda: 0.0)

    assert await runner.run(own.sent[-1]) == "COMPLETED"

    names = list(own.definitions.of_type("screening").names)
    assert begun == [*names[:2], *names[1:]]
    latest = await own.checkpoints.load("a-1", "screening", deadline=soon())
    assert latest is not None
    assert latest.working_memory["log"]["value"] == names
    assert await own.alerts("a-1") == []


async def test_an_agent_whose_working_server_stays_away_is_paused(
    own: World, memories: tuple[OwnServer, OwnServer]
) -> None:
    """Three attempts, then a pause that rests on the last checkpoint."""
    calls: list[int] = []

    async def run(given: AgentRun) -> None:
        calls.append(given.attempt)
        memories[0].kill()
        await given.session.memory.set("a", "1")

    async def wait(_: float) -> None:
        """Nobody brings it back."""

    program("screening")(run)
    await own.orchestrator.start_analysis("a-1", "company:MU", {"screening": "scr-1"}, deadline=soon())
    runner = replace(own.parts.runner, sleep=wait, chance=lambda: 0.0)

    assert await runner.run(own.sent[-1]) == "FAILED"
    await own.manager.round(deadline=soon())

    assert calls == [1]
    found = await own.rows("SELECT kind, class FROM workflow.agent_failures ORDER BY attempt")
    assert [(row["kind"], row["class"]) for row in found] == [
        ("store", "retry"),
        ("store", "retry"),
        ("store", "pause"),
    ]
    assert (await own.pause_row("a-1"))["status"] == "PAUSED"


async def test_an_answer_that_came_while_the_working_server_was_away_is_not_paid_for_again(
    own: World, memories: tuple[OwnServer, OwnServer]
) -> None:
    """The session remembers it, and the next attempt keeps it."""
    calls: list[int] = []

    async def run(given: AgentRun) -> None:
        async def call() -> int:
            calls.append(1)
            if len(calls) == 1:
                memories[0].kill()
            return len(calls)

        for name in given.session.pending:
            assert await given.session.memoize("prices", call) == 1
            await deliver(given.session, name)
            await given.session.complete(name)

    async def back(_: float) -> None:
        memories[0].start()

    program("screening")(run)
    await own.orchestrator.start_analysis("a-1", "company:MU", {"screening": "scr-1"}, deadline=soon())
    runner = replace(own.parts.runner, sleep=back, chance=lambda: 0.0)

    assert await runner.run(own.sent[-1]) == "COMPLETED"

    assert calls == [1]
