"""Checks of the stores' data: the graph's nodes, reconciliation, similarity, checkpoints, rows set aside."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import neo4j as driver
import psycopg
from neo4j.exceptions import DriverError, Neo4jError

from imem.jobs.backlog import Waiting, backlog_of, far_behind
from imem.journal.errors import SettingsError
from imem.journal.postgres.migrations import rule_columns
from imem.journal.settings import Settings
from imem.journal.statements import cypher, sql
from imem.kg.engine import given
from imem.kg.kinds.catalog import KINDS, KindInfo, PropertySet
from imem.local.doctor.finding import CheckLevel, CheckResult, broken, fine, weak
from imem.services.health import backlog_parameters_of
from imem.workers.pipelines import DUE_RULES

STUB_AGE: Final = timedelta(days=1)
"""Age from which a node without a record of its own is reported: a record referred to may be late."""

REPORT_AGE: Final = timedelta(days=1, hours=12)
"""Age from which the newest reconciliation report is too old: a night was left out."""

SAMPLE: Final = 500
"""Memories, and texts of records, whose language is looked at."""

LEAST_FOREIGN: Final = 0.01
"""Share of texts in languages that the encoder does not know from which on another encoder is recommended."""

TIMEOUT_S: Final = 30.0
"""Budget of all queries on the graph's nodes together, in seconds; a large graph is checked only as far as it lasts."""

SCORING: Final = frozenset({"credibility.settle", "credibility.publish_scores"})
"""Pipelines without which scores lack what was loaded."""

COMPARING: Final = frozenset({"kg.similar"})
"""The pipeline without which analyses are not compared."""

REFERENCES: Final = frozenset({"Company", "Market", "Agent", "Domain", "Human"})
"""Kinds that may be referred to without ever being recorded."""

_GRAPH_TYPES: Final = {
    "int": ("INTEGER",),
    "float": ("FLOAT",),
    "prob": ("FLOAT",),
    "bool": ("BOOLEAN",),
    "datetime": ("ZONED DATETIME",),
    "strings": ("LIST<STRING NOT NULL>", "LIST<NOTHING>"),
}
"""Property type → Neo4j's names for the types of its stored values; other property types are stored as strings."""


def graph(session: driver.Session, now: datetime) -> Iterator[CheckResult]:
    """Look for nodes that were never recorded, and for those that the model would not have let through."""
    until = time.monotonic() + TIMEOUT_S
    try:
        yield from _stubs(session, now, until)
        yield from _properties(session, until)
    except (Neo4jError, DriverError) as error:
        reason = getattr(error, "code", None) or type(error).__name__
        yield weak(
            "nodes",
            f"The graph's nodes could not all be looked at within {TIMEOUT_S:.0f} s ({reason}).",
            "Ask again when the server has less to do.",
        )


def _ask(session: driver.Session, name: str, until: float, **parameters: Any) -> list[dict[str, Any]]:
    query = driver.Query(cypher(name).text, timeout=max(0.001, until - time.monotonic()))
    return session.run(query, given(parameters)).data()


def _stubs(session: driver.Session, now: datetime, until: float) -> Iterator[CheckResult]:
    about = "stubs"
    references = 0
    missing: list[CheckResult] = []
    for row in _ask(session, "doctor_stubs", until, before=now - STUB_AGE):
        kind = next(label for label in row["labels"] if label in KINDS)
        if kind in REFERENCES:
            references += row["stubs"]
            continue
        found = f"Spoken of for more than a day and never recorded: {row['stubs']} {kind}, such as {row['example']!r}."
        missing.append(weak(about, found, "Load what records them, or find out who misspelt their keys."))
    if missing:
        yield from missing
    else:
        named = f"; {references} subjects, agents and domains are known by name alone" if references else ""
        yield fine(about, f"what is referred to is recorded{named}")


def _properties(session: driver.Session, until: float) -> Iterator[CheckResult]:
    about = "properties"
    kinds = {info.label: {"key": info.key, "properties": expected(info)} for info in KINDS.values()}
    rows = _ask(session, "doctor_properties", until, kinds=kinds)
    for row in rows:
        yield broken(
            about,
            "Without a property that they must have, or with one of a wrong type: "
            f"{row['nodes']} {row['kind']}, such as {row['example']!r}.",
            "Something wrote to the graph beside the applier; `imem rebuild graph` makes it anew from the journal.",
        )
    if not rows:
        yield fine(about, "every node has the properties of its kind")


def expected(info: KindInfo) -> list[dict[str, Any]]:
    """Return the properties of a kind as ``doctor_properties`` takes them."""
    parts = [(None, info.core), *info.groups.items()]
    return [one for group, part in parts for one in _expected(part, group)]


def _expected(part: PropertySet, group: str | None) -> Iterator[dict[str, Any]]:
    for prop in part.properties.values():
        types = _GRAPH_TYPES.get(prop.type.name.partition("[")[0], ("STRING",))
        yield {
            "name": prop.name,
            "required": prop.required and not part.derived,
            "group": group,
            "types": [f"{one} NOT NULL" for one in types],
        }


def waiting(connection: psycopg.Connection[dict[str, Any]], settings: Settings) -> tuple[Waiting, ...]:
    """Return what the pipelines still have to do; empty where it cannot be counted, which other findings say."""
    try:
        return backlog_of(connection.execute(sql("pipelines_behind"), backlog_parameters_of(settings)).fetchall())
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedFunction, SettingsError):
        return ()


def backlog(left: Sequence[Waiting]) -> Iterator[CheckResult]:
    """Name the pipelines that are far behind, and by how much."""
    about = "pipelines"
    # Of the events for the graph there is a finding of its own.
    left = [one for one in left if one.work.name != "events"]
    for one in left:
        if not one.far_behind:
            continue
        lacking = "Scores, weights, comparisons and searches lack it meanwhile."
        if one.error is not None:
            mend = "Mend the reason; what waits is tried again every few seconds to minutes."
            yield weak(about, f"Behind: {one}; the last run failed: {one.error}", f"{lacking} {mend}")
            continue
        mend = f"It is so after a large load; if the number does not fall, see `imem jobs {one.work.pipeline}`"
        yield weak(about, f"Far behind: {one}.", f"{lacking} {mend} and `imem logs celery`.")
    if not any(one.far_behind for one in left):
        rows = sum(one.waiting for one in left)
        yield fine(about, f"{rows:,} rows wait, none for long" if rows else "they have done everything")


def scores(connection: psycopg.Connection[dict[str, Any]], left: Sequence[Waiting] = ()) -> Iterator[CheckResult]:
    """
    Look at the newest report of the nightly recomputation: when it was, and what differed.

    Nothing is called fine while claims of *left* wait to be scored.
    """
    found = _scores(connection)
    behind = far_behind(left, SCORING)
    yield from (one for one in found if not (behind and one.level is CheckLevel.FINE))


def _scores(connection: psycopg.Connection[dict[str, Any]]) -> Iterator[CheckResult]:
    about = "scores"
    try:
        made = connection.execute(sql("doctor_oldest_score")).fetchone() or {}
    except psycopg.errors.UndefinedTable:  # What is missing, the finding about migrations says.
        return
    report = connection.execute(sql("reports"), {"limit": 1}).fetchone()
    last = report["finished_at"] if report is not None else made["since"]
    late = last is not None and made["now"] - last > REPORT_AGE
    mend = "The worker does so at 3:17 UTC; `imem logs beat` and `imem logs celery` show why it did not."
    if report is None:
        if late:
            yield weak(about, "They have never been recomputed from the journal.", mend)
        else:
            yield fine(about, "not recomputed from the journal yet; that is done every night")
        return
    when = f"{report['finished_at']:%Y-%m-%d %H:%M} UTC"
    if late:
        yield weak(about, f"They were last recomputed from the journal on {when}.", mend)
    if report["differing"]:
        yield weak(
            about,
            f"Recomputed on {when}, {report['differing']} of what stood differed: {_differing(report['details'])}.",
            "The recomputed values stand now, and `imem logs celery` names what differed. If it happens again, "
            "something else than the worker changes scores.",
        )
    elif not late:
        yield fine(about, f"recomputed from the journal on {when}, {report['scores']} scores, no difference")


def similar(
    connection: psycopg.Connection[dict[str, Any]], settings: Settings, left: Sequence[Waiting] = ()
) -> Iterator[CheckResult]:
    """Look whether analyses are compared by the model that *settings* name; fine only if none of *left* wait long."""
    from imem.kg.similarity.lag_watch import IndexLag  # noqa: PLC0415 - as above
    from imem.services.embedders import embedder_of  # noqa: PLC0415 - numpy takes long to import, and this is one check of many

    about = "similar"
    try:
        row = connection.execute(sql("similarity_state")).fetchone() or {}
        found = IndexLag.from_row(row, embedder_of(settings))
    except psycopg.errors.UndefinedTable:  # What is missing, the finding about migrations says.
        return
    except SettingsError as error:
        yield broken(about, error.message, error.mend)
        return
    if found.outdated:
        yield weak(
            about,
            f"Analyses are compared by {found.built_with}, and {found.wanted} is what is set here.",
            "The worker makes vectors and index anew in the background and then changes over; `imem logs celery` shows "
            "what is in its way. What is new waits until then.",
        )
    elif not far_behind(left, COMPARING):
        yield fine(about, f"analyses are compared by {found.built_with or found.wanted}")


def languages(connection: psycopg.Connection[dict[str, Any]], settings: Settings) -> Iterator[CheckResult]:
    """Look whether the encoder that *settings* name knows the languages of what is searched, in a sample of it."""
    from imem.kg.similarity.embedders import LocalEmbedder  # noqa: PLC0415 - as below
    from imem.kg.similarity.languages import language_of, named  # noqa: PLC0415 - as below
    from imem.kg.similarity.sentence_models import UniversalEncoder  # noqa: PLC0415 - as below
    from imem.services.embedders import embedder_of  # noqa: PLC0415 - numpy takes long to import

    about = "languages"
    try:
        embedder = embedder_of(settings)
        found = connection.execute(sql("doctor_texts"), {"limit": SAMPLE}).fetchall()
    except (psycopg.errors.UndefinedTable, SettingsError):  # Other findings say so.
        return
    if not isinstance(embedder, LocalEmbedder) or not found:
        return  # Nobody knows the languages of a model behind an endpoint.
    codes = [language_of(row["text"]) for row in found]
    foreign = [code for code in codes if code is not None and code not in embedder.languages]
    if len(foreign) < LEAST_FOREIGN * len(found):
        yield fine(about, f"the sentence encoder {settings.embedding_local} knows the languages of the texts")
        return
    known = set(foreign) & UniversalEncoder.languages - embedder.languages
    own = f"Set IMEM_EMBEDDING_LOCAL=universal-3, which knows {named(known)}, or name " if known else "Name "
    yield weak(
        about,
        f"{len(foreign):,} of {len(found):,} texts that are searched are in another language ({named(foreign)}) than "
        f"the sentence encoder {settings.embedding_local} knows: words alone find them.",
        f"{own}a multilingual model in IMEM_EMBEDDING_URL. Workers then make all vectors anew, in the background.",
    )


def errors(connection: psycopg.Connection[dict[str, Any]]) -> Iterator[CheckResult]:
    """Name what went wrong with checkpoints within a day, as all processes counted it."""
    about = "checkpoints"
    try:
        found = connection.execute(sql("doctor_errors")).fetchall()
    except psycopg.errors.UndefinedTable:  # What is missing, the finding about migrations says.
        return
    for row in found:
        yield weak(
            about,
            f'{row["name"]}{{store="{row["store"]}"}} is {row["total"]}; the last was at '
            f"{row['last_at']:%Y-%m-%d %H:%M} UTC: {row['last_reason']}",
            "`imem alerts` shows the alert; every save and every recovery went on with what another store had.",
        )
    if not found:
        yield fine(about, "no error of saving or of consistency within a day")


def work(connection: psycopg.Connection[dict[str, Any]]) -> Iterator[CheckResult]:
    """Check that Postgres makes due what the pipelines of this version wait for, and name what they have set aside."""
    try:
        differing = connection.execute(sql("due_rules_differ"), rule_columns(DUE_RULES)).fetchone() or {}
    except psycopg.errors.UndefinedTable:  # What is missing, the finding about migrations says.
        return
    if differing["differing"]:
        yield broken(
            "pipelines",
            f"Postgres makes work due by the rules of another version: {differing['differing']} differ.",
            "Run `imem migrate`, then `imem sync status`; what was recorded meanwhile the nightly recomputation finds.",
        )
    row = connection.execute(sql("due_aside"), {"limit": 1}).fetchone()
    if row is not None:
        yield weak(
            "pipelines",
            f"Set aside by {row['queue']}, since it fails: {row['kind']} {row['key']!r} and perhaps others "
            f"({row['set_aside']}).",
            "Mend the reason; it is tried again when its record changes, scores also each night.",
        )


def _differing(details: dict[str, list[Any]]) -> str:
    """Return how much of each sort differed, as far as the report names it."""
    return ", ".join(f"{len(found)} {sort.replace('_', ' ')}" for sort, found in sorted(details.items()) if found)
