"""What a row may build: types of a list, whoever has written the row."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import ormsgpack
import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Command, Interrupt, Send

from imem.checkpoints.langgraph import decoding, value_types
from imem.checkpoints.langgraph.serializer import Serializer
from imem.journal.errors import BadInput, UnsupportedType
from imem.langgraph import ImemSaver
from tests.checkpoints.langgraph.conftest import Base, checkpoint, config, metadata, thread

BUILT: list[object] = []


@dataclass(frozen=True)
class Plan:
    """A type of a program's own."""

    steps: int

    def __post_init__(self) -> None:
        BUILT.append(self.steps)


class Colour(Enum):
    """Another one."""

    RED = "red"


def boom(*_: object, **__: object) -> None:
    """What a row must not have called."""
    BUILT.append("called")


@pytest.fixture(autouse=True)
def _nothing_built() -> None:
    BUILT.clear()


def _ext(code: int, *parts: Any) -> bytes:
    return ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(parts)))


HERE = __name__
HOSTILE: dict[str, tuple[str, bytes]] = {
    "one argument": ("msgpack", _ext(0, HERE, "boom", "x")),
    "positions": ("msgpack", _ext(1, HERE, "boom", ["x"])),
    "keywords": ("msgpack", _ext(2, HERE, "boom", {"x": 1})),
    "a method": ("msgpack", _ext(3, HERE, "Colour", "x", "mro")),
    "an allowed method of another class": ("msgpack", _ext(3, HERE, "boom", "x", "fromisoformat")),
    "a model of the first pydantic": ("msgpack", _ext(4, HERE, "boom", {})),
    "a model": ("msgpack", _ext(5, HERE, "boom", {}, "model_validate_json")),
    "a module that is not loaded": ("msgpack", _ext(1, "antigravity", "fly", [])),
    "a command": ("msgpack", _ext(0, "os", "system", "true")),
    "an unknown code": ("msgpack", _ext(42, "os", "system", "true")),
    "no names": ("msgpack", _ext(0, 1, 2, 3)),
    "in a list, in an allowed type": (
        "msgpack",
        ormsgpack.packb(
            [
                ormsgpack.Ext(
                    0, ormsgpack.packb(("builtins", "set", [ormsgpack.Ext(0, ormsgpack.packb((HERE, "boom", 1)))]))
                )
            ]
        ),
    ),
    "in a delta": ("msgpack", ormsgpack.packb(ormsgpack.Ext(7, _ext(0, HERE, "boom", 1)))),
    "a constructor in JSON": (
        "json",
        json.dumps({"lc": 2, "type": "constructor", "id": [HERE, "boom"], "args": []}).encode(),
    ),
    "a constructor of LangChain": (
        "json",
        json.dumps(
            {"lc": 1, "type": "constructor", "id": ["langchain_core", "prompts", "PromptTemplate"], "kwargs": {}}
        ).encode(),
    ),
    "a secret": ("json", json.dumps({"lc": 1, "type": "secret", "id": ["HOME"]}).encode()),
    "an object": ("msgpack", _ext(16, "object", HERE, "Plan", None, {"steps": 1})),
    "a class inside a class": ("msgpack", _ext(16, "object", HERE, "Plan.Step", None, {})),
    "a member": ("msgpack", _ext(16, "member", HERE, "Colour", "RED")),
    "a member by its value": ("msgpack", _ext(16, "enum", HERE, "Colour", "red")),
    "an object of a module that is not loaded": ("msgpack", _ext(16, "object", "antigravity", "Fly", None, {})),
    "an object in a tuple": (
        "msgpack",
        _ext(16, "tuple", [ormsgpack.Ext(16, ormsgpack.packb(["object", HERE, "Plan", None, {"steps": 1}]))]),
    ),
    "an object of what is called": ("msgpack", _ext(16, "object", "re", "compile", "a", {})),
    "an object of a type in C": ("msgpack", _ext(16, "object", "datetime", "datetime", None, {})),
    "an unknown tag": ("msgpack", _ext(16, "call", "os", "system", "true")),
    "no tag": ("msgpack", _ext(16, ["object"], 1)),
    "no parts": ("msgpack", _ext(16)),
    "objects in an array": ("msgpack", _ext(16, "array", "|O", [1], "C", b"12345678")),
    "a shape without bytes": ("msgpack", _ext(16, "array", "<f8", [10**9], "C", b"")),
    "a pickle": ("pickle", b"cos\nsystem\n(S'true'\ntR."),
}


@pytest.fixture(autouse=True)
def unread_rows_go(base: Base) -> Iterator[None]:
    """Remove the threads of each test: what a saver of another list cannot read would end a listing of all threads."""
    threads = "SELECT DISTINCT thread_id FROM langgraph.checkpoint"
    known = base.rows(threads)
    yield
    for row in base.rows(threads):
        if row not in known:
            base.rows("DELETE FROM langgraph.checkpoint WHERE thread_id = %s", row["thread_id"])


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.parametrize("where", ["blob", "write", "checkpoint"])
def test_a_row_that_names_another_type_builds_nothing(base: Base, saver: ImemSaver, what: str, where: str) -> None:
    """Written straight into the database, as a value, as a task's write, and as the checkpoint itself."""
    thread_id = thread()
    stored = saver.put(config(thread_id), checkpoint({"state": [1]}), metadata(), {"state": 1})
    saver.put_writes(stored, [("state", [2])], "task")
    kind, body = HOSTILE[what]
    changed = base.rows(
        {
            "blob": "UPDATE langgraph.blob SET kind = %s, blob = %s WHERE thread_id = %s RETURNING 1",
            "write": "UPDATE langgraph.write SET kind = %s, blob = %s WHERE thread_id = %s RETURNING 1",
            "checkpoint": "UPDATE langgraph.checkpoint SET kind = %s, body = %s WHERE thread_id = %s RETURNING 1",
        }[where],
        kind,
        body,
        thread_id,
    )
    assert changed

    with pytest.raises(UnsupportedType):
        saver.get_tuple(stored)
    with pytest.raises(UnsupportedType):
        list(saver.list(config(thread_id)))
    assert BUILT == []
    assert "antigravity" not in sys.modules


PLAIN: tuple[Any, ...] = (
    {1, 2}, frozenset({"a"}), deque([1, 2]), datetime(2026, 6, 1, tzinfo=UTC), date(2026, 6, 1), timedelta(days=1),
    Decimal("1.10"), UUID(int=7), Path("a/b"), (1, 2), b"\x00", None,
    Send("node", {"a": 1}), Interrupt(value="?", id="i"), Command(update={"a": 1}), HumanMessage("a"),
    AIMessage("b", tool_calls=[{"name": "f", "args": {}, "id": "c"}]), RemoveMessage(id="m"),
)  # fmt: skip


@pytest.mark.parametrize("value", PLAIN, ids=lambda value: type(value).__name__)
def test_what_states_are_made_of_is_built(value: Any) -> None:
    """Of what is stored now, and of rows that LangGraph's own serializer wrote."""
    ours, theirs = Serializer(), JsonPlusSerializer()

    assert ours.loads_typed(ours.dumps_typed([value])) == [value]
    assert ours.loads_typed(theirs.dumps_typed([value])) == theirs.loads_typed(theirs.dumps_typed([value]))


def test_arrays_are_built() -> None:
    """Numbers name no class."""
    ours = Serializer()
    assert (ours.loads_typed(ours.dumps_typed(np.arange(6).reshape(2, 3))) == np.arange(6).reshape(2, 3)).all()


@pytest.mark.parametrize("value", [Plan(3), Colour.RED, [{"deep": (Plan(1),)}]])
def test_a_type_of_ones_own_is_refused_when_it_is_stored(saver: ImemSaver, value: Any) -> None:
    """And not only when the thread is to go on; nothing was stored."""
    thread_id = thread()
    with pytest.raises(UnsupportedType, match=rf"{HERE}.*allow="):
        saver.put(config(thread_id), checkpoint({"state": value}), metadata(), {"state": 1})
    assert saver.get_tuple(config(thread_id)) is None


@pytest.mark.parametrize("named", [Plan, (HERE, "Plan")])
def test_a_type_that_was_allowed_comes_back(base: Base, named: Any) -> None:
    """Given as a class, or as its module and name."""
    with ImemSaver.open(base.settings, allow=[named]) as saver:
        stored = saver.put(config(thread()), checkpoint({"state": [Plan(3)]}), metadata(), {"state": 1})
        found = saver.get_tuple(stored)
        assert found is not None
        assert found.checkpoint["channel_values"]["state"] == [Plan(3)]
        with pytest.raises(UnsupportedType, match="Colour"):
            saver.put(config(thread()), checkpoint({"state": Colour.RED}), metadata(), {"state": 1})


def test_langgraph_may_add_what_a_graph_declares(saver: ImemSaver) -> None:
    """Where it is told to be strict it adds the types of the state to a copy of the saver."""
    wider = saver.with_allowlist([(HERE, "Plan")])

    assert wider.serde.loads_typed(wider.serde.dumps_typed(Plan(2))) == Plan(2)
    with pytest.raises(UnsupportedType):
        saver.serde.dumps_typed(Plan(2))


def test_a_serializer_of_ones_own_decides_by_itself(base: Base) -> None:
    """A list beside it would be one that nobody reads."""
    with (
        pytest.raises(BadInput, match="allow"),
        ImemSaver.open(base.settings, serde=JsonPlusSerializer(), allow=[Plan]),
    ):
        pass


def test_the_list_is_no_shorter_than_langgraphs_own() -> None:
    """Its strict mode and this saver build the same types, so that whoever comes from one finds the other's rows."""
    from langgraph.checkpoint.serde import _msgpack

    assert value_types.ALLOWED == _msgpack.SAFE_MSGPACK_TYPES
    assert decoding._METHODS == _msgpack.SAFE_MSGPACK_METHODS
