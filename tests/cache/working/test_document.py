"""The document and the digest: what goes in comes out, wherever it passes, and nothing else has the same digest."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import random
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imem.cache.working.document import (
    CAP_BYTES,
    MemoryEntry,
    Type,
    contents_of,
    digest,
    document_of,
    same,
    score_text,
    size_of,
)
from imem.journal.errors import ConsistencyError

from .conftest import EXAMPLES
from .strategies import CONTENTS, ENTRIES, KEYS, SCORES, normal

KNOWN = {
    b"plan": MemoryEntry(Type.STRING, (b"read \xf0\x9f\xa6\x89",), 5),
    b"raw": MemoryEntry(Type.STRING, (b"\x00\xff",)),
    b"done": MemoryEntry(Type.LIST, (b"a", b"a", b"")),
    b"facts": MemoryEntry(Type.HASH, ((b"b", b"2"), (b"a", b"1"))),
    b"seen": MemoryEntry(Type.SET, (b"y", b"x")),
    b"rank": MemoryEntry(Type.ZSET, ((b"n", -0.0), (b"m", 0.1), (b"up", math.inf), (b"down", -math.inf))),
}


@pytest.fixture(scope="module")
def postgres(light_stack: Any) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(light_stack.settings.postgres_admin_url.get_secret_value(), autocommit=True) as conn:
        yield conn


def test_the_form_of_the_document() -> None:
    """Types as texts, leaves as texts or base64, scores in 17 digits; what has no order is sorted."""
    assert document_of(KNOWN) == {
        "done": {"type": "list", "enc": "utf8", "value": ["a", "a", ""], "ttl": None},
        "facts": {"type": "hash", "enc": "utf8", "value": [["a", "1"], ["b", "2"]], "ttl": None},
        "plan": {"type": "string", "enc": "utf8", "value": "read 🦉", "ttl": 5},
        "rank": {
            "type": "zset",
            "enc": "utf8",
            "value": [["down", "-inf"], ["m", "0.10000000000000001"], ["n", "0"], ["up", "inf"]],
            "ttl": None,
        },
        "raw": {"type": "string", "enc": "b64", "value": "AP8=", "ttl": None},
        "seen": {"type": "set", "enc": "utf8", "value": ["x", "y"], "ttl": None},
    }


def test_the_digest_stays_what_it_is() -> None:
    """Digests are stored: another form of them would make every snapshot look damaged."""
    assert digest(KNOWN) == "bdb5ab7b99822f727f58ee2effa3f075d0fb77180d573689be44975f0dc3644b"
    assert digest({}) == hashlib.sha256(b"imem working memory, digest 1\n").hexdigest()


def test_the_digest_can_be_made_by_anybody() -> None:
    """From its description alone."""
    found = {
        b"z": MemoryEntry(Type.ZSET, ((b"n", -0.0), (b"m", 0.5))),
        b"h": MemoryEntry(Type.HASH, ((b"g", b"2"), (b"f", b""))),
        b"l": MemoryEntry(Type.LIST, (b"b", b"a")),
    }
    text = b"imem working memory, digest 1\n"
    for suffix, kind, leaves in (
        (b"h", b"hash", ((b"f", b""), (b"g", b"2"))),
        (b"l", b"list", ((b"b",), (b"a",))),
        (b"z", b"zset", ((b"m", 0.5), (b"n", 0.0))),
    ):
        text += struct.pack(">Q", len(suffix)) + suffix + struct.pack(">Q", len(kind)) + kind
        text += struct.pack(">Q", len(leaves))
        for leaf in leaves:
            for part in leaf:
                text += struct.pack(">d", part) if isinstance(part, float) else struct.pack(">Q", len(part)) + part

    assert digest(found) == hashlib.sha256(text).hexdigest()


@pytest.mark.spec("CK-19")
@pytest.mark.longer
@EXAMPLES
@given(CONTENTS)
def test_documents_come_back(contents: dict[bytes, MemoryEntry]) -> None:
    """All five types with any bytes, through JSON; and the count of bytes with them."""
    back = contents_of(orjson.loads(orjson.dumps(document_of(contents))))

    assert normal(back) == normal(contents)
    assert (digest(back), size_of(back)) == (digest(contents), size_of(contents))


@pytest.mark.spec("CK-19", "CK-20")
@pytest.mark.longer
@EXAMPLES
@given(contents=CONTENTS)
def test_documents_come_back_from_postgres(
    postgres: psycopg.Connection[Any], contents: dict[bytes, MemoryEntry]
) -> None:
    """JSONB sorts keys, rewrites numbers, and refuses NUL and infinity: none of it reaches what counts."""
    text = orjson.dumps(document_of(contents)).decode()
    row = postgres.execute("SELECT %s::jsonb AS document", (text,)).fetchone()

    assert row is not None
    assert normal(contents_of(row[0])) == normal(contents)
    assert digest(contents_of(row[0])) == digest(contents)


@pytest.mark.spec("CK-20")
@pytest.mark.longer
@EXAMPLES
@given(CONTENTS, st.randoms(use_true_random=False), st.integers(0, 10**12))
def test_expiry_and_order_of_sets_are_no_part_of_it(
    contents: dict[bytes, MemoryEntry], chance: random.Random, ttl_ms: int
) -> None:
    """The same content has the same digest, in whatever order a server gives it and however long it lives."""
    shuffled = list(contents.items())
    chance.shuffle(shuffled)
    other = {}
    for suffix, entry in shuffled:
        leaves: list[Any] = list(entry.leaves)
        if entry.type not in {Type.STRING, Type.LIST}:
            chance.shuffle(leaves)
        other[suffix] = MemoryEntry(entry.type, tuple(leaves), ttl_ms)

    assert same(other, contents)
    assert digest(other) == digest(contents)
    assert digest(contents_of(document_of(other))) == digest(contents)


# Changing one thing


def flipped(leaf: bytes, chance: random.Random) -> bytes:
    """Return *leaf* with one byte changed, added or removed."""
    kind = chance.randrange(3) if leaf else 1
    place = chance.randrange(len(leaf)) if leaf else 0
    if kind == 0:
        return leaf[:place] + bytes([leaf[place] ^ (1 << chance.randrange(8))]) + leaf[place + 1 :]
    return leaf[:place] + b"x" + leaf[place:] if kind == 1 else leaf[:place] + leaf[place + 1 :]


def next_to(score: float) -> float:
    """Return the closest other double."""
    return math.nextafter(score, -math.inf if score > 0 else math.inf)


def another_type(entry: MemoryEntry) -> Iterator[MemoryEntry]:
    """Yield entries that hold the same bytes under another type."""
    flat = tuple(bytes(leaf) for leaf in entry.flat())
    for kind in (Type.LIST, Type.SET):
        if kind is not entry.type:
            yield MemoryEntry(kind, flat)
    if entry.type is not Type.STRING and len(flat) == 1:
        yield MemoryEntry(Type.STRING, flat)
    if entry.type is not Type.HASH and len(flat) % 2 == 0:
        yield MemoryEntry(Type.HASH, tuple(zip(flat[::2], flat[1::2], strict=True)))


def single_changes(entry: MemoryEntry, chance: random.Random) -> Iterator[MemoryEntry]:
    """Yield every kind of entry that differs from *entry* in one thing."""
    leaves: list[Any] = list(entry.leaves)
    place = chance.randrange(len(leaves))
    before, one, after = leaves[:place], leaves[place], leaves[place + 1 :]

    def put(*items: Any) -> MemoryEntry:
        return replace(entry, leaves=(*before, *items, *after))

    if entry.type is Type.HASH:
        yield put((flipped(one[0], chance), one[1]))
        yield put((one[0], flipped(one[1], chance)))
    elif entry.type is Type.ZSET:
        yield put((flipped(one[0], chance), one[1]))
        yield put((one[0], next_to(one[1])))
        yield put((one[0], -one[1] if one[1] else 1.0))
    else:
        yield put(flipped(one, chance))
    if len(leaves) > 1:
        yield put()
    if entry.type is Type.LIST:
        yield put(one, one)
        if after and after[0] != one:
            yield replace(entry, leaves=(*before, after[0], one, *after[1:]))
    yield from another_type(entry)


@pytest.mark.spec("CK-21")
@pytest.mark.longer
@EXAMPLES
@given(CONTENTS.filter(bool), KEYS, ENTRIES, st.randoms(use_true_random=False))
def test_every_single_change_is_seen(
    contents: dict[bytes, MemoryEntry], key: str, entry: MemoryEntry, chance: random.Random
) -> None:
    """One byte, type, score, position, or the presence of one leaf or key: all of them, not most."""
    suffix = chance.choice(sorted(contents))
    name = next(name for name in iter(lambda: flipped(suffix, chance), None) if name not in contents)
    others = [{**contents, suffix: other} for other in single_changes(contents[suffix], chance)]
    without = {one: held for one, held in contents.items() if one != suffix}
    others += [without, {**without, name: contents[suffix]}]
    if key.encode() not in contents:
        others.append({**contents, key.encode(): entry})

    assert [other for other in others if same(other, contents) != (digest(other) == digest(contents))] == []
    assert [other for other in others if digest(other) == digest(contents) and normal(other) != normal(contents)] == []
    assert len({digest(other) for other in others}) > 1


@pytest.mark.spec("CK-21")
def test_bytes_cannot_wander_from_one_place_to_the_next() -> None:
    """Lengths and counts stand before what they count."""
    alike = [
        {b"ab": MemoryEntry(Type.STRING, (b"c",))},
        {b"a": MemoryEntry(Type.STRING, (b"bc",))},
        {b"a": MemoryEntry(Type.LIST, (b"b", b"c"))},
        {b"a": MemoryEntry(Type.LIST, (b"bc",))},
        {b"a": MemoryEntry(Type.LIST, (b"bc", b""))},
        {b"a": MemoryEntry(Type.LIST, (b"", b"bc"))},
        {b"a": MemoryEntry(Type.HASH, ((b"b", b"c"),))},
        {b"a": MemoryEntry(Type.SET, (b"b", b"c"))},
        {b"a": MemoryEntry(Type.LIST, (b"b",)), b"c": MemoryEntry(Type.LIST, (b"",))},
        {b"a": MemoryEntry(Type.ZSET, ((b"b", 1.0),))},
        {},
    ]

    assert len({digest(contents) for contents in alike}) == len(alike)


# What is no document


BROKEN: tuple[tuple[str, Any], ...] = (
    ("no object", []),
    ("no entry", {"a": None}),
    ("a field too many", {"a": {"type": "string", "enc": "utf8", "value": "", "ttl": None, "more": 1}}),
    ("a field too few", {"a": {"type": "string", "enc": "utf8", "value": ""}}),
    ("an unknown type", {"a": {"type": "stream", "enc": "utf8", "value": [], "ttl": None}}),
    ("an unknown encoding", {"a": {"type": "string", "enc": "latin1", "value": "", "ttl": None}}),
    ("a number for a leaf", {"a": {"type": "list", "enc": "utf8", "value": [1], "ttl": None}}),
    ("an empty list", {"a": {"type": "list", "enc": "utf8", "value": [], "ttl": None}}),
    ("a text for a list", {"a": {"type": "list", "enc": "utf8", "value": "abc", "ttl": None}}),
    ("a member twice", {"a": {"type": "set", "enc": "utf8", "value": ["x", "x"], "ttl": None}}),
    ("a member twice in base64", {"a": {"type": "set", "enc": "b64", "value": ["AP8=", "AP8="], "ttl": None}}),
    ("a field twice", {"a": {"type": "hash", "enc": "utf8", "value": [["x", "1"], ["x", "2"]], "ttl": None}}),
    ("three in a pair", {"a": {"type": "hash", "enc": "utf8", "value": [["x", "1", "2"]], "ttl": None}}),
    ("no base64", {"a": {"type": "string", "enc": "b64", "value": "AP8", "ttl": None}}),
    ("NUL in a text", {"a": {"type": "string", "enc": "utf8", "value": "\0", "ttl": None}}),
    ("half of a pair", {"a": {"type": "string", "enc": "utf8", "value": "\ud800", "ttl": None}}),
    ("a score that is a number", {"a": {"type": "zset", "enc": "utf8", "value": [["x", 1.5]], "ttl": None}}),
    ("a score that is none", {"a": {"type": "zset", "enc": "utf8", "value": [["x", "nan"]], "ttl": None}}),
    ("a score that is a word", {"a": {"type": "zset", "enc": "utf8", "value": [["x", "high"]], "ttl": None}}),
    ("an expiry that is a text", {"a": {"type": "string", "enc": "utf8", "value": "", "ttl": "5"}}),
    ("a name too long", {"a" * 201: {"type": "string", "enc": "utf8", "value": "", "ttl": None}}),
    ("a type that is a list", {"a": {"type": ["string"], "enc": "utf8", "value": "", "ttl": None}}),
    ("an encoding that is a list", {"a": {"type": "string", "enc": ["utf8"], "value": "", "ttl": None}}),
)


@pytest.mark.parametrize("document", [document for _, document in BROKEN], ids=[name for name, _ in BROKEN])
def test_what_is_no_document_is_refused(document: object) -> None:
    """Nothing is guessed: what was stored by something else, or damaged, is not restored in part."""
    with pytest.raises(ConsistencyError):
        contents_of(document)


@pytest.mark.longer
@EXAMPLES
@given(CONTENTS.filter(bool), st.randoms(use_true_random=False))
def test_a_damaged_document_is_another_one_or_none(contents: dict[bytes, MemoryEntry], chance: random.Random) -> None:
    """One character of its JSON changed: it is no JSON, no document, the same content, or has another digest."""
    text = json.dumps(document_of(contents))
    place = chance.randrange(len(text))
    damaged = text[:place] + chance.choice('x0"[]{}, \\') + text[place + 1 :]
    try:
        back = contents_of(json.loads(damaged))
    except (ValueError, RecursionError, ConsistencyError):
        return
    assert (digest(back) == digest(contents)) == (normal(back) == normal(contents))


@pytest.mark.longer
@EXAMPLES
@given(SCORES)
def test_scores_keep_their_value(score: float) -> None:
    """17 digits give the same double again; negative zero is zero."""
    assert float(score_text(score)) == score
    assert math.copysign(1, float(score_text(score)) or 1.0) == math.copysign(1, score or 1.0)


def test_large_documents_take_a_moment() -> None:
    """A memory at its cap goes through without a detour per byte."""
    leaves = tuple(b"%07d" % number * 4 for number in range(CAP_BYTES // 44 - 10))
    contents = {b"large": MemoryEntry(Type.LIST, leaves)}

    assert CAP_BYTES - 1000 < size_of(contents) <= CAP_BYTES
    assert digest(contents_of(document_of(copy.copy(contents)))) == digest(contents)
