"""
The contents of working memory: as values, as a document for Postgres, and as one digest.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Any, Final, cast

from imem.cache.keys import name_of, suffix_of
from imem.journal.errors import BadInput, ConsistencyError

TAG: Final = b"imem working memory, digest 1\n"
"""Changes with the form of the digest."""

CAP_BYTES: Final = 8 * 1024 * 1024
"""Bytes that one agent's working memory holds at most, as :func:`size_of` counts them."""

KEY_BYTES: Final = 64
"""Size of a key beside its name and leaves, in bytes; the scripts count the same."""

ITEM_BYTES: Final = 16
"""Size of a leaf beside its content, in bytes; a hash's field and value are one leaf."""

SCORE_BYTES: Final = 8
"""Size of a score, in bytes."""

_LENGTH: Final = struct.Struct(">Q")
_SCORE: Final = struct.Struct(">d")
_FIELDS: Final = frozenset({"type", "enc", "value", "ttl"})

Pairs = tuple[tuple[bytes, bytes], ...]
Scored = tuple[tuple[bytes, float], ...]


class Type(StrEnum):
    """Type of a key of working memory; the names are the servers'."""

    STRING = "string"
    LIST = "list"
    HASH = "hash"
    SET = "set"
    ZSET = "zset"


_KINDS: Final = {kind: _LENGTH.pack(len(kind.value)) + kind.value.encode("ascii") for kind in Type}
"""Type → its encoding in a digest, after its length."""


@dataclass(frozen=True, slots=True)
class MemoryEntry:
    """
    The value of one key.

    Attributes:
        type: one of the five.
        leaves: one byte string for a string; byte strings for a list or a set; pairs of them for a hash; pairs of
            member and score for a sorted set.
        ttl_ms: milliseconds that were left when it was read, where that is known; not part of the digest.
    """

    type: Type
    leaves: tuple[bytes, ...] | Pairs | Scored
    ttl_ms: int | None = None

    def sorted_leaves(self) -> Sequence[Any]:
        """Return the leaves in canonical order: a list's own, by bytes for the other types."""
        if self.type is Type.STRING or self.type is Type.LIST:
            return self.leaves
        if self.type is Type.SET:
            return sorted(cast("tuple[bytes, ...]", self.leaves))
        return sorted(cast("Pairs | Scored", self.leaves), key=_first)

    def flat(self) -> tuple[bytes, ...]:
        """Return the leaves as arguments of the server's commands."""
        if self.type is Type.HASH:
            return tuple(chain.from_iterable(cast("Pairs", self.leaves)))
        if self.type is Type.ZSET:
            scored = cast("Scored", self.leaves)
            return tuple(leaf for member, score in scored for leaf in (score_text(score).encode("ascii"), member))
        return cast("tuple[bytes, ...]", self.leaves)

    @property
    def size_bytes(self) -> int:
        """Size of the leaves in bytes, without the key."""
        fixed = ITEM_BYTES * len(self.leaves)
        if self.type is Type.HASH:
            return fixed + sum(map(len, chain.from_iterable(cast("Pairs", self.leaves))))
        if self.type is Type.ZSET:
            return fixed + sum(len(member) + SCORE_BYTES for member, _ in cast("Scored", self.leaves))
        return fixed + sum(map(len, cast("tuple[bytes, ...]", self.leaves)))

    def same(self, other: MemoryEntry) -> bool:
        """Return whether *other* has an equal digest, without hashing."""
        if not isinstance(other, MemoryEntry):
            raise BadInput("other", f"must be a MemoryEntry, not {type(other).__name__}.")
        if self.type is not other.type or len(self.leaves) != len(other.leaves):
            return False
        if self.type is Type.STRING or self.type is Type.LIST:
            return self.leaves == other.leaves
        return set(self.leaves) == set(other.leaves)


Contents = Mapping[bytes, MemoryEntry]
"""Suffix of a key, in bytes, → its value."""


def size_of(contents: Contents) -> int:
    """Return the size of *contents* that counts against :data:`CAP_BYTES`."""
    return sum(KEY_BYTES + len(suffix) + entry.size_bytes for suffix, entry in contents.items())


def same(one: Contents, other: Contents) -> bool:
    """Return whether both have equal digests, without hashing."""
    return one.keys() == other.keys() and all(entry.same(other[suffix]) for suffix, entry in one.items())


def score_text(score: float) -> str:
    """Return *score* in 17 digits, which give the same double; ``inf`` and ``-inf`` as such."""
    return format(score + 0.0, ".17g")


def _first(pair: tuple[bytes, Any]) -> bytes:
    return pair[0]


# The digest


def digest(contents: Contents) -> str:
    """Return the digest of *contents*, in 64 hexadecimal digits."""
    length, score, parts = _LENGTH.pack, _SCORE.pack, [TAG]
    for suffix in sorted(contents):
        entry = contents[suffix]
        kind, leaves = entry.type, entry.sorted_leaves()
        parts += (length(len(suffix)), suffix, _KINDS[kind], length(len(leaves)))
        # One branch for each type, hashed in one piece: a call for each leaf would take longer than the hash.
        if kind is Type.HASH:
            for field, value in leaves:
                parts += (length(len(field)), field, length(len(value)), value)
        elif kind is Type.ZSET:
            for member, number in leaves:
                parts += (length(len(member)), member, score(number + 0.0))
        else:
            for leaf in leaves:
                parts += (length(len(leaf)), leaf)
    return hashlib.sha256(b"".join(parts)).hexdigest()


# The document


def document_of(contents: Contents) -> dict[str, Any]:
    """
    Return *contents* as a document of JSON types.

    Raises:
        ConsistencyError: a key's name is not UTF-8, so that another program wrote it.
    """
    return {name_of(suffix): _stated(contents[suffix]) for suffix in sorted(contents)}


def _stated(entry: MemoryEntry) -> dict[str, Any]:
    leaves, kind = entry.sorted_leaves(), entry.type
    if kind is Type.HASH:
        plain, texts = _texts(list(chain.from_iterable(leaves)))
        value: Any = list(map(list, zip(texts[::2], texts[1::2], strict=True)))
    elif kind is Type.ZSET:
        plain, texts = _texts([member for member, _ in leaves])
        value = [[text, score_text(score)] for text, (_, score) in zip(texts, leaves, strict=True)]
    else:
        plain, value = _texts(leaves)
    if kind is Type.STRING:
        value = value[0]
    return {"type": kind.value, "enc": "utf8" if plain else "b64", "value": value, "ttl": entry.ttl_ms}


def _texts(leaves: Sequence[bytes]) -> tuple[bool, list[str]]:
    """Return whether all *leaves* are texts that JSONB accepts, and them: as texts, or otherwise all in base64."""
    try:
        texts = list(map(bytes.decode, leaves))
    except UnicodeDecodeError:
        pass
    else:
        if "\0" not in "".join(texts):
            return True, texts
    return False, [base64.b64encode(leaf).decode("ascii") for leaf in leaves]


def contents_of(document: object) -> dict[bytes, MemoryEntry]:
    """
    Return the contents of *document*.

    Raises:
        ConsistencyError: it is no document of :func:`document_of`; names the key.
    """
    if not isinstance(document, Mapping):
        raise ConsistencyError("A snapshot's document is no object.")
    contents: dict[bytes, MemoryEntry] = {}
    for key, stated in document.items():
        try:
            contents[suffix_of(key)] = _entry_of(stated)
        except (ValueError, TypeError, KeyError, BadInput) as error:
            raise ConsistencyError(f"A snapshot's document is malformed at the key {str(key)[:80]!r}.") from error
    return contents


def _entry_of(stated: Any) -> MemoryEntry:
    """Return the entry; raises ValueError, TypeError or KeyError where *stated* is malformed."""
    if not isinstance(stated, Mapping) or stated.keys() != _FIELDS:
        raise ValueError("an entry has type, enc, value and ttl")
    kind, value, ttl = Type(stated["type"]), stated["value"], stated["ttl"]
    if not (ttl is None or (isinstance(ttl, int) and not isinstance(ttl, bool))):
        raise TypeError("ttl is a whole number")
    read = _READERS[stated["enc"]]
    if kind is Type.STRING:
        return MemoryEntry(kind, read([value]), ttl)
    if not isinstance(value, list) or not value:
        raise ValueError("a collection is an array, and never empty")
    if kind is Type.LIST or kind is Type.SET:
        leaves = read(value)
        _distinct(leaves if kind is Type.SET else ())
        return MemoryEntry(kind, leaves, ttl)
    if any(type(pair) is not list or len(pair) != 2 for pair in value):
        raise ValueError("a pair is an array of two")
    firsts = read([first for first, _ in value])
    _distinct(firsts)
    seconds: Any = [second for _, second in value]
    seconds = read(seconds) if kind is Type.HASH else map(_score, seconds)
    return MemoryEntry(kind, tuple(zip(firsts, seconds, strict=True)), ttl)


def _distinct(leaves: Sequence[bytes]) -> None:
    if len(set(leaves)) != len(leaves):
        raise ValueError("a leaf stands there twice")


def _from_texts(texts: list[Any]) -> tuple[bytes, ...]:
    if "\0" in "".join(texts):  # A TypeError where one is no text.
        raise ValueError("a leaf is text without NUL")
    return tuple(map(str.encode, texts))


def _from_base64(texts: list[Any]) -> tuple[bytes, ...]:
    try:
        return tuple(base64.b64decode(str.encode(text, "ascii"), validate=True) for text in texts)
    except binascii.Error as error:
        raise ValueError("a leaf is no base64") from error


_READERS: Final = {"utf8": _from_texts, "b64": _from_base64}


def _score(text: object) -> float:
    if not isinstance(text, str):
        raise TypeError("a score is text")
    score = float(text)
    if math.isnan(score):
        raise ValueError("a score is a number")
    return score + 0.0
