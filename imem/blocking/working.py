"""
Working memory and sessions for programs without an event loop: dicts, lists and sets that survive them.

::

    with memory.session("mu-valuation", analysis_id=…, agent_type="valuation", subject_id=…) as session:
        while (subtask := session.current) is not None:
            session.memory["stage"] = subtask
            session.memory.list("log").append(subtask)
            session.deliver(subtask, postgres={"rate": 0.09}, graph=NO_RESULT)
            session.complete(subtask)

Beside the methods of the asynchronous classes they have the operators of Python's dicts, lists and sets, each of which
is one such call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, ItemsView, Iterator, KeysView, MutableMapping, ValuesView
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from typing import Any, Final, Self, TypeVar

from imem.blocking.portal import CoroutineRunner, Portal
from imem.blocking.twin import Twin, blocking
from imem.cache.working.handles import Handle, HashHandle, ListHandle, MembersHandle, SortedHandle
from imem.cache.working.memory import WorkingMemory
from imem.cache.working.state import MemoryIdentity
from imem.cache.working.values import Text, Value
from imem.checkpoints.model import AgentLease, Checkpoint
from imem.checkpoints.recovery import RecoveryResult
from imem.checkpoints.session import Session
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput

T = TypeVar("T")
H = TypeVar("H", bound=Handle)

_NOTHING: Final = object()
"""A sentinel that no key can hold."""

Items = list[Any]


class SyncWorkingMemory(Twin[WorkingMemory], MutableMapping[str, Any]):
    """
    The working memory of one agent instance, as a dict.

    For errors see :class:`~imem.cache.working.memory.WorkingMemory`. Keys are texts of 1 to 200 characters.
    :meth:`keys`, :meth:`values` and :meth:`items` each read all keys as of one moment; ``dict(memory)`` reads each key
    by itself, ``dict(memory.items())`` all at once.
    """

    @classmethod
    def of(cls, portal: Portal, make: Callable[[], WorkingMemory]) -> Self:
        """Return the blocking counterpart of the memory that *make* returns."""
        return cls(portal, portal.run(make))

    @property
    def identity(self) -> MemoryIdentity:
        """The instance it belongs to; of a memory not opened here, known from the first call on."""
        return self._inner.identity

    @property
    def epoch(self) -> int:
        """The epoch of its holder; of a memory not opened here, known from the first call on."""
        return self._inner.epoch

    @property
    def rev(self) -> int:
        """The last acknowledged revision; of a memory not opened here, known from the first call on."""
        return self._inner.rev

    # Like a dict

    def get(self, key: str, default: Any = None, *, raw: bool = False, deadline: Deadline | None = None) -> Any:
        """Return the value of *key*, or *default* where there is none."""
        return self._caller.call(self._inner.get(key, default, raw=raw, deadline=deadline))

    def __getitem__(self, key: str) -> Any:
        return _found(key, self.get(key, _NOTHING))

    def __setitem__(self, key: str, value: Value) -> None:
        self.set(key, value)

    def __delitem__(self, key: str) -> None:
        if not self.delete(key):
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.contains(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return self.len()

    def keys(self, *, deadline: Deadline | None = None) -> KeysView[str]:
        """Return all keys, sorted, as they are now."""
        return dict.fromkeys(self._caller.call(self._inner.keys(deadline=deadline))).keys()

    def values(self, *, raw: bool = False, deadline: Deadline | None = None) -> ValuesView[Any]:
        """Return the values of all keys, in their order, as of one moment; raises as :meth:`items`."""
        return self._all(raw=raw, deadline=deadline).values()

    def items(self, *, raw: bool = False, deadline: Deadline | None = None) -> ItemsView[str, Any]:
        """
        Return all keys and values, sorted by key, as of one moment.

        Raises:
            ConsistencyError: a key is missing, or another program wrote one.
        """
        return self._all(raw=raw, deadline=deadline).items()

    def _all(self, *, raw: bool, deadline: Deadline | None) -> dict[str, Any]:
        return self._caller.call(self._inner.items(raw=raw, deadline=deadline))

    def update(self, other: Any = (), /, *, deadline: Deadline | None = None) -> None:  # type: ignore[override]
        """
        Set every key of *other*, a mapping or pairs, or none of them.

        Unlike a dict's, it takes no keys as keywords: a misspelt ``deadline`` would become a key.
        """
        try:
            values = dict(other)
        except (TypeError, ValueError):
            raise BadInput("other", "must be a mapping, or pairs of a key and its value.") from None
        self._caller.call(self._inner.update(values, deadline=deadline))

    def pop(self, key: str, default: Any = _NOTHING, *, raw: bool = False, deadline: Deadline | None = None) -> Any:
        """
        Remove *key* and return its value, or *default* if it has none.

        A value that is not UTF-8 is returned as bytes also without *raw*, since it is removed.

        Raises:
            KeyError: it has no value, and there is no *default*.
        """
        return _found(key, self._caller.call(self._inner.pop(key, default, raw=raw, deadline=deadline)))

    def popitem(self) -> tuple[str, Any]:
        """
        Remove an arbitrary key and return it with its value.

        Raises:
            KeyError: there is none.
        """
        for key in self:
            held = self._caller.call(self._inner.pop(key, _NOTHING))
            if held is not _NOTHING:
                return key, held
        raise KeyError("The working memory is empty.")

    def setdefault(self, key: str, default: Any = None, *, raw: bool = False, deadline: Deadline | None = None) -> Any:
        """Set *key* to *default* if it has no value; return its value."""
        return self._caller.call(self._inner.setdefault(key, default, raw=raw, deadline=deadline))

    # As of the original

    set = blocking(WorkingMemory.set)
    delete = blocking(WorkingMemory.delete)
    contains = blocking(WorkingMemory.contains)
    len = blocking(WorkingMemory.len)
    clear = blocking(WorkingMemory.clear)
    increment = blocking(WorkingMemory.increment)
    publish = blocking(WorkingMemory.publish)
    published = blocking(WorkingMemory.published)
    knowledge = blocking(WorkingMemory.knowledge)
    write = blocking(WorkingMemory.write)
    look = blocking(WorkingMemory.look)

    # Parts of keys

    def list(self, key: str) -> SyncList:
        """Return the list that *key* holds, or will hold with its first item."""
        return SyncList(self._caller, self._inner.list(key))

    def hash(self, key: str) -> SyncHash:
        """Return the hash that *key* holds, or will hold with its first field."""
        return SyncHash(self._caller, self._inner.hash(key))

    def members(self, key: str) -> SyncMembers:
        """Return the set that *key* holds, or will hold with its first member."""
        return SyncMembers(self._caller, self._inner.members(key))

    def sorted(self, key: str) -> SyncSorted:
        """Return the sorted set that *key* holds, or will hold with its first member."""
        return SyncSorted(self._caller, self._inner.sorted(key))


class SyncCollection(Twin[H]):
    """A collection in working memory."""

    all = blocking(Handle.all)
    len = blocking(Handle.len)

    def __len__(self) -> int:
        return self.len()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.all())


class SyncList(SyncCollection[ListHandle]):
    """A list in working memory, read like Python's; positions count from 0, or from the end with -1."""

    append = blocking(ListHandle.append)
    prepend = blocking(ListHandle.prepend)
    pop = blocking(ListHandle.pop)
    pop_first = blocking(ListHandle.pop_first)
    get = blocking(ListHandle.get)
    range = blocking(ListHandle.range)
    set = blocking(ListHandle.set)
    trim = blocking(ListHandle.trim)
    remove = blocking(ListHandle.remove)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            whole: Items = self.all()
            return whole[index]
        item = self.get(index)
        if item is None:
            raise IndexError(f"{self._inner.key} has no item {index}.")
        return item


class SyncHash(SyncCollection[HashHandle]):
    """A hash in working memory, with its fields like the keys of a dict."""

    get = blocking(HashHandle.get)
    put = blocking(HashHandle.put)
    remove = blocking(HashHandle.remove)
    contains = blocking(HashHandle.contains)
    increment = blocking(HashHandle.increment)

    def __contains__(self, field: Text) -> bool:
        return self.contains(field)

    def __getitem__(self, field: Text) -> Any:
        return _there(field, self.get(field))

    def __setitem__(self, field: Text, value: Text) -> None:
        self.put({field: value})

    def __delitem__(self, field: Text) -> None:
        if not self.remove(field):
            raise KeyError(field)


class SyncMembers(SyncCollection[MembersHandle]):
    """A set in working memory."""

    add = blocking(MembersHandle.add)
    remove = blocking(MembersHandle.remove)
    contains = blocking(MembersHandle.contains)

    def __contains__(self, member: Text) -> bool:
        return self.contains(member)


class SyncSorted(SyncCollection[SortedHandle]):
    """A sorted set in working memory: members with scores, like a dict; iterating it, the lowest comes first."""

    add = blocking(SortedHandle.add)
    remove = blocking(SortedHandle.remove)
    increment = blocking(SortedHandle.increment)
    score = blocking(SortedHandle.score)
    ranked = blocking(SortedHandle.ranked)

    def __iter__(self) -> Iterator[Any]:
        return (member for member, _ in self.ranked())

    def __contains__(self, member: Text) -> bool:
        return self.score(member) is not None

    def __getitem__(self, member: Text) -> float:
        score: float = _there(member, self.score(member))
        return score

    def __setitem__(self, member: Text, score: float) -> None:
        self.add({member: score})

    def __delitem__(self, member: Text) -> None:
        if not self.remove(member):
            raise KeyError(member)


class SyncSession(Twin[Session]):
    """
    The session of an agent; made by :meth:`imem.blocking.memory.SyncMemory.session`.

    For its methods see :class:`~imem.checkpoints.session.Session`. While the block runs, a task of the loop renews the
    lease and the memory's expiry. After another process has taken over, the next call of the session or its memory
    raises :class:`~imem.journal.errors.LeaseLost`, and so does the end of the block; a thread that makes no call is not
    interrupted.

    Attributes:
        memory: its working memory.
    """

    def __init__(self, caller: CoroutineRunner, inner: Session) -> None:
        super().__init__(caller, inner)
        self.memory = SyncWorkingMemory(caller, inner.memory)

    stop_reason = blocking(Session.stop_reason)
    deliver = blocking(Session.deliver)
    forget = blocking(Session.forget)
    complete = blocking(Session.complete)
    failed = blocking(Session.failed)
    renew = blocking(Session.renew)

    @classmethod
    @contextmanager
    def of(cls, portal: Portal, make: Callable[[], AbstractAsyncContextManager[Session]]) -> Iterator[Self]:
        """Hold the session that *make* returns while the block runs."""
        with portal.hold_context(make) as held:
            yield cls(held, held.value)

    def memoize(self, key: str, call: Callable[[], T], *, durable: bool = False, deadline: Deadline | None = None) -> T:
        """
        Return the result of a paid call, which is made once, in a thread of its own.

        See :meth:`imem.checkpoints.session.Session.memoize`.
        """
        made = partial(asyncio.to_thread, call)
        return self._caller.call(self._inner.memoize(key, made, durable=durable, deadline=deadline))

    def rollback_to_checkpoint(self, *, deadline: Deadline | None = None) -> None:
        """
        Go back to the newest checkpoint; see :meth:`imem.checkpoints.session.Session.rollback_to_checkpoint`.

        :attr:`memory` is a new object afterwards.
        """
        self._caller.call(self._inner.rollback_to_checkpoint(deadline=deadline))
        self.memory = SyncWorkingMemory(self._caller, self._inner.memory)

    @property
    def lease(self) -> AgentLease:
        """Its lease, whose epoch every write carries."""
        return self._inner.lease

    @property
    def recovered(self) -> RecoveryResult:
        """Result of its recovery."""
        return self._inner.recovered

    @property
    def checkpoint(self) -> Checkpoint:
        """The newest checkpoint, from which a recovery would resume."""
        return self._inner.checkpoint

    @property
    def pending(self) -> tuple[str, ...]:
        """The subtasks left, in order; those whose results were lost come first."""
        return self._inner.pending

    @property
    def lost(self) -> tuple[str, ...]:
        """The pending subtasks that were completed before, and whose results are lost."""
        return self._inner.lost

    @property
    def current(self) -> str | None:
        """The next subtask; None if all are completed."""
        return self._inner.current


def _found(key: str, held: Any) -> Any:
    if held is _NOTHING:
        raise KeyError(key)
    return held


def _there(name: Text, held: Any) -> Any:
    if held is None:
        raise KeyError(name)
    return held
