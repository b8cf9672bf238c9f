"""Fewer connections than sagas: nothing that holds one waits for another."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.servers import cloned

from .test_batches import ready, stocks
from .world import PERSON, World, close_world, make_world, soon


@pytest_asyncio.fixture(params=[1, 2], ids=["one connection", "two connections"])
async def narrow(request: pytest.FixtureRequest, light_stack: Any, light_template: str) -> AsyncIterator[World]:
    """Lend a world whose pool of connections to Postgres is smaller than a batch is wide."""
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        made = make_world(light_stack.settings, url, admin_url, size=request.param)
        for plain in (made.working_redis, made.durable_redis):
            await plain.flushall()
        yield made
        await close_world(made)


async def test_five_at_a_time_on_a_narrow_pool(narrow: World) -> None:
    """Paused and resumed within the time that a batch has, from every tier: no step needs a second connection."""
    names = await ready(narrow, 5)
    paused = await narrow.batches.pause_batch(stocks(names), "All.", by=PERSON, deadline=soon(10_000))
    assert (paused.status, paused.paused) == ("COMPLETED", 5)
    # Two of them have to be read from Postgres, the third tier.
    for name in names[:2]:
        (agent,) = await narrow.rows("SELECT agent_id FROM workflow.agent_instance WHERE analysis_id = %s", name)
        await narrow.working_redis.delete(*await narrow.keys(agent["agent_id"]))
        await narrow.snapshots.drop(agent["agent_id"], deadline=soon())

    resumed = await narrow.batches.resume_batch(stocks(names), by=PERSON, deadline=soon(10_000))

    assert (resumed.status, resumed.resumed) == ("COMPLETED", 5)
    told = await narrow.manager.round(deadline=soon(10_000))
    assert told.troubles == {}


async def test_people_are_told_on_a_narrow_pool(narrow: World) -> None:
    """What nothing is left of needs an alert beside the step that found that out: in time, and once."""
    await narrow.paused("a-1")
    await narrow.working_redis.flushall()
    await narrow.durable_redis.flushall()
    narrow.owner("ALTER TABLE workflow.agent_checkpoints DISABLE TRIGGER USER")
    narrow.owner(
        "UPDATE workflow.agent_checkpoints SET working_memory = jsonb_set(working_memory, '{calls}', 'null'), "
        "l1_snapshot = jsonb_set(l1_snapshot, '{calls}', 'null')"
    )

    await narrow.pauses.resume_analysis("a-1", by=PERSON, deadline=soon(10_000))

    assert (await narrow.pauses.get_pause_state("a-1", deadline=soon())).outcome == "failed"
    assert sorted(await narrow.alerts()) == ["AGENT_FAILURE", "ANALYSIS_PAUSED"]
