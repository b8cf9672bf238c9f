"""What callers give as JSON comes back from JSONB as it was, or is refused by name."""

from __future__ import annotations

import math
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imem.journal.errors import BadInput, TooLarge
from imem.journal.texts.json_text import DEEPEST, MOST_BYTES, json_text, object_text, value_of

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
