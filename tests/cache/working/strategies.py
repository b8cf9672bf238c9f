"""Hypothesis strategies for what working memory holds."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

from imem.cache.working.document import MemoryEntry, Type
from imem.cache.working.values import SortedSet
from tests.strategies import HOSTILE

HOSTILE_KEYS = ("*", "?", "[a-z]*", "a:b", ":", "working:x", "meta", "keys", " ", "\n", "{tag}", "\\", "🦉", "株" * 200)
"""Names that would mean something to somebody who looked at them."""

CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")

KEYS = st.one_of(
    st.sampled_from([*HOSTILE_KEYS, *(text[:200] for text in HOSTILE)]),
    st.text(CHARACTERS, min_size=1, max_size=200),
    st.sampled_from("abcdef"),
)

TEXTS = st.one_of(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), st.sampled_from(HOSTILE))

LEAVES = st.one_of(
    st.binary(max_size=30),
    TEXTS.map(str.encode),
    st.sampled_from([b"", b"\0", b"\xff\xfe", b"0", b"-1", b"1e400", b"a\0b", b"x" * 70, b"y" * 5000]),
)

SCORES = st.one_of(
    st.floats(allow_nan=False),
    st.integers(-(2**53), 2**53).map(float),
    st.sampled_from(
        [0.0, -0.0, math.inf, -math.inf, 0.1, 1 / 3, 5e-324, 1.7976931348623157e308, 9007199254740993.0, 1e16, -1.5]
    ),
)


def _entry(kind: Type, leaves: Any) -> MemoryEntry:
    return MemoryEntry(kind, tuple(leaves))


ENTRIES = st.one_of(
    LEAVES.map(lambda leaf: _entry(Type.STRING, [leaf])),
    st.lists(LEAVES, min_size=1, max_size=8).map(lambda leaves: _entry(Type.LIST, leaves)),
    st.sets(LEAVES, min_size=1, max_size=8).map(lambda leaves: _entry(Type.SET, leaves)),
    st.dictionaries(LEAVES, LEAVES, min_size=1, max_size=8).map(lambda found: _entry(Type.HASH, found.items())),
    st.dictionaries(LEAVES, SCORES, min_size=1, max_size=8).map(lambda found: _entry(Type.ZSET, found.items())),
)

CONTENTS = st.dictionaries(KEYS.map(str.encode), ENTRIES, max_size=8)

VALUES = st.one_of(
    LEAVES,
    st.lists(LEAVES, min_size=1, max_size=6),
    st.sets(LEAVES, min_size=1, max_size=6),
    st.dictionaries(LEAVES, LEAVES, min_size=1, max_size=6),
    st.dictionaries(LEAVES, SCORES, min_size=1, max_size=6).map(SortedSet),
)


def normal(contents: Any) -> dict[bytes, tuple[Type, Any]]:
    """Contents as far as they count: no expiry, no order where there is none, no negative zero."""
    found = {}
    for suffix, entry in contents.items():
        leaves = list(entry.leaves)
        if entry.type is Type.ZSET:
            leaves = [(member, score + 0.0) for member, score in leaves]
        found[suffix] = (entry.type, leaves if entry.type in {Type.STRING, Type.LIST} else sorted(leaves))
    return found
