"""
Values of working memory as users pass them and get them, and their leaves.

A value is a text or bytes; a list, a set or a dict of them; or a :class:`SortedSet`. Texts are stored as UTF-8. Stored
text and bytes cannot be told apart, so that all are read as text, or with ``raw`` all as bytes. Every other type is
refused, naming its key: a number or None would come back as a text, a tuple or a class made from one of these types as
another type, and nested values have no form here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, cast

from imem.cache.working.document import MemoryEntry, Pairs, Scored, Type
from imem.journal.arguments import CHECKED_INSIDE
from imem.journal.errors import UnsupportedType

Text = Annotated[str | bytes, CHECKED_INSIDE]
"""A leaf, as users write it."""

LARGEST_WHOLE: Final = 2**53
"""Whole numbers up to here, in either direction, are exact as doubles."""


class SortedSet(dict[Any, float]):
    """
    A set whose members have scores: member → score, a double, infinities included.

    Members are unordered here; :meth:`imem.cache.working.handles.SortedHandle.ranked` reads them by score.
    """

    def __repr__(self) -> str:
        return f"SortedSet({super().__repr__()})"


Value = Annotated[str | bytes | list[Any] | dict[Any, Any] | set[Any] | SortedSet, CHECKED_INSIDE]
"""The types that a key may be set to."""

_KEPT: Final = frozenset({str, bytes, list, dict, set, SortedSet})


def entry_of(key: str, value: object) -> MemoryEntry:
    """
    Return what the key named *key* holds when it is set to *value*.

    Raises:
        UnsupportedType: it is none of these types exactly, is an empty collection, or holds something else than texts
            and bytes (in a sorted set: and scores); names the key.
    """
    match value:
        case str() | bytes() | list() | tuple() | set() | frozenset() | dict() if type(value) not in _KEPT:
            raise UnsupportedType(
                key,
                f"{_named(value)} would come back as another type.",
                mend="Give it as a str, bytes, list, set, dict or SortedSet.",
            )
        case str() | bytes():
            return MemoryEntry(Type.STRING, (leaf_of(key, value),))
        case list():
            return MemoryEntry(Type.LIST, _some(key, tuple(leaf_of(key, leaf) for leaf in value)))
        case SortedSet():
            return MemoryEntry(Type.ZSET, _some(key, scored_of(key, value)))
        case dict():
            return MemoryEntry(Type.HASH, _some(key, pairs_of(key, value)))
        case set():
            return MemoryEntry(Type.SET, _some(key, members_of(key, value)))
        case _:
            raise UnsupportedType(
                key,
                f"{_named(value)} cannot be kept.",
                mend="Text, bytes, and lists, sets and dicts of them can, and SortedSet.",
            )


def value_of(key: str, entry: MemoryEntry, *, raw: bool) -> Any:
    """
    Return the value of *entry*: texts, or with *raw* bytes.

    Raises:
        UnsupportedType: it is not all text, and *raw* is not set; names the key.
    """
    leaves = cast("Any", entry.leaves)
    match entry.type:
        case Type.STRING:
            return text_of(key, leaves[0], raw=raw)
        case Type.LIST:
            return [text_of(key, leaf, raw=raw) for leaf in leaves]
        case Type.HASH:
            return {text_of(key, field, raw=raw): text_of(key, value, raw=raw) for field, value in leaves}
        case Type.SET:
            return {text_of(key, leaf, raw=raw) for leaf in leaves}
        case Type.ZSET:
            return SortedSet({text_of(key, member, raw=raw): score for member, score in leaves})


def entry_from(kind: bytes, flat: list[bytes], ttl_ms: int | None = None) -> MemoryEntry:
    """
    Return the entry from a server's flat reply.

    Raises:
        ValueError: *kind* is none of the five types.
    """
    of_kind = Type(kind.decode("ascii"))
    if of_kind is Type.HASH:
        return MemoryEntry(of_kind, tuple(zip(flat[::2], flat[1::2], strict=True)), ttl_ms)
    if of_kind is Type.ZSET:
        return MemoryEntry(of_kind, scored_from(flat), ttl_ms)
    return MemoryEntry(of_kind, tuple(flat), ttl_ms)


def scored_from(flat: list[bytes]) -> Scored:
    """Return the members and scores from a server's flat reply."""
    return tuple((member, float(score) + 0.0) for member, score in zip(flat[::2], flat[1::2], strict=True))


# Leaves


def leaf_of(key: str, leaf: object) -> bytes:
    """
    Return *leaf*, a text or bytes, as bytes.

    Raises:
        UnsupportedType: it is neither, or a text that UTF-8 cannot encode; names the key.
    """
    if type(leaf) is bytes:
        return leaf
    if type(leaf) is not str:
        raise UnsupportedType(key, f"{_named(leaf)} cannot be kept inside a value.", mend="Text and bytes can.")
    try:
        return leaf.encode()
    except UnicodeEncodeError as error:
        raise UnsupportedType(key, "a text with half of a surrogate pair cannot be kept.") from error


def text_of(key: str, leaf: bytes, *, raw: bool) -> Any:
    """
    Return *leaf* as a text, or with *raw* as it is.

    Raises:
        UnsupportedType: it is not UTF-8; names the key.
    """
    if raw:
        return leaf
    try:
        return leaf.decode()
    except UnicodeDecodeError as error:
        raise UnsupportedType(key, "holds bytes that are not UTF-8.", mend="Ask with raw=True.") from error


def members_of(key: str, members: Iterable[object]) -> tuple[bytes, ...]:
    """
    Return *members* as bytes, each once.

    Raises:
        UnsupportedType: as :func:`leaf_of`.
    """
    return tuple(dict.fromkeys(leaf_of(key, member) for member in members))


def pairs_of(key: str, fields: Mapping[Any, Any]) -> Pairs:
    """
    Return *fields* as pairs of bytes.

    Raises:
        UnsupportedType: as :func:`leaf_of`, or a field is given as a text and as the same bytes.
    """
    pairs = tuple((leaf_of(key, field), leaf_of(key, value)) for field, value in fields.items())
    _distinct(key, [field for field, _ in pairs])
    return pairs


def scored_of(key: str, scores: Mapping[Any, Any]) -> Scored:
    """
    Return *scores* as pairs of member and score.

    Raises:
        UnsupportedType: as :func:`leaf_of`, a score is no number that a double holds, or a member is given twice.
    """
    scored = tuple((leaf_of(key, member), score_of(key, score)) for member, score in scores.items())
    _distinct(key, [member for member, _ in scored])
    return scored


def score_of(key: str, score: object) -> float:
    """
    Return *score* as a double; negative zero is zero.

    Raises:
        UnsupportedType: it is no number, is NaN, or is a whole number that no double holds; names the key.
    """
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise UnsupportedType(key, f"{_named(score)} is no score.", mend="A score is a float.")
    if isinstance(score, int) and abs(score) > LARGEST_WHOLE:
        raise UnsupportedType(key, "a score is a double, which cannot hold so large a whole number.")
    if math.isnan(score):
        raise UnsupportedType(key, "a score cannot be NaN.")
    return float(score) + 0.0


def _some(key: str, leaves: Any) -> Any:
    if not leaves:
        raise UnsupportedType(key, "an empty collection cannot be kept.", mend="Delete the key instead.")
    return leaves


def _distinct(key: str, leaves: list[bytes]) -> None:
    if len(set(leaves)) != len(leaves):
        raise UnsupportedType(key, "the same name stands there as text and as bytes.")


def _named(value: object) -> str:
    """Return the type of *value*, for a message."""
    if value is None or isinstance(value, bool):
        return str(value)
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
