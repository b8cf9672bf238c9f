"""Agents start when all their parents have completed, once, and not while a pause is open."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from imem.checkpoints.orchestration.orchestrator import LOST_AFTER, DispatchMessage, StartedAgent
from imem.checkpoints.orchestration.programs import AgentRun, AgentStopped, program, program_of
from imem.journal.errors import BadInput, LeaseHeld

from .delivered import deliver
from .world import PERSON, World, soon

AGENTS = {
    "screening": "scr", "business_research": "bus", "financial_analyst": "fin", "strategy_analyst": "str",
    "valuation": "val", "news_monitor": "new",
}  # fmt: skip


async def started(world: World, agents: dict[str, str] | None = None, analysis_id: str = "a-1") -> None:
    named = {kind: f"{name}-{analysis_id}" for kind, name in (agents or AGENTS).items()}
    await world.orchestrator.start_analysis(analysis_id, f"company:{analysis_id}", named, deadline=soon())


async def take(world: World, agent_type: str, analysis_id: str = "a-1") -> StartedAgent:
    """Begin the agent that was sent last under that type."""
    found = [one for one in world.sent if (one.analysis_id, one.agent_type) == (analysis_id, agent_type)]
    begun = await world.orchestrator.begin(found[-1], deadline=soon())
    assert begun is not None
    return begun


async def states(world: World, analysis_id: str = "a-1") -> dict[str, str]:
    return dict((await world.orchestrator.get_workflow_state(analysis_id, deadline=soon())).agents)


@pytest.mark.spec("CK-38")
async def test_an_agent_is_sent_when_its_last_parent_has_completed(world: World) -> None:
    """Screening first, then its four children, valuation when the last of its three parents is done."""
    await started(world)
    assert [one.agent_type for one in world.sent] == ["screening"]
    await world.orchestrator.end(await take(world, "screening"), "COMPLETED", deadline=soon())
    assert sorted(one.agent_type for one in world.sent[1:]) == [
        "business_research", "financial_analyst", "news_monitor", "strategy_analyst",
    ]  # fmt: skip
    for name in ("business_research", "financial_analyst"):
        await world.orchestrator.end(await take(world, name), "COMPLETED", deadline=soon())
    last = await take(world, "strategy_analyst")
    await world.orchestrator.start_ready(deadline=soon())
    assert "valuation" not in {one.agent_type for one in world.sent}
    await world.orchestrator.end(last, "COMPLETED", deadline=soon())
    assert world.sent[-1].agent_type == "valuation"


@pytest.mark.spec("CK-38")
async def test_a_message_starts_nothing_whose_parents_have_not_completed(world: World) -> None:
    """Even one that should never have been sent: what decides is looked at when it arrives."""
    await started(world)
    world.owner("UPDATE workflow.agent_task SET state = 'SENT', dispatch = 7 WHERE agent_type = 'valuation'")

    assert await world.orchestrator.begin(DispatchMessage("a-1", "valuation", 7), deadline=soon()) is None
    assert (await states(world))["valuation"] == "SENT"


async def test_a_message_delivered_twice_or_late_starts_once(world: World) -> None:
    await started(world)
    (message,) = world.sent

    begun = await asyncio.gather(*(world.orchestrator.begin(message, deadline=soon()) for _ in range(5)))

    assert sum(one is not None for one in begun) == 1
    assert await world.orchestrator.begin(DispatchMessage("a-1", "screening", 99), deadline=soon()) is None
    assert await world.orchestrator.begin(DispatchMessage("a-1", "astrologer", 1), deadline=soon()) is None


async def test_a_message_that_was_lost_is_sent_again(world: World) -> None:
    """After the time in which the broker drops it; the earlier one starts nothing if it comes after all."""
    await started(world)
    assert await world.orchestrator.start_ready(deadline=soon()) == 0
    await world.later(LOST_AFTER + timedelta(seconds=1))

    assert await world.orchestrator.start_ready(deadline=soon()) == 1

    first, second = world.sent
    assert await world.orchestrator.begin(first, deadline=soon()) is None
    assert await world.orchestrator.begin(second, deadline=soon()) is not None


async def test_nothing_starts_while_a_pause_is_open(world: World) -> None:
    """A message on its way when the pause comes is void; after the resume another one is sent."""
    await started(world)
    (message,) = world.sent
    await world.pauses.pause_analysis("company:a-1", "Wait.", by=PERSON, deadline=soon())

    assert await world.orchestrator.begin(message, deadline=soon()) is None
    assert await world.orchestrator.start_ready(deadline=soon()) == 0
    assert (await world.orchestrator.get_workflow_state("a-1", deadline=soon())).status == "PAUSED"
    await world.pauses.resume_analysis("company:a-1", by=PERSON, deadline=soon())

    assert len(world.sent) == 2
    assert await world.orchestrator.begin(message, deadline=soon()) is None
    assert await world.orchestrator.begin(world.sent[-1], deadline=soon()) is not None


@pytest.mark.spec("CK-39")
async def test_what_a_batch_resumes_keeps_to_the_limits_of_each_type(world: World) -> None:
    """Four analyses ready for their valuation, of which one runs at a time."""
    names = [f"a-{number}" for number in range(4)]
    for name in names:
        await started(world, {"valuation": "val"}, name)
        await world.pauses.pause_analysis(name, "Wait.", by=PERSON, deadline=soon())
    world.sent.clear()

    state = await world.batches.resume_batch([f"company:{name}" for name in names], by=PERSON, deadline=soon(60_000))

    assert (state.status, state.resumed) == ("COMPLETED", 4)
    done: list[str] = []
    while len(done) < 4:
        await world.orchestrator.start_ready(deadline=soon())
        under_way = await world.rows("SELECT analysis_id FROM workflow.agent_task WHERE state IN ('SENT', 'RUNNING')")
        assert len(under_way) == 1
        name = under_way[0]["analysis_id"]
        await world.orchestrator.end(await take(world, "valuation", name), "COMPLETED", deadline=soon())
        done.append(name)
    assert sorted(done) == names


@pytest.mark.parametrize(
    ("agents", "stock_id", "field"),
    [
        ({}, "company:MU", "agents"),
        ({"astrologer": "x"}, "company:MU", "agent_type"),
        ({"screening": "taken"}, "company:MU", "agents"),
        ({"screening": "fresh"}, "", "stock_id"),
    ],
)
async def test_an_analysis_that_is_wrong_is_not_taken_in(
    world: World, agents: dict[str, str], stock_id: str, field: str
) -> None:
    await world.orchestrator.start_analysis("other", "company:X", {"screening": "taken"}, deadline=soon())
    with pytest.raises(BadInput) as refused:
        await world.orchestrator.start_analysis("a-1", stock_id, agents, deadline=soon())
    assert refused.value.field == field
    assert len(await world.rows("SELECT FROM workflow.analysis")) == 1


# Running


async def work(run: AgentRun) -> None:
    """Do every subtask that is left, with a checkpoint after each."""
    for name in run.session.pending:
        await deliver(run.session, name)
        await run.session.complete(name)
        await run.safe_point()


async def test_a_whole_analysis_runs_to_its_end(world: World) -> None:
    """Each agent once, in order of the graph; the analysis ends when nothing is left."""
    order: list[str] = []

    async def run(given: AgentRun) -> None:
        order.append(given.started.agent_type)
        await work(given)

    for name in AGENTS:
        program(name)(run)
    await started(world)
    while world.sent:
        message = world.sent.pop(0)
        assert await world.parts.runner.run(message) == "COMPLETED"

    assert len(order) == len(AGENTS)
    for name in AGENTS:
        parents = world.definitions.of_type(name).after
        assert all(order.index(parent) < order.index(name) for parent in parents)
    assert set((await states(world)).values()) == {"COMPLETED"}


async def test_an_agent_stops_at_its_safe_point_and_goes_on_after_the_resume(world: World) -> None:
    """What it had completed is not done again, and its memory is what it was."""
    done: list[str] = []
    paused = asyncio.Event()

    async def run(given: AgentRun) -> None:
        for name in given.session.pending:
            await deliver(given.session, name)
            await given.session.complete(name)
            done.append(name)
            if len(done) == 2:
                order = asyncio.create_task(
                    world.pauses.pause_analysis("company:a-1", "Wait.", by=PERSON, deadline=soon())
                )
                order.add_done_callback(lambda _: paused.set())
                while await world.leases.stop_reason("a-1", deadline=soon()) is None:  # noqa: ASYNC110 - another task's transaction has no event
                    await asyncio.sleep(0.01)
            await given.safe_point()

    program("screening")(run)
    await started(world, {"screening": "scr"})

    assert await world.parts.runner.run(world.sent[-1]) == "STOPPED"
    await paused.wait()
    assert (await world.pause_row("a-1"))["status"] == "PAUSED"
    await world.pauses.resume_analysis("company:a-1", by=PERSON, deadline=soon())
    assert await world.parts.runner.run(world.sent[-1]) == "COMPLETED"

    assert done == list(world.definitions.of_type("screening").names)


@pytest.mark.parametrize("trouble", [ZeroDivisionError("x"), None])
async def test_an_agent_that_fails_pauses_its_analysis(world: World, trouble: Exception | None) -> None:
    """By an error, or by ending with subtasks left; nothing that waits for it starts."""

    async def run(given: AgentRun) -> None:
        await deliver(given.session, given.session.pending[0])
        await given.session.complete(given.session.pending[0])
        if trouble is not None:
            raise trouble

    program("screening")(run)
    await started(world, {"screening": "scr", "news_monitor": "new"})

    assert await world.parts.runner.run(world.sent[-1]) == "FAILED"
    await world.manager.round(deadline=soon())

    row = await world.pause_row("a-1")
    assert (row["status"], row["failed_agent"]) == ("PAUSED", "screening")
    assert await world.alerts() == ["AGENT_FAILURE"]
    assert [one.agent_type for one in world.sent] == ["screening"]
    plan = (await world.pauses.resume_analysis("company:a-1", by=PERSON, deadline=soon())).plan
    assert plan.to_dict() == {"restart": {"screening": "checkpoint"}, "skip": [], "wait": ["news_monitor"]}


async def test_an_agent_whose_process_died_is_found_and_its_analysis_paused(world: World) -> None:
    """Its row says that it runs, and nobody has its lease: once, however many managers look."""
    await started(world, {"screening": "scr"})
    begun = await take(world, "screening")
    await world.leases.acquire(
        analysis_id="a-1", agent_type="screening", agent_id=begun.agent_id, subject_id="company:a-1",
        holder="dead", owner="tester", deadline=soon(),
    )  # fmt: skip
    await world.later(timedelta(seconds=40))

    await asyncio.gather(*(world.manager.round(deadline=soon()) for _ in range(3)))
    await world.manager.round(deadline=soon())

    assert (await world.pause_row("a-1"))["status"] == "PAUSED"
    assert await world.alerts() == ["AGENT_FAILURE"]
    (failure,) = await world.rows("SELECT kind FROM workflow.agent_failures")
    assert failure["kind"] == "crash"


async def test_an_agent_that_another_process_still_has_is_sent_again(world: World) -> None:
    await started(world, {"screening": "scr"})
    await world.leases.acquire(
        analysis_id="a-1", agent_type="screening", agent_id="scr-a-1", subject_id="company:a-1", holder="other",
        owner="tester", deadline=soon(),
    )  # fmt: skip

    assert await world.parts.runner.run(world.sent[-1]) == "WAITING"

    assert await world.orchestrator.start_ready(deadline=soon()) == 1
    with pytest.raises(LeaseHeld):
        await world.leases.acquire(
            analysis_id="a-1", agent_type="screening", agent_id="scr-a-1", subject_id="company:a-1", holder="third",
            owner="tester", deadline=soon(),
        )  # fmt: skip


def test_an_agent_without_a_program_is_refused_by_name() -> None:
    with pytest.raises(BadInput, match="IMEM_AGENT_PROGRAMS"):
        program_of("astrologer")


async def test_a_program_that_lets_the_stop_pass_is_no_failure(world: World) -> None:
    async def run(_: AgentRun) -> None:
        raise AgentStopped("paused")

    program("screening")(run)
    await started(world, {"screening": "scr"})

    assert await world.parts.runner.run(world.sent[-1]) == "STOPPED"
    assert await world.rows("SELECT FROM workflow.agent_failures") == []


@pytest.mark.spec("CK-29")
async def test_an_agent_that_nothing_can_bring_back_raises_one_alert(world: World) -> None:
    """All tiers are bad when its message arrives: it does not start, its analysis has failed, people are told once."""

    async def run(given: AgentRun) -> None:
        await deliver(given.session, given.session.pending[0])
        await given.session.complete(given.session.pending[0])
        raise ZeroDivisionError

    program("screening")(run)
    await started(world, {"screening": "scr"})
    await world.parts.runner.run(world.sent[-1])
    await world.manager.round(deadline=soon())
    await world.pauses.resume_analysis("company:a-1", by=PERSON, deadline=soon())
    before = len(await world.alerts())
    for server in (world.working_redis, world.durable_redis):
        await server.flushall()
    world.owner("ALTER TABLE workflow.agent_checkpoints DISABLE TRIGGER append_only")
    world.owner("UPDATE workflow.agent_checkpoints SET working_memory_hash = repeat('0', 64) WHERE kind <> 'start'")
    world.owner("UPDATE workflow.agent_checkpoints SET l1_snapshot_hash = repeat('0', 64) WHERE kind = 'pause'")

    assert await world.parts.runner.run(world.sent[-1]) == "FAILED"

    assert (await world.pauses.get_pause_state("a-1", deadline=soon())).outcome == "failed"
    assert len(await world.alerts()) == before + 1
