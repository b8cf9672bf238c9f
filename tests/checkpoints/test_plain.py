"""What callers give as JSON comes back from JSONB as it was, or is refused by name."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from typing import Any

import numpy as np
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imem.checkpoints.conversations.messages import Message
from imem.checkpoints.model import AgentLease, CheckpointKind
from imem.checkpoints.paid_calls import stored_answer
from imem.checkpoints.save import Save
from imem.journal.errors import BadInput, TooLarge
from imem.journal.texts.json_text import (
    DEEPEST,
    MOST_BYTES,
    exact_object_text,
    exact_text,
    json_text,
    object_text,
    value_of,
)
from imem.recall.memories.items import value_text

from .conftest import World

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def same(left: Any, right: Any) -> bool:
    """Whether two values are the same, of the same types, all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


@pytest.mark.spec("CK-5")
@given(value=VALUES)
def test_what_jsonb_returns_is_what_was_given(world: World, value: Any) -> None:
    """To the type: floats stay floats however large, integers stay integers however long."""
    with psycopg.connect(world.url, autocommit=True) as conn:
        (returned,) = conn.execute("SELECT %s::jsonb", (json_text(value, "x"),)).fetchone() or ()

    assert same(returned, value)
    assert json_text(returned, "x") == json_text(value, "x"), "the text of the same content is the same"


@pytest.mark.parametrize("number", [1e16, 1e22, 1e300, 1.5e-320, 5e-324, 2**64, -(2**80), 0.1, 1e-7, 123456789.5])
def test_numbers_keep_their_type_and_every_digit(number: float) -> None:
    assert same(value_of(json_text({"n": number}, "x")), {"n": number})


def test_negative_zero_is_zero_and_a_tuple_a_list() -> None:
    assert math.copysign(1.0, value_of(json_text(-0.0, "x"))) == 1.0
    assert value_of(json_text((1, (2,)), "x")) == [1, [2]]


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"a": [1, {"b": math.nan}]}, "x.a[1].b"),
        ({"a": math.inf}, "x.a"),
        ({"a": "nul\0"}, "x.a"),
        ({"nul\0": 1}, "x"),
        ({"a": "\ud800"}, "x.a"),
        ({1: "a"}, "x"),
        ({"a": {2, 3}}, "x.a"),
        ({"a": b"bytes"}, "x.a"),
        ({"a": 1 << 5000}, "x.a"),
    ],
)
def test_what_has_no_form_is_refused_by_its_place(value: Any, field: str) -> None:
    with pytest.raises(BadInput) as refused:
        object_text(value, "x")

    assert refused.value.field == field


def test_what_is_too_deep_holds_itself_or_is_too_large_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    deep: Any = 1
    for _ in range(DEEPEST + 1):
        deep = [deep]
    for value in (loop, deep):
        with pytest.raises(BadInput, match="levels deep"):
            json_text(value, "x")
    with pytest.raises(TooLarge) as refused:
        json_text({"a": "x" * MOST_BYTES}, "x")
    assert refused.value.field == "x"
    with pytest.raises(BadInput, match="must be an object"):
        object_text([1], "x")


class Word(StrEnum):
    """A text of a class of its own."""

    YES = "yes"


class Number(IntEnum):
    """A number of a class of its own."""

    ONE = 1


CHANGED: tuple[tuple[Any, str], ...] = (
    ({"a": [0, {"b": (1,)}]}, "x.a[1].b"),
    ({"a": Word.YES}, "x.a"),
    ({Word.YES: 1}, "x"),
    ({"a": {1: "one", "1": "other"}}, "x.a"),
    ({"a": OrderedDict(b=1)}, "x.a"),
    ({"a": Counter("a")}, "x.a"),
    ({"a": [np.float64(1.5)]}, "x.a[0]"),
    ({"a": Number.ONE}, "x.a"),
    ({"a": math.nan}, "x.a"),
    ({"a": "\ud800"}, "x.a"),
    ({"a": {1}}, "x.a"),
    ({"a": datetime(2026, 1, 1)}, "x.a"),  # noqa: DTZ001 - any will do
    (OrderedDict(a=1), "x"),
)


@pytest.mark.parametrize(("value", "field"), CHANGED, ids=lambda one: one if isinstance(one, str) else "")
def test_what_would_come_back_as_another_type_is_refused_by_its_place(value: Any, field: str) -> None:
    with pytest.raises(BadInput) as refused:
        exact_object_text(value, "x")

    assert refused.value.field == field


@given(value=VALUES)
def test_what_is_exact_is_the_same_text(value: Any) -> None:
    assert exact_text(value, "x") == json_text(value, "x")


@pytest.mark.parametrize("value", [value for value, _ in CHANGED])
def test_every_store_of_json_refuses_it(value: Any) -> None:
    """Items of LangGraph's store, messages, answers that were paid for, and what sessions save."""
    lease = AgentLease(
        analysis_id="a",
        agent_type="t",
        agent_id="i",
        subject_id="s",
        holder=None,
        epoch=1,
        expires_at=datetime.now(UTC),
    )
    saving = {
        "lease": lease, "version": "1", "names": (), "kind": CheckpointKind.START, "subtask": None, "document": None,
        "digest": None, "interim_results": None, "agent_config": None, "failure": None, "base": None,
    }  # fmt: skip
    stores: list[tuple[str, Callable[[], object]]] = [
        ("value", lambda: value_text(value)),
        ("metadata", lambda: Message(role="user", content="a", metadata=value)),
        ("calls:a", lambda: stored_answer("calls:a", value, None)),  # type: ignore[arg-type] # refused before
        ("interim_results", lambda: Save(**{**saving, "interim_results": value}).parameters()),
        ("agent_config", lambda: Save(**{**saving, "agent_config": value}).parameters()),
    ]
    for field, store in stores:
        if field == "calls:a" and value == {"a": "\ud800"}:
            continue  # It is kept as ASCII, and so comes back.
        with pytest.raises(BadInput) as refused:
            store()
        assert refused.value.field.startswith(field)


@pytest.mark.spec("CK-5")
@given(value=st.dictionaries(TEXTS, VALUES, max_size=4))
def test_metadata_of_a_message_are_a_copy_of_the_same_types(value: dict[str, Any]) -> None:
    """Integers of any length, and floats beyond 1e16, of which another encoder makes integers."""
    value.pop("tool_calls", None)
    assert same(Message(role="user", content="a", metadata=value).metadata, value)
