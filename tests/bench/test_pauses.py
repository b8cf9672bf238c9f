"""How long pause_services and resuming takes: five stocks at once, each with five agents of 100 keys and 100 KB."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import pytest_asyncio

from tests.bench.table import Figure, Table, percentile
from tests.checkpoints.pauses.world import PERSON, World, close_world, make_world, soon
from tests.servers import cloned

pytestmark = pytest.mark.bench

STOCKS: Final = 5
AGENTS: Final = ("screening", "business_research", "financial_analyst", "strategy_analyst", "news_monitor")
KEYS: Final = 100
BYTES: Final = 1_000

PAUSE_BAR_S: Final = 10.0
RESUME_BAR_S: Final = 600.0

ROUNDS: Final = {"full": 8, "tiny": 1}


@pytest_asyncio.fixture
async def world(light_stack: Any, light_template: str) -> AsyncIterator[World]:
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        made = make_world(light_stack.settings, url, admin_url)
        yield made
        await close_world(made)


async def have(world: World, analysis_id: str) -> None:
    """Have an analysis whose agents have stopped, each with a memory that its last checkpoint holds."""
    chance = random.Random(analysis_id)
    for kind in AGENTS:
        lease = await world.begin(analysis_id, kind, stock_id=f"company:{analysis_id}", done=0)
        await world.write(lease, {f"key {number}": chance.randbytes(BYTES // 2).hex() for number in range(KEYS)})
        await world.complete(lease, world.definitions.of_type(kind).names[0])
        await world.release(lease)


async def test_five_stocks(world: World, table: Table) -> None:
    """Pausing to proven snapshots of every agent, and resuming after the working server has lost everything."""
    pause_services, resuming, singles = [], [], []
    for number in range(ROUNDS[table.scale]):
        names = [f"a-{number}-{stock}" for stock in range(STOCKS)]
        await asyncio.gather(*(have(world, name) for name in names))
        stocks = [f"company:{name}" for name in names]
        begun = time.perf_counter()
        paused = await world.batches.pause_batch(stocks, "All.", by=PERSON, deadline=soon(60_000))
        pause_services.append(time.perf_counter() - begun)
        assert (paused.status, paused.paused) == ("COMPLETED", STOCKS)
        await world.working_redis.flushall()
        begun = time.perf_counter()
        resumed = await world.batches.resume_batch(stocks, by=PERSON, deadline=soon(600_000))
        resuming.append(time.perf_counter() - begun)
        assert (resumed.status, resumed.resumed) == ("COMPLETED", STOCKS)
        await have(world, f"single-{number}")
        begun = time.perf_counter()
        single = await world.pauses.pause_analysis(f"single-{number}", "One.", by=PERSON, deadline=soon(60_000))
        singles.append(time.perf_counter() - begun)
        assert single.status == "PAUSED"
    data = f"{STOCKS} stocks, {STOCKS * len(AGENTS)} agents"
    note = f"{KEYS} keys of {BYTES:,} bytes an agent; to PAUSED, both snapshots of each proven"
    table.add(
        Figure(name="pause a batch, worst", data=data, value=max(pause_services), unit="s", bar=PAUSE_BAR_S, note=note),
        Figure(
            name="resume a batch, worst", data=data, value=max(resuming), unit="s", bar=RESUME_BAR_S,
            note="to RESUMED, with the working server emptied before",
        ),
        Figure(
            name="pause an analysis p50", data=f"{len(AGENTS)} agents", value=percentile(singles, 0.5), unit="s",
            note=note,
        ),
    )  # fmt: skip
