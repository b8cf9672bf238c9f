"""
Search over everything: records and memories, ranked as one list.

Rights are checked by the caller, :mod:`imem.services.search`.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from imem.journal.clock import SystemClock
from imem.journal.deadline import Deadline
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.kg.kinds.learning import LessonVisibility
from imem.kg.similarity.vectors import Vector
from imem.recall.answers import Quality
from imem.recall.memories.gaps import joined, unembedded, unknown_languages
from imem.recall.memories.model import MemoryQuery, StoredMemory
from imem.recall.memories.ranking import CANDIDATES, Candidate, rank
from imem.recall.memories.store import MemoryTable, candidate, excerpt, found_by
from imem.recall.search.model import KIND_OF, FoundText, SearchKind, SearchQuery, SearchSection
from imem.recall.search.projection import QUEUE
from imem.recall.timing.lateness import reports_lateness

_Shown = tuple[Candidate, float]


class SearchIndex:
    """The texts of records, and the memories, of one process and event loop."""

    def __init__(self, database: Database, memories: MemoryTable) -> None:
        self._database = database
        self._memories = memories

    @reports_lateness
    async def search(self, query: SearchQuery, *, deadline: Deadline) -> SearchSection:
        """
        Return what answers *query*, best first, each record once.

        Raises:
            PostgresUnavailable, BudgetExceeded: no answer in time; retryable.
        """
        vector, lacking = await self._memories.query_vector(query.text, deadline)
        scopes = query.scopes if SearchKind.MEMORY in query.kinds else ()
        asked = {"queue": QUEUE, **self._memories.waiting_parameters(scopes, query.until)}
        records, memories, [waiting] = await asyncio.gather(
            self._records(query, vector, deadline),
            self._memory_rows(query, vector, deadline),
            self._database.named("search_waits_since", asked, deadline=deadline),
        )
        if vector is not None:
            waits = waiting["memories"] or (bool(query.texts) and waiting["texts"])
            lacking = unembedded(records, waits=False) or unembedded(memories, waits=waits)
        rows = {row["id"]: row for row in (*records, *memories)}
        ranked = rank(
            [candidate(row) for row in rows.values()],
            query.text,
            now=query.until or SystemClock().now(),
            half_life_days=query.recent_days,
        )
        items = await self._found(ranked, rows, {row["id"] for row in memories}, query, deadline)
        since = waiting["since"] if query.texts else None
        late = (
            f"what was recorded since {since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC is not searched yet"
            if since
            else None
        )
        if vector is not None:
            embedder = self._memories.encoder.embedder
            lacking = joined(lacking, unknown_languages(embedder, query.text, [item.text for item in items]))
        reason = joined(lacking, late)
        return SearchSection(
            quality=Quality.EXACT if reason is None else Quality.PARTIAL,
            reason=reason,
            total=len(items),
            items=items,
            as_of=query.until,
        )

    async def _records(self, query: SearchQuery, vector: Vector | None, deadline: Deadline) -> list[Row]:
        if not query.texts:
            return []
        given = self._memories.search_parameters(query.text, vector, query.until)
        # Of a record several parts may be found, and one is shown.
        most = {"candidates": max(CANDIDATES, query.limit * 2)}
        named = {"kinds": query.texts, "subject_id": query.subject_id}
        return await self._database.named("search_records", {**named, **given, **most}, deadline=deadline)

    async def _memory_rows(self, query: SearchQuery, vector: Vector | None, deadline: Deadline) -> list[Row]:
        if SearchKind.MEMORY not in query.kinds or not query.scopes:
            return []
        asked = MemoryQuery(query.text, list(query.scopes), limit=query.limit, until=query.until)
        return await self._memories.candidates(asked, vector, deadline=deadline)

    async def _found(
        self,
        ranked: list[_Shown],
        rows: dict[object, Row],
        memories: set[object],
        query: SearchQuery,
        deadline: Deadline,
    ) -> list[FoundText]:
        """Return what is shown: of each record the best part."""
        texts = await self._texts([rows[one.id] for one, _ in ranked if one.id not in memories], query.until, deadline)
        wanted: list[_Shown] = []
        seen: set[tuple[str, str]] = set()
        for one, score in ranked:
            text = texts.get(one.id)
            if one.id not in memories and (text is None or (text["kind"] == "Lesson" and text["shown"] is None)):
                continue  # Its text was replaced, or the lesson withdrawn, since the candidates were read.
            if text is not None and text["header"] and query.records is None:
                continue
            record = ("", str(one.id)) if text is None else (text["kind"], text["key"])
            if record not in seen and len(wanted) < query.limit:
                seen.add(record)
                wanted.append((one, score))
        shown = [rows[one.id] for one, _ in wanted if one.id in memories]
        stored = {
            memory.id: memory for memory in await self._memories.by_version(shown, query.until, deadline=deadline)
        }
        if query.until is None:
            self._memories.count_accesses(list(stored))
        return [
            FoundText(
                **(_of_memory(stored[one.id], rows[one.id]) if one.id in stored else _of_record(texts[one.id])),
                score=score,
                similarity=self._memories.similarity(one),
                found_by=found_by(rows[one.id]),
            )
            for one, score in wanted
            if one.id in stored or one.id in texts
        ]

    async def _texts(self, rows: list[Row], until: datetime | None, deadline: Deadline) -> dict[object, Row]:
        if not rows:
            return {}
        wanted = {"ids": [row["id"] for row in rows], "versions": [row["version"] for row in rows], "until": until}
        found = await self._database.named("record_texts_by_version", wanted, deadline=deadline)
        return {row["id"]: row for row in found}


def _of_memory(memory: StoredMemory, row: Row) -> dict[str, Any]:
    return {
        "kind": SearchKind.MEMORY,
        "key": str(memory.id),
        "part_of": memory.namespace,
        "author": memory.author or memory.agent_id,
        "text": excerpt(memory.content, row) or memory.content,
        "part": row["part"],
        "known_at": memory.recorded_at,
    }


def _of_record(text: Row) -> dict[str, Any]:
    return {
        "kind": KIND_OF[text["kind"]],
        "key": text["key"],
        "subject_id": text["subject_id"],
        "part_of": text["place"],
        "author": text["author"],
        "title": text["title"] or None,
        "text": text["content"],
        "part": text["part"],
        "known_at": text["known_at"],
        "advisory": text["shown"] == LessonVisibility.ADVISORY,
    }
