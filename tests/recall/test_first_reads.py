"""The first read of a process: its deadline begins when the process is connected, whatever it asks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from imem.journal.errors import ImemError
from imem.memory import Memory
from imem.recall.model import Quality
from tests.punctual import Punctual
from tests.recall.far import Far, far, labelled

__all__ = ["far"]

MS: Final = 2_500
"""The deadline of a read, shorter than connecting takes here."""

AGENTS: Final = ["agent0"]


async def of_another(memory: Memory) -> Any:
    async with memory.acting_as("ann") as its:
        return await its.history("T0")


READS: Final[dict[str, Callable[[Memory], Awaitable[Any]]]] = {
    "brief": lambda memory: memory.brief("T0"),
    "history": lambda memory: memory.history("T0"),
    "debates": lambda memory: memory.debates("T0"),
    "panel": lambda memory: memory.panel("T0"),
    "track_records": lambda memory: memory.track_records(AGENTS),
    "weights": lambda memory: memory.weights(AGENTS, "equity_direction"),
    "similar": lambda memory: memory.similar("T0"),
    "regime": lambda memory: memory.regime(),
    "view": lambda memory: memory.view("top_patterns", "*"),
    "memories": lambda memory: memory.memories.history("00000000-0000-0000-0000-000000000000"),
    "trades": lambda memory: memory.trades.resume("d"),
    "acting_as": of_another,
}


async def answered(read: Callable[[Memory], Awaitable[Any]], far: Far) -> Any:
    """Return the answer in a process of its own, as far as its stores go; what is not there is an answer too."""
    async with Memory.open(far.settings.model_copy(update={"deadline_ms": MS})) as memory:
        try:
            return await read(memory)
        except ImemError as error:
            if error.retryable:
                raise
            return error


async def test_a_first_read_has_its_time_once_it_is_connected(far: Far) -> None:
    """Connecting takes longer than the deadline, and every read is answered whole."""
    far.stall("graph", "postgres", "durable", "cache")
    reads = {name: asyncio.create_task(answered(read, far)) for name, read in READS.items()}
    done, _ = await asyncio.wait(reads.values(), timeout=MS / 1000)
    early = [name for name, task in reads.items() if task in done]
    far.flow()
    found = dict(zip(reads, await asyncio.gather(*reads.values()), strict=True))

    assert early == []
    assert not found["brief"].degraded
    qualities = {name: getattr(answer, "quality", None) for name, answer in found.items()}
    assert set(qualities.values()) <= {None, Quality.EXACT}, qualities


async def test_a_silent_server_holds_up_the_first_read_alone(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a bounded time; every later one has its answer by its deadline, and says what it lacks."""
    monkeypatch.setattr("imem.services.connections.CONNECTING_MS", 700)
    far.stall("graph")
    async with Memory.open(far.settings) as memory:
        in_time = Punctual()
        with in_time.within(0.7 + 0.5):
            labelled(await memory.brief("T0"))
        with in_time.within(0.5):
            labelled(await memory.brief("T0"))
        with in_time.within(0.5):
            labelled(await memory.brief("T0", deadline_ms=300))
    assert in_time.late_s < 0


async def test_what_is_connected_at_once_is_not_waited_for(far: Far) -> None:
    """`warm_up` connects to every server; a server that is away then is an error of the call, not of the start."""
    async with Memory.open(far.settings, warm_up=True) as memory:
        stores = memory._stores
        assert stores.tiers is not None
        assert stores.tiers.shared is not None
        assert stores.tiers.shared.client._idle
        assert stores.tiers.changes.client._idle
        graph: Any = stores.graph._driver
        assert sum(map(len, graph._pool.connections.values())) >= 1
        inner = stores.database._pool._inner
        assert inner is not None
        assert inner.get_stats()["pool_available"] >= 1
    far.stall("graph", "postgres", "durable", "cache")
    for proxy in far.proxies.values():
        await proxy.refuse()
    async with Memory.open(far.settings, warm_up=True) as memory:
        with pytest.raises(ImemError) as refused:
            await memory.history("T0")
    assert refused.value.retryable
