"""
The projection of records' texts: made from the journal for places that are due, and given vectors.

One process works at a time; a page of due rows is one transaction: a crash leaves whole pages, and the rest is still
due. Words are found from then on; vectors are made afterwards, outside any transaction, the newest first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, Final

import orjson
import structlog

from imem.jobs.due import DueRow, finish_due, halving, next_due, set_due_aside
from imem.jobs.pipeline import Report
from imem.jobs.throttle import LOADING_TIMES, Throttle, is_imported
from imem.journal.deadline import Deadline
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import execute, rows
from imem.kg.similarity.embedders import Embedder
from imem.kg.similarity.index import DUE_ROWS, run_lock
from imem.kg.similarity.index import QUEUE as SIMILAR_QUEUE
from imem.kg.similarity.vectors import model_number, store_deadline
from imem.recall.memories.encoding import passage_vectors
from imem.recall.memories.store import with_context
from imem.recall.search.texts import SOURCES, GroupValue, Part, Record, parts_of_place, spoken

log = structlog.get_logger()

QUEUE: Final = "search"
"""The queue of its due rows: a row names the place whose texts have changed."""

WITHIN: Final = tuple(f"{verb}.{kind}" for kind in ("Finding", "Decision") for verb in ("record", "correct"))
"""Events of records that stand in their analysis."""

PAGE: Final = 500
"""Due rows of one transaction."""

COMPARED_FIRST: Final = timedelta(hours=1)
"""For how long vectors of texts wait at most for those of an import's analyses: comparing may be out of order."""

VECTORS: Final = 64
"""Texts whose vectors are made in one batch."""

_GROUPS: Final = sorted({group for source in SOURCES.values() for group in source.groups})


async def project_due(database: Database, embedder: Embedder, *, until: Deadline) -> Report:
    """
    Project the texts that are due, then make the vectors that are missing or of another model, until none is left.

    Raises:
        ImemError: a store or the encoder is away; finished pages stay, the rest is still due.
    """
    changed = vectors = 0
    throttle = Throttle(until, loading=LOADING_TIMES)
    # One process at a time: the others would wait for its pages, and rest for as long as they waited.
    async with run_lock(database, "texts") as held:
        if not held:
            return {"texts": 0, "vectors": 0, "more": False}
        if await is_imported(database, QUEUE, tuple(SOURCES), PAGE):
            await throttle.pause_before_import(database)
        while not until.passed:
            done = await halving(lambda size: _page(database, size), PAGE, lambda error: _aside(database, error))
            if done is None:
                break
            changed += done
            await throttle.pause(database)
        model = await model_number(database, embedder, deadline=store_deadline())
        while not until.passed:
            if await is_imported(database, SIMILAR_QUEUE, ("Analysis",), DUE_ROWS, within=COMPARED_FIRST):
                # Words find the texts meanwhile, and nothing finds analyses that were not compared.
                return {"texts": changed, "vectors": vectors, "more": False}
            made = await _embed(database, embedder, model)
            vectors += made
            if made < VECTORS:
                return {"texts": changed, "vectors": vectors, "more": False}
            await throttle.pause(database)
    return {"texts": changed, "vectors": vectors, "more": True}


async def _page(database: Database, size: int) -> int | None:
    """Project the places of the next *size* due rows; return how many texts changed, None if nothing was due."""
    async with database.transaction(store_deadline()) as conn:
        await rows(conn, "search_lock")
        due = await next_due(conn, QUEUE, tuple(SOURCES), size)
        if not due:
            return None
        changed = await project(conn, {(one.kind, one.key) for one in due})
        await _rename(conn, due)
        await finish_due(conn, QUEUE, due)
    return changed


async def _aside(database: Database, error: Exception) -> int:
    async with database.transaction(store_deadline()) as conn:
        await set_due_aside(conn, QUEUE, await next_due(conn, QUEUE, tuple(SOURCES), 1), error)
    return 0


async def _rename(conn: Connection, due: Sequence[DueRow]) -> None:
    """Make due what is said about subjects that may have another name now."""
    subjects = [f"{one.kind.lower()}:{one.key}" for one in due if one.kind in {"Company", "Market"}]
    if subjects:
        await execute(conn, "due_of_subjects", {"queue": QUEUE, "subjects": sorted(set(subjects))})


async def project(conn: Connection, places: set[Record]) -> int:
    """Make the texts of *places* anew from the journal; return how many rows changed."""
    wanted = sorted(places)
    given = {"kinds": [kind for kind, _ in wanted], "keys": [key for _, key in wanted]}
    found = await rows(conn, "texts_to_project", {**given, "within": list(WITHIN), "groups": _GROUPS})
    histories: dict[str, dict[Record, list[GroupValue]]] = {f"{kind}/{key}": {} for kind, key in wanted}
    for row in found:
        value = GroupValue(
            row["grp"], row["known_at"], row["order_key"], orjson.loads(row["value"] or "null"), row["occurred_at"]
        )
        histories[row["place"]].setdefault((row["kind"], row["key"]), []).append(value)
    names = await _names(conn, histories)
    parts = [part for place, records in histories.items() for part in parts_of_place(place, records, names)]
    [done] = await rows(conn, "project_texts", {"places": list(histories), "rows": _as_json(parts)})
    changed: int = done["changed"]
    return changed


async def _names(
    conn: Connection, histories: dict[str, dict[Record, list[GroupValue]]]
) -> dict[str, list[tuple[datetime, str]]]:
    """Return the names of every subject that the records have, each from when on it was the name."""
    subjects = {
        value.value["subject_id"]
        for records in histories.values()
        for history in records.values()
        for value in history
        if value.group in {"core", "correction"} and value.value.get("subject_id")
    }
    names: dict[str, list[tuple[datetime, str]]] = {}
    for row in await rows(conn, "names_of_subjects", {"subjects": sorted(subjects)}):
        names.setdefault(row["subject_id"], []).append((row["known_at"], row["name"]))
    return names


def _as_json(parts: Sequence[Part]) -> str:
    return orjson.dumps([asdict(part) for part in parts]).decode()


async def _embed(database: Database, embedder: Embedder, model: int) -> int:
    """Make the vectors of the next texts; return how many texts were looked at."""
    given = {"model": model, "limit": VECTORS}
    found = await database.named("texts_to_embed", given, deadline=store_deadline())
    if not found:
        return 0
    texts = [vector_text(row["kind"], row["author"], row["title"], row["content"]) for row in found]
    contexts = [
        with_context(text, row["before"]) if row["before"] else None for text, row in zip(texts, found, strict=True)
    ]
    vectors = await passage_vectors(embedder, texts, contexts)
    if refused := sum(vector is None for vector, _ in vectors):
        log.warning("search.refused", model=embedder.model_id, texts=refused)
    columns: dict[str, Any] = {
        "ids": [row["id"] for row in found],
        "versions": [row["version"] for row in found],
        "texts": [row["whole"] for row in found],
        "vectors": [vector for vector, _ in vectors],
        "contexts": [context for _, context in vectors],
    }
    await database.commit("set_text_vectors", {"model": model, **columns}, deadline=store_deadline())
    return len(found)


def vector_text(kind: str, author: str | None, title: str, content: str) -> str:
    """Return the text that a vector is made of: what is said of whom, of a turn also by whom."""
    said = spoken(kind, author, content)
    return f"{title}: {said}" if title else said
