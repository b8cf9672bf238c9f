"""Delta channels, whose value is made of their past: it is found, and pruning never takes what the present needs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

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

STEPS = 11
EVERY = 4
"""After so many updates the value is stored."""


def append(held: list[Any], writes: Sequence[list[Any]]) -> list[Any]:
    """Order counts, so that a history in another order is noticed."""
    return [*held, *(one for write in writes for one in write)]


class Deltas(TypedDict, total=False):
    log: Annotated[list[Any], DeltaChannel(append, list, snapshot_frequency=EVERY)]
    rare: Annotated[list[Any], DeltaChannel(append, list, snapshot_frequency=100)]
    step: int


def graph_of(saver: Any) -> Any:
    """Return a graph that goes round, each time with two nodes side by side that write the same channel."""

    def left(state: Deltas) -> Deltas:
        return {"log": [f"left {state['step']}"]}

    def right(state: Deltas) -> Deltas:
        return {"log": [f"right {state['step']}"]}

    def turn(state: Deltas) -> Deltas:
        return {"step": state["step"] + 1, **({"rare": [state["step"]]} if state["step"] == 1 else {})}

    graph = StateGraph(Deltas)
    for node in (left, right, turn):
        graph.add_node(node.__name__, node)
    for side in ("left", "right"):
        graph.add_edge(START, side)
    graph.add_conditional_edges("turn", lambda state: ["left", "right"] if state["step"] < STEPS else [END])
    graph.add_edge(["left", "right"], "turn")
    return graph.compile(checkpointer=saver)


def run(saver: Any, thread_id: str) -> Any:
    """Run the graph; each state is stored before the next step begins, which may change what it is made of."""
    graph = graph_of(saver)
    where: Any = {**config(thread_id), "recursion_limit": 99}
    graph.invoke({"step": 0, "log": ["in"]}, where, durability="sync")
    return graph


def test_the_value_is_what_langgraphs_own_saver_gives(saver: ImemSaver) -> None:
    """At every point of the history; and the history of a channel is what the default way finds, in one statement."""
    thread_id = thread()
    ours, theirs = run(saver, thread_id), run(InMemorySaver(), thread_id)

    found, expected = (
        [(one.metadata["step"], one.values, one.next) for one in graph.get_state_history(config(thread_id))]
        for graph in (ours, theirs)
    )
    assert found == expected
    assert len(found[0][1]["log"]) == 1 + 2 * STEPS
    for one in saver.list(config(thread_id)):
        asked: Any = {"config": one.config, "channels": ["log", "rare", "step", "none"]}
        assert saver.get_delta_channel_history(**asked) == BaseCheckpointSaver.get_delta_channel_history(saver, **asked)


async def test_both_halves_tell_the_same_history(saver: ImemSaver, asaver: ImemSaver) -> None:
    thread_id = thread()
    run(saver, thread_id)

    found = await asaver.aget_delta_channel_history(config=config(thread_id), channels=["log", "rare"])

    assert found == saver.get_delta_channel_history(config=config(thread_id), channels=["log", "rare"])
    assert [write[2] for write in found["rare"]["writes"]] == [[1]]
    assert await asaver.aget_delta_channel_history(config=config(thread()), channels=["a"]) == {"a": {"writes": []}}
    assert saver.get_delta_channel_history(config=config(thread_id), channels=[]) == {}


async def test_a_small_plain_value_ends_the_walk(saver: ImemSaver) -> None:
    """A thread may have had an ordinary channel of that name before; its value may be one that takes no blob."""
    through, thread_id = ThroughThreads(saver), thread()
    first = saver.put(config(thread_id), checkpoint({"count": 1}), metadata(), {"count": "1"})
    second = saver.put(first, checkpoint({"count": 7}, {"count": "2"}), metadata(1), {"count": "2"})
    for parent in (first, second):
        saver.put_writes(parent, [("count", 5), ("other", 6)], "task")
    third = saver.put(second, checkpoint({}, {"count": "3"}), metadata(2), {"count": "3"})

    found = await through.aget_delta_channel_history(config=third, channels=["count"])

    assert found == {"count": {"writes": [("task", "count", 5)], "seed": 7}}
    assert found == BaseCheckpointSaver.get_delta_channel_history(saver, config=third, channels=["count"])


@pytest.mark.parametrize("steps", range(1, 2 * EVERY + 3))
def test_pruning_keeps_what_the_newest_is_made_of(saver: ImemSaver, base: Base, steps: int) -> None:
    """However far back its last stored value is, and not much more."""
    thread_id = thread()
    where: Any = {**config(thread_id), "recursion_limit": 99}
    graph = graph_of(saver)
    for _ in graph.stream({"step": 0, "log": ["in"]}, where, durability="sync"):
        steps -= 1
        if not steps:
            break
    before, rows = graph.get_state(where), base.count(thread_id)

    saver.prune([thread_id])

    after = graph.get_state(where)
    assert (after.values, after.next, after.config) == (before.values, before.next, before.config)
    assert base.count(thread_id)["checkpoints"] <= rows["checkpoints"]
    graph.invoke(None, where)
    assert len(graph.get_state(where).values["log"]) == 1 + 2 * STEPS


def test_pruning_forgets_what_was_stored_since(saver: ImemSaver, base: Base) -> None:
    """A channel of which the value was just stored needs no past; the rare one needs all of its."""

    class Often(TypedDict):
        log: Annotated[list[Any], DeltaChannel(append, list, snapshot_frequency=1)]

    graph = StateGraph(Often)
    graph.add_node("node", lambda _: {"log": ["x"]})
    graph.add_edge(START, "node")
    often, thread_id = graph.compile(checkpointer=saver), thread()
    for _ in range(5):
        often.invoke({"log": ["in"]}, config(thread_id))

    saver.prune([thread_id])

    assert base.count(thread_id)["checkpoints"] <= 2
    assert often.get_state(config(thread_id)).values == {"log": ["in", "x"] * 5}


@pytest.mark.parametrize("old", [1, 3, EVERY, EVERY + 1, 2 * EVERY, STEPS])
def test_pruning_by_age_keeps_what_stays_is_made_of(saver: ImemSaver, base: Base, old: int) -> None:
    """Of every checkpoint that is not old, whichever those are."""
    thread_id = thread()
    graph = run(saver, thread_id)
    history = list(graph.get_state_history(config(thread_id)))
    ids = [one.config["configurable"]["checkpoint_id"] for one in history[-old:]]
    base.rows(
        "UPDATE langgraph.checkpoint SET created_at = created_at - interval '8 days' "
        "WHERE thread_id = %s AND checkpoint_id = ANY (%s)",
        thread_id,
        ids,
    )

    removed = saver.prune_older(timedelta(days=7))

    assert removed <= old
    after = [one.values for one in graph.get_state_history(config(thread_id))]
    assert after[: len(history) - old] == [one.values for one in history[:-old]]


async def test_runs_that_later_ones_are_made_of_are_not_deleted(saver: ImemSaver) -> None:
    """Nothing is, until the later ones go as well; a run in between that nobody needs does go."""
    thread_id, runs = thread(), ["early", "late"]
    graph = graph_of(saver)
    for name in runs:
        where: Any = {**config(thread_id), "recursion_limit": 99, "metadata": {"run_id": f"{thread_id}-{name}"}}
        graph.invoke({"step": STEPS - 1, "log": [name]}, where)
    before = [one.config for one in saver.list(config(thread_id))]

    with pytest.raises(BadInput, match="nothing was removed") as refused:
        saver.delete_for_runs([f"{thread_id}-early"])

    assert thread_id in refused.value.reason
    assert [one.config for one in saver.list(config(thread_id))] == before
    values = graph.get_state(config(thread_id)).values
    saver.delete_for_runs([f"{thread_id}-late"])
    assert graph.get_state(config(thread_id)).values["log"] == values["log"][:3]
    saver.delete_for_runs([f"{thread_id}-{name}" for name in runs])
    assert list(saver.list(config(thread_id))) == []


async def test_a_copied_thread_has_its_past(saver: ImemSaver) -> None:
    source, target = thread(), thread()
    graph = run(saver, source)

    saver.copy_thread(source, target)
    saver.delete_thread(source)

    assert len(graph.get_state(config(target)).values["log"]) == 1 + 2 * STEPS


async def test_calls_of_subgraphs_go_with_what_called_them(either: Any, base: Base) -> None:
    """Each call has a namespace of its own: keeping the newest of each would keep every call that was ever made."""
    thread_id = thread()
    root = await chain(either, thread_id, 4)
    calls = []
    for n, called in enumerate(root):
        one = metadata(0, parents={"": called["configurable"]["checkpoint_id"]})
        namespace = f"child:{n}|inner"
        put = await either.aput(config(thread_id, namespace=namespace), checkpoint({"a": ["1"]}), one, {"a": "1"})
        await either.aput_writes(put, [("a", 1)], "task")
        calls.append(put)
    lasting = await either.aput(
        config(thread_id, namespace="child"),
        checkpoint(),
        metadata(0, parents={"": root[0]["configurable"]["checkpoint_id"]}),
        {},
    )

    await either.aprune([thread_id])

    assert [one.config for one in await listed(either, {"configurable": {"thread_id": thread_id}})] == [
        lasting, calls[-1], root[-1]
    ]  # fmt: skip
    assert base.count(thread_id) == {"checkpoints": 3, "blobs": 3, "writes": 1}
    assert (await either.aget_tuple(root[-1])).parent_config is None, "a link to what is gone would look like a thread"
