"""What subtasks deliver: one for each store of a subtask, whoever repeats it, and by the newest holder alone."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from imem.checkpoints.orchestration.definitions import Location
from imem.journal.errors import BadInput, StaleEpoch

from .conftest import World, soon

DIGEST = "ab" * 32


async def test_delivering_twice_leaves_one_and_a_rerun_replaces_it(world: World) -> None:
    lease = await world.acquire()
    first = await world.deliverables.store(lease, "fetch", {"a": 1, "b": [1e17]}, deadline=soon())

    assert await world.deliverables.store(lease, "fetch", {"b": [1e17], "a": 1}, deadline=soon()) == first
    assert await world.deliverables.of(world.analysis, deadline=soon()) == [first]
    second = await world.deliverables.store(lease, "fetch", {"a": 2}, deadline=soon())
    assert second.digest != first.digest
    assert await world.deliverables.of(world.analysis, deadline=soon()) == [second]
    assert await world.payloads() == {("filer", "fetch"): {"a": 2}}
    await asyncio.gather(*(world.deliverables.store(lease, "fetch", number, deadline=soon()) for number in range(8)))
    assert len(await world.deliverables.of(world.analysis, deadline=soon())) == 1


async def test_each_store_of_a_subtask_has_its_own(world: World) -> None:
    lease = await world.acquire()
    await world.save(lease, "fetch")
    for location, reference in (
        (Location.GRAPH, "Finding/f/1"),
        (Location.MESSAGE, "12345678-1234-5678-1234-567812345678"),
    ):
        await world.deliverables.put(lease, "parse", location, reference=reference, digest=DIGEST, deadline=soon())

    found = await world.deliverables.of(world.analysis, deadline=soon())
    assert {(one.subtask, one.location) for one in found} == {("parse", Location.GRAPH), ("parse", Location.MESSAGE)}


async def test_whoever_was_taken_over_from_delivers_nothing(world: World) -> None:
    old = await world.acquire()
    async with world.later(timedelta(seconds=31)) as later:
        new = await later.acquire(holder="process-2")

    with pytest.raises(StaleEpoch):
        await world.deliverables.store(old, "fetch", "old", deadline=soon())

    assert await world.deliverables.of(world.analysis, deadline=soon()) == []
    await world.deliverables.store(new, "fetch", "new", deadline=soon())


async def test_a_subtask_that_has_not_begun_delivers_nothing(world: World) -> None:
    lease = await world.acquire()

    for subtask in ("parse", "rank", "nonsense"):
        with pytest.raises(BadInput) as refused:
            await world.deliverables.store(lease, subtask, 1, deadline=soon())
        assert refused.value.field == "subtask"
    await world.save(lease, "fetch")
    await world.deliverables.store(lease, "fetch", "made good", deadline=soon())
    await world.deliverables.store(lease, "parse", "the next one", deadline=soon())


@pytest.mark.parametrize(
    ("location", "named", "field"),
    [
        (Location.POSTGRES, {}, "payload"),
        (Location.GRAPH, {"reference": "no kind"}, "reference"),
        (Location.GRAPH, {"reference": "/key"}, "reference"),
        (Location.MESSAGE, {"reference": "no id"}, "reference"),
        (Location.CACHE, {"reference": ""}, "reference"),
        (Location.CACHE, {"digest": "short"}, "digest"),
    ],
)
async def test_what_does_not_fit_is_refused_by_field(
    world: World, location: Location, named: dict[str, Any], field: str
) -> None:
    lease = await world.acquire()

    with pytest.raises(BadInput) as refused:
        await world.deliverables.put(
            lease, "fetch", location, **{"reference": "key", "digest": DIGEST, **named}, deadline=soon()
        )

    assert refused.value.field == field
    assert await world.deliverables.of(world.analysis, deadline=soon()) == []
