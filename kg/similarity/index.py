"""
The index of similar analyses: updated for each new one, rebuilt each week, replaced as a whole.

Due rows (:mod:`imem.jobs.due`) say which analyses to compare. :func:`update` makes their vectors and inserts them into
every live version of the index. :func:`rebuild`
builds a version beside the current one, page by page; when it is complete it replaces the current one in one
transaction. For a new model in the settings, first all vectors are made, then a version; until that is complete the old
one is read.

Each page is a transaction under one lock: a crash leaves whole pages and releases the lock, and the next run resumes.
Between pages the work pauses while an import needs the processor.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import structlog

from imem.jobs.due import DueRow, due_of, finish_due, make_due, next_due
from imem.jobs.throttle import LOADING_TIMES, Throttle, is_imported
from imem.journal.deadline import Deadline
from imem.journal.errors import PostgresUnavailable
from imem.journal.postgres.concurrent import all_finished
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import execute, rows
from imem.kg.projection.derived_values import QUEUE as GRAPH_QUEUE
from imem.kg.similarity.embedders import Embedder
from imem.kg.similarity.neighbours import Build, Distances, FeatureCache, nearest, place
from imem.kg.similarity.scoring import RULES, hash64, words_of
from imem.kg.similarity.vectors import EmbeddingModel, embed, index_vectors, model_of, models, store_deadline

log = structlog.get_logger()

PAGE: Final = 160
"""Most analyses in one transaction, which takes about a second under the lock on neighbours."""

IMPORT_PAGE: Final = 640
"""The same in an import's first, which is not urgent: an analysis changes a dozen lists, a page writes each once."""

MOST_IMPORT_PAGE: Final = 2_560
"""The same in any page of an import: 30 MB of candidates."""

IMPORT_PAGE_S: Final = 5.0
"""A page that took less is followed by one twice as large, one of twice as long by half as large, in seconds."""

ROWS_OF_ONE: Final = 3
"""Due rows of an analysis with its claims, about: so many times a page are read for it."""

DUE_ROWS: Final = PAGE * ROWS_OF_ONE
"""Due rows read for a page."""

QUESTIONS_PAGE: Final = 1_000
"""Questions stored in one statement."""

EMBED_PAGE: Final = 128
"""Analyses whose vectors are stored in one transaction."""

EMBED_AT_ONCE: Final = 2
"""How many such pages are under way at once: one is read or stored while the other is encoded."""

PRUNE_PAGE: Final = 5_000
"""Rows removed in one statement."""

REBUILD_REST: Final = 3.0
"""Pause after a page of a rebuild, as a share of its duration: it takes a quarter of one processor."""

QUEUE: Final = "similar"
"""The queue of its due rows: of analyses, and of what many analyses are compared by."""

_SHARED: Final = {
    "Pattern": "due_of_patterns",
    "Company": "due_of_profiles",
    "Market": "due_of_markets",
}
"""Node shared by many analyses → the statement that makes those due."""


class IndexBusy(PostgresUnavailable):
    """Another process holds the lock or has changed the version."""


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """
    The result of a run.

    Attributes:
        analyses: how many were compared.
        vectors: how many were made.
        changed: lists of neighbours that changed.
        more: whether work was left at the deadline.
        busy: whether another process holds the lock.
        version: the version that became current, if one did.
    """

    analyses: int = 0
    vectors: int = 0
    changed: int = 0
    more: bool = False
    busy: bool = False
    version: int | None = None

    def __add__(self, other: UpdateReport) -> UpdateReport:
        return UpdateReport(
            self.analyses + other.analyses,
            self.vectors + other.vectors,
            self.changed + other.changed,
            other.more,
            self.busy or other.busy,
            other.version or self.version,
        )


@dataclass(frozen=True, slots=True)
class _Page:
    """
    Analyses to be compared.

    Attributes:
        keys: which.
        due: the due rows that are done with them; what is recorded of one afterwards has a row of its own.
        made: vectors made for them.
        near: the nearest of each by text.
    """

    keys: Sequence[str]
    due: Sequence[DueRow]
    made: int
    near: Distances

    @property
    def can_wait(self) -> bool:
        """Whether none of its analyses was recorded today."""
        return all(one.later for one in self.due)


@asynccontextmanager
async def page_transaction(database: Database) -> AsyncIterator[Connection]:
    """
    Open the transaction of one page, under the lock on neighbours.

    It waits for another process' page, which takes a moment: giving up would only meet the other again at the next
    request of beat.
    """
    async with database.transaction(store_deadline()) as conn:
        await rows(conn, "similarity_lock")
        yield conn


@asynccontextmanager
async def run_lock(database: Database, work: str) -> AsyncIterator[bool]:
    """
    Acquire the lock of a run of *work*, and yield whether this process has it.

    Two concurrent runs would make the same vectors twice; pages are safe without it (:func:`page_transaction`). It
    takes an open connection; a crash releases it.
    """
    async with database.transaction(Deadline.never()) as conn:
        yield bool((await rows(conn, "similarity_run", {"work": work}))[0]["held"])


# Update


async def update(
    database: Database, embedder: Embedder, *, until: Deadline, loading: float = LOADING_TIMES
) -> UpdateReport:
    """
    Compare due analyses, until none is left or *until* has passed.

    Args:
        database: the journal.
        embedder: of the settings; for a new model the index is rebuilt first (:func:`rebuild`), and until then the old
            one is read.
        until: when to stop; the rest stays due.
        loading: see :class:`Throttle`; while little is due, there is no pause.

    Raises:
        ImemError: vectors cannot be made now; finished pages stay, the rest is still due.
        PostgresUnavailable: the same.
    """
    async with run_lock(database, "update") as held:
        return await _update(database, embedder, Throttle(until, loading=loading)) if held else UpdateReport(busy=True)


async def _update(database: Database, embedder: Embedder, throttle: Throttle) -> UpdateReport:
    model = await model_of(database, embedder)
    total = UpdateReport()
    await _first_build(database, model)
    await _expand(database)
    if not await _is_built_with(database, model):
        return await rebuild(database, embedder, throttle=throttle)
    known = FeatureCache()
    if await is_imported(database, QUEUE, ("Analysis",), DUE_ROWS):
        # Each is compared once where all of an import have their vectors: another that comes later may not find it.
        await database.commit("import_model", {"model": model.number}, deadline=store_deadline())
        await throttle.pause_before_import(database)
        total += UpdateReport(vectors=await embed_missing(database, embedder, model, throttle=throttle))
        await index_vectors(database, model)
    most, taken_s, page = IMPORT_PAGE, 0.0, None
    while not throttle.over():
        if page is None:
            page = await _next_page(database, embedder, model, most)
            if page is None:
                return total
            total += UpdateReport(vectors=page.made)
        begun = time.monotonic()
        placing = _place_page(database, model, page, known)
        if throttle.until.left_s() > taken_s:
            # The next page is prepared while this one is placed, which is Python for the most part.
            placed, page = await all_finished(placing, _next_page(database, embedder, model, most, behind=page))
        else:
            placed, page = await placing, None
        total += placed
        taken_s = time.monotonic() - begun
        most = _next_most(most, taken_s)
        if page is not None:
            total += UpdateReport(vectors=page.made)
            await throttle.pause(database)
            if page.can_wait and await _is_urgent(database):
                page = None  # It is prepared again behind what was recorded today; its vectors are stored.
    return total + UpdateReport(more=True)


async def _is_urgent(database: Database) -> bool:
    """Return whether an analysis is due that is not an import's."""
    async with database.transaction(store_deadline()) as conn:
        return any(not one.later for one in await next_due(conn, QUEUE, ("Analysis",), 1))


def _next_most(most: int, taken_s: float) -> int:
    """Return the most analyses of an import's next page, after one of *most* that took so long."""
    if taken_s > 2 * IMPORT_PAGE_S:
        return max(most // 2, PAGE)
    return min(most * 2, MOST_IMPORT_PAGE) if taken_s < IMPORT_PAGE_S else most


async def _expand(database: Database) -> None:
    """Make the analyses due that share what a due row is about: a pattern, a company's profile, a market's question."""
    while True:
        async with page_transaction(database) as conn:
            due = await next_due(conn, QUEUE, _SHARED, DUE_ROWS)
            for kind, statement in _SHARED.items():
                some = [one for one in due if one.kind == kind]
                if some:
                    given = {"keys": [one.key for one in some], "positions": [one.position for one in some]}
                    await execute(conn, statement, given)
            await finish_due(conn, QUEUE, due)
        if len(due) < DUE_ROWS:
            return


async def _next_page(
    database: Database, embedder: Embedder, model: EmbeddingModel, most: int, *, behind: _Page | None = None
) -> _Page | None:
    """Prepare the next page of due analyses, of an import at most *most*, *behind* another; None when none is due."""
    taken = frozenset(behind.keys if behind else ())
    async with database.transaction(store_deadline()) as conn:
        found = await next_due(conn, QUEUE, ("Analysis",), most * ROWS_OF_ONE + len(behind.due if behind else ()))
        some = list(dict.fromkeys(one.key for one in found if one.key not in taken))
        keys = some[: most if found and found[0].later else PAGE]
        # An analysis has a row for each of its claims; those that an import recorded later are further back.
        due = await due_of(conn, QUEUE, "Analysis", keys)
    if not due:
        return None
    made = await embed(database, embedder, model, keys)
    await note_questions(database, keys)
    async with database.transaction(store_deadline()) as conn:
        return _Page(keys, due, made, await nearest(conn, model.number, keys))


async def _place_page(database: Database, model: EmbeddingModel, page: _Page, known: FeatureCache) -> UpdateReport:
    """Update the lists of a page's analyses in every live version, and delete its due rows."""
    # A due row means that a feature has changed. What is known of others may have, too: then they are due themselves.
    known.forget(page.keys)
    changed: set[str] = set()
    linked = set(page.keys)
    async with page_transaction(database) as conn:
        for build in await live_builds(conn):
            if build.rules == RULES:
                near = page.near if build.model == model.number else None
                moved = await place(conn, build, page.keys, known, near)
                changed |= moved
                linked |= moved if build.current else set()
        await finish_due(conn, QUEUE, page.due)
        # Those that are due themselves change with each page of an import: their links follow with their own page.
        linked -= {one.key for one in await due_of(conn, QUEUE, "Analysis", sorted(linked))}
        await make_due(conn, GRAPH_QUEUE, "similar_to", linked)
    return UpdateReport(len(page.keys), 0, len(changed))


async def note_questions(database: Database, keys: Sequence[str] | None = None) -> None:
    """
    Store by what questions are recognised: of the markets of the given analyses, or of all.

    Raises:
        PostgresUnavailable: not all are stored; retryable.
    """
    while True:
        given = {"keys": None if keys is None else sorted(set(keys)), "limit": QUESTIONS_PAGE}
        found = await database.named("questions_to_note", given, deadline=store_deadline())
        if found:
            await database.execute(
                "note_questions",
                {
                    "positions": [row["position"] for row in found],
                    "words": [hash64(words_of(row["question"])) for row in found],
                    "series": [None if row["series_id"] is None else hash64(row["series_id"]) for row in found],
                },
                deadline=store_deadline(),
            )
        if len(found) < QUESTIONS_PAGE:
            return


async def live_builds(conn: Connection) -> list[Build]:
    """Return the versions that are kept up to date."""
    return [Build.from_row(row) for row in await rows(conn, "live_builds")]


async def _first_build(database: Database, model: EmbeddingModel) -> None:
    """Begin the first version, which is current at once and filled by updates."""
    if (await database.named("live_builds", deadline=store_deadline())) or not model.in_use:
        return
    async with page_transaction(database) as conn:
        if not await live_builds(conn):
            given = {"model": model.number, "rules": RULES, "state": "current"}
            await rows(conn, "begin_build", given)


async def _is_built_with(database: Database, model: EmbeddingModel) -> bool:
    """Return whether the current version is built with *model* and the rules of this program."""
    found = [Build.from_row(row) for row in await database.named("live_builds", deadline=store_deadline())]
    return any(one.current and one.model == model.number and one.rules == RULES for one in found)


# Rebuild


async def rebuild(database: Database, embedder: Embedder, *, throttle: Throttle) -> UpdateReport:
    """
    Resume the version being built, or begin one, and make it current when it is complete.

    Missing vectors are made first; a new model comes into use with its version. A report with ``more`` requests another
    call.

    Raises:
        ImemError: as :func:`update`; what was made before stays.
    """
    async with run_lock(database, "rebuild") as held:
        return await _rebuild(database, embedder, throttle) if held else UpdateReport(busy=True)


async def _rebuild(database: Database, embedder: Embedder, throttle: Throttle) -> UpdateReport:
    model = await model_of(database, embedder)
    total = UpdateReport(vectors=await embed_missing(database, embedder, model, throttle=throttle))
    if throttle.over():
        return total + UpdateReport(more=True)
    await note_questions(database)
    try:
        build = await _begun(database, model)
        known = FeatureCache()
        while not throttle.over():
            done = await _build_page(database, build, known)
            if done is None:
                await _swap(database, build)
                await prune(database, throttle=throttle)
                return total + UpdateReport(version=build.version)
            total += done
            await throttle.pause()
    except IndexBusy:
        return total + UpdateReport(busy=True, more=True)
    return total + UpdateReport(more=True)


async def embed_missing(database: Database, embedder: Embedder, model: EmbeddingModel, *, throttle: Throttle) -> int:
    """Make every vector that *model* lacks, page by page, until none is left or the time is over; return how many."""
    made, after = 0, ""
    while not throttle.over():
        given = {"model": model.number, "after": after, "limit": EMBED_PAGE * EMBED_AT_ONCE}
        keys = [row["key"] for row in await database.named("analyses_to_embed", given, deadline=store_deadline())]
        if not keys:
            break
        pages = [keys[start : start + EMBED_PAGE] for start in range(0, len(keys), EMBED_PAGE)]
        made += sum(await all_finished(*(embed(database, embedder, model, page) for page in pages)))
        after = keys[-1]
        await throttle.pause(database)
    return made


async def _begun(database: Database, model: EmbeddingModel) -> Build:
    """Return the version being built for *model*, or begin one; one for another model or other rules is abandoned."""
    async with page_transaction(database) as conn:
        for build in await live_builds(conn):
            if not build.current and build.model == model.number and build.rules == RULES:
                return build
            if not build.current:
                await execute(conn, "abandon_build", {"version": build.version})
        await rows(conn, "begin_build", {"model": model.number, "rules": RULES, "state": "building"})
        return next(build for build in await live_builds(conn) if not build.current)


async def _build_page(database: Database, build: Build, known: FeatureCache) -> UpdateReport | None:
    """Insert the next analyses into a version being built; None when there are none."""
    async with page_transaction(database) as conn:
        here = next((one for one in await live_builds(conn) if one.version == build.version), None)
        if here is None or here.current:
            # Another process completed or abandoned it.
            raise IndexBusy("Another process builds the index.")
        given = {"model": here.model, "after": here.upto, "limit": PAGE}
        keys = [row["key"] for row in await rows(conn, "analyses_to_place", given)]
        if not keys:
            return None
        changed = await place(conn, here, keys, known)
        await execute(conn, "advance_build", {"version": here.version, "upto": keys[-1], "count": len(keys)})
        return UpdateReport(len(keys), 0, len(changed))


async def _swap(database: Database, build: Build) -> None:
    """Make a version current, with its model, and queue the links that differ."""
    async with page_transaction(database) as conn:
        before = next((one.version for one in await live_builds(conn) if one.current), None)
        await execute(conn, "swap_build")
        if await execute(conn, "swap_build_in", {"version": build.version}) != 1:
            raise IndexBusy("Another process has swapped the index.")
        await execute(conn, "swap_model", {"model": build.model})
        await execute(conn, "swap_model_in", {"model": build.model})
        links = await execute(conn, "derive_swapped", {"version": build.version, "before": before})
    log.info("similar.swapped", version=build.version, model=build.model_version, links_of=links)


async def prune(database: Database, *, throttle: Throttle) -> None:
    """Delete what is not read any more: lists of replaced versions, vectors of models out of use."""
    while not throttle.over() and await database.execute(
        "prune_lists", {"limit": PRUNE_PAGE}, deadline=store_deadline()
    ):
        await throttle.pause()
    await database.execute("prune_builds", deadline=store_deadline())
    for model in await models(database):
        if not model.in_use:
            await _prune_model(database, model, throttle)


async def _prune_model(database: Database, model: EmbeddingModel, throttle: Throttle) -> None:
    given: dict[str, Any] = {"model": model.number}
    removed = 0
    while not throttle.over():
        count = await database.execute("prune_vectors", {**given, "limit": PRUNE_PAGE}, deadline=store_deadline())
        removed += count
        if not count:
            break
        await throttle.pause()
    if removed:
        await database.commit("drop_model_index", given, deadline=store_deadline())


# For the graph


class SimilarTo:
    """Makes the rows of the links ``SIMILAR_TO`` for the applier, all links of an analysis at once."""

    async def rows(self, database: Database, keys: Sequence[str]) -> list[dict[str, Any]]:
        """
        Return one row for each analysis: its key, and its neighbours with the links' properties.

        Raises:
            PostgresUnavailable: the work stays due.
        """
        found = await database.named(
            "similar_stored", {"keys": list(keys), "min_score": 0.0}, deadline=store_deadline()
        )
        links: dict[str, list[dict[str, Any]]] = {key: [] for key in keys}
        for row in found:
            links[row["analysis_id"]].append(_link(row))
        return [{"key": key, "neighbours": links[key]} for key in keys]


def _link(row: Row) -> dict[str, Any]:
    return {
        "to": row["neighbour_id"],
        "score": row["score"],
        "rank": row["rank"],
        "model_version": row["model_version"],
        "built_at": row["built_at"].isoformat(),
    }
