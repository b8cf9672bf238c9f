"""
What working memory holds: as values, as a document that Postgres keeps unchanged, and as one digest.

**Document.** The name of each key → ``{type, enc, value, ttl}``, made of what JSON and JSONB return as they got it:
texts, lists, and whole numbers outside ``value`` alone. ``enc`` is ``utf8``, or ``b64`` where a leaf is not UTF-8 or
holds NUL. A list is an array in its order; a hash an array of [field, value]; a set an array; a sorted set an array of
[member, score] with the score in 17 digits, or ``inf`` or ``-inf``.

**Digest.** SHA-256 over a version tag and then, for each key sorted by its bytes: name, type, count of leaves, leaves;
texts behind their length, counts and lengths as 8 bytes, scores as doubles, all big-endian. Lists in their order, sets
and hashes by bytes, sorted sets by member. Expiry is no part of it. The same function serves snapshot and verification.

Negative zero is zero everywhere here: servers keep it or drop it by how many members there are, and it means the same.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, cast

from cache.keys import name_of, suffix_of
from journal.errors import BadInput, ConsistencyError

TAG: Final = b"imem working memory, digest 1\n"
"""Changed when the digest's form is."""

CAP_BYTES: Final = 8 * 1024 * 1024
"""Bytes that one agent's working memory holds at most, as :func:`size_of` counts them."""

KEY_BYTES: Final = 64
"""What a key counts for beside its name and leaves, in bytes; the scripts count the same."""

ITEM_BYTES: Final = 16
"""What a leaf counts for beside its content, in bytes; a hash's field and value are one leaf."""

SCORE_BYTES: Final = 8
"""What a score counts for, in bytes."""

_LENGTH: Final = struct.Struct(">Q")
_SCORE: Final = struct.Struct(">d")

Pairs = tuple[tuple[bytes, bytes], ...]
Scored = tuple[tuple[bytes, float], ...]


class Type(StrEnum):
    """What a key of working memory may hold; the names are the servers'."""

    STRING = "string"
    LIST = "list"
    HASH = "hash"
    SET = "set"
    ZSET = "zset"


@dataclass(frozen=True, slots=True)
class Entry:
    """
    What one key holds.

    Attributes:
        type: of the five.
        leaves: one byte string for a string; byte strings for a list or a set; pairs of them for a hash; pairs of
            member and score for a sorted set.
        ttl_ms: milliseconds that it had left when it was read, where that is known; no part of the digest.
    """

    type: Type
    leaves: tuple[bytes, ...] | Pairs | Scored
    ttl_ms: int | None = None

    def sorted_leaves(self) -> Sequence[Any]:
        """Return the leaves in the order that counts: a list's own, and by bytes where there is none."""
        if self.type in {Type.STRING, Type.LIST}:
            return self.leaves
        if self.type is Type.SET:
            return sorted(cast("tuple[bytes, ...]", self.leaves))
        return sorted(cast("Pairs | Scored", self.leaves), key=_first)

    def flat(self) -> tuple[bytes, ...]:
        """Return the leaves as the servers' commands take them."""
        if self.type is Type.HASH:
            return tuple(leaf for pair in cast("Pairs", self.leaves) for leaf in pair)
        if self.type is Type.ZSET:
            scored = cast("Scored", self.leaves)
            return tuple(leaf for member, score in scored for leaf in (score_text(score).encode("ascii"), member))
        return cast("tuple[bytes, ...]", self.leaves)

    @property
    def size_bytes(self) -> int:
        """What the leaves count for, without the key."""
        fixed = ITEM_BYTES * len(self.leaves)
        if self.type is Type.HASH:
            return fixed + sum(len(field) + len(value) for field, value in cast("Pairs", self.leaves))
        if self.type is Type.ZSET:
            return fixed + sum(len(member) + SCORE_BYTES for member, _ in cast("Scored", self.leaves))
        return fixed + sum(map(len, cast("tuple[bytes, ...]", self.leaves)))


Contents = Mapping[bytes, Entry]
"""Suffix of a key, in bytes, → what it holds."""


def size_of(contents: Contents) -> int:
    """Return what *contents* count for against :data:`CAP_BYTES`."""
    return sum(KEY_BYTES + len(suffix) + entry.size_bytes for suffix, entry in contents.items())


def score_text(score: float) -> str:
    """Return *score* in the 17 digits that give the same double again; ``inf`` and ``-inf`` as such."""
    return format(score + 0.0, ".17g")


def _first(pair: tuple[bytes, Any]) -> bytes:
    return pair[0]


# The digest


def digest(contents: Contents) -> str:
    """Return the digest of *contents*, in 64 hexadecimal digits."""
    made = hashlib.sha256(TAG)
    for suffix in sorted(contents):
        entry = contents[suffix]
        leaves = entry.sorted_leaves()
        parts = [*_prefixed(suffix), *_prefixed(entry.type.value.encode("ascii")), _LENGTH.pack(len(leaves))]
        if entry.type is Type.HASH:
            parts += [part for pair in leaves for leaf in pair for part in _prefixed(leaf)]
        elif entry.type is Type.ZSET:
            parts += [part for member, score in leaves for part in (*_prefixed(member), _SCORE.pack(score + 0.0))]
        else:
            parts += [part for leaf in leaves for part in _prefixed(leaf)]
        made.update(b"".join(parts))
    return made.hexdigest()


def _prefixed(content: bytes) -> tuple[bytes, bytes]:
    return _LENGTH.pack(len(content)), content


# The document


def document_of(contents: Contents) -> dict[str, Any]:
    """
    Return *contents* as a document of JSON types.

    Raises:
        ConsistencyError: a key's name is no text, so that something else than this product wrote it.
    """
    return {name_of(suffix): _stated(contents[suffix]) for suffix in sorted(contents)}


def _stated(entry: Entry) -> dict[str, Any]:
    leaves = entry.sorted_leaves()
    plain = _texts(entry.type, leaves)
    texts = plain if plain is not None else _texts(entry.type, leaves, encoded=True)
    value = texts[0] if texts is not None and entry.type is Type.STRING else texts
    return {
        "type": entry.type.value,
        "enc": "utf8" if plain is not None else "b64",
        "value": value,
        "ttl": entry.ttl_ms,
    }


def _texts(kind: Type, leaves: Sequence[Any], *, encoded: bool = False) -> list[Any] | None:
    """Return *leaves* as texts; None where one of them is none and they are not *encoded*."""
    text = _base64 if encoded else bytes.decode
    try:
        if kind is Type.HASH:
            made = [[text(field), text(value)] for field, value in leaves]
            nul = not encoded and any(b"\0" in field or b"\0" in value for field, value in leaves)
        elif kind is Type.ZSET:
            made = [[text(member), score_text(score)] for member, score in leaves]
            nul = not encoded and any(b"\0" in member for member, _ in leaves)
        else:
            return None if not encoded and any(b"\0" in leaf for leaf in leaves) else [text(leaf) for leaf in leaves]
    except UnicodeDecodeError:
        return None
    return None if nul else made


def _base64(leaf: bytes) -> str:
    return base64.b64encode(leaf).decode("ascii")


def contents_of(document: object) -> dict[bytes, Entry]:
    """
    Return what *document* states.

    Raises:
        ConsistencyError: it is no document of :func:`document_of`; names the key.
    """
    if not isinstance(document, Mapping):
        raise ConsistencyError("A snapshot's document is no object.")
    contents: dict[bytes, Entry] = {}
    for key, stated in document.items():
        try:
            contents[suffix_of(key)] = _entry_of(stated)
        except (ValueError, TypeError, KeyError, BadInput) as error:
            raise ConsistencyError(f"A snapshot's document is malformed at the key {str(key)[:80]!r}.") from error
    return contents


def _entry_of(stated: Any) -> Entry:
    """Return the entry; a ValueError, TypeError or KeyError says that it is none."""
    if not isinstance(stated, Mapping) or set(stated) != {"type", "enc", "value", "ttl"}:
        raise ValueError("an entry has type, enc, value and ttl")
    kind, ttl = Type(stated["type"]), stated["ttl"]
    if not (ttl is None or (isinstance(ttl, int) and not isinstance(ttl, bool))):
        raise TypeError("ttl is a whole number")
    read = {"utf8": _from_text, "b64": _from_base64}[stated["enc"]]
    value = stated["value"]
    if kind is Type.STRING:
        return Entry(kind, (read(value),), ttl)
    if not isinstance(value, list) or not value:
        raise ValueError("a collection is an array, and never empty")
    if kind in {Type.LIST, Type.SET}:
        leaves = tuple(read(leaf) for leaf in value)
        _distinct(leaves if kind is Type.SET else ())
        return Entry(kind, leaves, ttl)
    second = read if kind is Type.HASH else _score
    pairs = tuple((read(first), second(other)) for first, other in map(_pair, value))
    _distinct(first for first, _ in pairs)
    return Entry(kind, cast("Pairs | Scored", pairs), ttl)


def _pair(pair: Any) -> tuple[Any, Any]:
    if not isinstance(pair, list) or len(pair) != 2:
        raise ValueError("a pair is an array of two")
    return pair[0], pair[1]


def _distinct(leaves: Iterable[Any]) -> None:
    listed = list(leaves)
    if len(set(listed)) != len(listed):
        raise ValueError("a leaf stands there twice")


def _from_text(text: object) -> bytes:
    if not isinstance(text, str) or "\0" in text:
        raise TypeError("a leaf is text without NUL")
    return text.encode()


def _from_base64(text: object) -> bytes:
    if not isinstance(text, str):
        raise TypeError("a leaf is text")
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except binascii.Error as error:
        raise ValueError("a leaf is no base64") from error


def _score(text: object) -> float:
    if not isinstance(text, str):
        raise TypeError("a score is text")
    score = float(text)
    if math.isnan(score) or score_text(score) != text:
        raise ValueError("a score has 17 digits")
    return score + 0.0
