"""What goes in comes out: values, metadata and names of any characters."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from imem.checkpoints.langgraph.names import LONGEST, escaped, read, searchable, written
from imem.journal.errors import TooLarge, UnsupportedType
from imem.langgraph import ImemSaver
from tests.checkpoints.langgraph.conftest import Base, chain, checkpoint, config, listed, metadata, thread

ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()), max_size=20)
"""Any characters, NUL and lone surrogates among them."""

PLAIN = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=300) | st.binary()
VALUES = st.recursive(
    PLAIN, lambda of: st.lists(of, max_size=4) | st.dictionaries(st.text(), of, max_size=4), max_leaves=8
)


def same(one: Any, other: Any) -> bool:
    """Compare as Python does, but take NaN for equal to itself."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return type(one) is type(other) and one == other


@settings(max_examples=60)
@given(
    values=st.dictionaries(ANY_TEXT, VALUES, max_size=4),
    extra=st.dictionaries(ANY_TEXT, VALUES, max_size=3),
)
@example(values={"nul": "a\x00b", "nan": math.nan, "list": ["\x00", math.inf]}, extra={"nul": "\x00", "nan": math.nan})
def test_values_and_metadata_survive(saver: ImemSaver, values: dict[str, Any], extra: dict[str, Any]) -> None:
    """Whatever a state or its metadata hold, a checkpoint gives back, as a value and as a write."""
    extra = {key: value for key, value in extra.items() if not key.startswith("__")}
    stored = saver.put(config(thread()), checkpoint(values), metadata(extra=extra, note="a\x00b"), values)
    saver.put_writes(stored, list(values.items()), "task")

    found = saver.get_tuple(stored)

    assert found is not None
    assert same(found.checkpoint["channel_values"], values)
    assert same(dict(found.metadata), {**metadata(), "extra": extra, "note": "a\x00b"})
    assert same([list(write) for write in found.pending_writes or []], [["task", *item] for item in values.items()])


@pytest.mark.parametrize(
    ("field", "values", "meta", "writes"),
    [
        ("channel_values.state[0]", {"state": [len]}, {}, []),
        ("channel_values.state.deep[1].key", {"state": {"deep": [0, {"key": len}]}}, {}, []),
        ("metadata.made", {}, {"made": len}, []),
        ("writes.state", {}, {}, [("state", len)]),
    ],
    ids=["value", "deep", "metadata", "write"],
)
async def test_what_cannot_be_serialized_is_refused(
    either: Any, field: str, values: dict[str, Any], meta: dict[str, Any], writes: list[tuple[str, Any]]
) -> None:
    """By the serializer, with the field; and nothing of it is written."""
    where = config(thread())

    async def put() -> None:
        stored = await either.aput(where, checkpoint(values), metadata(**meta), dict.fromkeys(values, "1"))
        await either.aput_writes(stored, [("before", 1), *writes], "task")

    with pytest.raises(UnsupportedType) as refused:
        await put()

    assert refused.value.field == field
    found = await either.aget_tuple(where)
    assert (found is not None) == bool(writes)
    assert not found or found.pending_writes == []


@settings(max_examples=40)
@given(thread_id=ANY_TEXT, namespace=ANY_TEXT, channel=st.text(max_size=20), task=ANY_TEXT)
@example(thread_id="a\x00%*[:]\\0", namespace="x|y:\ud800", channel="\\", task="'; --")
def test_names_of_any_characters(saver: ImemSaver, thread_id: str, namespace: str, channel: str, task: str) -> None:
    """A thread is found under its own name, and under no other that is written like it."""
    where = config(f"{thread()}{thread_id}", namespace=namespace)
    stored = saver.put(where, checkpoint({channel: ["value"]}), metadata(), {channel: "1"})
    saver.put_writes(stored, [(channel, "write")], task, task_path=task)

    found = saver.get_tuple(where)

    assert found is not None
    assert found.config == stored
    assert found.checkpoint["channel_values"] == {channel: ["value"]}
    assert found.pending_writes == [(task, channel, "write")]
    assert [one.config for one in saver.list({"configurable": {"thread_id": where["configurable"]["thread_id"]}})] == [
        stored
    ]
    saver.delete_thread(where["configurable"]["thread_id"])
    assert saver.get_tuple(where) is None


@given(one=ANY_TEXT, other=ANY_TEXT)
@example(one="\x00", other="\\0")
@example(one="\ud800", other="\\ud800")
def test_two_names_are_never_written_alike(one: str, other: str) -> None:
    assert read(escaped(one)) == one
    assert (escaped(one) == escaped(other)) == (one == other)
    assert "\x00" not in escaped(one)
    escaped(one).encode()


@pytest.mark.parametrize("thread_id", [7, UUID(int=7)], ids=["number", "UUID"])
async def test_threads_that_are_no_texts(either: Any, thread_id: Any) -> None:
    """Some number their threads; the text of it is the same thread."""
    [stored] = await chain(either, thread_id, 1)

    assert stored["configurable"]["thread_id"] == thread_id
    found = await either.aget_tuple(config(str(thread_id)))
    assert found is not None
    await either.adelete_thread(thread_id)
    assert await either.aget_tuple(config(thread_id)) is None


@pytest.mark.parametrize("name", ["thread_id", "checkpoint_ns", "checkpoint_id"])
async def test_too_long_a_name_is_refused_by_the_field(either: Any, name: str) -> None:
    where = config(thread())
    where["configurable"][name] = "é" * (LONGEST[name] // 2 + 1)

    with pytest.raises(TooLarge) as refused:
        await either.aput(where, checkpoint(), metadata(), {})

    assert refused.value.field == name
    assert written(name, "é" * (LONGEST[name] // 2))


async def test_the_longest_names_fit_together(either: Any) -> None:
    """Also where nothing can be compressed: an index holds them all."""
    # Others at each run: what a deleted thread held is refused under its old names.
    start = uuid4().int
    names = {
        name: "".join(chr(0x4E00 + (start + n * 7919) % 20_000) for n in range(longest // 3))
        for name, longest in LONGEST.items()
    }
    where = config(names["thread_id"], namespace=names["checkpoint_ns"])
    made = checkpoint({names["channel"]: ["value"]}, {names["channel"]: names["version"]}, names["checkpoint_id"])

    stored = await either.aput(where, made, metadata(run_id=names["run_id"]), made["channel_versions"])
    await either.aput_writes(stored, [("a", 1)], names["task_id"], names["task_path"])

    found = await either.aget_tuple(where)
    assert found is not None
    assert found.checkpoint == made
    await either.adelete_thread(names["thread_id"])


async def test_a_config_without_a_namespace_is_the_root(either: Any) -> None:
    thread_id = thread()
    stored = await either.aput({"configurable": {"thread_id": thread_id}}, checkpoint(), metadata(), {})

    assert stored["configurable"]["checkpoint_ns"] == ""
    assert await either.aget_tuple(config(thread_id)) is not None


async def test_what_the_run_adds_to_the_metadata(either: Any) -> None:
    """LangGraph's rule: plain values of the config, but not what names places, and nothing of ours."""
    where = config(thread(), user="ann\x00", __private=1, many=[1], imem_epoch=1)
    where["metadata"] = {"purpose": "test", "step": 99}

    stored = await either.aput(where, checkpoint(), metadata(3), {})

    found = await either.aget_tuple(stored)
    assert found is not None
    assert found.metadata == {**metadata(3), "user": "ann\x00", "purpose": "test"}


ODD = [
    "plain", "a\x00b", "\\0", math.nan, "nan", "\\fnan", math.inf, b"x", "\\b78", 1, True, None,
    datetime(2026, 1, 1, tzinfo=UTC), Decimal("1.5"), [1, 2], {"a": 1},
]  # fmt: skip


@pytest.mark.parametrize("wanted", ODD, ids=repr)
async def test_metadata_of_any_value_can_be_asked_for(either: Any, wanted: Any) -> None:
    """Each finds itself and nothing that only looks like it, although jsonb could not hold all of them."""
    thread_id = thread()
    for value in ODD:
        await either.aput(config(thread_id), checkpoint(), metadata(odd=value), {})

    found = await listed(either, config(thread_id), filter={"odd": wanted})

    assert [repr(dict(one.metadata)["odd"]) for one in found] == [repr(wanted)]


def test_keys_of_metadata_may_be_anything(saver: ImemSaver) -> None:
    assert searchable({"a": {1: "x", "1": "y", "\x00": "z"}}, saver.serde) == (
        '{"a": {"\\\\k1": "x", "1": "y", "\\\\0": "z"}}'
    )


def test_a_checkpoint_that_lost_a_value_is_not_served(saver: ImemSaver, base: Base) -> None:
    """Rows that went behind the saver's back are missed, not passed over."""
    from imem.journal.errors import ConsistencyError

    thread_id = thread()
    stored = saver.put(config(thread_id), checkpoint({"a": ["1"], "b": ["2"]}), metadata(), {"a": "1", "b": "1"})
    base.rows("DELETE FROM langgraph.blob WHERE thread_id = %s AND channel = 'a'", thread_id)

    with pytest.raises(ConsistencyError, match="lacks 1 of its values"):
        saver.get_tuple(stored)
    with pytest.raises(ConsistencyError):
        list(saver.list(stored))
    saver.delete_thread(thread_id)  # Other tests list all threads.
