"""How long an agent waits for its memory, by the tier that serves it, and for a checkpoint."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final

import pytest
import pytest_asyncio

from imem.checkpoints.recovery import RecoveryTier
from tests.bench.table import Figure, Table, percentile
from tests.checkpoints.conftest import World, opened, soon
from tests.checkpoints.recovering import READERS, desk_of, names
from tests.servers import cloned

pytestmark = pytest.mark.bench

SIZES: Final = {"100 keys / 100 KB": (100, 1_000), "80 keys / 8 MB": (80, 100_000)}
"""Sets of data → keys, and bytes of each."""

TIMES: Final = {"full": 20, "tiny": 3}

BARS_MS: Final = {RecoveryTier.LIVE: 1_000, RecoveryTier.SECONDARY: 5_000, RecoveryTier.POSTGRES: 30_000}
"""What the specification demands of each tier."""


@pytest_asyncio.fixture
async def world(light_stack: Any, light_template: str) -> AsyncIterator[World]:
    with cloned(light_stack.settings, light_template) as (url, admin_url):
        async with opened(light_stack.settings, url, admin_url) as made:
            yield replace(made, definitions=READERS)


async def lose(world: World, tier: RecoveryTier) -> None:
    """Take away the tiers above *tier*."""
    lease = await world.lease_of("reader")
    assert lease is not None
    if tier is not RecoveryTier.LIVE:
        await world.memories.clear(world.agent("reader"), lease.epoch, deadline=soon())
    if tier is RecoveryTier.POSTGRES:
        await world.snapshots.drop(world.agent("reader"), deadline=soon())


@pytest.mark.spec("CK-4")
@pytest.mark.parametrize("size", SIZES)
async def test_a_memory_comes_back_in_time(world: World, table: Table, size: str) -> None:
    """Each tier within its bar, the lease and every proof included, for a usual memory and for the largest."""
    keys, length = SIZES[size]
    harness = desk_of(world)
    async with harness.begin(**names(world)) as session:
        for number in range(keys):
            await session.memory.set(f"key {number}", "x" * (length - 100))
        begun = time.perf_counter()
        await session.complete("fetch")
        saved_ms = (time.perf_counter() - begun) * 1000
    figures = [Figure(name="checkpoint with its snapshot", data=size, value=saved_ms, unit="ms")]
    for tier, bar in BARS_MS.items():
        taken = []
        for _ in range(TIMES[table.scale]):
            await lose(world, tier)
            begun = time.perf_counter()
            async with harness.begin(**names(world)) as session:
                taken.append((time.perf_counter() - begun) * 1000)
                assert session.recovered.tier is tier
        note = "from asking for the lease until the agent may go on"
        figures.append(
            Figure(
                name=f"recovery, {tier.value}, p95",
                data=size,
                value=percentile(taken, 0.95),
                unit="ms",
                bar=bar,
                note=note,
            )
        )
    table.add(*figures)
