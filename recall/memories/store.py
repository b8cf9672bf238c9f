"""
Memories in Postgres: stored, superseded, and found by words and meaning.

A text is encoded before it is stored, outside any transaction. Where the encoder is away it is stored without a vector,
is found by its words alone, and a pipeline makes the vector (:mod:`imem.recall.memories.pipelines`). Each write is one
transaction of one function, which queues at the namespace: a crash leaves all of it or nothing.

Rights are checked by the callers, :mod:`imem.services.memories`, and for writes by the functions too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, ImemError
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import new_id
from imem.kg.similarity.embedders import Embedder
from imem.kg.similarity.sentence_models import Purpose
from imem.kg.similarity.vectors import Vector, as_text
from imem.recall.answers import Quality
from imem.recall.memories.accesses import AccessCounter
from imem.recall.memories.encoding import BackgroundEncoder
from imem.recall.memories.model import (
    FoundMemory,
    MemoriesSection,
    MemoryMatch,
    MemoryQuery,
    NewMemory,
    RememberedMemory,
    StoredMemory,
    StoreStatus,
)
from imem.recall.memories.ranking import CANDIDATES, Candidate, rank, similarity
from imem.recall.request.fallbacks import sentence
from imem.recall.timing.lateness import reports_lateness

NEAR_DUPLICATE: Final = 0.95
"""Above this similarity a text of the same figures is the same memory."""

EXACT: Final = 5_000
"""Most memories of the searched namespaces that are compared one by one; beyond, the index of vectors is used."""

_ENCODING: Final = 0.6
"""Share of a read's time that the query's vector may take."""

_STORING_MS: Final = 1_000.0
"""What encoding leaves of a write's time for Postgres, in milliseconds; at most half of it."""


@dataclass(frozen=True, slots=True)
class _Encoded:
    """Vectors of a text, as Postgres reads them, and with which message before it the second was made."""

    model: int | None = None
    vector: str | None = None
    context_vector: str | None = None
    before: UUID | None = None


class MemoryTable:
    """The memories of one process and event loop."""

    def __init__(self, database: Database, embedder: Embedder) -> None:
        self._database = database
        self._encoder = BackgroundEncoder(embedder)
        self._accesses = AccessCounter(database)
        self._model: int | None = None

    async def close(self) -> None:
        """Give up what is encoded, and write what was counted."""
        await self._encoder.close()
        await self._accesses.close()

    # Storing

    async def store(self, actor: Actor, namespace: str, memory: NewMemory, *, deadline: Deadline) -> RememberedMemory:
        """
        Store *memory*, or update the one of the namespace that says nearly the same.

        Raises:
            PostgresUnavailable, BudgetExceeded: nothing was written; retryable.
            OutcomeUnknown: the connection broke while committing; repeating the call is safe.
        """
        encoded = await self._encoded(namespace, memory.content, memory.conversation_id, deadline)
        given = {
            "namespace": namespace,
            "memory_type": memory.memory_type.value,
            "importance": memory.importance,
            "user_id": memory.user_id,
            "conversation_id": memory.conversation_id,
            "author": memory.author,
            "context_vector": encoded.context_vector,
            "before": encoded.before,
            "similar": NEAR_DUPLICATE,
            "exact": EXACT,
        }
        write = _write(actor, memory, encoded)
        [row] = await self._database.commit("store_memory", {**given, **write}, deadline=deadline)
        return _remembered(row)

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
        Put *memory* in the place of *known*, whose versions stay; None keeps its importance.

        Raises:
            BadInput: there is no such memory, another took its place already, or the namespace has that text.
            PostgresUnavailable, BudgetExceeded, OutcomeUnknown: as :meth:`store`.
        """
        encoded = await self._encoded("", memory.content, None, deadline)
        given = {"known": known, "reason": reason, "importance": importance}
        write = _write(actor, memory, encoded)
        [row] = await self._database.commit("supersede_memory", {**given, **write}, deadline=deadline)
        match row["status"]:
            case "absent":
                raise unknown_memory(known)
            case "ended":
                raise BadInput("memory_id", f"{known} was superseded by {row['id']} already.")
            case "taken":
                raise BadInput("text", f"is what memory {row['id']} of the namespace says already.")
            case _:
                return _remembered(row)

    async def namespace_of(self, memory_id: UUID, *, deadline: Deadline) -> str | None:
        """Return the namespace of a memory; None if there is none of that id."""
        found = await self._database.named("memory_namespace_of", {"id": memory_id}, deadline=deadline)
        return found[0]["namespace"] if found else None

    async def _encoded(self, namespace: str, content: str, conversation: str | None, deadline: Deadline) -> _Encoded:
        """Return the vectors of a text; none of them if the encoder is away or late."""
        before: Row | None = None
        if conversation is not None:
            place = {"namespace": namespace, "conversation_id": conversation}
            before = next(iter(await self._database.named("last_of_conversation", place, deadline=deadline)), None)
        texts = [content] if before is None else [content, with_context(content, before["content"])]
        left_ms = deadline.left_ms()
        due = deadline.within_ms(left_ms - min(_STORING_MS, left_ms / 2))
        try:
            vectors = await self._encoder.vectors(texts, Purpose.PASSAGE, deadline=due)
        except ImemError:
            return _Encoded()
        if self._model is None:
            self._model = await model_number(self._database, self._encoder.embedder, deadline=deadline)
        context = as_text(vectors[1]) if before is not None else None
        return _Encoded(self._model, as_text(vectors[0]), context, before["id"] if before is not None else None)

    # Reading

    @reports_lateness
    async def search(self, query: MemoryQuery, *, deadline: Deadline) -> MemoriesSection:
        """
        Return the memories that answer *query*, best first.

        Raises:
            PostgresUnavailable, BudgetExceeded: no answer in time; retryable.
        """
        embedder = self._encoder.embedder
        vector, lacking = await self._query_vector(query.text, deadline)
        given = {
            "scopes": query.scopes,
            "query": query.text,
            "model_id": embedder.model_id,
            "dimension": embedder.dimension,
            "vector": as_text(vector) if vector is not None else None,
            "memory_type": query.memory_type.value if query.memory_type is not None else None,
            "agent_id": query.agent_id,
            "conversation_id": query.conversation_id,
            "until": query.until,
            "candidates": CANDIDATES,
            "exact": EXACT,
        }
        rows = {row["id"]: row for row in await self._database.named("search_memories", given, deadline=deadline)}
        if vector is not None and (waiting := next((row["unembedded"] for row in rows.values()), 0)):
            lacking = f"{waiting} of the memories looked at have no vector yet and were found by words alone"
        shown = [
            (rows[one.id], score, None if one.own is None else similarity(one.own, embedder.unrelated))
            for one, score in rank([_candidate(row) for row in rows.values()], query.text)
        ]
        shown = [one for one in shown if one[2] is None or one[2] >= query.threshold][: query.limit]
        stored = await self._versions([row for row, _, _ in shown], deadline=deadline)
        items = [
            FoundMemory(**dict(_as_known(memory, query.until)), score=score, similarity=near, found_by=_found_by(row))
            for memory, (row, score, near) in zip(stored, shown, strict=True)
        ]
        if query.until is None:
            self._accesses.count(item.id for item in items)
        return MemoriesSection(
            quality=Quality.EXACT if lacking is None else Quality.PARTIAL,
            reason=lacking,
            total=len(items),
            items=items,
            as_of=query.until,
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
        return await self._versions(found, deadline=deadline)

    async def _versions(self, rows: Sequence[Row], *, deadline: Deadline) -> list[StoredMemory]:
        if not rows:
            return []
        wanted = {"ids": [row["id"] for row in rows], "versions": [row["version"] for row in rows]}
        found = await self._database.named("memories_by_version", wanted, deadline=deadline)
        return [StoredMemory.model_validate(row) for row in found]

    async def _query_vector(self, text: str, deadline: Deadline) -> tuple[Vector | None, str | None]:
        """Return the vector of a query, or why there is none."""
        due = deadline.within_ms(deadline.left_ms() * _ENCODING)
        try:
            [vector] = await self._encoder.vectors([text], Purpose.QUERY, deadline=due)
        except ImemError as error:
            return None, f"searched by words alone: {sentence(str(error))}"
        return vector, None


def with_context(content: str, before: str) -> str:
    """Return the text whose vector is the context's: a message after the one before it."""
    return f"{before}\n{content}"


async def model_number(database: Database, embedder: Embedder, *, deadline: Deadline) -> int:
    """
    Return the number of the embedder's model, which is registered.

    Raises:
        PostgresUnavailable, BudgetExceeded: it is not known; retryable.
    """
    named = {"model_id": embedder.model_id, "dimension": embedder.dimension, "unrelated": embedder.unrelated}
    number: int = (await database.commit("memory_model", named, deadline=deadline))[0]["model"]
    return number


def _as_known(memory: StoredMemory, until: datetime | None) -> StoredMemory:
    """Return a version without what became of it after *until*."""
    if until is None:
        return memory
    later = {"superseded_at": None, "superseded_by": None, "reason": None, "access_count": 0, "last_accessed_at": None}
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
        "vector": encoded.vector,
    }


def _remembered(row: Row) -> RememberedMemory:
    status = StoreStatus(row["status"])
    return RememberedMemory(status, row["id"], row["version"], row["recorded_at"], row["waits"])


def _candidate(row: Row) -> Candidate:
    placed = row["conversation_id"] is not None
    place = (row["namespace"], row["conversation_id"], row["ordinal"]) if placed else None
    return Candidate(row["id"], row["words"], row["similarity"], row["context"], place, row["author"])


def _found_by(row: Row) -> list[MemoryMatch]:
    named = {
        MemoryMatch.WORDS: row["by_words"],
        MemoryMatch.MEANING: row["by_meaning"],
        MemoryMatch.CONTEXT: row["by_context"],
    }
    return [match for match, so in named.items() if so] or [MemoryMatch.NEIGHBOUR]
