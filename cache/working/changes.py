"""
The changes that one write may make: a closed list, each checked and encoded before anything is sent.

The functions take keys as users call them and return a :class:`Change`. A write applies all of its changes or none
(:meth:`imem.cache.working.store.WorkingStore.write`). Their effect on the server is defined in
``cache/lua/writing.lua``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from imem.cache.keys import suffix_of
from imem.cache.working.document import CAP_BYTES, ITEM_BYTES, KEY_BYTES, Type, score_text
from imem.cache.working.values import (
    LARGEST_WHOLE,
    Text,
    Value,
    entry_of,
    leaf_of,
    members_of,
    pairs_of,
    score_of,
    scored_of,
)
from imem.journal.errors import BadInput, TooLarge, UnsupportedType

PUBLISHED: Final = "published:items"
"""The key that holds published items until they are pushed; part of the memory, so that recovery restores it."""

LARGEST_WRITE_BYTES: Final = 2 * CAP_BYTES
"""Bound of the changes of one write, in bytes."""

_TYPES: Final = {kind: kind.value.encode("ascii") for kind in Type}

FREEING: Final = frozenset(
    {"delete", "take", "clear", "list_pop", "list_pop_first", "list_trim", "list_remove"}
    | {"hash_remove", "set_remove", "zset_remove"}
)
"""Operations that only remove; a full server accepts them."""

REPEATABLE: Final = frozenset(
    {"put", "default", "delete", "clear", "list_set"}
    | {"hash_put", "hash_remove", "set_add", "set_remove", "zset_add", "zset_remove"}
)
"""Idempotent operations: they may be repeated when their outcome is unknown; the others may not."""


@dataclass(frozen=True, slots=True)
class Change:
    """
    One change of one key.

    Attributes:
        operation: of the closed list of ``writing.lua``.
        key: as its user calls it, for messages.
        suffix: the end of the server's key.
        arguments: of the operation.
    """

    operation: str
    key: str
    suffix: bytes
    arguments: tuple[bytes, ...] = ()

    @property
    def frees(self) -> bool:
        """Whether it only removes."""
        return self.operation in FREEING

    @property
    def repeatable(self) -> bool:
        """Whether making it twice has the effect of making it once."""
        return self.operation in REPEATABLE

    @property
    def size_bytes(self) -> int:
        """Approximate size as sent, in bytes; bounds a batch before it is sent."""
        fixed = KEY_BYTES + len(self.suffix) + ITEM_BYTES * len(self.arguments) // 2
        return fixed + sum(map(len, self.arguments))

    def words(self) -> tuple[bytes | str | int, ...]:
        """Return it as arguments of the script."""
        return self.operation, self.suffix, len(self.arguments), *self.arguments


def _change(operation: str, key: str, arguments: Iterable[bytes] = ()) -> Change:
    change = Change(operation, key, suffix_of(key), tuple(arguments))
    if change.size_bytes > LARGEST_WRITE_BYTES:
        raise TooLarge(key, f"is larger than the {CAP_BYTES:,} bytes that working memory holds.")
    return change


def put(key: str, value: Value) -> Change:
    """
    Set *key* to *value*, whatever it held.

    Raises:
        BadInput: *key* is not valid.
        UnsupportedType: *value* cannot be stored.
        TooLarge: *value* is too large.
    """
    return _whole("put", key, value)


def default(key: str, value: Value) -> Change:
    """Set *key* to *value* where it holds nothing; the result is what it held. Raises as :func:`put`."""
    return _whole("default", key, value)


def _whole(operation: str, key: str, value: Value) -> Change:
    suffix, entry = suffix_of(key), entry_of(key, value)
    if KEY_BYTES + len(suffix) + entry.size_bytes > CAP_BYTES:
        raise TooLarge(key, f"takes {entry.size_bytes:,} bytes; working memory holds {CAP_BYTES:,}.")
    return Change(operation, key, suffix, (_TYPES[entry.type], *entry.flat()))


def publish(item: UUID, encoded: bytes) -> Change:
    """
    Mark an item, as :mod:`imem.cache.working.published` encodes it, to be pushed.

    The result is 1, or 0 where it was marked already.
    """
    return _change("hash_put", PUBLISHED, (str(item).encode("ascii"), encoded))


def unpublish(items: Iterable[UUID]) -> Change:
    """Remove items from the published ones: withdrawn, or pushed. The result is how many there were."""
    return _change("hash_remove", PUBLISHED, _some(PUBLISHED, [str(item).encode("ascii") for item in items]))


def delete(key: str) -> Change:
    """Remove *key*; the result is 1, or 0 where there was none."""
    return _change("delete", key)


def take(key: str) -> Change:
    """Remove *key*; the result is what it held."""
    return _change("take", key)


def clear() -> Change:
    """Remove all keys; at any place in a write, it is applied first."""
    return Change("clear", "", b"")


def string_add(key: str, by: int) -> Change:
    """Add *by* to the whole number that the text *key* is, 0 where there is none; the result is the sum."""
    return _change("string_add", key, (_whole_number(key, by),))


# Lists


def list_append(key: str, items: Iterable[Text]) -> Change:
    """Add *items* at the end; the result is the length."""
    return _change("list_append", key, _some(key, [leaf_of(key, item) for item in _many(key, items)]))


def list_prepend(key: str, items: Iterable[Text]) -> Change:
    """Put *items* before the first, in their order; the result is the length."""
    return _change("list_prepend", key, _some(key, [leaf_of(key, item) for item in _many(key, items)][::-1]))


def list_pop(key: str, *, first: bool = False) -> Change:
    """Remove the last item, or the *first*; the result is it."""
    return _change("list_pop_first" if first else "list_pop", key)


def list_set(key: str, index: int, item: Text) -> Change:
    """Replace the item at *index*, from the end where it is negative."""
    return _change("list_set", key, (_position(key, index), leaf_of(key, item)))


def list_trim(key: str, first: int, last: int) -> Change:
    """Keep the items from *first* to *last*, both included, counted from the end where negative; the rest goes."""
    return _change("list_trim", key, (_position(key, first), _position(key, last)))


def list_remove(key: str, item: Text, count: int = 0) -> Change:
    """Remove *item*: *count* times from the front, from the end where negative, all with 0."""
    return _change("list_remove", key, (_position(key, count), leaf_of(key, item)))


# Hashes


def hash_put(key: str, fields: Mapping[Any, Any]) -> Change:
    """Set *fields*; the result is how many are new."""
    pairs = pairs_of(key, fields)
    return _change("hash_put", key, _some(key, [leaf for pair in pairs for leaf in pair]))


def hash_remove(key: str, fields: Iterable[Text]) -> Change:
    """Remove *fields*; the result is how many there were."""
    return _change("hash_remove", key, _some(key, members_of(key, _many(key, fields))))


def hash_add(key: str, field: Text, by: int) -> Change:
    """Add *by* to the whole number that *field* is, 0 where there is none; the result is the sum."""
    return _change("hash_add", key, (leaf_of(key, field), _whole_number(key, by)))


# Sets and sorted sets


def set_add(key: str, members: Iterable[Text]) -> Change:
    """Add *members*; the result is how many are new."""
    return _change("set_add", key, _some(key, members_of(key, _many(key, members))))


def set_remove(key: str, members: Iterable[Text]) -> Change:
    """Remove *members*; the result is how many there were."""
    return _change("set_remove", key, _some(key, members_of(key, _many(key, members))))


def sorted_add(key: str, scores: Mapping[Any, float]) -> Change:
    """Set the scores of members; the result is how many members are new."""
    scored = scored_of(key, scores)
    return _change("zset_add", key, _some(key, [leaf for one in scored for leaf in (_score(one[1]), one[0])]))


def sorted_remove(key: str, members: Iterable[Text]) -> Change:
    """Remove *members*; the result is how many there were."""
    return _change("zset_remove", key, _some(key, members_of(key, _many(key, members))))


def sorted_increment(key: str, member: Text, by: float) -> Change:
    """Add *by* to the score of *member*, 0 where there is none; the result is the sum."""
    return _change("zset_increment", key, (_score(score_of(key, by)), leaf_of(key, member)))


def _score(score: float) -> bytes:
    return score_text(score).encode("ascii")


def _many(key: str, items: Iterable[Any]) -> Iterable[Any]:
    """Refuse a text where several items are expected: it would become its characters."""
    if isinstance(items, str | bytes):
        raise UnsupportedType(key, "several items are asked for, not one text.")
    return items


def _some(key: str, leaves: Any) -> Any:
    if not leaves:
        raise BadInput(key, "names nothing to add or remove.")
    return leaves


def _position(key: str, number: object) -> bytes:
    if isinstance(number, bool) or not isinstance(number, int) or abs(number) > LARGEST_WHOLE:
        raise BadInput(key, f"a position or count is a whole number, not {number!r:.40}.")
    return b"%d" % number


def _whole_number(key: str, by: object) -> bytes:
    if isinstance(by, bool) or not isinstance(by, int) or abs(by) > LARGEST_WHOLE:
        raise UnsupportedType(key, f"what is added is a whole number up to 2^53, not {by!r:.40}.")
    return b"%d" % by
