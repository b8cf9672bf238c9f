"""What may be kept, and what comes back."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given

from imem.cache.working import changes
from imem.cache.working.document import CAP_BYTES, Type
from imem.cache.working.values import SortedSet, entry_from, entry_of, value_of
from imem.journal.errors import BadInput, TooLarge, UnsupportedType

from .conftest import EXAMPLES
from .strategies import VALUES

UNSUPPORTED: tuple[Any, ...] = (
    None, 1, 1.5, True, object(), bytearray(b"x"), {1, 2}, [None], [1], ["a", 2.0], [["nested"]], {"a": ["b"]},
    {"a": {"b": "c"}}, {1: "a"}, {"a": None}, {"a": 1}, [], (), {}, set(), frozenset(), SortedSet(), "\ud800",
    ["\udfff"], SortedSet({"a": float("nan")}), SortedSet({"a": "1"}), SortedSet({"a": None}),  # type: ignore[dict-item]
    SortedSet({"a": True}), SortedSet({"a": 2**53 + 1}), SortedSet({1: 1.0}), {"a": "x", b"a": "y"},
    SortedSet({"a": 1.0, b"a": 2.0}), (x for x in "ab"), range(3), ("a",), frozenset({"a"}), Type.LIST, [Type.LIST],
    OrderedDict(a="b"), {Type.LIST: "a"}, {"a": Type.LIST}, Counter("a"), {Type.LIST},
)  # fmt: skip


@pytest.mark.spec("CK-18")
@pytest.mark.parametrize("value", UNSUPPORTED, ids=[f"{type(one).__name__}-{at}" for at, one in enumerate(UNSUPPORTED)])
@pytest.mark.parametrize("build", [changes.put, changes.default])
def test_what_cannot_be_kept_is_refused_by_its_key(build: Any, value: Any) -> None:
    """Nothing is turned into a text on the way: it would come back as one."""
    with pytest.raises(UnsupportedType) as caught:
        build("the key", value)
    assert caught.value.field == "the key"


@pytest.mark.spec("CK-18")
@pytest.mark.parametrize(
    "build",
    [
        lambda: changes.list_append("k", [1]),  # type: ignore[list-item]
        lambda: changes.list_append("k", "abc"),
        lambda: changes.list_set("k", 0, None),  # type: ignore[arg-type]
        lambda: changes.hash_put("k", {"a": 1}),
        lambda: changes.set_add("k", "abc"),
        lambda: changes.set_add("k", [None]),  # type: ignore[list-item]
        lambda: changes.sorted_add("k", {"a": float("nan")}),
        lambda: changes.sorted_increment("k", "a", float("nan")),
        lambda: changes.string_add("k", 1.5),  # type: ignore[arg-type]
        lambda: changes.hash_add("k", "f", by=True),
        lambda: changes.string_add("k", 2**53 + 1),
    ],
)
def test_parts_that_cannot_be_kept_are_refused_by_their_key(build: Any) -> None:
    """The same for items, fields, members and what is added."""
    with pytest.raises(UnsupportedType) as caught:
        build()
    assert caught.value.field == "k"


@pytest.mark.parametrize(
    "build",
    [
        lambda: changes.list_append("k", []),
        lambda: changes.set_remove("k", ()),
        lambda: changes.hash_put("k", {}),
        lambda: changes.list_trim("k", 0.5, 1),  # type: ignore[arg-type]
        lambda: changes.list_set("k", index=True, item="x"),
        lambda: changes.put("", "x"),
        lambda: changes.put("a\0", "x"),
    ],
)
def test_what_makes_no_sense_is_refused(build: Any) -> None:
    """Nothing to do, positions that are none, keys that are none."""
    with pytest.raises(BadInput):
        build()


@pytest.mark.longer
@EXAMPLES
@given(VALUES)
def test_values_come_back_as_bytes(value: Any) -> None:
    """With ``raw``, whatever the bytes are."""
    entry = entry_of("k", value)
    flat = list(entry.flat())
    if entry.type is Type.ZSET:  # Servers answer members first.
        flat = [leaf for pair in zip(flat[1::2], flat[::2], strict=True) for leaf in pair]
    back = value_of("k", entry_from(entry.type.value.encode(), flat), raw=True)

    assert back == value if not isinstance(value, str) else back == value.encode()


def test_texts_come_back_as_texts() -> None:
    """Scores as floats."""
    for value, back in (
        ("ä", "ä"),
        (["a", b"b"], ["a", "b"]),
        ({"a"}, {"a"}),
        ({"a": "b"}, {"a": "b"}),
    ):
        assert value_of("k", entry_of("k", value), raw=False) == back
    scores = value_of("k", entry_of("k", SortedSet({"a": 1, "b": -0.0})), raw=False)
    assert isinstance(scores, SortedSet)
    assert repr(scores) == "SortedSet({'a': 1.0, 'b': 0.0})"


def test_bytes_that_are_no_text_are_not_guessed_at() -> None:
    """The error names the key and says how to get at them."""
    with pytest.raises(UnsupportedType, match="raw=True") as caught:
        value_of("k", entry_of("k", [b"\xff"]), raw=False)
    assert caught.value.field == "k"


def test_what_is_too_large_goes_nowhere() -> None:
    """A value that could not be kept by an empty memory is refused before it is sent."""
    builds: tuple[Callable[[], Any], ...] = (
        lambda: changes.put("k", b"x" * CAP_BYTES),
        lambda: changes.put("k", ["x"] * (CAP_BYTES // 16)),
        lambda: changes.list_append("k", [b"x" * (2 * CAP_BYTES)]),
    )
    for build in builds:
        with pytest.raises(TooLarge) as caught:
            build()
        assert caught.value.field == "k"
