"""What the conformance suite leaves out: retries, shared values, order, listings; through both halves."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, SCHEDULED

from imem.checkpoints.langgraph.operations import INLINE_MOST, PAGE
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

SPECIAL = (ERROR, SCHEDULED, INTERRUPT, RESUME)


async def test_a_repeated_write_keeps_the_first_value(either: Any) -> None:
    """A task that runs again may come to another result; siblings may have seen the first."""
    [stored] = await chain(either, thread(), 1)

    await either.aput_writes(stored, [("a", "first"), ("b", "first")], "task")
    await either.aput_writes(stored, [("a", "second"), ("b", "second"), ("c", "new")], "task")

    found = await either.aget_tuple(stored)
    assert found.pending_writes == [("task", "a", "first"), ("task", "b", "first"), ("task", "c", "new")]


@pytest.mark.parametrize("channel", SPECIAL)
async def test_of_special_channels_the_last_value_counts(either: Any, channel: str) -> None:
    """Also beside ordinary writes, which keep theirs, and also twice in one call."""
    [stored] = await chain(either, thread(), 1)

    await either.aput_writes(stored, [("a", "first"), (channel, "first")], "task")
    await either.aput_writes(stored, [("a", "second"), (channel, "second"), (channel, "third")], "task")

    found = await either.aget_tuple(stored)
    assert sorted(found.pending_writes) == sorted([("task", "a", "first"), ("task", channel, "third")])


async def test_no_writes_are_none(either: Any) -> None:
    [stored] = await chain(either, thread(), 1)

    await either.aput_writes(stored, [], "task")

    assert (await either.aget_tuple(stored)).pending_writes == []


async def test_writes_come_in_the_order_of_their_tasks(either: Any) -> None:
    """By path, as LangGraph applies them, and each task's as it wrote them."""
    [stored] = await chain(either, thread(), 1)

    await either.aput_writes(stored, [("x", n) for n in range(12)], "later", "~__pregel_pull, b")
    await either.aput_writes(stored, [("x", "a")], "zzz", "~__pregel_pull, a")

    found = await either.aget_tuple(stored)
    assert found.pending_writes == [("zzz", "x", "a"), *(("later", "x", n) for n in range(12))]


async def test_writes_may_come_before_their_checkpoint(either: Any) -> None:
    """LangGraph stores both side by side; neither waits for the other."""
    thread_id, one = thread(), checkpoint({"a": ["1"]})
    where = config(thread_id, one["id"])

    await either.aput_writes(where, [("a", "early")], "task")
    assert await either.aget_tuple(where) is None
    await either.aput(config(thread_id), one, metadata(), {"a": "1"})

    assert (await either.aget_tuple(where)).pending_writes == [("task", "a", "early")]


async def test_a_repeated_put_changes_nothing(either: Any, base: Base) -> None:
    thread_id = thread()
    await chain(either, thread_id, 3)
    before, rows = await listed(either, config(thread_id)), base.count(thread_id)
    newest = before[0]

    again = await either.aput(newest.parent_config, newest.checkpoint, newest.metadata, {"changing": "3"})

    assert again == newest.config
    assert await listed(either, config(thread_id)) == before
    assert base.count(thread_id) == rows


async def test_a_put_under_a_stored_id_replaces_it_in_its_place(either: Any) -> None:
    """As the savers of LangGraph do: state and metadata are the new ones, the order is the old one."""
    thread_id = thread()
    first, second = await chain(either, thread_id, 2)
    changed = checkpoint({"changing": ["other"]}, {"changing": "9"}, first["configurable"]["checkpoint_id"])

    await either.aput(config(thread_id), changed, metadata(7), {"changing": "9"})

    assert [one.config for one in await listed(either, config(thread_id))] == [second, first]
    found = await either.aget_tuple(first)
    assert (found.checkpoint["channel_values"], found.metadata["step"]) == ({"changing": ["other"]}, 7)


async def test_values_that_do_not_change_are_stored_once(either: Any, base: Base) -> None:
    thread_id = thread()
    await chain(either, thread_id, 20)

    assert base.count(thread_id) == {"checkpoints": 20, "blobs": 21, "writes": 0}


async def test_small_values_take_no_row(either: Any, base: Base) -> None:
    """And long ones do, also texts: they would be repeated in every checkpoint."""
    thread_id = thread()
    values = {"none": None, "number": 1, "text": "x" * INLINE_MOST, "bytes": b"x", "long": "x" * (INLINE_MOST + 1)}

    stored = await either.aput(config(thread_id), checkpoint(values), metadata(), dict.fromkeys(values, "1"))

    assert base.count(thread_id)["blobs"] == 1
    assert (await either.aget_tuple(stored)).checkpoint["channel_values"] == values


async def test_a_thread_from_elsewhere_is_stored_whole(either: Any) -> None:
    """Newest first, as listings give them, and with nothing said to be new: no value is lost, and the order holds."""
    source, target = thread(), thread()
    await chain(either, source, 4)
    given = await listed(either, config(source))

    for one in given:
        parent = one.parent_config["configurable"]["checkpoint_id"] if one.parent_config else None
        await either.aput(config(target, parent), one.checkpoint, one.metadata, {})

    found = await listed(either, config(target))
    assert [one.checkpoint for one in found] == [one.checkpoint for one in given]
    assert (await either.aget_tuple(config(target))).checkpoint == given[0].checkpoint


async def test_a_clock_that_is_set_back_does_not_bring_back_an_old_state(either: Any) -> None:
    """Ids come from the clock of whoever put them; the child of a checkpoint is newer than that all the same."""
    thread_id = thread()
    ids = sorted((str(uuid6()) for _ in range(6)), reverse=True)
    stored: list[Any] = []
    for step, checkpoint_id in enumerate(ids):
        parent = stored[-1]["configurable"]["checkpoint_id"] if stored else None
        one = checkpoint({"step": step}, checkpoint_id=checkpoint_id)
        stored.append(await either.aput(config(thread_id, parent), one, metadata(step), {"step": "1"}))

    newest = await either.aget_tuple(config(thread_id))
    assert newest.checkpoint["channel_values"] == {"step": 5}
    assert [one.metadata["step"] for one in await listed(either, config(thread_id))] == [5, 4, 3, 2, 1, 0]
    before = await listed(either, config(thread_id), before=stored[3])
    assert [one.metadata["step"] for one in before] == [2, 1, 0]

    # Once the clock is right again, so are the ids.
    await either.aput(stored[-1], checkpoint({"step": 6}), metadata(6), {"step": "1"})
    fork = await either.aput(stored[0], checkpoint({"step": 7}, checkpoint_id="0"), metadata(7), {"step": "1"})
    assert (await either.aget_tuple(config(thread_id))).config == fork


async def test_branches_of_one_checkpoint_do_not_share_versions(either: Any) -> None:
    """Two runs go on from the same state, and come to different values at the same count."""
    thread_id = thread()
    [root] = await chain(either, thread_id, 1)
    branches = []
    for n in range(2):
        version = either.get_next_version("1", None)
        one = checkpoint({"changing": ["branch", n]}, {"changing": version})
        branches.append(await either.aput(root, one, metadata(1), {"changing": version}))

    for n, branch in enumerate(branches):
        assert (await either.aget_tuple(branch)).checkpoint["channel_values"] == {"changing": ["branch", n]}


@pytest.mark.parametrize("current", [None, "0000000001.0123456789ab", "00000000000000000000000000000041.0.5", 9])
def test_versions_rise(either: Any, current: Any) -> None:
    """From nothing, from our own, from those of LangGraph's savers, and from numbers."""
    following = [either.get_next_version(current, None)]
    for _ in range(20):
        following.append(either.get_next_version(following[-1], None))

    assert following == sorted(following)
    assert len(set(following)) == 21
    assert int(following[0].partition(".")[0]) == int(str(current or 0).partition(".")[0]) + 1
    if isinstance(current, str):
        assert current < following[0]


async def test_a_listing_asks_for_a_page_of_keys_at_a_time(saver: ImemSaver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one thread and of all: nothing that it holds grows with what there is."""
    thread_id, asked, run = thread(), [], saver._run

    def noted(call: Any) -> Any:
        rows = run(call)
        asked.append((call.statement, len(rows)))
        return rows

    await chain(ThroughThreads(saver), thread_id, 2 * PAGE + 5)
    monkeypatch.setattr(saver, "_run", noted)
    for where in (config(thread_id), None):
        asked.clear()
        found = [one for one in saver.list(where) if one.config["configurable"]["thread_id"] == thread_id]

        assert len(found) == 2 * PAGE + 5
        assert [one.metadata["step"] for one in found] == list(range(2 * PAGE + 4, -1, -1))
        assert max(count for _, count in asked) == PAGE
    asked.clear()
    assert len(list(saver.list(None, limit=PAGE))) == PAGE
    assert len(asked) == 2


async def test_a_listing_goes_over_many_pages(either: Any) -> None:
    thread_id = thread()
    stored = await chain(either, thread_id, 2 * PAGE + 1)

    found = await listed(either, config(thread_id))

    assert [one.config for one in found] == stored[::-1]
    assert len(await listed(either, config(thread_id), limit=PAGE + 3)) == PAGE + 3
    assert await listed(either, config(thread_id), limit=0) == []


async def test_a_listing_of_all_threads(either: Any) -> None:
    """With the newest first whichever thread it is of, and by what their metadata contain."""
    mark = str(uuid4())
    stored = []
    for step in range(3):
        found = await either.aput(config(thread()), checkpoint(), metadata(step, mark={"id": mark, "n": step}), {})
        stored.append(found)

    assert [one.config for one in await listed(either, None, filter={"mark": {"id": mark}})] == stored[::-1]
    assert [one.config for one in await listed(either, None, filter={"mark": {"id": mark, "n": 1}})] == [stored[1]]
    older = await listed(either, None, filter={"mark": {"id": mark}}, before=stored[2], limit=1)
    assert [one.config for one in older] == [stored[1]]


async def test_a_listing_of_all_namespaces(either: Any) -> None:
    """A config without a namespace means all of them; `before` names a checkpoint of one, and holds by id in others."""
    thread_id = thread()
    root = await chain(either, thread_id, 2)
    child = await chain(either, thread_id, 2, "child:1")
    later = await chain(either, thread_id, 1)

    everywhere = await listed(either, {"configurable": {"thread_id": thread_id}})
    assert [one.config for one in everywhere] == [*later, *child[::-1], *root[::-1]]
    before = await listed(either, {"configurable": {"thread_id": thread_id}}, before=child[1])
    assert [one.config for one in before] == [child[0], *root[::-1]]
    one = await listed(either, root[0])
    assert [found.config for found in one] == [root[0]]


async def test_what_is_removed_while_one_lists_is_left_out(either: Any) -> None:
    thread_id = thread()
    await chain(either, thread_id, PAGE + 5)

    found = []
    async for one in either.alist(config(thread_id)):
        found.append(one)
        if len(found) == 1:
            await either.aprune([thread_id], strategy="delete")

    # Threads list at once in these tests; tasks had one page.
    assert len(found) in {PAGE, PAGE + 5}


@pytest.mark.parametrize(
    ("where", "field"),
    [
        ({}, "configurable.thread_id"),
        ({"configurable": {}}, "configurable.thread_id"),
        ({"configurable": {"thread_id": "t", "imem_epoch": "1"}}, "configurable.imem_epoch"),
        ({"configurable": {"thread_id": "t", "imem_epoch": True}}, "configurable.imem_epoch"),
        ({"configurable": {"thread_id": "t", "imem_epoch": -1}}, "configurable.imem_epoch"),
        ({"configurable": {"thread_id": "t", "imem_epoch": 2**63}}, "configurable.imem_epoch"),
        ({"configurable": {"thread_id": "t", "imem_lease": ("a", "b")}}, "configurable.imem_epoch"),
        ({"configurable": {"thread_id": "t", "imem_epoch": 1, "imem_lease": "ab"}}, "configurable.imem_lease"),
        ({"configurable": {"thread_id": "t", "imem_epoch": 1, "imem_lease": ("a",)}}, "configurable.imem_lease"),
        ({"configurable": {"thread_id": "t", "imem_epoch": 1, "imem_lease": 7}}, "configurable.imem_lease"),
    ],
    ids=str,
)
async def test_a_wrong_config_is_refused_by_the_field(either: Any, where: Any, field: str) -> None:
    with pytest.raises(BadInput) as refused:
        await either.aput(where, checkpoint(), metadata(), {})

    assert refused.value.field == field


async def test_other_wrong_input_is_refused(either: Any) -> None:
    thread_id = thread()
    await chain(either, thread_id, 1)

    with pytest.raises(BadInput, match="writes belong to a checkpoint"):
        await either.aput_writes(config(thread_id), [("a", 1)], "task")
    with pytest.raises(BadInput, match="keep_latest, delete"):
        await either.aprune([thread_id], strategy="keep_everything")
    with pytest.raises(BadInput, match="the source's own"):
        await either.acopy_thread(thread_id, thread_id)
    with pytest.raises(BadInput, match="no type of a version"):
        await either.aput(config(thread_id), checkpoint({"a": ["1"]}, {"a": None}), metadata(), {"a": "1"})
    assert len(await listed(either, config(thread_id))) == 1
