"""
The index of similar analyses: kept up to date for each new one, built anew each week, swapped whole.

Rows of ``similarity_due``, written by the journal in the transaction of the event itself, say which analyses have to be
looked at; nobody needs to be asked to. :func:`update` makes their vectors and puts them into every version of the index
that lives. :func:`rebuild` makes a version beside the current one, a page at a time; when it is whole it takes the
current one's place in one transaction, and what it replaced is removed. A model that is new in the settings is first
given every vector, then a version of its own; until that is whole the old one answers.

Each page is a transaction under one lock: a killed process leaves whole pages and holds up nobody, and the next goes on
where it stopped. Between pages the work rests, so that whoever asks meanwhile has the processors.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError, PostgresUnavailable
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import execute, rows
from imem.kg.projection.rows import Event
from imem.kg.similarity.embedders import Embedder
from imem.kg.similarity.neighbours import Build, FeatureCache, place
from imem.kg.similarity.scoring import RULES, hash64, words_of
from imem.kg.similarity.vectors import EmbeddingModel, embed, model_of, models, store_deadline

log = structlog.get_logger()

DUE_ROWS: Final = 400
"""Rows of due work looked at for one batch: an analysis with its claims has a handful."""

PAGE: Final = 40
"""Analyses in one transaction: some 0.2 s of work, for which nobody else can change neighbours."""

QUESTIONS_PAGE: Final = 1_000
"""Questions noted in one statement."""

EMBED_PAGE: Final = 128
"""Analyses whose vectors are made in one go."""

PRUNE_PAGE: Final = 5_000
"""Rows removed in one statement."""

BULK_REST: Final = 1.0
"""How long the work rests after a page, as a share of what the page took, where there is much of it."""

REBUILD_REST: Final = 3.0
"""The same for a rebuild, which nobody waits for: it takes a quarter of one processor."""


PROFILE_EVENT: Final = "record.Company"
"""The kind of event that says what sector and size a company is of."""

QUESTION_EVENTS: Final = frozenset({"record.Market", "correct.Market"})
"""The kinds of events that say what a market asks."""


class IndexBusy(PostgresUnavailable):
    """Another process changes neighbours; the work is in good hands."""


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """
    What a run did.

    Attributes:
        analyses: how many were compared.
        vectors: how many were made.
        changed: lists of neighbours that differ now.
        more: whether work was left when the time was over.
        busy: whether another process was at it.
        version: the version that took over, if one did.
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


@dataclass(slots=True)
class Throttle:
    """
    How much of the time the work may take.

    Attributes:
        rest: how long it rests, as a share of what it took; 0 never does.
        until: when to stop; a page that has begun is finished.
    """

    until: Deadline
    rest: float = 0.0
    _begun: float = field(default_factory=time.monotonic)

    def over(self) -> bool:
        """Return whether it is time to stop."""
        return self.until.passed

    async def pause(self) -> None:
        """Rest after a page; called before the next one."""
        took_s = time.monotonic() - self._begun
        if self.rest:
            await asyncio.sleep(min(took_s * self.rest, self.until.left_s()))
        self._begun = time.monotonic()


@asynccontextmanager
async def page_transaction(database: Database) -> AsyncIterator[Connection]:
    """
    Open the transaction of one page, as the only process that changes neighbours; another one's page is waited for.

    It takes a moment. Who gave up would come again with the next turn of beat, to meet the other one again.
    """
    async with database.transaction(store_deadline()) as conn:
        await rows(conn, "similarity_lock")
        yield conn


@asynccontextmanager
async def run_lock(database: Database, work: str) -> AsyncIterator[bool]:
    """
    Say for a whole run whether this process is the only one that does *work*: two would make the same vectors.

    Pages are safe without it (:func:`page_transaction`). It costs an open connection, and is let go by a process that
    dies.
    """
    async with database.transaction(Deadline.never()) as conn:
        yield bool((await rows(conn, "similarity_run", {"work": work}))[0]["held"])


# What is due


async def update(database: Database, embedder: Embedder, *, until: Deadline, rest: float = BULK_REST) -> UpdateReport:
    """
    Compare what is due, until nothing is or *until* has passed.

    Args:
        database: the journal.
        embedder: as the settings name it; for one that is new the index is built first (:func:`rebuild`),
            until which the old one answers.
        until: when to stop and leave the rest due.
        rest: see :class:`Throttle`; while little is due, there is none.

    Raises:
        ImemError: vectors cannot be made now; what was compared before stays, the rest is still due.
        PostgresUnavailable: the same.
    """
    async with run_lock(database, "update") as held:
        return await _update(database, embedder, Throttle(until, rest)) if held else UpdateReport(busy=True)


async def _update(database: Database, embedder: Embedder, throttle: Throttle) -> UpdateReport:
    model = await model_of(database, embedder)
    total = UpdateReport()
    await _first_build(database, model)
    if not await _is_built_with(database, model):
        return await rebuild(database, embedder, throttle=throttle)
    while not throttle.over():
        done = await _update_page(database, embedder, model)
        if done is None:
            return total
        total += done
        if done.more:
            await throttle.pause()
    return total + UpdateReport(more=True)


async def _update_page(database: Database, embedder: Embedder, model: EmbeddingModel) -> UpdateReport | None:
    """Compare the analyses whose turn it is, those with time last; None when none is due."""
    due = await database.named("similarity_claim", {"limit": DUE_ROWS}, deadline=store_deadline())
    if not due:
        return None
    keys = list(dict.fromkeys(row["key"] for row in due))[:PAGE]
    done = [row for row in due if row["key"] in set(keys)]
    made = await embed(database, embedder, model, keys)
    await note_questions(database, keys)
    # Read for this page alone: what is due says that something of it has changed.
    known = FeatureCache()
    changed: set[str] = set()
    async with page_transaction(database) as conn:
        for build in await live_builds(conn):
            if build.rules == RULES:
                changed |= await place(conn, build, keys, known)
        parameters = {"positions": [row["position"] for row in done], "keys": [row["key"] for row in done]}
        await execute(conn, "similarity_done", parameters)
    return UpdateReport(len(keys), made, len(changed), more=len(due) == DUE_ROWS)


async def note_questions(database: Database, keys: Sequence[str] | None = None) -> None:
    """
    Note by what questions are known again: of the markets of the given analyses, or of all.

    Raises:
        PostgresUnavailable: not all are noted; retryable.
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
    """Begin the first version, which is current from the beginning and filled by what is due."""
    if (await database.named("live_builds", deadline=store_deadline())) or not model.in_use:
        return
    async with page_transaction(database) as conn:
        if not await live_builds(conn):
            given = {"model": model.number, "rules": RULES, "state": "current"}
            await rows(conn, "begin_build", given)


async def _is_built_with(database: Database, model: EmbeddingModel) -> bool:
    """Return whether the current version rests on *model* and on the rules of this program."""
    found = [Build.from_row(row) for row in await database.named("live_builds", deadline=store_deadline())]
    return any(one.current and one.model == model.number and one.rules == RULES for one in found)


async def mark_subjects_due(database: Database, events: Sequence[Event]) -> None:
    """
    Have the analyses compared anew of whose subjects *events* say what they are compared by.

    That is a company that they put into another sector, or give another size, and a market whose question is stated
    or corrected after analyses of it. The journal cannot say so itself without looking at every statement of a subject;
    the applier does, which tells of each event at least once. What is lost with a Postgres that is away, the weekly
    building makes good for companies.
    """
    profiles = [
        one.position for one in events if one.kind == PROFILE_EVENT and "profile" in one.payload.get("groups", {})
    ]
    questions = [one.position for one in events if one.kind in QUESTION_EVENTS and "core" in one.payload]
    for name, positions in (("due_of_profiles", profiles), ("due_of_markets", questions)):
        if not positions:
            continue
        try:
            await database.execute(name, {"positions": positions}, deadline=store_deadline())
        except ImemError as error:
            log.warning("similar.not_due", subjects=len(positions), reason=str(error))


# Building anew


async def rebuild(database: Database, embedder: Embedder, *, throttle: Throttle) -> UpdateReport:
    """
    Go on with the version that is on its way, or begin one, and swap it in when it is whole.

    First every vector is made that is missing; a model that is not in use yet comes into use with its version. Called
    again until nothing is left: ``more`` says whether there is.

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
    """Make every vector that *model* lacks, page by page, until none or the time is over; return how many."""
    made, after = 0, ""
    while not throttle.over():
        given = {"model": model.number, "after": after, "limit": EMBED_PAGE}
        keys = [row["key"] for row in await database.named("analyses_to_embed", given, deadline=store_deadline())]
        if not keys:
            break
        made += await embed(database, embedder, model, keys)
        after = keys[-1]
        await throttle.pause()
    return made


async def _begun(database: Database, model: EmbeddingModel) -> Build:
    """Return the version that is on its way for *model*, begun now if there is none; one for another is given up."""
    async with page_transaction(database) as conn:
        for build in await live_builds(conn):
            if not build.current and build.model == model.number and build.rules == RULES:
                return build
            if not build.current:
                await execute(conn, "abandon_build", {"version": build.version})
        await rows(conn, "begin_build", {"model": model.number, "rules": RULES, "state": "building"})
        return next(build for build in await live_builds(conn) if not build.current)


async def _build_page(database: Database, build: Build, known: FeatureCache) -> UpdateReport | None:
    """Place the next analyses in a version on its way; None when there are none."""
    async with page_transaction(database) as conn:
        here = next((one for one in await live_builds(conn) if one.version == build.version), None)
        if here is None or here.current:
            # Somebody else finished it, or gave it up.
            raise IndexBusy("Another process builds the index.")
        given = {"model": here.model, "after": here.upto, "limit": PAGE}
        keys = [row["key"] for row in await rows(conn, "analyses_to_place", given)]
        if not keys:
            return None
        changed = await place(conn, here, keys, known)
        await execute(conn, "advance_build", {"version": here.version, "upto": keys[-1], "count": len(keys)})
        return UpdateReport(len(keys), 0, len(changed))


async def _swap(database: Database, build: Build) -> None:
    """Put a version in the place of the current one, with its model, and have differing links drawn again."""
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
    """Remove what nobody reads any more: lists of replaced versions, vectors of models that are not in use."""
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
    """Makes the rows of the links ``SIMILAR_TO`` of analyses for the applier, whole for each of them."""

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
