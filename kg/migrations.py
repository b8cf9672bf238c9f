"""
Numbered ``.cypher`` migrations of the graph, each applied once and recorded as a ``SchemaVersion``.

Neo4j commits each change of the schema by itself, so that a file cannot be one transaction. Every statement is
idempotent (``IF NOT EXISTS``), and the file is recorded after its last one. So after a crash, or beside another process
that migrates, the file simply runs again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, LiteralString, cast

import neo4j
from neo4j.exceptions import DriverError, Neo4jError, TransientError

from imem.journal.errors import GraphUnavailable, SchemaError, StatementRejected
from imem.journal.postgres.migrations import Migration, migrations_in, pending
from imem.journal.statements import cypher, root_of
from imem.kg.engine import DATABASE, given, translate_error

_INDEXES_TIMEOUT_S: Final = 300
"""Longest wait for the indexes to be populated, in seconds: minutes on a graph of millions."""

_STATEMENT_TIMEOUT_S: Final = 300.0
"""Timeout of one statement, in seconds; a constraint reads every node of its label."""

_SCHEMA_LOCK_TIMEOUT_S: Final = 30.0
"""How long a statement is retried while another process changes the schema, in seconds."""

_PAUSE_S: Final = 0.05

_COMMENT = re.compile(r"^\s*//.*\n?", re.MULTILINE)
_END = re.compile(r";[ \t]*(?:\n|\Z)")

_SCHEMA_ERRORS: Final = "Neo.DatabaseError.Schema."
"""Prefix of the codes for content that breaks a constraint; the server reports them as its own errors."""

_ALREADY_EXISTS: Final = (
    "Neo.ClientError.Schema.EquivalentSchemaRuleAlreadyExists",
    "Neo.ClientError.Schema.ConstraintAlreadyExists",
    "Neo.ClientError.Schema.IndexAlreadyExists",
)
"""Codes that a concurrent migration may get in spite of IF NOT EXISTS, which is not atomic."""


def statements_in(text: LiteralString) -> list[LiteralString]:
    """Return the statements of a file: each ends with a semicolon at the end of a line; comments are left out."""
    bare = _COMMENT.sub("", text)
    return [cast("LiteralString", part.strip()) for part in _END.split(bare) if part.strip()]


def migrate(url: str, user: str, password: str, *, folder: Path | None = None) -> list[str]:
    """
    Bring the graph to the newest schema, wait for its indexes, and return the names of the files applied.

    Raises:
        SchemaError: a file was changed after it was applied, the graph is newer than this program, or its content
            breaks a constraint.
        GraphUnavailable: the server cannot be reached; retryable, what was applied stays.
    """
    migrations = migrations_in(folder or root_of("kg", "cypher") / "schema")
    with _connected(url, user, password) as driver:
        missing = pending(migrations, _applied(driver))
        if missing:
            _run(driver, cypher("create_schema_version").text)
        for one in missing:
            _apply(driver, one)
        _run(driver, cypher("await_indexes").text, timeout_s=_INDEXES_TIMEOUT_S)
        return [one.name for one in missing]


def applied_migrations(url: str, user: str, password: str) -> dict[int, str]:
    """
    Return number → SHA-256 of the applied migrations; empty for a graph without a schema.

    Raises:
        GraphUnavailable: the server cannot be reached; retryable.
    """
    with _connected(url, user, password) as driver:
        return _applied(driver)


@contextmanager
def _connected(url: str, user: str, password: str) -> Iterator[neo4j.Driver]:
    try:
        with neo4j.GraphDatabase.driver(
            url,
            auth=(user, password),
            connection_timeout=5.0,
            max_transaction_retry_time=0.0,
            notifications_min_severity="OFF",
            telemetry_disabled=True,
            user_agent="imem",
        ) as driver:
            yield driver
    except (Neo4jError, DriverError) as error:
        raise translate_error(error) from error


def _applied(driver: neo4j.Driver) -> dict[int, str]:
    return {int(row["number"]): str(row["sha256"]) for row in _run(driver, cypher("schema_versions").text)}


def _apply(driver: neo4j.Driver, one: Migration) -> None:
    """
    Run one file and record it.

    Raises:
        SchemaError: the graph's content refuses it, or another process recorded another file under its number.
    """
    for statement in statements_in(one.text):
        try:
            _run(driver, statement)
        except Neo4jError as error:
            refusal = translate_error(error)
            if isinstance(refusal, StatementRejected) or (error.code or "").startswith(_SCHEMA_ERRORS):
                raise SchemaError(
                    f"The migration {one.name} cannot be applied ({error.code}).",
                    mend="`imem rebuild graph` makes the graph anew from the journal.",
                ) from error
            raise refusal from error
    record = {"number": one.number, "name": one.name, "sha256": one.sha256, "now": datetime.now(UTC)}
    (row,) = _run(driver, cypher("add_schema_version").text, **record)
    if row["sha256"] != one.sha256:
        raise SchemaError(
            f"Another program has applied another migration {one.number:03} at the same time.",
            mend="Migrate with one version of the program only.",
        )


def _run(driver: neo4j.Driver, text: LiteralString, **parameters: object) -> list[neo4j.Record]:
    """
    Run one statement in a transaction of its own and return its rows.

    Retries while another process changes the schema.
    """
    give_up = time.monotonic() + _SCHEMA_LOCK_TIMEOUT_S
    query = neo4j.Query(text, timeout=_STATEMENT_TIMEOUT_S)
    while True:
        try:
            with driver.session(database=DATABASE) as session:
                return list(session.run(query, given(parameters)))
        except TransientError as error:
            if time.monotonic() > give_up:
                raise GraphUnavailable(f"Neo4j was busy with its schema for too long ({error.code}).") from error
            time.sleep(_PAUSE_S)  # The error is transient, and names no time.
        except Neo4jError as error:
            if error.code not in _ALREADY_EXISTS:
                raise
            return []
