"""Growth is bounded: what pruning, deleting and copying leave, in rows of each table."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from imem.checkpoints.langgraph.operations import THREADS
from imem.journal.errors import BadInput
from imem.langgraph import ImemSaver
from tests.checkpoints.langgraph.conftest import Base, chain, checkpoint, config, listed, metadata, thread

NOTHING = {"checkpoints": 0, "blobs": 0, "writes": 0}


async def grown(saver: Any, thread_id: str, length: int, namespace: str = "") -> list[Any]:
    """Make a thread each of whose checkpoints has writes."""
    stored = await chain(saver, thread_id, length, namespace)
    for one in stored:
        await saver.aput_writes(one, [("a", 1), ("b", 2)], "task")
    return stored


async def test_keeping_the_latest_leaves_one_checkpoint_a_namespace(either: Any, base: Base) -> None:
    """With its writes and its values, those that other checkpoints held too among them."""
    thread_id = thread()
    root = await grown(either, thread_id, 30)
    child = await grown(either, thread_id, 5, "child:1")
    assert base.count(thread_id) == {"checkpoints": 35, "blobs": 37, "writes": 70}

    await either.aprune([thread_id])

    assert base.count(thread_id) == {"checkpoints": 2, "blobs": 4, "writes": 4}
    for newest in (root[-1], child[-1]):
        found = await either.aget_tuple(newest)
        assert found.checkpoint["channel_values"].keys() == {"changing", "lasting"}
        assert len(found.pending_writes) == 2
    assert (await either.aget_tuple(config(thread_id))).config == root[-1]


async def test_a_pruned_thread_goes_on(either: Any, base: Base) -> None:
    """Values that did not change since are still there."""
    thread_id = thread()
    stored = await grown(either, thread_id, 3)
    await either.aprune([thread_id])
    one = checkpoint({"changing": ["value", 3], "lasting": ["same", "always"]}, {"changing": "4", "lasting": "1"})

    after = await either.aput(stored[-1], one, metadata(3), {"changing": "4"})

    assert (await either.aget_tuple(after)).checkpoint == one
    assert base.count(thread_id) == {"checkpoints": 2, "blobs": 3, "writes": 2}


async def test_writes_whose_checkpoint_is_about_to_be_put_are_kept(either: Any, base: Base) -> None:
    thread_id = thread()
    stored = await chain(either, thread_id, 2)
    coming, orphan = checkpoint(), "0"
    await either.aput_writes(config(thread_id, coming["id"]), [("a", 1)], "task")
    await either.aput_writes(config(thread_id, orphan), [("a", 1)], "task")

    await either.aprune([thread_id])

    assert base.count(thread_id)["writes"] == 1
    after = await either.aput(stored[-1], coming, metadata(2), {})
    assert len((await either.aget_tuple(after)).pending_writes) == 1


async def test_deleting_leaves_nothing(either: Any, base: Base) -> None:
    """Of the thread; and everything of one whose id is its beginning, or matches it as a pattern."""
    thread_id = thread()
    others = [thread_id[:-1], f"{thread_id[:-1]}%", f"{thread_id}x"]
    for one in (thread_id, *others):
        await grown(either, one, 3)
        await grown(either, one, 2, "child:1")

    await either.adelete_thread(thread_id)

    assert base.count(thread_id) == NOTHING
    assert [base.count(one) for one in others] == [{"checkpoints": 5, "blobs": 7, "writes": 10}] * 3


@pytest.fixture
def shifted(base: Base) -> Any:
    """Say that everything stored until now was put some time ago."""

    def shift(by: timedelta, *threads: str) -> None:
        base.rows(
            "UPDATE langgraph.checkpoint SET created_at = created_at - %s WHERE thread_id = ANY (%s)", by, list(threads)
        )

    return shift


async def test_pruning_by_age_keeps_the_newest_of_each_namespace(either: Any, base: Base, shifted: Any) -> None:
    old, mixed = thread(), thread()
    for one in (old, mixed):
        await grown(either, one, 4)
    shifted(timedelta(days=8), old, mixed)
    await chain(either, mixed, 2)

    assert await either.aprune_older(timedelta(days=7)) == 3 + 4

    assert base.count(old) == {"checkpoints": 1, "blobs": 2, "writes": 2}
    assert base.count(mixed)["checkpoints"] == 2
    assert await either.aprune_older(timedelta(days=7)) == 0
    await either.aprune([old, mixed], strategy="delete")


async def test_pruning_by_age_can_remove_threads_that_nobody_goes_on_with(
    either: Any, base: Base, shifted: Any
) -> None:
    """As wholes: a thread that put anything since stays as it is."""
    old, mixed = thread(), thread()
    for one in (old, mixed):
        await grown(either, one, 4)
    shifted(timedelta(days=8), old, mixed)
    await chain(either, mixed, 2)

    assert await either.aprune_older(timedelta(days=7), keep_latest=False) == 4

    assert base.count(old) == NOTHING
    assert base.count(mixed)["checkpoints"] == 6
    await either.adelete_thread(mixed)


async def test_pruning_by_age_goes_over_many_pages_of_threads(either: Any, shifted: Any) -> None:
    threads = [f"{uuid4()}" for _ in range(THREADS + 5)] + [""]
    for one in threads:
        await chain(either, one, 1)
    shifted(timedelta(days=8), *threads)

    assert await either.aprune_older(timedelta(days=7), keep_latest=False) == THREADS + 6
    with pytest.raises(BadInput, match="negative"):
        await either.aprune_older(timedelta(days=-1))


def test_age_is_measured_by_the_clock_of_sql(saver: ImemSaver, base: Base) -> None:
    """The owner's session may shift it, so that a test need not wait."""
    thread_id = thread()
    first = saver.put(config(thread_id), checkpoint(), metadata(), {})
    saver.put(first, checkpoint(), metadata(1), {})

    with ImemSaver.from_conn_string(f"{base.admin_url}?options=-c%20imem.clock_shift%3D8days") as later:
        assert saver.prune_older(timedelta(days=7)) == 0
        assert later.prune_older(timedelta(days=7)) >= 1

    assert base.count(thread_id)["checkpoints"] == 1


async def test_copying_twice_is_copying_once(either: Any, base: Base) -> None:
    source, target = thread(), thread()
    await grown(either, source, 4)
    await grown(either, source, 2, "child:1")

    await either.acopy_thread(source, target)
    await either.acopy_thread(source, target)

    assert base.count(target) == base.count(source)
    copied = await listed(either, {"configurable": {"thread_id": target}})
    given = await listed(either, {"configurable": {"thread_id": source}})
    assert [(one.checkpoint, one.metadata, one.pending_writes) for one in copied] == [
        (one.checkpoint, one.metadata, one.pending_writes) for one in given
    ]
    await either.adelete_thread(source)
    assert len(await listed(either, {"configurable": {"thread_id": target}})) == 6


async def test_deleting_runs_leaves_the_values_that_others_hold(either: Any, base: Base) -> None:
    thread_id, runs = thread(), [str(uuid4()) for _ in range(2)]
    stored: list[Any] = []
    for step in range(6):
        values = {"changing": ["value", step], "lasting": ["always"]}
        one = checkpoint(values, {"changing": f"{step}", "lasting": "1"})
        where = stored[-1] if stored else config(thread_id)
        stored.append(await either.aput(where, one, metadata(step, run_id=runs[step // 3]), one["channel_versions"]))
        await either.aput_writes(stored[-1], [("a", 1)], "task")

    await either.adelete_for_runs([runs[0]])

    assert base.count(thread_id) == {"checkpoints": 3, "blobs": 4, "writes": 3}
    assert [one.config for one in await listed(either, config(thread_id))] == stored[:2:-1]
    await either.adelete_for_runs(runs)
    assert base.count(thread_id) == NOTHING
