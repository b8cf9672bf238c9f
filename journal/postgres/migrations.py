"""
Numbered ``.sql`` migrations of Postgres, each applied once in a transaction of its own.

A file's SHA-256 is stored with it; a file that was changed after it was applied is refused. Two processes that migrate
at once take turns by an advisory lock. A crash leaves the files before it applied and the current one not.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString

import psycopg

from imem.journal.errors import SchemaError
from imem.journal.postgres.database import translate_error
from imem.journal.statements import root_of, sql

_NAME = re.compile(r"^(\d{3})_[a-z0-9_]+\.(?:sql|cypher)$")
_LOCK = 0x696D656D  # "imem"


@dataclass(frozen=True, slots=True)
class Migration:
    """
    One numbered file.

    Attributes:
        number: its place in the order, from 1 without gaps.
        name: the file's name.
        text: its statements.
        sha256: of the file, hexadecimal.
    """

    number: int
    name: str
    text: LiteralString
    sha256: str


def migrations_in(folder: Path) -> list[Migration]:
    """
    Return the migrations of *folder* in order.

    Raises:
        SchemaError: a name does not fit, or a number is missing or used twice.
    """
    found = []
    for path in sorted(folder.iterdir()):
        if path.suffix not in {".sql", ".cypher"}:
            continue
        match = _NAME.match(path.name)
        if match is None:
            raise SchemaError(f"{path.name} is no name for a migration.")
        data = path.read_bytes()
        text = data.decode()
        found.append(Migration(int(match[1]), path.name, text, hashlib.sha256(data).hexdigest()))
    if [one.number for one in found] != list(range(1, len(found) + 1)):
        raise SchemaError(f"The migrations in {folder.name} are not numbered without gaps.")
    return found


def pending(migrations: Sequence[Migration], applied: dict[int, str]) -> list[Migration]:
    """
    Return the migrations that are still to be applied.

    Args:
        applied: number → SHA-256, as stored with the schema.

    Raises:
        SchemaError: a file was changed after it was applied, or the schema is newer than this program.
    """
    known = {one.number: one for one in migrations}
    newer = sorted(set(applied) - set(known))
    if newer:
        raise SchemaError(
            f"The schema is at version {newer[-1]}, newer than this program, which knows {len(known)}.",
            mend="Install the newer program.",
        )
    for number, sha256 in sorted(applied.items()):
        if known[number].sha256 != sha256:
            raise SchemaError(
                f"The migration {known[number].name} was changed after it was applied.",
                mend="Restore the file and put the change into a new one; `imem down --purge` removes what a"
                " version under development had made.",
            )
    return [one for one in migrations if one.number not in applied]


def migrate(
    admin_url: str,
    *,
    application_role: str | None = None,
    curator_role: str | None = None,
    pipeline_role: str | None = None,
    folder: Path | None = None,
) -> list[str]:
    """
    Bring Postgres to the newest schema and return the names of the files applied.

    The audit's partitions of the months to come are created each time.

    Args:
        admin_url: URL of the owner.
        application_role: role that gets the application's rights; None when the owner itself serves.
        curator_role: role that gets the curators' rights; None when the owner itself serves, or none is named.
        pipeline_role: another role, which gets the pipelines' rights; None when the owner itself serves, or none run.

    Raises:
        SchemaError: see :func:`pending`.
        PostgresUnavailable: the server cannot be reached.
    """
    done = []
    try:
        with psycopg.connect(admin_url, autocommit=True, connect_timeout=5) as conn:
            conn.execute(sql("lock_migrations"), (_LOCK,))
            conn.execute(sql("create_schema_version"))
            applied = {row[0]: row[1].strip() for row in conn.execute(sql("schema_versions")).fetchall()}
            for one in pending(migrations_in(folder or root_of("journal", "sql") / "migrations"), applied):
                with conn.transaction():
                    conn.execute(one.text)
                    conn.execute(sql("add_schema_version"), (one.number, one.name, one.sha256))
                done.append(one.name)
            conn.execute(sql("audit_partitions"))
            if application_role is not None:
                conn.execute(sql("grant_application"), (application_role,))
            if curator_role is not None:
                conn.execute(sql("grant_curators"), (curator_role,))
            if pipeline_role is not None:
                conn.execute(sql("grant_pipelines"), (pipeline_role,))
    except psycopg.Error as error:
        raise translate_error(error) from error
    return done


def applied_migrations(admin_url: str) -> dict[int, str]:
    """Return number → SHA-256 of the applied migrations; empty for a database without a schema."""
    try:
        with psycopg.connect(admin_url, autocommit=True, connect_timeout=5) as conn:
            if conn.execute(sql("has_schema_version")).fetchone() == (None,):
                return {}
            return {row[0]: row[1].strip() for row in conn.execute(sql("schema_versions")).fetchall()}
    except psycopg.Error as error:
        raise translate_error(error) from error
