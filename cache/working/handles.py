"""
Handles of collections: lists, hashes, sets and sorted sets of :class:`~imem.cache.working.memory.WorkingMemory`.

A handle holds only the key. The key is created with its first item and deleted with its last. Methods raise what those
of :class:`~imem.cache.working.memory.WorkingMemory` do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from imem.cache.keys import suffix_of
from imem.cache.working import changes
from imem.cache.working.changes import Change
from imem.cache.working.document import Type
from imem.cache.working.values import Text, entry_from, leaf_of, scored_from, text_of, value_of
from imem.journal.arguments import checks_arguments
from imem.journal.deadline import Deadline
from imem.journal.errors import UnsupportedType

if TYPE_CHECKING:
    from imem.cache.client import Argument
    from imem.cache.working.memory import WorkingMemory

Texts = list[Any]


@checks_arguments
class Handle:
    """
    A key of one type.

    Attributes:
        key: as its user calls it.
        kind: the type that it must have.
    """

    kind: Type

    def __init__(self, memory: WorkingMemory, key: str) -> None:
        suffix_of(key)
        self._memory = memory
        self.key = key

    async def all(self, *, raw: bool = False, deadline: Deadline | None = None) -> Any:
        """Return the whole collection, empty where there is none."""
        found = await self._look("whole", deadline=deadline) or []
        return value_of(self.key, entry_from(self.kind.value.encode("ascii"), found), raw=raw)

    async def len(self, *, deadline: Deadline | None = None) -> int:
        """Return the number of items."""
        return int(await self._look("length", deadline=deadline) or 0)

    async def _look(self, part: str, *arguments: Argument, deadline: Deadline | None) -> Any:
        return (await self._memory.look(self.key, part, *arguments, kind=self.kind.value, deadline=deadline)).found

    async def _write(self, change: Change, deadline: Deadline | None) -> Any:
        return (await self._memory.write(change, deadline=deadline)).results[0]

    def _text(self, leaf: bytes | None, *, raw: bool) -> Any:
        return None if leaf is None else text_of(self.key, leaf, raw=raw)

    def _removed(self, leaf: bytes | None, *, raw: bool) -> Any:
        """Return a removed leaf, as bytes where it is not UTF-8: an error would lose it."""
        try:
            return self._text(leaf, raw=raw)
        except UnsupportedType:
            return leaf


@checks_arguments
class ListHandle(Handle):
    """A list; positions count from 0, or from the end with -1."""

    kind = Type.LIST

    async def append(self, *items: Text, deadline: Deadline | None = None) -> int:
        """Add *items* at the end; return the length."""
        return int(await self._write(changes.list_append(self.key, items), deadline))

    async def prepend(self, *items: Text, deadline: Deadline | None = None) -> int:
        """Put *items* before the first, in their order; return the length."""
        return int(await self._write(changes.list_prepend(self.key, items), deadline))

    async def pop(self, *, raw: bool = False, deadline: Deadline | None = None) -> Any:
        """Remove and return the last item; None where there is none. One that is not UTF-8 comes as bytes."""
        return self._removed(await self._write(changes.list_pop(self.key), deadline), raw=raw)

    async def pop_first(self, *, raw: bool = False, deadline: Deadline | None = None) -> Any:
        """Remove and return the first item; None where there is none. One that is not UTF-8 comes as bytes."""
        return self._removed(await self._write(changes.list_pop(self.key, first=True), deadline), raw=raw)

    async def get(self, index: int, *, raw: bool = False, deadline: Deadline | None = None) -> Any:
        """Return the item at *index*; None where there is none."""
        return next(iter(await self.range(index, index, raw=raw, deadline=deadline)), None)

    async def range(
        self, first: int = 0, last: int = -1, *, raw: bool = False, deadline: Deadline | None = None
    ) -> Texts:
        """Return the items from *first* to *last*, both included."""
        found = await self._look("range", first, last, deadline=deadline) or []
        return [self._text(leaf, raw=raw) for leaf in found]

    async def set(self, index: int, item: Text, *, deadline: Deadline | None = None) -> None:
        """
        Replace the item at *index*.

        Raises:
            BadInput: there is none.
        """
        await self._write(changes.list_set(self.key, index, item), deadline)

    async def trim(self, first: int, last: int, *, deadline: Deadline | None = None) -> int:
        """Keep the items from *first* to *last*, both included; return the length."""
        return int(await self._write(changes.list_trim(self.key, first, last), deadline))

    async def remove(self, item: Text, count: int = 0, *, deadline: Deadline | None = None) -> int:
        """Remove *item*: *count* times from the front, from the end where negative, all with 0; return how often."""
        return int(await self._write(changes.list_remove(self.key, item, count), deadline))


@checks_arguments
class HashHandle(Handle):
    """A hash: fields with values."""

    kind = Type.HASH

    async def get(self, field: Text, *, raw: bool = False, deadline: Deadline | None = None) -> Any:
        """Return the value of *field*; None where there is none."""
        found = await self._look("fields", leaf_of(self.key, field), deadline=deadline)
        return self._text(found[0] if found else None, raw=raw)

    async def put(self, fields: Mapping[Any, Any], *, deadline: Deadline | None = None) -> int:
        """Set all *fields*; return how many are new."""
        return int(await self._write(changes.hash_put(self.key, fields), deadline))

    async def remove(self, *fields: Text, deadline: Deadline | None = None) -> int:
        """Remove *fields*; return how many there were."""
        return int(await self._write(changes.hash_remove(self.key, fields), deadline))

    async def contains(self, field: Text, *, deadline: Deadline | None = None) -> bool:
        """Return whether there is *field*."""
        found = await self._look("fields", leaf_of(self.key, field), deadline=deadline)
        return bool(found) and found[0] is not None

    async def increment(self, field: Text, by: int = 1, *, deadline: Deadline | None = None) -> int:
        """Add *by* to the whole number that *field* is, 0 where there is none; return the sum."""
        return int(await self._write(changes.hash_add(self.key, field, by), deadline))


@checks_arguments
class MembersHandle(Handle):
    """A set: members, each once, in no order."""

    kind = Type.SET

    async def add(self, *members: Text, deadline: Deadline | None = None) -> int:
        """Add *members*; return how many are new."""
        return int(await self._write(changes.set_add(self.key, members), deadline))

    async def remove(self, *members: Text, deadline: Deadline | None = None) -> int:
        """Remove *members*; return how many there were."""
        return int(await self._write(changes.set_remove(self.key, members), deadline))

    async def contains(self, member: Text, *, deadline: Deadline | None = None) -> bool:
        """Return whether *member* is in it."""
        found = await self._look("members", leaf_of(self.key, member), deadline=deadline)
        return bool(found) and bool(found[0])


@checks_arguments
class SortedHandle(Handle):
    """A sorted set: members with scores."""

    kind = Type.ZSET

    async def add(self, scores: Mapping[Any, float], *, deadline: Deadline | None = None) -> int:
        """Set the scores of members; return how many members are new."""
        return int(await self._write(changes.sorted_add(self.key, scores), deadline))

    async def remove(self, *members: Text, deadline: Deadline | None = None) -> int:
        """Remove *members*; return how many there were."""
        return int(await self._write(changes.sorted_remove(self.key, members), deadline))

    async def increment(self, member: Text, by: float = 1.0, *, deadline: Deadline | None = None) -> float:
        """Add *by* to the score of *member*, 0 where there is none; return the sum."""
        return float(await self._write(changes.sorted_increment(self.key, member, by), deadline))

    async def score(self, member: Text, *, deadline: Deadline | None = None) -> float | None:
        """Return the score of *member*; None where there is none."""
        found = await self._look("scores", leaf_of(self.key, member), deadline=deadline)
        return None if not found or found[0] is None else float(found[0]) + 0.0

    async def ranked(
        self,
        first: int = 0,
        last: int = -1,
        *,
        down: bool = False,
        raw: bool = False,
        deadline: Deadline | None = None,
    ) -> list[tuple[Any, float]]:
        """Return members with their scores from rank *first* to *last*, both included: the lowest first, or *down*."""
        found = await self._look("ranked_down" if down else "ranked", first, last, deadline=deadline) or []
        return [(self._text(member, raw=raw), score) for member, score in scored_from(found)]
