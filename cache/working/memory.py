"""
``WorkingMemory``: a dict-like store of an agent's program that survives its crash.

::

    memory = WorkingMemory(store, await store.open(identity, lease.epoch, deadline=deadline))
    await memory.set("plan", "read the filing")
    await memory.list("done").append("10-K", "10-Q")
    await memory.update({"stage": "ratios", "seen": {"AAPL", "MSFT"}})
    assert await memory.get("stage") == "ratios"

Keys are texts of 1 to 200 characters. Values are those of :mod:`imem.cache.working.values`; they are returned as texts,
with ``raw=True`` as bytes. Every method takes a deadline, :data:`BUDGET_MS` from now by default, and runs one script,
which is atomic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from imem.cache.client import Argument
from imem.cache.keys import name_of
from imem.cache.working import changes
from imem.cache.working.changes import Change
from imem.cache.working.handles import HashHandle, ListHandle, MembersHandle, SortedHandle
from imem.cache.working.published import PublishedItem, item_of, publication
from imem.cache.working.state import MemoryIdentity, Meta
from imem.cache.working.store import KeyContent, WorkingStore, WriteResult
from imem.cache.working.values import Value, entry_from, entry_of, value_of
from imem.journal.arguments import LongText, checks_arguments
from imem.journal.deadline import Deadline
from imem.journal.errors import UnsupportedType
from imem.journal.events.entry import Tier
from imem.kg.load_format.lines import Line
from imem.kg.model import Kind, Turn

BUDGET_MS: Final = 500
"""Default timeout of a call, in milliseconds."""

Names = list[str]
Suffixes = list[bytes]
Items = list[PublishedItem]
Updates = list[dict[str, Any]]


@checks_arguments
class WorkingMemory:
    """
    The working memory of one agent instance, for the holder of one epoch.

    It remembers the last revision that was acknowledged to it. A server at an earlier revision has lost writes, and is
    refused from then on. There is no other state, so that any number of objects may exist for one memory.

    **What every method may raise.**

    * :class:`~imem.journal.errors.NotOpen`: the memory was never opened, is being restored, or has lost writes: recover
      it.
    * :class:`~imem.journal.errors.StaleEpoch`: another holder has taken over; stop.
    * :class:`~imem.journal.errors.ValkeyUnavailable`, :class:`~imem.journal.errors.BudgetExceeded`: no answer; nothing
      was written.
    * :class:`~imem.journal.errors.BadInput`: the key is no text of 1 to 200 characters.
    * :class:`~imem.journal.errors.UnsupportedType`: the value cannot be stored, or the key has another type; names the
      key.

    Those that write, in addition:

    * :class:`~imem.journal.errors.TooLarge`: the memory would pass 8 MiB; names the key.
    * :class:`~imem.journal.errors.ServerFull`: the server has no memory left; changes that only remove are accepted.
    * :class:`~imem.journal.errors.OutcomeUnknown`: a write was sent and not answered; repeating the same call is safe.
    * :class:`~imem.journal.errors.NotRepeatable`: the same for changes that append, pop, trim or count: read first.

    Attributes:
        identity: its owner.
        epoch: of its holder.
        rev: the last revision that was acknowledged.
    """

    def __init__(self, store: WorkingStore, meta: Meta) -> None:
        self._store = store
        self.identity: MemoryIdentity = meta.identity
        self.epoch = meta.epoch
        self.rev = meta.rev

    # Like a dict

    async def get(self, key: str, default: Any = None, *, raw: bool = False, deadline: Deadline | None = None) -> Any:
        """Return the value of *key*, or *default* where there is none."""
        found = await self.look(key, "whole", deadline=deadline)
        return default if found.found is None else value_of(key, entry_from(found.kind, found.found), raw=raw)

    async def set(self, key: str, value: Value, *, deadline: Deadline | None = None) -> None:
        """Set *key* to *value*, whatever it held."""
        await self.write(changes.put(key, value), deadline=deadline)

    async def delete(self, key: str, *, deadline: Deadline | None = None) -> bool:
        """Remove *key*; return whether it was there."""
        return bool((await self.write(changes.delete(key), deadline=deadline)).results[0])

    async def contains(self, key: str, *, deadline: Deadline | None = None) -> bool:
        """Return whether *key* exists."""
        return (await self.look(key, "length", deadline=deadline)).found is not None

    async def len(self, *, deadline: Deadline | None = None) -> int:
        """Return the number of keys."""
        return len(await self._suffixes(deadline))

    async def keys(self, *, deadline: Deadline | None = None) -> Names:
        """Return all keys, sorted."""
        return sorted(map(name_of, await self._suffixes(deadline)))

    async def items(self, *, raw: bool = False, deadline: Deadline | None = None) -> dict[str, Any]:
        """
        Return everything as of one moment, by key.

        Raises:
            ConsistencyError: a key of the index is missing, or another program wrote there.
        """
        _, contents = await self._store.read(
            self.identity.agent_id, epoch=self.epoch, least_rev=self.rev, deadline=_by(deadline)
        )
        named = {name_of(suffix): entry for suffix, entry in contents.items()}
        return {key: value_of(key, named[key], raw=raw) for key in sorted(named)}

    async def update(self, values: Mapping[str, Value], *, deadline: Deadline | None = None) -> None:
        """Set every key of *values*, or none; does nothing without any."""
        if values:
            await self.write(*(changes.put(key, value) for key, value in values.items()), deadline=deadline)

    async def pop(self, key: str, default: Any = None, *, raw: bool = False, deadline: Deadline | None = None) -> Any:
        """
        Remove *key* and return its value, or *default* where there was none.

        Values that are not UTF-8 throughout are returned as bytes, with or without *raw*: they exist nowhere else.
        """
        written = await self.write(changes.take(key), deadline=deadline)
        try:
            return _held(key, written, default, raw=raw)
        except UnsupportedType:
            return _held(key, written, default, raw=True)

    async def setdefault(self, key: str, value: Value, *, raw: bool = False, deadline: Deadline | None = None) -> Any:
        """Set *key* to *value* where it does not exist; return its value then."""
        change, given = changes.default(key, value), value_of(key, entry_of(key, value), raw=raw)
        return _held(key, await self.write(change, deadline=deadline), given, raw=raw)

    async def clear(self, *, deadline: Deadline | None = None) -> None:
        """Remove every key; the memory stays open."""
        await self.write(changes.clear(), deadline=deadline)

    async def increment(self, key: str, by: int = 1, *, deadline: Deadline | None = None) -> int:
        """Add *by* to the whole number that the text *key* is, 0 where there is none; return the sum."""
        return int((await self.write(changes.string_add(key, by), deadline=deadline)).results[0])

    # Parts of keys

    def list(self, key: str) -> ListHandle:
        """Return a handle of the list *key*, created with its first item."""
        return ListHandle(self, key)

    def hash(self, key: str) -> HashHandle:
        """Return a handle of the hash *key*, created with its first field."""
        return HashHandle(self, key)

    def members(self, key: str) -> MembersHandle:
        """Return a handle of the set *key*, created with its first member."""
        return MembersHandle(self, key)

    def sorted(self, key: str) -> SortedHandle:
        """Return a handle of the sorted set *key*, created with its first member."""
        return SortedHandle(self, key)

    # Published items, and updates from other agents

    async def publish(
        self,
        record: Kind | Line,
        *,
        body: LongText | None = None,
        turns: Sequence[Turn] = (),
        tier: Tier | None = None,
        deadline: Deadline | None = None,
    ) -> UUID:
        """
        Mark a record, as a model, or a link, as a line, to be pushed; return its identity.

        The item is part of the memory until it is pushed, and is restored with it. Other agents cannot read it before.
        :meth:`imem.memory.Memory.push` makes it durable, and so does opening a debate or a gate; otherwise the workers
        push it within seconds.

        ::

            await session.memory.publish(Finding(id="f-7", …))
            await memory.write(put("stage", "margins"), publication(item_of(finding)))

        Args:
            body: long text of a record.
            turns: of a debate.
            tier: how soon it must be visible; by default, a finding's importance decides.

        Raises:
            BadInput: the content is invalid.
            TooLarge: it takes more than 1 MB.
        """
        item = item_of(record, body=body, turns=turns, tier=tier)
        await self.write(publication(item), deadline=deadline)
        return item.id

    async def published(self, *, deadline: Deadline | None = None) -> Items:
        """Return the published items that are not pushed, as far as the holder knows, in the order of publishing."""
        return (await self._store.published(self.identity.agent_id, deadline=_by(deadline))).items

    async def knowledge(self, *, deadline: Deadline | None = None) -> Updates:
        """Return the updates pulled from other agents, oldest first; they are deleted with the memory."""
        return await self._store.known(self.identity.agent_id, deadline=_by(deadline))

    # Primitives of the above

    async def write(self, *batch: Change, deadline: Deadline | None = None) -> WriteResult:
        """
        Apply all changes of :mod:`imem.cache.working.changes`, in their order, or none.

        Returns:
            The revision, and the server's result of each change; a *clear* has none.
        """
        written = await self._store.write(
            self.identity.agent_id, self.epoch, batch, least_rev=self.rev, deadline=_by(deadline)
        )
        self.rev = max(self.rev, written.rev)
        return written

    async def look(
        self, key: str, part: str, *arguments: Argument, kind: str = "", deadline: Deadline | None = None
    ) -> KeyContent:
        """Read a part of *key*; see :meth:`imem.cache.working.store.WorkingStore.look`."""
        whose = self.identity.agent_id, self.epoch
        by = _by(deadline)
        return await self._store.look(*whose, key, part, *arguments, kind=kind, least_rev=self.rev, deadline=by)

    async def _suffixes(self, deadline: Deadline | None) -> Suffixes:
        return await self._store.names(self.identity.agent_id, self.epoch, least_rev=self.rev, deadline=_by(deadline))


def _by(deadline: Deadline | None) -> Deadline:
    return deadline if deadline is not None else Deadline.after_ms(BUDGET_MS)


def _held(key: str, written: WriteResult, otherwise: Any, *, raw: bool) -> Any:
    found = written.results[0]
    return otherwise if found is None else value_of(key, entry_from(found[0], found[1]), raw=raw)
