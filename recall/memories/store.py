"""
Memories in Postgres: stored, superseded, and found by words and meaning.

A text is encoded before it is stored, outside any transaction. Where the encoder is away it is stored without a vector,
is found by its words alone, and a pipeline makes the vector (:mod:`imem.recall.memories.pipelines`). Each write is one
transaction of one function, which queues at the namespace: a crash leaves all of it or nothing.

Rights are checked by the callers, :mod:`imem.services.memories`, and for writes by the functions too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import chain
from typing import Any, Final
from uuid import UUID

from imem.journal.actors import Actor
from imem.journal.clock import SystemClock
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, ImemError, TooLarge
from imem.journal.events.ids import new_id
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import rows as run_rows
from imem.journal.texts.json_text import object_text
from imem.kg.similarity.embedders import Embedder
from imem.kg.similarity.sentence_models import Purpose
from imem.kg.similarity.vectors import Vector, as_text, model_number
from imem.recall.answers import Quality
from imem.recall.memories.accesses import AccessCounter
from imem.recall.memories.encoding import NO_VECTORS, BackgroundEncoder, PartVectors
from imem.recall.memories.gaps import joined, unembedded, unknown_languages
from imem.recall.memories.items import ItemTable
from imem.recall.memories.model import (
    FoundMemory,
    MemoriesPage,
    MemoriesSection,
    MemoryList,
    MemoryMatch,
    MemoryQuery,
    MemoryRights,
    NewMemory,
    RememberedMemory,
    StoredMemory,
    StoreStatus,
)
from imem.recall.memories.parts import searched_text, split
from imem.recall.memories.ranking import CANDIDATES, Candidate, rank, similarity
from imem.recall.request.fallbacks import sentence
from imem.recall.timing.lateness import reports_lateness

NEAR_DUPLICATE: Final = 0.95
"""Above this similarity a text of the same figures and directions is the same memory; a setting's default."""

NAMESPACE_LIMIT: Final = 200_000
"""Most memories of a namespace, above which a new one is refused; a setting's default."""

EXACT: Final = 5_000
"""Most memories of the searched namespaces that are compared one by one; beyond, the index of vectors is used."""

_ENCODING: Final = 0.6
"""Share of a read's time that the query's vector may take."""

_STORING_MS: Final = 1_000.0
"""The time of a write that encoding leaves for Postgres, in milliseconds; at most half of it."""


DELETED: Final = 500
"""Memories that are deleted in one transaction."""


@dataclass(frozen=True, slots=True)
class _Encoded:
    """Vectors of a text, as Postgres reads them, and with which message before it that of its context was made."""

    model: int | None = None
    vectors: PartVectors = NO_VECTORS
    context_vector: str | None = None
    before: UUID | None = None


class MemoryTable:
    """
    The memories of one process and event loop.

    Attributes:
        encoder: makes vectors of texts and queries.
        items: those of LangGraph's store, by their keys.
    """

    def __init__(
        self,
        database: Database,
        embedder: Embedder,
        *,
        near_duplicate: float = NEAR_DUPLICATE,
        namespace_limit: int = NAMESPACE_LIMIT,
    ) -> None:
        self._database = database
        self._near_duplicate = near_duplicate
        self._namespace_limit = namespace_limit
        self.encoder = BackgroundEncoder(embedder)
        self._accesses = AccessCounter(database)
        self._model: int | None = None
        self.items = ItemTable(database, self._vectors)

    async def close(self) -> None:
        """Give up what is encoded, and write what was counted."""
        await self.encoder.close()
        await self._accesses.close()

    # Storing

    async def store(
        self,
        actor: Actor,
        namespace: str,
        memory: NewMemory,
        *,
        imported_as: UUID | None = None,
        created_at: datetime | None = None,
        known_at: datetime | None = None,
        deadline: Deadline,
    ) -> RememberedMemory:
        """
        Store *memory*, or update the one of the namespace that says nearly the same.

        Args:
            imported_as: the id of an imported memory; once it is known, nothing is written.
            created_at: when it was stored where it comes from.
            known_at: since when it was known to say this; searches as of a moment from then on find it. When it is
                recorded, for None.

        Raises:
            TooLarge: the namespace is full, or the metadata of both are too large; nothing was written.
            PostgresUnavailable, BudgetExceeded: nothing was written; retryable.
            OutcomeUnknown: the connection broke while committing; repeating the call is safe.
        """
        given = await self._given(actor, namespace, memory, deadline)
        given |= {"imported": imported_as is not None, "created_at": created_at, "id": imported_as or given["id"]}
        given |= {"known_at": known_at}
        [row] = await self._database.commit("store_memory", given, deadline=deadline)
        return self._remembered(row)

    async def store_all(
        self, actor: Actor, new: Sequence[tuple[str, NewMemory]], *, deadline: Deadline
    ) -> list[RememberedMemory]:
        """
        Store memories, each in the namespace beside it: all of them or nothing.

        Raises:
            PostgresUnavailable, BudgetExceeded, OutcomeUnknown: as :meth:`store`.
        """
        given = [await self._given(actor, namespace, memory, deadline) for namespace, memory in new]
        async with self._database.transaction(deadline) as conn:
            return [self._remembered((await run_rows(conn, "store_memory", one))[0]) for one in given]

    async def store_facts(
        self,
        actor: Actor,
        namespace: str,
        source: NewMemory | None,
        facts: Sequence[NewMemory],
        *,
        known_at: datetime | None = None,
        deadline: Deadline,
    ) -> list[RememberedMemory]:
        """
        Store *facts*, and before them *source*, what they were extracted from, if given: all of it or nothing.

        Each fact has the id of *source* in its metadata. *known_at* is as of :meth:`store`.

        Raises:
            PostgresUnavailable, BudgetExceeded, OutcomeUnknown: as :meth:`store`.
        """
        new = [*([source] if source is not None else []), *facts]
        given = [await self._given(actor, namespace, one, deadline) for one in new]
        stored: list[RememberedMemory] = []
        async with self._database.transaction(deadline) as conn:
            for nth, one in enumerate(given):
                one |= {"created_at": known_at, "known_at": known_at}
                if source is not None and nth:
                    one["metadata"] = object_text({"source_id": str(stored[0].id)}, "metadata")
                [row] = await run_rows(conn, "store_memory", one)
                stored.append(self._remembered(row))
        return stored

    async def _given(self, actor: Actor, namespace: str, memory: NewMemory, deadline: Deadline) -> dict[str, Any]:
        """Return the parameters by which a memory is stored, with its vectors."""
        encoded = await self._encoded(namespace, memory, deadline)
        return {
            **_write(actor, memory, encoded),
            "namespace": namespace,
            "memory_type": memory.memory_type.value,
            "importance": memory.importance,
            "user_id": memory.user_id,
            "conversation_id": memory.conversation_id,
            "author": memory.author,
            "occurred_at": memory.occurred_at,
            "context_vector": encoded.context_vector,
            "before": encoded.before,
            # No text is more similar than 1.
            "similar": 1.0 if memory.distinct else self._near_duplicate,
            "exact": EXACT,
            "most": self._namespace_limit,
            "imported": False,
            "created_at": None,
            "known_at": None,
        }

    async def supersede(
        self,
        actor: Actor,
        known: UUID,
        memory: NewMemory,
        *,
        reason: str,
        importance: float | None,
        deadline: Deadline,
    ) -> RememberedMemory:
        """
        Make the actor say *memory*, by the author of *known*, instead of that; None keeps its importance.

        Raises:
            BadInput: there is no such memory, another took its place already, or the actor says that text already.
            PostgresUnavailable, BudgetExceeded, OutcomeUnknown: as :meth:`store`.
        """
        encoded = await self._encoded("", memory, deadline)
        given = {"known": known, "reason": reason, "importance": importance}
        return await self._end(known, {**given, **_write(actor, memory, encoded)}, deadline)

    async def retire(self, actor: Actor, known: UUID, *, reason: str, deadline: Deadline) -> RememberedMemory:
        """
        End what the actor says in *known* without another in its place; its versions stay.

        Raises:
            BadInput: there is no such memory, or another took its place already.
            PostgresUnavailable, BudgetExceeded, OutcomeUnknown: as :meth:`store`.
        """
        nothing = dict.fromkeys(("id", "content", "metadata", "importance", "model", "vector", "parts"))
        given = {"known": known, "reason": reason, "actor": actor.id, "role": actor.role.value}
        return await self._end(known, {**given, **nothing}, deadline)

    async def _end(self, known: UUID, given: Mapping[str, Any], deadline: Deadline) -> RememberedMemory:
        [row] = await self._database.commit("supersede_memory", given, deadline=deadline)
        match row["status"]:
            case "absent":
                raise unknown_memory(known)
            case "ended":
                by = f"was superseded by {row['id']}" if row["id"] is not None else "was retired"
                raise BadInput("memory_id", f"{known} {by} already.")
            case "item":
                raise BadInput(
                    "memory_id", f"{known} is an item of a store, where `put` replaces its value and `delete` ends it."
                )
            case "taken":
                raise BadInput("text", f"is what memory {row['id']} of the namespace says already.")
            case _:
                return self._remembered(row)

    def _remembered(self, row: Row) -> RememberedMemory:
        if row["status"] == "crowded":
            raise TooLarge("namespace", f"has {self._namespace_limit:,} memories, which the settings allow at most.")
        if row["status"] == "full":
            raise TooLarge(
                "metadata", f"with those of memory {row['id']}, which says the same, takes more than 64 KiB."
            )
        status = StoreStatus(row["status"])
        remains = row.get("remains") or False
        return RememberedMemory(status, row["id"], row["version"], row["recorded_at"], row["waits"], remains=remains)

    async def rights(self, actor: Actor, memory_id: UUID, *, deadline: Deadline) -> MemoryRights:
        """
        Return what decides what *actor* may do with a memory.

        Raises:
            BadInput: there is no such memory.
        """
        given = {"id": memory_id, "actor": actor.id, "role": actor.role.value}
        found = await self._database.named("memory_rights", given, deadline=deadline)
        if not found:
            raise unknown_memory(memory_id)
        return MemoryRights(**found[0])

    # Deleting

    async def delete(self, actor: Actor, ids: Sequence[UUID], *, deadline: Deadline) -> list[UUID]:
        """
        Delete memories with all that is kept of them, and those whose place they took, as far as *actor* may.

        Returns:
            The ids of all that are gone.

        Raises:
            PostgresUnavailable, BudgetExceeded: nothing was deleted; retryable.
            OutcomeUnknown: the connection broke while committing; repeating the call is safe.
        """
        given = {"actor": actor.id, "role": actor.role.value, "ids": list(ids)}
        [row] = await self._database.commit("delete_memories", given, deadline=deadline)
        deleted: list[UUID] = row["deleted"]
        return deleted

    async def delete_all(self, actor: Actor, asked: MemoryList, *, deadline: Deadline) -> int:
        """
        Delete the memories that *asked* covers and *actor* may delete, a page at a time; return how many are gone.

        Raises:
            PostgresUnavailable, BudgetExceeded, OutcomeUnknown: the pages before are deleted; the same call goes on.
        """
        given: dict[str, Any] = {"actor": actor.id, "role": actor.role.value, "limit": DELETED, "after": UUID(int=0)}
        given |= {"scopes": asked.scopes, "user_id": asked.user_id, "user_scopes": asked.user_scopes}
        deleted = 0
        while rows := await self._database.named("memories_to_delete", given, deadline=deadline):
            given["after"] = rows[-1]["id"]
            deleted += len(await self.delete(actor, [row["id"] for row in rows], deadline=deadline))
        return deleted

    async def _encoded(self, namespace: str, memory: NewMemory, deadline: Deadline) -> _Encoded:
        """Return the vectors of a text; none of them if the encoder is away or late."""
        before: Row | None = None
        if memory.conversation_id is not None:
            place = {"namespace": namespace, "conversation_id": memory.conversation_id}
            before = next(iter(await self._database.named("last_of_conversation", place, deadline=deadline)), None)
        parts = [searched_text(memory.author, part) for part in split(memory.content)]
        contexts = [[with_context(parts[0], before["said"])]] if before is not None else []
        model, [vectors, *made] = await self._vectors([parts, *contexts], deadline)
        if model is None or before is None:
            return _Encoded(model, vectors)
        return _Encoded(model, vectors, made[0].first, before["id"])

    async def _vectors(
        self, texts: Sequence[Sequence[str]], deadline: Deadline
    ) -> tuple[int | None, list[PartVectors]]:
        """
        Return the number of the model and the vectors of *texts*, each of which is given as its parts.

        If the encoder is away or late, the number is None and there are no vectors.
        """
        left_ms = deadline.left_ms()
        due = deadline.within_ms(left_ms - min(_STORING_MS, left_ms / 2))
        try:
            vectors = iter(await self.encoder.vectors(list(chain(*texts)), Purpose.PASSAGE, deadline=due))
        except ImemError:
            return None, [NO_VECTORS] * len(texts)
        if self._model is None:
            self._model = await model_number(self._database, self.encoder.embedder, deadline=deadline)
        return self._model, [PartVectors.of([as_text(next(vectors)) for _ in parts]) for parts in texts]

    # Reading

    @reports_lateness
    async def search(self, query: MemoryQuery, *, deadline: Deadline) -> MemoriesSection:
        """
        Return the memories that answer *query*, best first.

        Raises:
            PostgresUnavailable, BudgetExceeded: no answer in time; retryable.
        """
        vector, lacking = await self.query_vector(query.text, deadline)
        asked = self.waiting_parameters(query.scopes, query.until)
        found, [waiting] = await asyncio.gather(
            self.candidates(query, vector, deadline=deadline),
            self._database.named("memories_wait", asked, deadline=deadline),
        )
        rows = {row["id"]: row for row in found}
        if vector is not None:
            lacking = unembedded(found, waits=waiting["waits"])
        now = query.until or SystemClock().now()
        ranked = rank([candidate(row) for row in rows.values()], query.text, now=now)
        shown = [(rows[one.id], score, self.similarity(one)) for one, score in ranked]
        shown = [one for one in shown if one[2] is None or one[2] >= query.threshold]
        last = query.offset + query.limit
        # With what is as good as the last one: which of those are shown, their importance decides.
        shown = [one for nth, one in enumerate(shown) if nth < last or one[1] == shown[last - 1][1]]
        versions = await self.by_version([row for row, _, _ in shown], query.until, deadline=deadline)
        stored = {memory.id: memory for memory in versions}
        items = [
            FoundMemory(
                **dict(_as_known(memory, query.until)),
                excerpt=excerpt(memory.content, row),
                score=score,
                similarity=near,
                found_by=found_by(row),
            )
            for row, score, near in shown
            # It may have been deleted since the candidates were read.
            if (memory := stored.get(row["id"])) is not None
        ]
        # Stable: what is equal in all of these stays in the order of ids.
        items.sort(key=lambda item: (-item.score, -item.importance, -item.access_count))
        items = items[query.offset : last]
        if query.until is None:
            self._accesses.count(item.id for item in items)
        if vector is not None:
            lacking = joined(
                lacking, unknown_languages(self.encoder.embedder, query.text, [one.content for one in items])
            )
        return MemoriesSection(
            quality=Quality.EXACT if lacking is None else Quality.PARTIAL,
            reason=lacking,
            total=len(items),
            items=items,
            as_of=query.until,
        )

    async def candidates(self, query: MemoryQuery, vector: Vector | None, *, deadline: Deadline) -> list[Row]:
        """
        Return the memories that may answer *query*, with their raw scores; *vector* is that of its text.

        Raises:
            PostgresUnavailable, BudgetExceeded: no answer in time; retryable.
        """
        given = {
            "scopes": query.scopes,
            "memory_type": query.memory_type.value if query.memory_type is not None else None,
            "agent_id": query.agent_id,
            "conversation_id": query.conversation_id,
            **self.search_parameters(query.text, vector, query.until),
            "candidates": max(CANDIDATES, query.offset + query.limit),
            "items": None if query.filter is None else True,
            "filter": None if query.filter in {None, "{}"} else query.filter,
        }
        return await self._database.named("search_memories", given, deadline=deadline)

    def search_parameters(self, text: str, vector: Vector | None, until: datetime | None) -> dict[str, Any]:
        """Return what every search of texts takes: the query, its vector and model, and its bounds."""
        embedder = self.encoder.embedder
        return {
            "query": text,
            "model_id": embedder.model_id,
            "dimension": embedder.dimension,
            "vector": as_text(vector) if vector is not None else None,
            "until": until,
            "candidates": CANDIDATES,
            "exact": EXACT,
        }

    def waiting_parameters(self, scopes: Iterable[str], until: datetime | None) -> dict[str, Any]:
        """Return what is asked to know whether vectors of memories are still to be made."""
        embedder = self.encoder.embedder
        return {
            "scopes": list(scopes),
            "model_id": embedder.model_id,
            "dimension": embedder.dimension,
            "until": until,
        }

    def similarity(self, found: Candidate) -> float | None:
        """Return the similarity of a candidate and its query, 0 to 1; None without a vector."""
        return None if found.own is None else similarity(found.own, self.encoder.embedder.unrelated)

    def count_accesses(self, ids: Iterable[UUID]) -> None:
        """Count that memories were found; written some seconds later."""
        self._accesses.count(ids)

    async def by_version(
        self, rows: Sequence[Row], until: datetime | None = None, *, past: bool = False, deadline: Deadline
    ) -> list[StoredMemory]:
        """
        Return the versions of memories that *rows* name by ``id`` and ``version``, in their order; none that is gone.

        Args:
            until: as of when their importance is, and who says the same; now by default.
            past: whether what others said during a version is shown where they say it no longer.

        Raises:
            PostgresUnavailable, BudgetExceeded: no answer in time; retryable.
        """
        if not rows:
            return []
        wanted: dict[str, Any] = {"ids": [row["id"] for row in rows], "versions": [row["version"] for row in rows]}
        wanted |= {"until": until, "past": past}
        found = await self._database.named("memories_by_version", wanted, deadline=deadline)
        return [StoredMemory.model_validate(row) for row in found]

    async def get(
        self, memory_id: UUID, scopes: Sequence[str], until: datetime | None, *, deadline: Deadline
    ) -> StoredMemory | None:
        """
        Return a memory as it was at a moment, ended or not; None where there was none in the given scopes.

        Raises:
            PostgresUnavailable, BudgetExceeded: no answer in time; retryable.
        """
        asked = {"id": memory_id, "scopes": list(scopes), "until": until}
        found = await self._database.named("memory_at", asked, deadline=deadline)
        return next((_as_known(one, until) for one in await self.by_version(found, until, deadline=deadline)), None)

    async def page(self, asked: MemoryList, *, deadline: Deadline) -> MemoriesPage:
        """
        Return the memories that *asked* covers, the last recorded first.

        Raises:
            PostgresUnavailable, BudgetExceeded: no answer in time; retryable.
        """
        given = {
            **asdict(asked),
            "memory_type": asked.memory_type and asked.memory_type.value,
            "limit": asked.limit + 1,
        }
        rows = await self._database.named("listed_memories", given, deadline=deadline)
        found = await self.by_version(rows[: asked.limit], asked.until, deadline=deadline)
        return MemoriesPage(
            quality=Quality.EXACT,
            total=len(found),
            items=[_as_known(one, asked.until) for one in found],
            more=len(rows) > asked.limit,
            as_of=asked.until,
        )

    async def versions(self, memory_id: UUID, scopes: Sequence[str], *, deadline: Deadline) -> list[StoredMemory]:
        """
        Return the versions of a memory, of what it superseded and of what superseded it, oldest first.

        Raises:
            PostgresUnavailable, BudgetExceeded: no answer in time; retryable.
        """
        found = await self._database.named(
            "memory_versions", {"id": memory_id, "scopes": list(scopes)}, deadline=deadline
        )
        return await self.by_version(found, past=True, deadline=deadline)

    async def query_vector(self, text: str, deadline: Deadline) -> tuple[Vector | None, str | None]:
        """Return the vector of a query, made in a part of the time; None and why, if there is none."""
        due = deadline.within_ms(deadline.left_ms() * _ENCODING)
        try:
            [vector] = await self.encoder.vectors([text], Purpose.QUERY, deadline=due)
        except ImemError as error:
            return None, f"searched by words alone: {sentence(str(error))}"
        return vector, None


CONTEXT_CHARS: Final = 500
"""How much of the message before counts, its end: encoders read the beginning of a text alone."""


def with_context(content: str, before: str) -> str:
    """Return the text whose vector is the context's: a message after the one before it."""
    return f"{before[-CONTEXT_CHARS:]}\n{content}"


def _as_known(memory: StoredMemory, until: datetime | None) -> StoredMemory:
    """Return a version without what became of it after *until*."""
    if until is None:
        return memory
    later: dict[str, Any] = {"access_count": 0, "last_accessed_at": None}
    if memory.superseded_at is not None and memory.superseded_at > until:
        later |= {"superseded_at": None, "superseded_by": None, "reason": None}
    return memory.model_copy(update=later)


def unknown_memory(memory_id: UUID) -> BadInput:
    """Return the error for an id that no memory has."""
    return BadInput("memory_id", f"there is no memory {memory_id}.")


def _write(actor: Actor, memory: NewMemory, encoded: _Encoded) -> dict[str, Any]:
    return {
        "actor": actor.id,
        "role": actor.role.value,
        "id": new_id(),
        "content": memory.content,
        "metadata": memory.metadata_text,
        "model": encoded.model,
        "vector": encoded.vectors.first,
        "parts": encoded.vectors.others,
    }


def candidate(row: Row) -> Candidate:
    """Return a row of a search as a value."""
    place = (row["collection"], row["place"], row["ordinal"]) if row["place"] is not None else None
    raw = (row["words"], row["similarity"], row["context"])
    return Candidate(row["id"], *raw, place, row["author"], row["at"], row["occurred_at"])


def excerpt(content: str, row: Row) -> str | None:
    """Return the part of a text by which a row of a search was found; None for a text of one part."""
    parts = split(content)
    return parts[row["part"]] if len(parts) > 1 else None


def found_by(row: Row) -> list[MemoryMatch]:
    """Return why a row of a search was found."""
    named = {
        MemoryMatch.WORDS: row["by_words"],
        MemoryMatch.MEANING: row["by_meaning"],
        MemoryMatch.CONTEXT: row["by_context"],
    }
    return [match for match, so in named.items() if so] or [MemoryMatch.NEIGHBOUR]
