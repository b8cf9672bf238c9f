"""Values come back equal in value and type, however deep, or are refused at the put by name."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import io
import ipaddress
import math
import re
import struct
import subprocess
import sys
import threading
import uuid
from collections import Counter, OrderedDict, UserDict, defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.store.base import GetOp, Item
from langgraph.types import Command, Interrupt, Overwrite, PregelTask, Send
from pydantic import BaseModel

from imem.checkpoints.langgraph.encoding import DEEPEST
from imem.checkpoints.langgraph.serializer import Serializer
from imem.journal.errors import UnsupportedType
from imem.langgraph import ImemSaver
from tests.checkpoints.langgraph import shapes
from tests.checkpoints.langgraph.conftest import Base, checkpoint, config, metadata, thread

OURS = Serializer(shapes.ALL)
ZONES = ("America/New_York", "Europe/London", "Asia/Kolkata", "UTC")


FORMS: list[tuple[Any, Callable[[Any], Any]]] = [
    (enum.Enum, lambda value: value),
    (np.ndarray, lambda value: (value.dtype, value.shape, form(value.tolist()))),
    (decimal.Decimal | re.Pattern | np.generic, repr),
    (float, lambda value: struct.pack("d", value)),
    (complex, lambda value: struct.pack("2d", value.real, value.imag)),
    (dt.datetime | dt.time, lambda value: (value.isoformat(), value.fold, form(value.tzinfo))),
    (ZoneInfo, lambda value: (value.key, dt.datetime(2026, 7, 1, tzinfo=value).utcoffset())),
    (uuid.UUID, lambda value: (value.int, value.is_safe)),
    (deque, lambda value: (value.maxlen, [form(one) for one in value])),
    (set | frozenset, lambda value: sorted((form(one) for one in value), key=repr)),
    (dict, lambda value: (getattr(value, "default_factory", 0), form([*value.items()]), vars_of(value))),
    (list | tuple, lambda value: ([form(one) for one in value], vars_of(value))),
    (BaseModel, lambda value: form(value.__getstate__())),
    (str | int, lambda value: (value, vars_of(value))),
]
"""Type → what a value of it holds."""


def form(value: Any) -> Any:
    """Return the type and all that a value holds; without the encoding, so that it does not judge itself."""
    kind = type(value)
    if kind.__module__ == shapes.__name__ and not isinstance(value, CONTENTS):
        return kind, vars_of(value)
    return kind, next((what(value) for base, what in FORMS if isinstance(value, base)), value)


CONTENTS = (BaseModel, enum.Enum, str, int, list, tuple, dict)


def same(one: Any, other: Any) -> bool:
    """Compare values and types, however deep."""
    return bool(form(one) == form(other))


def vars_of(value: Any) -> dict[str, Any]:
    """Return attributes and slots."""
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()) if hasattr(value, name)]
    named = {name: getattr(value, name) for name in slots if name != "__dict__"} | getattr(value, "__dict__", {})
    if isinstance(value, shapes.Base):
        named["hidden"] = value.hidden()
    return {name: form(found) for name, found in sorted(named.items())}


# Any values

ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()), max_size=8)
ZONED = (
    st.none()
    | st.sampled_from(ZONES).map(ZoneInfo)
    | st.timedeltas(dt.timedelta(hours=-23), dt.timedelta(hours=23)).map(dt.timezone)
)
MOMENTS = st.builds(
    lambda moment, fold, zone: moment.replace(fold=fold, tzinfo=zone), st.datetimes(), st.integers(0, 1), ZONED
)
HASHABLE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    ANY_TEXT,
    st.binary(max_size=8),
    MOMENTS,
    st.dates(),
    st.builds(lambda time, fold: time.replace(fold=fold), st.times(), st.integers(0, 1)),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.uuids(),
    st.ip_addresses(),
    st.complex_numbers(allow_nan=False),
    st.sampled_from([*shapes.Colour, shapes.Level.LOW, shapes.Word.YES, shapes.Right.READ | shapes.Right.WRITE]),
    st.sampled_from([Path("a/b"), ZoneInfo("Asia/Tokyo"), re.compile("a", re.IGNORECASE), re.compile(b"a"), dt.UTC]),
)
KEYS = st.recursive(
    HASHABLE, lambda of: st.tuples(of, of) | st.frozensets(of, max_size=3) | of.map(shapes.Point), max_leaves=4
)
ARRAYS = st.builds(
    lambda kind, shape, seed: (
        np.frombuffer(np.random.default_rng(seed).bytes(12 * math.prod(shape)), "u1")[
            : np.dtype(kind).itemsize * math.prod(shape)
        ]
        .view(kind)
        .reshape(shape)
    ),
    st.sampled_from(["<i4", ">f4", "u1", "<M8[s]", "<m8[ns]", "S3", "<c8", "<f8", [("a", "<i4"), ("b", "S2", (2,))]]),
    st.lists(st.integers(1, 3), max_size=3).map(tuple),
    st.integers(0, 99),
)


def _holding(of: Any) -> Any:
    pairs = st.dictionaries(KEYS, of, max_size=3)
    lists = st.lists(of, max_size=3)
    classes = (shapes.Bag, shapes.Slotted, shapes.Point, shapes.Outer.Inner)
    return st.one_of(
        lists,
        lists.map(tuple),
        pairs,
        st.dictionaries(ANY_TEXT, of, max_size=3),
        st.tuples(lists, st.none() | st.integers(3, 5)).map(lambda found: deque(*found)),
        pairs.map(OrderedDict),
        pairs.map(lambda held: defaultdict(list, held)),
        st.dictionaries(KEYS, st.integers(), max_size=3).map(Counter),
        pairs.map(shapes.Table),
        st.tuples(st.sampled_from(classes), lists).map(lambda found: found[0](found[1])),
        st.tuples(of, of).map(lambda found: shapes.Frozen((found[0],), found[1])),
        st.tuples(of, of).map(lambda found: shapes.Grown(*found)),
        of.map(lambda held: shapes.Model(name="n", any=held)),
        of.map(lambda held: np.array([held, None], dtype=object)[:1]),
        of.map(lambda held: AIMessage("a", additional_kwargs={"held": held})),
    )


ANY = st.recursive(
    KEYS | st.floats() | st.sets(KEYS, max_size=3) | st.binary(max_size=8).map(bytearray) | ARRAYS,
    _holding,
    max_leaves=6,
)


@settings(max_examples=400, deadline=None)
@given(ANY)
def test_any_value_comes_back(value: Any) -> None:
    kind, packed = OURS.dumps_typed(value)
    read = OURS.loads_typed((kind, bytes(packed)))

    assert same(read, value)
    assert OURS.dumps_typed(read) == (kind, packed), "equal values have equal encodings"


LATE = shapes.Late(1)
LATE.b.append(5)
LATE.twice = 7
MODEL = shapes.Model(name="m", any=shapes.Frozen((1, (2,))), inner=shapes.Model(name="i", any={1, 2}))
MODEL._calls = 3
TEXT = shapes.Text("text")
TEXT.lang = "en"  # type: ignore[attr-defined] # a slot
SET = shapes.Versioned([])
SET.version = 2
DRAWN = shapes.Drawn()
DRAWN.model_dump()
PRICED = shapes.Priced(1)
PRICED.total  # noqa: B018 - it is computed once
PRICED.count = 7
NOW = dt.datetime.now(dt.UTC)
NEW_YORK = ZoneInfo("America/New_York")
CLEARED = ZoneInfo("Europe/Paris")
ZoneInfo.clear_cache()
NETWORK = ipaddress.ip_network("10.0.0.0/31")
NETWORK.broadcast_address  # noqa: B018 - it is computed once
RECORDS = np.array([(1, b"ab", [0.5, -0.0])], dtype=[("a", ">i4"), ("b", "S4"), ("c", "<f8", (2,))])
CASES: dict[str, Any] = {
    "field(init=False)": LATE,
    "a default of the class": shapes.Versioned([(1,)]),
    "a default of the class that was set": SET,
    "a constructor that leaves defaults to the class": shapes.Bare("b"),
    "a frozen tuple": shapes.Frozen((1, (2, [3]))),
    "a dataclass in Any": MODEL,
    "a computed attribute": PRICED,
    "a computed attribute that was not asked for": shapes.Priced(2),
    "a field that is computed once": DRAWN,
    "a model with more fields": shapes.Open(**{"as": 2, "more": (1,)}),
    "an array of objects": np.array([[{"a": (1,)}, None], ["x", dt.UTC]], dtype=object),
    "records": RECORDS,
    "an aligned record": np.zeros(2, np.dtype([("a", "u1"), ("b", "f8")], align=True)),
    "columns first": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "an empty array": np.zeros((0, 3)),
    "elements without bytes": [
        np.zeros(2, "V0"),
        np.zeros(2, [("a", "S0"), ("b", "U0")])["a"],
        np.zeros((2, 3), [("a", "U0")])["a"],
        np.zeros(0, [("a", "S0")])["a"],
        np.zeros(2, []),
        np.zeros(2, [("a", "S0")]),
    ],
    "numbers without bytes": [np.void(b""), np.zeros((), [])[()], np.zeros(1, [("a", "V0")])[0], np.str_("")],
    "no dimension": np.array(5),
    "every second": np.arange(6)[::2],
    "moments": np.array(["2026-01-01"], "M8[D]"),
    "numbers of numpy": [np.float64(0.1), np.float32(0.1), np.int8(-1), np.True_, np.datetime64("2026-01-01")],
    "texts of numpy": [np.str_("a\0"), np.bytes_(b"a\0")],
    "a record alone": RECORDS[0],
    "a set of tuples": {(1, 2), (3,)},
    "sets of sets": {frozenset({(1,)})},
    "a bound": deque([1, 2], maxlen=2),
    "a counter": Counter("aab"),
    "a counter of one's own": shapes.Tally("ab"),
    "defaults": defaultdict(int, {"a": 1}),
    "no default": defaultdict(None, a=1),
    "an order": OrderedDict(b=1, a=2),
    "New York": dt.datetime(2026, 11, 1, 1, 30, tzinfo=NEW_YORK, fold=1),
    "a time": dt.time(1, 30, fold=1, tzinfo=dt.UTC),
    "a named offset": dt.timezone(dt.timedelta(hours=-5), "EST"),
    "a second of offset": dt.timezone(dt.timedelta(seconds=1)),
    "a tuple": (1, [(2,)]),
    "a named tuple": shapes.Point((1,)),
    "a date and its text": {dt.date(2026, 1, 1): 1, "2026-01-01": 2},
    "a number and its text": {1: "a", "1": "b"},
    "a truth and its text": {True: "a", "True": "b"},
    "None": {None: 1, "None": 2},
    "a nested class": shapes.Outer.Inner(shapes.Outer.Inner.Kind.A),
    "half of a pair": {"\ud800": "\udfff", "?": "?"},
    "members": [
        *shapes.Colour,
        shapes.Level.LOW,
        shapes.Word.YES,
        shapes.Right(0),
        shapes.Right.READ | shapes.Right.WRITE,
    ],
    "numbers": [math.nan, -0.0, math.inf, 2**64, -(2**63) - 1, 10**100, 5e-324],
    "bytes": [b"a", bytearray(b"a")],
    "decimals": [decimal.Decimal("-0.00"), decimal.Decimal("NaN"), decimal.Decimal("1E+400")],
    "a text of one's own": TEXT,
    "a number of one's own": shapes.Number(3),
    "a list of one's own": shapes.Bag([(1,)]),
    "slots": shapes.Grown((1,), {2}),
    "an address": ipaddress.ip_interface("fe80::1%eth0/64"),
    "a network": [NETWORK, ipaddress.ip_interface("10.0.0.1/31"), ipaddress.ip_address("::1")],
    "an id": [uuid.UUID(int=7), *(uuid.UUID(int=7, is_safe=safe) for safe in uuid.SafeUUID)],
    "zones of the same name": [ZoneInfo.no_cache("Europe/Paris"), CLEARED, ZoneInfo("Europe/Paris")],
    "a message": AIMessage("a", tool_calls=[{"name": "f", "args": {"a": 1}, "id": "c"}], additional_kwargs={"a": (1,)}),
    "a chunk": AIMessageChunk(content="a"),
    "a tool's": ToolMessage("a", tool_call_id="c", artifact={"raw": (1, 2)}),
    "the text of a message": HumanMessage("a").text,
    "a document": Document("a", metadata={"a": (1,)}),
    "a send": Send("node", {"a": (1,)}),
    "an interrupt": Interrupt(value=(1,), id="i"),
    "an overwrite": Overwrite((1,)),
    "a command": Command(update={"a": (1,)}, goto=[Send("node", 1)]),
    "a task": PregelTask("i", "n", ("p",)),
    "an operation": GetOp(("a",), "k"),
    "an item": Item(
        value={"a": 1},
        key="k",
        namespace=("a",),
        created_at=dt.datetime.now(dt.UTC),
        updated_at=dt.datetime.now(dt.UTC),
    ),
}


@pytest.fixture(scope="module")
def wide(base: Base) -> Any:
    """Give a saver that knows the classes of these tests."""
    with ImemSaver.open(base.settings, allow=shapes.ALL) as saver:
        yield saver


@pytest.mark.parametrize("case", CASES)
def test_each_kind_comes_back_through_the_saver(wide: ImemSaver, case: str) -> None:
    """As a channel, as a write, and as metadata."""
    value, thread_id = CASES[case], thread()
    stored = wide.put(config(thread_id), checkpoint({"state": [value]}), metadata(held=value), {"state": "1"})
    wide.put_writes(stored, [("state", value)], "task")

    found = wide.get_tuple(stored)

    assert found is not None
    assert same(found.checkpoint["channel_values"]["state"], [value])
    assert same(dict(found.metadata)["held"], value)
    assert same((found.pending_writes or [])[0][2], value)
    wide.delete_thread(thread_id)


def test_what_comes_back_can_be_changed() -> None:
    """An array may be written to, a frozen tuple is hashed as before, a day is added in the zone's own time."""
    read = OURS.loads_typed(OURS.dumps_typed(np.arange(3)))
    read += 1
    assert read.tolist() == [1, 2, 3]
    assert OURS.loads_typed(OURS.dumps_typed({shapes.Frozen((1,)): 1}))[shapes.Frozen((1,))] == 1
    before = dt.datetime(2026, 10, 31, 12, tzinfo=NEW_YORK)
    after = OURS.loads_typed(OURS.dumps_typed(before)) + dt.timedelta(days=1)
    assert after.utcoffset() == dt.timedelta(hours=-5)
    record = OURS.loads_typed(OURS.dumps_typed(RECORDS[0]))
    record["a"] = 2
    assert record["a"] == 2


# Refusals


def _nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def _circle() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["self"] = (value,)
    return value


def _with(held: Any) -> shapes.Model:
    model = shapes.Model(name="m")
    model._calls = held
    return model


@dataclasses.dataclass
class Unknown:
    """A class that no saver of these tests was given."""

    x: int = 1

    class Inside:
        """One in it."""


def _local() -> Any:
    class Local:
        """One of a function."""

    return Local()


def _zone(key: str | None) -> ZoneInfo:
    """Return a zone of a file: nine hours before Greenwich, always."""
    header = b"TZif".ljust(20, b"\0") + struct.pack(">6l", 0, 0, 0, 0, 1, 4)
    return ZoneInfo.from_file(io.BytesIO(header + struct.pack(">lbb", 32400, 0, 0) + b"JST\0"), key=key)


def _noted(value: Any) -> Any:
    value.note = "mine"
    return value


def _asked() -> shapes.Frozen:
    frozen = shapes.Frozen()
    frozen.lock  # noqa: B018 - it is made once
    return frozen


REFUSED: dict[str, tuple[Any, str, str]] = {
    "a function": ({"a": [len]}, ".a[0]", "Store what it is made of"),
    "a class": ({"a": int}, ".a", "Store what it is made of"),
    "a lock in a private attribute": (
        _with(threading.Lock()),
        ".__pydantic_private__._calls",
        "Store what it is made of",
    ),
    "a lock in a computed attribute": (_asked(), ".lock", "Store what it is made of"),
    "another class": ({"a": (0, Unknown())}, ".a[1]", "allow="),
    "another class inside a class": ([Unknown.Inside()], "[0]", "allow="),
    "a class of a function": ([_local()], "[0]", "Define the class at the top"),
    "an error": ([shapes.Broken("x")], "[0]", "Store what it is made of"),
    "a generic model": (shapes.Box[int](held=1), "", "Define the class at the top|allow="),
    "a mask": ([np.ma.masked_array([1], [True])], "[0]", "Store what it is made of"),
    "records with names": ([np.rec.array([(1,)], dtype=[("a", "i4")])], "[0]", ""),
    "objects in records": (np.array([(None,)], dtype=[("a", "O")]), "", "astype"),
    "a default of one's own": ({"a": defaultdict(lambda: 0)}, ".a", "dict"),
    "a zone of one's own": (dt.datetime(2026, 1, 1, tzinfo=type("Z", (dt.tzinfo,), {})()), ".tzinfo", "ZoneInfo"),
    "a zone of a file": ([dt.datetime(2026, 1, 1, tzinfo=_zone("Mine/Zone"))], "[0].tzinfo", "ZoneInfo"),
    "a zone of a file by another's name": ([_zone("Europe/Paris")], "[0]", "ZoneInfo"),
    "a zone of a file without a name": ([_zone(None)], "[0]", "ZoneInfo"),
    "an attribute of a counter": ([_noted(Counter("a"))], "[0].note", "beside"),
    "an attribute of an order": ([_noted(OrderedDict(a=1))], "[0].note", "beside"),
    "an attribute of a network": ([_noted(ipaddress.ip_network("10.0.0.0/8"))], "[0].note", "beside"),
    "an attribute of an interface": ([_noted(ipaddress.ip_interface("::1/8"))], "[0].note", "beside"),
    "a view of memory": ([memoryview(b"a")], "[0]", ""),
    "a namespace": ([SimpleNamespace(a=1)], "[0]", ""),
    "a mapping of a library": ([UserDict(a=1)], "[0]", "allow="),
    "a key": ({len: 1}, "[<built-in function len>]", ""),
    "too deep": (_nested(DEEPEST + 1), "[0][0]", ""),
    "a circle": (_circle(), ".self[0].self", ""),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_not_come_back_is_refused_by_name(wide: ImemSaver, case: str) -> None:
    """With the path, and with what to do; nothing of it is stored."""
    value, path, mend = REFUSED[case]
    thread_id = thread()

    with pytest.raises(UnsupportedType) as refused:
        wide.put(
            config(thread_id), checkpoint({"good": ["a"], "state": [value]}), metadata(), {"good": "1", "state": "1"}
        )

    assert refused.value.field.startswith(f"channel_values.state[0]{path}")
    assert re.search(mend, refused.value.mend)
    assert wide.get_tuple(config(thread_id)) is None


def test_the_mend_of_a_refusal_mends_it() -> None:
    """A class inside a class was refused, and so was the entry that the error asked for."""
    held = [Unknown.Inside(), Unknown()]
    for allow in ([Unknown, Unknown.Inside], [f"{__name__}.Unknown.Inside", f"{__name__}.Unknown"]):
        wider = Serializer(allow)
        read = wider.loads_typed(wider.dumps_typed(held))
        assert [type(one) for one in read] == [Unknown.Inside, Unknown]


def test_what_lies_as_deep_as_allowed_comes_back() -> None:
    value = _nested(DEEPEST)
    assert OURS.loads_typed(OURS.dumps_typed(value)) == value
    value = [shapes.Frozen((value[0][0][0],))]
    assert same(OURS.loads_typed(OURS.dumps_typed(value)), value)


def test_an_object_that_cannot_be_made_again_is_refused() -> None:
    """It is read back at the put: this one's attribute takes what its factory makes where it is missing."""
    held = shapes.Late(1)
    del held.b
    with pytest.raises(UnsupportedType, match=r"^value\.a\[0\]: this '.*Late' would not come back"):
        OURS.dumps_typed({"a": [held]})


def test_a_class_that_has_changed_since_takes_its_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fields that it got since; and what it lost stays with it, or is refused where it has no place for it."""
    Old = dataclasses.make_dataclass("Slotted", ["x"])  # noqa: N806 - a class
    Old.__module__ = shapes.__name__
    OldBare = dataclasses.make_dataclass("Bare", ["name"])  # noqa: N806 - a class
    OldBare.__module__ = shapes.__name__
    NewModel = shapes.Model  # noqa: N806 - a class
    stored = OURS.dumps_typed([shapes.Point((1,)), NewModel(name="m")])
    with monkeypatch.context() as then:
        then.setattr(shapes, "Slotted", Old)
        then.setattr(shapes, "Bare", OldBare)
        older = OURS.dumps_typed([Old((1,)), OldBare("b")])
        gone = OURS.dumps_typed([shapes.Late(1)])
    assert same(OURS.loads_typed(older), [shapes.Slotted((1,), None), shapes.Bare("b")])
    assert same(OURS.loads_typed(stored)[0], shapes.Point((1,)))
    monkeypatch.setattr(shapes, "Late", shapes.Slotted)
    with pytest.raises(UnsupportedType, match="cannot be built"):
        OURS.loads_typed(gone)


def test_what_was_computed_once_stays() -> None:
    """Computed anew, a field of chance is another one, and a total is that of a later count."""
    drawn = shapes.Drawn()
    dumped = drawn.model_dump()
    read = OURS.loads_typed(OURS.dumps_typed([drawn, PRICED]))
    assert read[0].model_dump() == dumped
    assert (read[1].count, read[1].total) == (7, (10,))


def test_rows_of_langgraphs_own_serializer_are_read() -> None:
    """All that stood before this saver had an encoding of its own."""
    theirs = JsonPlusSerializer()
    for value in (
        {"a": (1, {2})},
        HumanMessage("a"),
        [dt.datetime.now(dt.UTC)],
        {"k": dt.timedelta(1)},
        np.arange(3),
        "\ud800",
    ):
        row = theirs.dumps_typed(value)
        assert repr(OURS.loads_typed(row)) == repr(theirs.loads_typed(row))


def test_a_plain_state_is_encoded_as_langgraph_does() -> None:
    value: dict[str, Any] = {"a": [1, 2.5, None, True, "é", b"x", {"b": [[]]}]}
    assert OURS.dumps_typed(value) == JsonPlusSerializer().dumps_typed(value)


def test_the_error_of_a_task_is_stored_as_its_text(saver: ImemSaver) -> None:
    """LangGraph writes it so; elsewhere an error is refused, as no other value becomes a text."""
    stored = saver.put(config(thread()), checkpoint(), metadata(), {})
    saver.put_writes(stored, [("__error__", ValueError("no"))], "task")
    found = saver.get_tuple(stored)
    assert found is not None
    assert found.pending_writes == [("task", "__error__", "ValueError('no')")]
    with pytest.raises(UnsupportedType, match=r"^writes\.a"):
        saver.put_writes(stored, [("a", ValueError("no"))], "task")


def test_plain_values_of_the_config_are_metadata(saver: ImemSaver) -> None:
    where = config(thread(), word=shapes.Word.YES, number=np.float64(0.5), level=shapes.Level.LOW)
    found = saver.get_tuple(saver.put(where, checkpoint(), metadata(), {}))
    assert found is not None
    added = {name: dict(found.metadata)[name] for name in ("word", "number", "level")}
    assert same(added, {"word": "yes", "number": 0.5, "level": 1})


def test_nothing_is_imported_for_what_is_not_there() -> None:
    """Neither numpy nor LangChain's messages are loaded to encode what holds none."""
    code = (
        "import sys; from imem.checkpoints.langgraph.encoding import Encoder; before = set(sys.modules);"
        "Encoder((), ()).encode([1, ('a',), {2}]); print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
