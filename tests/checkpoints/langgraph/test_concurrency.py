"""Many at once: threads, tasks, loops; and pruning beside putting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from imem.journal.errors import BadInput
from imem.langgraph import ImemSaver
from tests.checkpoints.langgraph.conftest import (
    Base,
    ThroughThreads,
    chain,
    checkpoint,
    config,
    listed,
    metadata,
    thread,
)

MANY = 24
LONG = 12


async def test_tasks_at_once(asaver: ImemSaver) -> None:
    """More than there are connections; each reads its own writes at once."""
    threads = [thread() for _ in range(MANY)]

    async def run(thread_id: str) -> None:
        for step, stored in enumerate(await chain(asaver, thread_id, LONG)):
            await asaver.aput_writes(stored, [("a", step)], "task")
            found = await asaver.aget_tuple(stored)
            assert found is not None
            assert found.pending_writes == [("task", "a", step)]

    await asyncio.gather(*map(run, threads))

    for thread_id in threads:
        assert [one.metadata["step"] for one in await listed(asaver, config(thread_id))] == [*range(LONG)][::-1]


def test_threads_at_once(saver: ImemSaver) -> None:
    threads = [thread() for _ in range(MANY)]

    def run(thread_id: str) -> list[int]:
        where = config(thread_id)
        for step in range(LONG):
            one = checkpoint({"value": ["at", step]}, {"value": f"{step}"})
            where = saver.put(where, one, metadata(step), {"value": f"{step}"})
            saver.put_writes(where, [("a", step)], "task")
            found = saver.get_tuple(config(thread_id))
            assert found is not None
            assert found.checkpoint == one
            assert found.pending_writes == [("task", "a", step)]
        return [one.metadata["step"] for one in saver.list(config(thread_id))]

    with ThreadPoolExecutor(MANY) as pool:
        assert list(pool.map(run, threads)) == [[*range(LONG)][::-1]] * MANY


def test_one_thread_of_langgraphs_by_many_threads(saver: ImemSaver) -> None:
    """Writes of many tasks after one checkpoint, all at once: none is lost, none is there twice."""
    stored = saver.put(config(thread()), checkpoint(), metadata(), {})
    together = threading.Barrier(8)

    def run(n: int) -> None:
        together.wait()
        for repeat in range(3):
            saver.put_writes(stored, [("a", n), ("b", repeat)], f"task {n}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(8)))

    found = saver.get_tuple(stored)
    assert found is not None
    assert found.pending_writes == [write for n in range(8) for write in ((f"task {n}", "a", n), (f"task {n}", "b", 0))]


async def test_both_halves_of_one_saver(asaver: ImemSaver) -> None:
    """Threads may use what was opened for a loop, and see what its tasks stored."""
    thread_id = thread()
    stored = await chain(asaver, thread_id, 2)

    found = await listed(ThroughThreads(asaver), config(thread_id))

    assert [one.config for one in found] == stored[::-1]
    # Within the loop's own thread too: it waits for a moment, but for nothing that waits for it.
    assert asaver.get_tuple(config(thread_id)) == found[0]


async def test_loops_that_are_not_its_own(saver: ImemSaver, asaver: ImemSaver) -> None:
    """A saver for threads serves any loop, and one for a loop serves others through threads."""

    def elsewhere(one: ImemSaver) -> Any:
        async def run() -> Any:
            return [found.config for found in await listed(one, (await chain(one, thread(), 2))[0])]

        return asyncio.run(run())

    for one in (saver, asaver):
        assert len(await asyncio.to_thread(elsewhere, one)) == 1


async def test_pools_of_the_callers_own(base: Base) -> None:
    """Opened and closed by whoever made them; also such that do not commit by themselves, and give tuples."""
    thread_id = thread()
    with ConnectionPool(base.url, min_size=1, max_size=2, open=True) as pool:
        stored = await chain(ThroughThreads(ImemSaver(pool)), thread_id, 2)
        async with AsyncConnectionPool(base.url, min_size=1, max_size=2, open=False) as loops:
            assert await listed(ImemSaver(pool, loops), config(thread_id)) != []
            alone = ImemSaver(loops)
            assert [one.config for one in await listed(alone, config(thread_id))] == stored[::-1]
            with pytest.raises(BadInput, match="which threads cannot use"):
                alone.get_tuple(config(thread_id))
        assert not pool.closed


async def hammer(work: Callable[[], Any], until: asyncio.Event) -> int:
    done = 0
    while not until.is_set():
        await work()
        done += 1
    return done


async def test_pruning_never_takes_the_values_of_a_put_beside_it(asaver: ImemSaver) -> None:
    """A branch of an old state holds old values: either they stay, or they are put again. Nothing stored is torn."""
    thread_id, over = thread(), asyncio.Event()
    [root] = await chain(asaver, thread_id, 1)
    values = {"changing": ["value", 0], "lasting": ["same", "always"]}

    async def fork() -> None:
        one = checkpoint(values, {"changing": "1", "lasting": "1"})
        await asaver.aput(root, one, metadata(1), {})

    async def advance() -> None:
        await asaver.aput(root, checkpoint({"other": ["x"]}), metadata(1), {"other": "1"})

    pruning = asyncio.create_task(hammer(lambda: asaver.aprune([thread_id]), over))
    for _ in range(150):
        await asyncio.gather(fork(), advance(), fork(), advance())
        for found in await listed(asaver, config(thread_id)):
            assert found.checkpoint["channel_values"] in (values, {"other": ["x"]})
    over.set()

    assert await pruning > 10


async def test_sweepers_of_the_same_threads_do_not_block_one_another(asaver: ImemSaver) -> None:
    """Whatever the order in which they name them."""
    threads = [thread() for _ in range(10)]
    for _ in range(5):
        await asyncio.gather(*(chain(asaver, one, 2) for one in threads))
        await asyncio.gather(asaver.aprune(threads), asaver.aprune(threads[::-1]), asaver.aprune(threads))

    assert [len(await listed(asaver, config(one))) for one in threads] == [1] * 10
