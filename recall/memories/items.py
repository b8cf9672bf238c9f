"""
Items of LangGraph's store in the table of memories: put, read and listed by namespace and key.

They are found by what they say as other memories are (:meth:`imem.recall.memories.store.MemoryTable.search`). Rights
are checked by the caller, and for writes by the function too. A batch of puts is one transaction.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import orjson

from imem.checkpoints.model import checked_text
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import TooLarge
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.journal.texts.json_text import exact_object_text
from imem.recall.memories.encoding import NO_VECTORS, PartVectors
from imem.recall.memories.model import CONTENT_CHARS
from imem.recall.memories.parts import split

VALUE_BYTES: Final = 1024 * 1024
"""Largest value, in bytes of JSON."""

_KEY_CHARS: Final = 1000

Segments = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NewItem:
    """
    An item to be put, or without a value deleted.

    Attributes:
        namespace, key: its identity.
        value: JSON of an object; None to delete.
        content: what is indexed of it; empty for nothing.
        created_at: of an import, when it was put where it comes from.
        known_at: of an import, since when it was known to have this value.
        ttl_minutes: when it expires after it was put or read last; None for never.

    Raises:
        BadInput, TooLarge: a field is invalid; names it.
    """

    namespace: str
    key: str
    value: str | None
    content: str = ""
    ttl_minutes: float | None = None
    created_at: datetime | None = None
    known_at: datetime | None = None

    def __post_init__(self) -> None:
        check_key(self.key)
        if self.value is not None and (size := len(self.value.encode())) > VALUE_BYTES:
            raise TooLarge("value", f"has {size:,} bytes of JSON; at most {VALUE_BYTES:,} are kept.")


def check_key(key: object) -> None:
    """
    Check the key of an item; an empty one is a key.

    Raises:
        BadInput: it is no text, too long, or holds what Postgres cannot keep.
    """
    # Whatever is no text would be found under its text, and None under "None".
    if key != "":
        checked_text("key", key, _KEY_CHARS)


def value_text(value: Mapping[str, Any]) -> str:
    """
    Return a value as JSON.

    Raises:
        BadInput, TooLarge: it has no form in JSON that comes back as it is.
    """
    return exact_object_text(value, "value")


def leaves(value: Mapping[str, Any]) -> str:
    """Return the texts and numbers of a value, a line each."""
    return "\n".join(_leaves(value)).strip()[:CONTENT_CHARS]


def _leaves(value: object) -> Iterator[str]:
    if isinstance(value, Mapping | list | tuple):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _leaves(one)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield str(value)


class ItemTable:
    """
    The items of one process and event loop.

    Args:
        database: where they are.
        vectors: returns the model's number and the vectors of texts that are given as their parts; None and none of
            them if it is away.
    """

    def __init__(
        self,
        database: Database,
        vectors: Callable[[Sequence[Sequence[str]], Deadline], Awaitable[tuple[int | None, list[PartVectors]]]],
    ) -> None:
        self._database = database
        self._vectors = vectors

    async def put(self, actor: Actor, items: Sequence[NewItem], *, deadline: Deadline) -> None:
        """
        Put and delete *items*, all of them or none; each key once.

        Raises:
            PostgresUnavailable, BudgetExceeded: nothing was written; retryable.
            OutcomeUnknown: the connection broke while committing; repeating the call is safe.
        """
        texts = [split(item.content) for item in items]
        model, vectors = await self._vectors(texts, deadline) if any(texts) else (None, [NO_VECTORS] * len(items))
        given = {
            "actor": actor.id,
            "role": actor.role.value,
            "namespaces": [item.namespace for item in items],
            "keys": [item.key for item in items],
            "values": [item.value for item in items],
            "contents": [item.content[:CONTENT_CHARS] for item in items],
            "vectors": [made.first for made in vectors],
            "parts": [made.others for made in vectors],
            "ttls": [item.ttl_minutes for item in items],
            "created": [item.created_at for item in items],
            "known": [item.known_at for item in items],
            "model": model,
        }
        await self._database.commit("put_items", given, deadline=deadline)

    async def get(self, names: Sequence[tuple[str, str]], *, deadline: Deadline) -> dict[tuple[str, str], Row]:
        """
        Return the current items of those namespaces and keys that have one.

        Raises:
            PostgresUnavailable, BudgetExceeded: no answer in time; retryable.
        """
        given = {"namespaces": [namespace for namespace, _ in names], "keys": [key for _, key in names]}
        rows = await self._database.named("items_by_key", given, deadline=deadline)
        return {(row["namespace"], row["item_key"]): row for row in rows}

    async def was_put(self, namespace: str, key: str, *, deadline: Deadline) -> bool:
        """
        Return whether an item was put there ever, whatever became of it.

        Raises:
            PostgresUnavailable, BudgetExceeded: no answer in time; retryable.
        """
        given = {"namespace": namespace, "key": key}
        return bool(await self._database.named("item_versions", given, deadline=deadline))

    async def newest(
        self, scopes: Sequence[str], value_filter: str | None, limit: int, offset: int, *, deadline: Deadline
    ) -> list[Row]:
        """
        Return the items that a filter leaves, the last put first.

        Raises:
            PostgresUnavailable, BudgetExceeded: no answer in time; retryable.
        """
        given = {"scopes": list(scopes), "filter": value_filter, "limit": limit, "offset": offset}
        return await self._database.named("newest_items", given, deadline=deadline)

    async def namespaces(
        self,
        scopes: Sequence[str],
        root: Segments,
        *,
        prefixes: Sequence[Segments],
        suffixes: Sequence[Segments],
        depth: int | None,
        limit: int,
        offset: int,
        deadline: Deadline,
    ) -> list[Segments]:
        """
        Return what stands below *root* of the namespaces with items, in the order of their segments.

        Args:
            prefixes, suffixes: all of them hold; an asterisk is any segment.
            depth: most segments that are shown.

        Raises:
            PostgresUnavailable, BudgetExceeded: no answer in time; retryable.
        """
        given = {
            "scopes": list(scopes),
            "root": len(root),
            "depth": depth,
            "prefixes": orjson.dumps(prefixes).decode(),
            "suffixes": orjson.dumps(suffixes).decode(),
            "limit": limit,
            "offset": offset,
        }
        rows = await self._database.named("item_namespaces", given, deadline=deadline)
        return [tuple(row["segments"][len(root) :]) for row in rows]

    async def refresh(self, rows: Sequence[Row], *, deadline: Deadline) -> None:
        """
        Put off the expiry of those of *rows* that have one.

        Raises:
            PostgresUnavailable, BudgetExceeded, OutcomeUnknown: perhaps not; harmless to repeat.
        """
        if ids := [row["id"] for row in rows if row["expires_at"] is not None]:
            await self._database.commit("refresh_items", {"ids": ids}, deadline=deadline)
