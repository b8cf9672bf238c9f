"""After a deletion, a run that still goes on writes nothing; one that begins anew does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from imem.journal.errors import BadInput, StaleEpoch
from imem.langgraph import ImemSaver
from tests.checkpoints.langgraph.conftest import Base, chain, checkpoint, config, listed, metadata, thread

NOTHING = {"checkpoints": 0, "blobs": 0, "writes": 0}


async def _deleted(saver: Any, thread_id: str, how: str) -> None:
    match how:
        case "delete_thread":
            await saver.adelete_thread(thread_id)
        case "prune":
            await saver.aprune([thread_id], strategy="delete")
        case "runs":
            await saver.adelete_for_runs([f"run-{thread_id}"])


async def _a_run(saver: Any, thread_id: str, **fence: Any) -> list[Any]:
    """Store two checkpoints of one run."""
    first = await saver.aput(
        config(thread_id, **fence), checkpoint({"a": ["1"]}), metadata(run_id=f"run-{thread_id}"), {"a": "1"}
    )
    where = config(thread_id, first["configurable"]["checkpoint_id"], **fence)
    second = await saver.aput(where, checkpoint({"a": ["2"]}), metadata(1, run_id=f"run-{thread_id}"), {"a": "1"})
    return [first, second]


@pytest.mark.parametrize("how", ["delete_thread", "prune", "runs"])
async def test_what_comes_late_is_refused_and_leaves_nothing(either: Any, base: Base, how: str) -> None:
    """A write of a checkpoint, a child of it, the very same put again, and what follows from a refused one."""
    thread_id = thread()
    stored = await _a_run(either, thread_id)
    await _deleted(either, thread_id, how)

    late = checkpoint({"a": ["3"]})
    for where in stored:
        with pytest.raises(BadInput, match="was deleted with its thread") as refused:
            await either.aput_writes(where, [("a", 1)], "task")
        assert refused.value.field == "configurable.checkpoint_id"
        with pytest.raises(BadInput, match="was deleted with its thread"):
            await either.aput(where, late, metadata(2), {"a": "1"})
    again = checkpoint({"a": ["2"]}, checkpoint_id=stored[1]["configurable"]["checkpoint_id"])
    with pytest.raises(BadInput, match="was deleted"):
        await either.aput(config(thread_id), again, metadata(1), {"a": "1"})
    with pytest.raises(BadInput, match="was deleted"):
        await either.aput_writes(config(thread_id, late["id"]), [("a", 1)], "task")
    with pytest.raises(BadInput, match="was deleted"):
        await either.aput(config(thread_id, late["id"]), checkpoint(), metadata(3), {})

    assert base.count(thread_id) == NOTHING
    assert await either.aget_tuple(config(thread_id)) is None


async def test_the_first_checkpoint_of_a_subgraph_comes_late_as_well(either: Any, base: Base) -> None:
    """It has no parent in its own namespace: its metadata name the checkpoint that the call was made from."""
    thread_id = thread()
    stored = await _a_run(either, thread_id)
    await either.adelete_thread(thread_id)
    parents = {"": stored[1]["configurable"]["checkpoint_id"]}

    with pytest.raises(BadInput, match="was deleted"):
        await either.aput(config(thread_id, namespace="child:1"), checkpoint(), metadata(parents=parents), {})

    assert base.count(thread_id) == NOTHING


async def test_writes_that_were_stored_before_a_refused_put_go_with_it(either: Any, base: Base) -> None:
    """LangGraph stores both at once: the writes may come first, when nobody knows yet what their checkpoint follows."""
    thread_id = thread()
    stored = await _a_run(either, thread_id)
    await either.adelete_thread(thread_id)
    late = checkpoint()
    await either.aput_writes(config(thread_id, late["id"]), [("a", 1)], "task")

    with pytest.raises(BadInput, match="was deleted"):
        await either.aput(stored[1], late, metadata(2), {})

    assert base.count(thread_id) == NOTHING


async def test_a_new_run_under_the_same_id_is_stored(either: Any) -> None:
    """Its writes too, before or after their checkpoint; and again after another deletion."""
    thread_id = thread()
    for _ in range(2):
        old = await _a_run(either, thread_id)
        await either.adelete_thread(thread_id)
        first = checkpoint({"b": ["1"]})
        await either.aput_writes(config(thread_id, first["id"]), [("b", 1)], "task")
        stored = await either.aput(config(thread_id), first, metadata(), {"b": "1"})
        await either.aput(stored, checkpoint({"b": ["2"]}), metadata(1), {"b": "1"})
        with pytest.raises(BadInput, match="was deleted"):
            await either.aput_writes(old[1], [("a", 1)], "task")
        assert len(await listed(either, config(thread_id))) == 2
        assert (await either.aget_tuple(stored)).pending_writes == [("task", "b", 1)]
        await either.adelete_thread(thread_id)


async def test_a_thread_may_be_copied_into_a_deleted_one(either: Any) -> None:
    source, target = thread(), thread()
    stored = await _a_run(either, source)
    await either.acopy_thread(source, target)
    await either.adelete_thread(target)

    await either.acopy_thread(source, target)

    where = config(target, stored[1]["configurable"]["checkpoint_id"])
    await either.aput_writes(where, [("a", 1)], "task")
    await either.aput(where, checkpoint(), metadata(2), {})
    assert len(await listed(either, config(target))) == 3


@pytest.mark.parametrize("how", ["delete_thread", "prune", "runs"])
async def test_the_epoch_outlives_the_thread(either: Any, base: Base, how: str) -> None:
    thread_id = thread()
    await _a_run(either, thread_id, imem_epoch=5)
    await _deleted(either, thread_id, how)

    with pytest.raises(StaleEpoch):
        await either.aput(config(thread_id, imem_epoch=4), checkpoint(), metadata(), {})
    with pytest.raises(StaleEpoch):
        await either.aput_writes(config(thread_id, checkpoint()["id"], imem_epoch=4), [("a", 1)], "task")
    assert base.count(thread_id) == NOTHING

    await either.aput(config(thread_id, imem_epoch=5), checkpoint(), metadata(), {})
    assert base.count(thread_id)["checkpoints"] == 1


async def test_a_deletion_of_nothing_leaves_nothing(either: Any, base: Base) -> None:
    thread_id = thread()
    await either.adelete_thread(thread_id)
    assert base.rows("SELECT 1 FROM langgraph.deletion WHERE thread_id = %s", thread_id) == []


async def test_a_deletion_is_forgotten_after_thirty_days(either: Any, base: Base) -> None:
    """With its epoch, and with what a writer left that was killed between its writes and its checkpoint."""
    thread_id, other = thread(), thread()
    await _a_run(either, thread_id, imem_epoch=5)
    await either.adelete_thread(thread_id)
    await either.aput_writes(config(thread_id, checkpoint()["id"]), [("a", 1)], "task")
    past = "UPDATE langgraph.deletion SET deleted_at = deleted_at - make_interval(days => %s) WHERE thread_id = %s"
    kept = "SELECT 1 FROM langgraph.thread_epoch WHERE thread_id = %s"
    base.rows(f"{past} RETURNING 1", 29, thread_id)
    await chain(either, other, 1)
    await either.adelete_thread(other)
    assert base.rows(kept, thread_id)

    base.rows(f"{past} RETURNING 1", 2, thread_id)
    await either.adelete_thread(other)

    assert not base.rows(kept, thread_id)
    assert base.count(thread_id) == NOTHING


async def test_no_race_leaves_a_row(asaver: ImemSaver, base: Base) -> None:
    """Writes and puts that go on while the thread is deleted are stored before it, or refused."""
    for _ in range(30):
        thread_id = thread()
        stored = await _a_run(asaver, thread_id)
        late = checkpoint()
        done = await asyncio.gather(
            asaver.aput_writes(stored[1], [("a", 1)], "task"),
            asaver.adelete_thread(thread_id),
            asaver.aput_writes(stored[1], [("b", 1)], "other"),
            asaver.aput(stored[1], late, metadata(2), {}),
            return_exceptions=True,
        )
        # Where its put came first, the thread was deleted with it; the write of a checkpoint not seen yet waits for it.
        followed = await asyncio.gather(
            asaver.aput_writes(config(thread_id, late["id"]), [("a", 1)], "task"),
            asaver.aput(stored[1], late, metadata(2), {}),
            return_exceptions=True,
        )

        assert base.count(thread_id) == NOTHING
        assert {type(error) for error in (*done, *followed) if isinstance(error, Exception)} <= {BadInput}
        assert isinstance(followed[1], BadInput)
