"""Batches over rows: how many at a time, in which order, when they stop, and what a person is refused."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from typing import Any

import pytest

from imem.checkpoints.incidents.failures import AgentFailure, FailureKind
from imem.checkpoints.pauses.batch_runs import BatchRuns, BatchState, Capacity
from imem.checkpoints.pauses.plan import Plan
from imem.journal.errors import BadInput, NotResumable, TransitionRefused
from imem.journal.postgres.connection import Connection

from .world import PERSON, World, soon


async def ready(world: World, count: int, prefix: str = "a") -> list[str]:
    """Have so many analyses, each of a stock of its own, whose one agent has stopped."""
    names = [f"{prefix}-{number:02}" for number in range(count)]
    for name in names:
        await world.release(await world.begin(name, stock_id=f"company:{name}", done=1))
    return names


async def paused(world: World, count: int, prefix: str = "a") -> list[str]:
    names = await ready(world, count, prefix)
    state = await world.batches.pause_batch(
        [f"company:{name}" for name in names], "All.", by=PERSON, deadline=soon(60_000)
    )
    assert (state.status, state.paused) == ("COMPLETED", count)
    return names


def stocks(names: list[str]) -> list[str]:
    return [f"company:{name}" for name in names]


class Watching:
    """A recovery that counts, by the rows, how many analyses are being resumed when it is asked; some it refuses."""

    def __init__(self, world: World, refused: frozenset[str] = frozenset()) -> None:
        self._world, self._refused, self._kept = world, refused, world.stores.recovery
        self.most = 0
        object.__setattr__(world.stores, "recovery", self)

    async def recover(self, lease: Any, **named: Any) -> Any:
        (row,) = await self._world.rows("SELECT count(*) AS n FROM workflow.paused_analyses WHERE status = 'RESUMING'")
        self.most = max(self.most, row["n"])
        if lease.analysis_id in self._refused:
            raise NotResumable("Nothing is left.")
        return await self._kept.recover(lease, **named)


async def finished(world: World, state: BatchState) -> BatchState:
    """Let managers do what is left."""
    for _ in range(60):
        state = await world.batches.get_batch_status(state.batch_id, deadline=soon())
        if state.completed_at is not None:
            return state
        await world.round()
    raise AssertionError(state)


@pytest.mark.spec("CK-39")
async def test_never_more_at_a_time_than_asked_for(world: World) -> None:
    """Twelve analyses, three at a time, with the caller and two managers launching at once."""
    names = await paused(world, 12)
    watching = Watching(world)

    states = await asyncio.gather(
        world.batches.resume_batch(stocks(names), 3, by=PERSON, deadline=soon(60_000)),
        *(world.round() for _ in range(2)),
    )
    state = await finished(world, states[0])  # type: ignore[arg-type]

    assert (state.status, state.resumed, state.total) == ("COMPLETED", 12, 12)
    assert 1 <= watching.most <= 3
    (row,) = await world.rows("SELECT * FROM workflow.batch_pause_operations WHERE operation = 'resume'")
    assert (row["resumed_count"], row["failed_count"], row["total_count"]) == (12, 0, 12)


@pytest.mark.spec("CK-39")
async def test_at_exactly_half_failed_it_goes_on_and_beyond_it_stops(world: World) -> None:
    names = await paused(world, 4)
    Watching(world, frozenset(names[:2]))
    half = await finished(world, await world.batches.resume_batch(stocks(names), 1, by=PERSON, deadline=soon(60_000)))
    assert (half.status, half.resumed, half.failed) == ("PARTIALLY_FAILED", 2, 2)

    names = await paused(world, 5, "b")
    Watching(world, frozenset(names[:3]))
    more = await finished(world, await world.batches.resume_batch(stocks(names), 1, by=PERSON, deadline=soon(60_000)))
    assert (more.status, more.resumed, more.failed, more.queued) == ("FAILED", 0, 3, 2)
    for name in names[3:]:
        assert (await world.pause_row(name))["status"] == "PAUSED"


async def test_a_member_whose_resume_fails_is_paused_again(world: World) -> None:
    names = await paused(world, 2)

    class Refusing:
        def __getattr__(self, name: str) -> Any:
            return getattr(world.orchestrator, name)

        async def resume_workflow(self, analysis_id: str, plan: Plan, **named: Any) -> None:
            if analysis_id == names[0]:
                raise BadInput("analysis_id", "not today.")
            await world.orchestrator.resume_workflow(analysis_id, plan, **named)

    object.__setattr__(world.stores, "orchestrator", Refusing())
    state = await finished(world, await world.batches.resume_batch(stocks(names), by=PERSON, deadline=soon()))
    for _ in range(3):
        await world.round()

    assert (state.status, state.resumed, state.failed) == ("PARTIALLY_FAILED", 1, 1)
    assert state.members[names[0]] == ("FAILED", "analysis_id: not today.")
    assert (await world.pause_row(names[0]))["status"] == "PAUSED"
    assert (await world.pause_row(names[1]))["status"] == "RESUMED"


async def test_gate_timeouts_are_resumed_first_then_automatic_pauses_then_manual_ones(world: World) -> None:
    """Whatever the order in which they are named; the oldest of each kind first."""
    await ready(world, 4)
    await world.pauses.pause_analysis("company:a-00", "By hand.", by=PERSON, deadline=soon())
    await world.pauses.pause_analysis("company:a-02", "By hand.", by=PERSON, deadline=soon())
    await world.incidents.report(
        "a-01", "business_research", AgentFailure(kind=FailureKind.CRASH, message="x"), deadline=soon()
    )
    world.gate("a-03")
    await world.later(timedelta(hours=25))
    await world.round()

    state = await world.batches.resume_batch(stocks(["a-02", "a-00", "a-01", "a-03"]), by=PERSON, deadline=soon(20_000))

    assert list(state.members) == ["a-03", "a-01", "a-00", "a-02"]


class Short(Capacity):
    """A machine that is short of something until it is told."""

    def __init__(self) -> None:
        self.of: str | None = "the machine's memory is full"

    async def short_of(self, _: Connection) -> str | None:
        return self.of


async def test_nothing_is_resumed_while_something_is_short(world: World) -> None:
    names = await paused(world, 2)
    short = Short()
    graph = {name: definition.after for name, definition in world.definitions.agents.items()}
    batches = BatchRuns(world.database, world.pauses, graph, world.saga, short)

    state = await batches.resume_batch(stocks(names), by=PERSON, deadline=soon(2_000))
    assert (state.status, state.queued, state.held_back) == ("IN_PROGRESS", 2, short.of)
    short.of = None
    state = await finished(world, state)

    assert (state.status, state.held_back) == ("COMPLETED", None)


async def test_a_quota_that_is_used_up_is_what_is_short(world: World) -> None:
    await ready(world, 3)
    quota = AgentFailure(kind=FailureKind.QUOTA, message="429", endpoint="api.example", attempt=3)
    async with world.database.transaction(soon()) as conn:
        assert await Capacity().short_of(conn) is None
    for number in range(3):
        await world.incidents.report(f"a-0{number}", "business_research", quota, deadline=soon())

    async with world.database.transaction(soon()) as conn:
        assert "quota" in str(await Capacity().short_of(conn))


async def test_a_busy_machine_is_what_is_short(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four processes that wait for each processor are too many."""
    for waiting, short in ((4.0, None), (4.1, "the machine's processors are busy")):
        load = waiting * (os.cpu_count() or 1)
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        async with world.database.transaction(soon()) as conn:
            assert await Capacity().short_of(conn) == short


async def test_a_batch_of_pauses_goes_on_where_one_refuses(world: World) -> None:
    """One of them waits at a gate: it has failed, with the reason, and the others are paused."""
    names = await ready(world, 3)
    world.gate(names[1])

    state = await finished(world, await world.batches.pause_batch(stocks(names), "All.", by=PERSON, deadline=soon()))

    assert (state.status, state.paused, state.failed) == ("PARTIALLY_FAILED", 2, 1)
    assert "gate" in str(state.members[names[1]][1])


@pytest.mark.parametrize(
    ("order", "error", "field"),
    [
        ({"what": []}, BadInput, "analyses"),
        ({"what": "company:a-00"}, BadInput, "analyses"),
        ({"what": ["company:a-00", "company:a-00"]}, BadInput, "analyses.1"),
        ({"what": ["company:a-00"], "concurrency_limit": 0}, BadInput, "concurrency_limit"),
        ({"what": ["company:a-00"], "concurrency_limit": True}, BadInput, "concurrency_limit"),
        ({"what": [f"company:{number}" for number in range(1_001)]}, BadInput, "analyses"),
        ({"what": ["company:a-00", "company:a-01"]}, TransitionRefused, None),
    ],
)
async def test_a_batch_that_is_wrong_writes_nothing(
    world: World, order: dict[str, Any], error: type[Exception], field: str | None
) -> None:
    await paused(world, 1)
    await world.release(await world.begin("a-01", stock_id="company:a-01"))
    with pytest.raises(error) as refused:
        await world.batches.resume_batch(**order, by=PERSON, deadline=soon())
    assert getattr(refused.value, "field", None) == field
    assert len(await world.rows("SELECT FROM workflow.batch_pause_operations")) == 1
    with pytest.raises(BadInput) as unknown:
        await world.batches.get_batch_status("no-uuid", deadline=soon())
    assert unknown.value.field == "batch_id"


async def test_a_caller_that_is_killed_leaves_the_batch_to_managers(world: World) -> None:
    """The order is recorded before the first is launched; who ordered it is not needed any more."""
    names = await paused(world, 6)
    order = asyncio.create_task(world.batches.resume_batch(stocks(names), 2, by=PERSON, deadline=soon(60_000)))
    while not await world.rows("SELECT FROM workflow.batch_member WHERE state = 'RUNNING'"):  # noqa: ASYNC110 - another task's transaction has no event
        await asyncio.sleep(0.01)
    order.cancel()
    await asyncio.gather(order, return_exceptions=True)
    (row,) = await world.rows("SELECT id FROM workflow.batch_pause_operations WHERE operation = 'resume'")

    state = await finished(world, await world.batches.get_batch_status(row["id"], deadline=soon()))

    assert (state.status, state.resumed) == ("COMPLETED", 6)


async def test_a_batch_ends_where_a_member_at_a_gate_is_rejected_for_good(world: World) -> None:
    """It waited for the person at the gate to be paused; that will not come any more."""
    lease = await world.begin("a-gated", stock_id="company:gated")
    world.gate("a-gated")
    quota = AgentFailure(kind=FailureKind.QUOTA, message="429", endpoint="api.example", attempt=3)
    await world.incidents.report("a-gated", lease.agent_type, quota, deadline=soon())
    await world.release(lease)
    for name in await ready(world, 2):
        await world.incidents.report(name, "business_research", quota, deadline=soon())
    await world.round()
    (row,) = await world.rows("SELECT id FROM workflow.batch_pause_operations")
    assert (await world.batches.get_batch_status(row["id"], deadline=soon())).status == "IN_PROGRESS"

    world.gate("a-gated", state="HARD_REJECTED")
    for _ in range(3):
        await world.round()

    state = await world.batches.get_batch_status(row["id"], deadline=soon())
    assert (state.status, state.paused, state.failed) == ("PARTIALLY_FAILED", 2, 1)


async def test_a_batch_of_pauses_does_not_wait_for_one_that_was_just_being_resumed(world: World) -> None:
    """It runs again, and is not what the batch wanted it to be."""
    await world.paused("a-1")
    world.owner(
        "UPDATE workflow.paused_analyses SET status = 'RESUMING', step = 3, "
        "next_attempt_at = imem_now() + interval '1 hour'"
    )
    names = ["a-1", *await ready(world, 1, "b")]
    ordered = await world.batches.pause_batch(names, "All.", by=PERSON, deadline=soon(2_000))
    assert ordered.members["a-1"][0] == "RUNNING"
    world.owner("UPDATE workflow.paused_analyses SET next_attempt_at = NULL")

    state = await finished(world, ordered)

    assert (state.status, state.paused, state.failed) == ("PARTIALLY_FAILED", 1, 1)
    assert state.members["a-1"] == ("FAILED", "It was resumed meanwhile.")


async def test_who_orders_a_batch_hears_of_it_however_long_it_takes(world: World) -> None:
    """An agent does not come to a safe point within the time: the batch is recorded, and reported as that."""
    await world.begin("a-1")

    state = await world.batches.pause_batch(["company:MU"], "All.", by=PERSON, deadline=soon(500))

    assert (state.status, state.running) == ("IN_PROGRESS", 1)
    assert len(await world.rows("SELECT FROM workflow.batch_pause_operations")) == 1
