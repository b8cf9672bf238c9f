"""What an agent's subtasks deliver before they are completed, and what is run again when it was lost."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest

from imem.cache import keys
from imem.cache.client import Client
from imem.cache.subtask_results import ResultStore
from imem.checkpoints.orchestration.definitions import AgentDefinition, Definitions, Location, Subtask
from imem.checkpoints.result_delivery import NO_RESULT
from imem.checkpoints.session import Session, SessionFactory
from imem.journal.clock import SystemClock
from imem.journal.errors import BadInput, NotDelivered

from .conftest import World, soon
from .recovering import desk_of
from .test_cleanup import LOSSES, in_cache, left_keys, rows, state

SUBTASKS = ("fetch", "parse", "rank")
RANKS = {"MU": 1, "share": 0.25, "large": 1e17}


@asynccontextmanager
async def begun(world: World, *, harness: SessionFactory | None = None) -> AsyncIterator[Session]:
    """Lend the agent of this test's analysis at work."""
    async with (harness or desk_of(world)).begin(
        analysis_id=world.analysis, agent_type="filer", agent_id=world.agent(), subject_id="company:MU", owner="ann"
    ) as session:
        yield session


async def results(world: World, subtask: str) -> dict[str, Any]:
    """Return what a subtask delivers, by store."""
    if subtask == "fetch":
        return {"postgres": {"filings": [1, 2.5, 1e17]}}
    return {"cache": RANKS} if subtask == "rank" else {"graph": "Company/MU", "message": await state(world)}


async def do(world: World, session: Session, subtask: str) -> None:
    """Run a subtask, deliver, complete it."""
    await session.memory.list("log").append(subtask)
    await session.deliver(subtask, **await results(world, subtask))
    await session.complete(subtask)


async def worked(world: World) -> None:
    """Run the agent to its end."""
    async with begun(world) as session:
        while (subtask := session.current) is not None:
            await do(world, session, subtask)


async def kinds(world: World) -> list[tuple[str, str | None]]:
    found = await world.checkpoints.history(world.analysis, deadline=soon())
    return [(one.kind.value, one.subtask) for one in found]


async def evict(world: World) -> str:
    """Let the cache lose the result of this analysis; return its key."""
    key = keys.result(world.analysis, "filer", "rank").decode()
    client = await in_cache(world)
    assert await client.delete(key) == 1
    await client.aclose()
    return key


async def cached(world: World) -> Any:
    """Return the result of ``rank`` in the cache."""
    body = await ResultStore(world.cache, SystemClock()).get(world.analysis, "filer", "rank", deadline=soon())
    return body and json.loads(body)


def forget(world: World) -> None:
    """Let no checkpoint have kept anything."""
    world.owner("ALTER TABLE workflow.agent_checkpoints DISABLE TRIGGER append_only")
    world.owner("UPDATE workflow.agent_checkpoints SET interim_results = '{}'")


async def drop_copy(world: World) -> None:
    await world.snapshots.drop_checkpoint(world.analysis, "filer", deadline=soon())


# Delivering


@pytest.mark.spec("CK-7")
async def test_an_agent_that_delivers_is_cleaned_up_after_its_end(world: World) -> None:
    """Each store has its result, each subtask one row; nothing is missing, and nothing is left but the results."""
    await worked(world)

    found = await world.deliverables.of(world.analysis, deadline=soon())
    assert [(one.subtask, one.location.value) for one in found] == [
        ("fetch", "postgres"), ("parse", "graph"), ("parse", "message"), ("rank", "cache"),
    ]  # fmt: skip
    assert (await world.load()).interim_results == {"rank": RANKS}
    assert await cached(world) == RANKS
    cleaned = await world.cleanup().cleanup_success(world.analysis, deadline=soon())
    assert (cleaned.missing, cleaned.deleted, cleaned.cleared) == ((), 4, True)
    assert await rows(world) == []
    assert await left_keys(world) == []


async def test_a_subtask_that_delivered_nothing_is_not_completed(world: World) -> None:
    """The refusal names the subtask and each store that has heard nothing; the word that there is nothing is enough."""
    async with begun(world) as session:
        with pytest.raises(NotDelivered) as refused:
            await session.complete("fetch")
        assert (refused.value.subtask, refused.value.stores) == ("fetch", ("postgres",))
        assert await kinds(world) == [("start", None)]
        await session.deliver("fetch", postgres=NO_RESULT)
        await session.complete("fetch")
        await session.deliver("parse", graph=NO_RESULT)
        with pytest.raises(NotDelivered, match="parse has delivered nothing to message"):
            await session.complete("parse")
        await session.deliver("parse", message=NO_RESULT)
        await session.complete("parse")
        await session.deliver("rank", cache=NO_RESULT)
        await session.complete("rank")

    assert await world.payloads() == {}
    assert (await world.cleanup().cleanup_success(world.analysis, deadline=soon())).missing == ()


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({}, "results"),
        ({"postgres": None}, "postgres"),
        ({"postgres": {"set": {1}}}, "postgres.set"),
        ({"cache": float("nan")}, "cache"),
        ({"postgres": 1, "graph": "Company/nobody"}, "graph"),
        ({"graph": "no kind"}, "graph"),
        ({"postgres": 1, "message": uuid4()}, "message"),
        ({"message": "no id"}, "message"),
    ],
)
async def test_what_is_not_there_is_not_delivered(world: World, said: dict[str, Any], field: str) -> None:
    """By field, before anything is written to any store."""
    async with begun(world) as session:
        with pytest.raises(BadInput) as refused:
            await session.deliver("fetch", **said)

    assert refused.value.field == field
    assert await world.deliverables.of(world.analysis, deadline=soon()) == []


@pytest.mark.spec("CK-2")
async def test_what_an_earlier_process_delivered_does_not_complete_a_subtask(world: World) -> None:
    """It died between the two: the next one runs the subtask again, and there is one deliverable."""
    async with begun(world) as session:
        await session.deliver("fetch", postgres="first")
    async with begun(world) as session:
        with pytest.raises(NotDelivered):
            await session.complete("fetch")
        await session.deliver("fetch", postgres="second")
        await session.complete("fetch")

    assert await world.payloads() == {("filer", "fetch"): "second"}
    assert len(await world.deliverables.of(world.analysis, deadline=soon())) == 1


async def test_the_same_again_counts_for_the_later_lease(world: World) -> None:
    async with begun(world) as session:
        first = await session.deliver("fetch", postgres=1)
    async with begun(world) as session:
        assert await session.deliver("fetch", postgres=1) == first
        await session.complete("fetch")


async def test_only_the_subtask_under_way_delivers(world: World) -> None:
    async with begun(world) as session:
        with pytest.raises(BadInput, match="now is fetch, not parse"):
            await session.deliver("parse", graph=NO_RESULT)
        await do(world, session, "fetch")
        with pytest.raises(BadInput, match="now is parse, not fetch"):
            await session.deliver("fetch", postgres="late")

    assert len(await world.deliverables.of(world.analysis, deadline=soon())) == 1


async def test_the_place_of_a_cached_result_is_not_overwritten(world: World) -> None:
    async with begun(world) as session:
        await do(world, session, "fetch")
        await do(world, session, "parse")
        await session.deliver("rank", cache=RANKS)
        with pytest.raises(BadInput, match=r"interim_results\.rank"):
            await session.complete("rank", interim_results={"rank": "other"})
        saved = await session.complete("rank", interim_results={"note": 1})

    assert saved.interim_results == {"note": 1, "rank": RANKS}


async def test_a_cache_that_is_away_keeps_no_result_back(world: World, unused_tcp_port: int) -> None:
    """The checkpoint keeps it, and it is put into the cache when the agent is next taken up."""
    away = Client(f"redis://127.0.0.1:{unused_tcp_port}/0")
    async with begun(world, harness=desk_of(World(**{**vars(world), "cache": away}))) as session:
        while (subtask := session.current) is not None:
            await do(world, session, subtask)
    async with begun(world, harness=desk_of(World(**{**vars(world), "cache": away}))) as session:
        assert session.lost == (), "nobody can say"
    await away.close()

    async with begun(world) as session:
        assert session.pending == ()
    assert await cached(world) == RANKS


# Run again


@pytest.mark.spec("CK-1", "CK-2")
@pytest.mark.parametrize("what", [name for name in LOSSES if name != "a key"])
async def test_a_subtask_whose_result_was_lost_is_run_again(world: World, what: str) -> None:
    """It alone, first of all that is left: one deliverable then, one row of its completion, and one of the rerun."""
    subtask, location, statement = LOSSES[what]
    async with begun(world) as session:
        await do(world, session, "fetch")
        await do(world, session, "parse")
    world.owner(statement)

    async with begun(world) as session:
        assert (session.lost, session.current, session.pending) == ((subtask,), subtask, (subtask, "rank"))
        with pytest.raises(BadInput, match=f"{subtask} has to be run again first"):
            await session.complete("rank")
        with pytest.raises(NotDelivered):
            await session.complete(subtask)
        await do(world, session, subtask)
        again = await session.complete(subtask)
        assert (again.seq, again.kind.value) == (3, "rerun")
        assert session.pending == ("rank",)
        await do(world, session, "rank")

    assert await kinds(world) == [
        ("start", None), ("subtask", "fetch"), ("subtask", "parse"), ("rerun", subtask), ("subtask", "rank"),
    ]  # fmt: skip
    found = await world.deliverables.of(world.analysis, deadline=soon())
    assert [(one.subtask, one.location) for one in found].count((subtask, location)) == 1
    assert len(found) == 4
    async with begun(world) as session:
        assert session.pending == ()
    assert (await world.cleanup().cleanup_success(world.analysis, deadline=soon())).missing == ()


async def test_what_the_cache_evicted_is_put_back_from_the_checkpoint(world: World) -> None:
    """Without running anything: its content and its expiry are what they were."""
    await worked(world)
    key = await evict(world)

    async with begun(world) as session:
        assert session.pending == ()

    client = await in_cache(world)
    assert 29 * 86_400 < await client.ttl(key) <= 30 * 86_400
    await client.aclose()
    assert await cached(world) == RANKS
    assert len(await kinds(world)) == 4


async def test_what_is_in_neither_the_cache_nor_a_checkpoint_is_run_again(world: World) -> None:
    await worked(world)
    await evict(world)
    forget(world)
    await drop_copy(world)

    async with begun(world) as session:
        assert session.pending == ("rank",)
        await do(world, session, "rank")

    assert (await kinds(world))[-1] == ("rerun", "rank")
    assert (await world.load()).interim_results == {"rank": RANKS}


async def test_a_result_of_a_later_lease_is_not_overwritten(world: World) -> None:
    """By whoever was taken over from, between its row and its write to the cache."""

    store, whose = ResultStore(world.cache, SystemClock()), (world.analysis, "filer", "rank")
    assert await store.keep(*whose, epoch=2, body=b"2", deadline=soon())
    assert not await store.keep(*whose, epoch=1, body=b"1", deadline=soon())
    assert await store.get(*whose, deadline=soon()) == b"2"


@pytest.mark.parametrize("saved", [False, True])
async def test_a_rerun_that_broke_off_begins_on_the_memory_before_it(world: World, saved: object) -> None:
    """What it had written is left out, whether it died or said why it failed; also where nothing else is left."""
    await worked(world)
    world.owner(LOSSES["a payload"][2])
    async with begun(world) as session:
        assert session.current == "fetch"
        await session.memory.list("log").append("half")
        if saved:
            await session.failed("The source was away.")

    async with begun(world) as session:
        assert session.pending == ("fetch",)
        assert await session.memory.list("log").all() == list(SUBTASKS)
        await do(world, session, "fetch")

    async with begun(world) as session:
        assert session.pending == ()
        assert await session.memory.list("log").all() == [*SUBTASKS, "fetch"]


async def test_a_rerun_that_may_be_entered_twice_goes_on(world: World) -> None:
    """Its own writes are there; those of one after it, which may not be, would not be."""
    definition = AgentDefinition(
        agent_type="filer", subtasks=(Subtask(name="fetch", stores=(Location.POSTGRES,), reentrant=True),)
    )
    own = World(**{**vars(world), "definitions": Definitions.of([definition])})
    async with begun(own) as session:
        await do(own, session, "fetch")
    own.owner(LOSSES["a payload"][2])
    async with begun(own) as session:
        await session.memory.list("log").append("half")

    async with begun(own) as session:
        assert await session.memory.list("log").all() == ["fetch", "half"]
