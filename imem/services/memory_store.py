"""
LangGraph's store over the table of memories.

Namespaces are paths below a root, the actor's own namespace by default; rights are those of memories
(:mod:`imem.services.memories`). Labels are written as :func:`imem.recall.memories.namespaces.segment_of` does.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, cast

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    validate_op_namespace,
)
from langgraph.store.base.embed import get_text_at_path

from imem.blocking.twin import Twin, blocking
from imem.journal.actors import Action, Actor
from imem.journal.arguments import check_int
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput
from imem.journal.settings import Settings
from imem.journal.texts.json_text import object_text
from imem.journal.texts.spelling import says_nothing
from imem.recall.memories.items import NewItem, Segments, check_key, leaves, value_text
from imem.recall.memories.model import CONTENT_CHARS, MemoryQuery
from imem.recall.memories.namespaces import (
    NamespacePattern,
    label_of,
    own_namespace,
    parse_namespace,
    readable,
    resource_of,
    scopes,
    segment_of,
)
from imem.recall.memories.parts import SEPARATOR
from imem.services.arguments import MOST_WRITE_BUDGET_MS, budget_ms
from imem.services.parts.actor_api import ActorApi
from imem.services.stores import Stores

if TYPE_CHECKING:
    from imem.blocking.memory import SyncMemory
    from imem.memory import Memory

STORE_MS: Final = 10_000
"""Default budget of a batch of operations, in milliseconds: the first one loads the encoder."""

LONGEST_TTL: Final = 100 * 365 * 24 * 60.0
"""Longest time to live, in minutes."""

_OPERATORS: Final = frozenset({"$eq", "$ne", "$gt", "$gte", "$lt", "$lte"})


class MemoryItems(ActorApi):
    """
    Items that the actor may read and write, as LangGraph's operations; :class:`MemoryStore` is made of them.

    Args:
        root: the namespace below which they are; the actor's own by default.
        fields: paths of what is indexed of a value; all of its texts and numbers by default.
        deadline_ms: budget of a batch.
    """

    def __init__(
        self,
        stores: Stores,
        actor: Actor | None,
        *,
        root: str | None = None,
        fields: Sequence[str] | None = None,
        deadline_ms: float | None = None,
    ) -> None:
        super().__init__(stores, actor)
        self._root = parse_namespace(root) if root is not None else own_namespace(self._actor)
        self._fields = list(fields) if fields is not None else None
        self._budget_ms = budget_ms(deadline_ms, default=STORE_MS, least=1, most=MOST_WRITE_BUDGET_MS)
        self._table = stores.memories
        self._items = stores.memories.items

    async def execute(self, ops: Sequence[Op]) -> list[Result]:
        """
        Return the results of *ops*, reads first: they see what was there before the batch.

        Raises:
            InvalidNamespaceError, BadInput: an operation is invalid; nothing was written.
            PermissionDenied: the actor may not read or write there; nothing was written.
            PostgresUnavailable, BudgetExceeded: no answer in time, or nothing was written; retry.
            OutcomeUnknown: the connection broke while committing; repeating the call is safe.
        """
        due = Deadline.after_ms(self._budget_ms)
        for op in ops:
            validate_op_namespace(op)
            if isinstance(op, GetOp | PutOp):
                check_key(op.key)
        puts = {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}
        new = [self._new(op) for op in puts.values()]
        results: list[Result] = [None] * len(ops)
        for number, item in await self._get([(n, op) for n, op in enumerate(ops) if isinstance(op, GetOp)], due):
            results[number] = item
        for number, op in enumerate(ops):
            if isinstance(op, SearchOp):
                results[number] = await self._search(op, due)
            elif isinstance(op, ListNamespacesOp):
                results[number] = await self._namespaces(op, due)
        if new:
            for namespace in {namespace for namespace, _ in puts}:
                await self._authorize_namespace(self._segments(namespace), Action.WRITE, due)
            await self._items.put(self._actor, new, deadline=due)
        return results

    async def _get(self, ops: Sequence[tuple[int, GetOp]], due: Deadline) -> list[tuple[int, Item]]:
        if not ops:
            return []
        for namespace in {op.namespace for _, op in ops}:
            await self._authorize_namespace(self._segments(namespace), Action.READ, due)
        names = {number: ("/".join(self._segments(op.namespace)), op.key) for number, op in ops}
        rows = await self._items.get(list(set(names.values())), deadline=due)
        read = {row["id"]: row for number, op in ops if op.refresh_ttl and (row := rows.get(names[number])) is not None}
        await self._items.refresh(list(read.values()), deadline=due)
        return [
            (number, Item(namespace=op.namespace, key=op.key, **_content(row)))
            for number, op in ops
            if (row := rows.get(names[number])) is not None
        ]

    async def _search(self, op: SearchOp, due: Deadline) -> list[SearchItem]:
        prefix = self._segments(op.namespace_prefix)
        await self._authorize_namespace(prefix, Action.READ, due)
        _check_counts(limit=op.limit, offset=op.offset)
        if op.query is not None and not isinstance(op.query, str):
            raise BadInput("query", f"must be text, not {type(op.query).__name__}.")
        covered, value_filter = scopes(NamespacePattern(prefix), readable(self._actor)), filter_text(op.filter)
        if op.limit == 0:
            return []
        rows: list[dict[str, Any]]
        if op.query is not None and not says_nothing(op.query):
            asked = MemoryQuery(
                op.query[:CONTENT_CHARS], covered, limit=op.limit, offset=op.offset, filter=value_filter or "{}"
            )
            rows = [item.model_dump() for item in (await self._table.search(asked, deadline=due)).items]
        else:
            rows = await self._items.newest(covered, value_filter, op.limit, op.offset, deadline=due)
        if op.refresh_ttl:
            await self._items.refresh(rows, deadline=due)
        return [
            SearchItem(
                tuple(map(label_of, row["namespace"].split("/")[len(self._root) :])),
                row["item_key"],
                score=row.get("similarity"),
                **_content(row),
            )
            for row in rows
        ]

    async def _namespaces(self, op: ListNamespacesOp, due: Deadline) -> list[Segments]:
        await self._authorize_namespace(self._root, Action.READ, due)
        _check_counts(limit=op.limit, offset=op.offset, max_depth=op.max_depth)
        conditions: dict[str, list[Segments]] = {"prefix": [], "suffix": []}
        for condition in op.match_conditions or ():
            path = tuple(label if label == "*" else segment_of(label) for label in condition.path)
            if condition.match_type not in conditions:
                raise BadInput("match_type", f"{condition.match_type!r} is neither prefix nor suffix.")
            conditions[condition.match_type].append(path)
        found = await self._items.namespaces(
            scopes(NamespacePattern(self._root), readable(self._actor)),
            self._root,
            prefixes=conditions["prefix"],
            suffixes=conditions["suffix"],
            # No namespace has as many segments; Postgres counts them in 32 bits.
            depth=min(op.max_depth, CONTENT_CHARS) if op.max_depth is not None else None,
            limit=op.limit,
            offset=op.offset,
            deadline=due,
        )
        return [tuple(map(label_of, segments)) for segments in found]

    def _new(self, op: PutOp) -> NewItem:
        namespace = "/".join(self._segments(op.namespace))
        if op.value is None:
            return NewItem(namespace, op.key, None)
        number = isinstance(op.ttl, int | float) and not isinstance(op.ttl, bool)
        if op.ttl is not None and not (number and 0 <= op.ttl <= LONGEST_TTL and math.isfinite(op.ttl)):
            raise BadInput("ttl", f"must be a number of minutes from 0 to {LONGEST_TTL:,.0f}.")
        value = value_text(op.value)  # First: it bounds the depth.
        paths = self._fields if op.index is None else op.index or []
        if paths is None:
            content = leaves(op.value)
        else:
            texts = (text for path in paths for text in get_text_at_path(op.value, path))
            content = SEPARATOR.join(texts).strip()[:CONTENT_CHARS]
        return NewItem(namespace, op.key, value, content, op.ttl)

    def _segments(self, labels: Iterable[str]) -> Segments:
        """Return the namespace of *labels*; checked, as it may be too long."""
        return parse_namespace("/".join((*self._root, *map(segment_of, labels))))

    async def _authorize_namespace(self, segments: Segments, action: Action, due: Deadline) -> None:
        await self._authorize(resource_of(segments, self._actor, action), action, due)


class SyncMemoryItems(Twin[MemoryItems]):
    """The same without ``await``."""

    execute = blocking(MemoryItems.execute)


def filter_text(wanted: Mapping[str, Any] | None) -> str | None:
    """
    Return a filter as JSON; None for none.

    Raises:
        BadInput: it names an operator that there is not, or has no form in JSON.
    """
    if not wanted:
        return None
    text = object_text(wanted, "filter")  # First: it bounds the depth.
    for operator in _keys(wanted):
        if operator.startswith("$") and operator not in _OPERATORS:
            raise BadInput("filter", f"has no operator {operator}; there are {', '.join(sorted(_OPERATORS))}.")
    return text


def _check_counts(**counts: int | None) -> None:
    for name, count in counts.items():
        if count is not None:
            check_int(name, count)
            if count < 0:
                raise BadInput(name, "must not be negative.")


def _keys(wanted: object) -> Iterator[str]:
    if isinstance(wanted, Mapping):
        for key, value in wanted.items():
            yield str(key)
            yield from _keys(value)
    elif isinstance(wanted, list | tuple):
        for one in wanted:
            yield from _keys(one)


def _content(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"value": row["metadata"], "created_at": row["created_at"], "updated_at": row["recorded_at"]}


class MemoryStore(BaseStore):
    """
    LangGraph's store over the memories of the stack.

    ::

        with MemoryStore.open() as store:  # or: async with
            graph = builder.compile(store=store)

    Items are found by words and by meaning; ``score`` is the similarity of meaning, 0 (unrelated) to 1, None where
    there is no vector. The order is that of :meth:`imem.services.memories.Memories.search`, or without a query the last
    put first. Items are never merged, and stay until they are deleted or their ``ttl`` is over; versions that were
    overwritten or deleted stay in the history, which readers of the store do not see.

    One store serves ``invoke`` and ``ainvoke``. One that was made from an asynchronous ``Memory`` must not be called
    without ``await`` in the loop of that memory.

    Args:
        memory: whose rights and connections are used; it must stay open.
        root: the namespace below which items are, such as ``user/ann``; the actor's own by default.
        fields: paths of what is indexed of a value, such as ``text`` or ``notes[*].text``; all of its texts and numbers
            by default. ``index=`` of a put comes first.
        deadline_ms: budget of a call, in milliseconds; 10,000 by default.

    Raises:
        BadInput: an argument is wrong, or the actor has no namespace of its own and no *root* is given.
    """

    supports_ttl = True

    def __init__(
        self,
        memory: Memory | SyncMemory,
        *,
        root: str | None = None,
        fields: Sequence[str] | None = None,
        deadline_ms: float | None = None,
    ) -> None:
        # Programs call the store, and not what it is made of.
        self._items = memory.memories._items(root, fields, deadline_ms)  # noqa: SLF001 - see above
        self._loop = asyncio.get_running_loop() if isinstance(self._items, MemoryItems) else None

    @classmethod
    def open(
        cls,
        settings: Settings | None = None,
        *,
        root: str | None = None,
        fields: Sequence[str] | None = None,
        deadline_ms: float | None = None,
    ) -> MemoryStoreContext:
        """Return what ``with`` and ``async with`` make a store of, for the stack that *settings* name."""
        return MemoryStoreContext(settings, {"root": root, "fields": fields, "deadline_ms": deadline_ms})

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Return the results of *ops*; see :meth:`MemoryItems.execute`."""
        if isinstance(self._items, SyncMemoryItems):
            return self._items.execute(list(ops))
        loop = cast("asyncio.AbstractEventLoop", self._loop)
        if _running() is loop:
            raise asyncio.InvalidStateError("A store is awaited in the event loop of its memory: aget, aput, …")
        return asyncio.run_coroutine_threadsafe(self._items.execute(list(ops)), loop).result()

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Return the results of *ops*; see :meth:`MemoryItems.execute`."""
        if isinstance(self._items, MemoryItems) and _running() is self._loop:
            return await self._items.execute(list(ops))
        return await asyncio.to_thread(self.batch, list(ops))


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class MemoryStoreContext:
    """A store to be: ``with`` gives one to threads, ``async with`` one to the tasks of the running loop."""

    def __init__(self, settings: Settings | None, options: dict[str, Any]) -> None:
        self._settings = settings
        self._options = options
        self._stack = ExitStack()
        self._async_stack = AsyncExitStack()

    def __enter__(self) -> MemoryStore:
        from imem.memory import Memory  # noqa: PLC0415 - a Memory offers stores in its turn

        return MemoryStore(self._stack.enter_context(Memory.sync(self._settings)), **self._options)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    async def __aenter__(self) -> MemoryStore:
        from imem.memory import Memory  # noqa: PLC0415 - as above

        memory = await self._async_stack.enter_async_context(Memory.open(self._settings))
        return MemoryStore(memory, **self._options)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._async_stack.__aexit__(kind, error, trace)
