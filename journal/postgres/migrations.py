"""
The schema of Postgres and its numbered migrations, each applied once in a transaction of its own.

Number 1 is the schema as it is first made: the files of ``sql/schema``, joined in the order of their names. What a
release adds stands in ``sql/migrations``, from 002 on. The SHA-256 of each is stored with it; text that was changed
after it was applied is refused. Two processes that migrate at once take turns by an advisory lock. A crash leaves the
migrations before it applied and the current one not.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, LiteralString

import psycopg

from imem.journal.errors import SchemaError
from imem.journal.postgres.database import translate_error
from imem.journal.statements import root_of, sql

_NAME = re.compile(r"^(\d{3})_[a-z0-9_]+\.(?:sql|cypher)$")
_LOCK = 0x696D656D  # "imem"

_SCHEMA: Final = "sql/schema"
"""Name of number 1 of Postgres: its folder, since it is no single file."""


@dataclass(frozen=True, slots=True)
class Migration:
    """
    One numbered file, or the schema that Postgres' migrations start from.

    Attributes:
        number: its place in the order, from 1 without gaps.
        name: the file's name, or ``sql/schema``.
        text: its statements.
        sha256: of the text, hexadecimal.
    """

    number: int
    name: str
    text: LiteralString
    sha256: str


def migrations_in(folder: Path, *, first: int = 1) -> list[Migration]:
    """
    Return the migrations of *folder* in order; their numbers begin with *first*.

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
    if [one.number for one in found] != list(range(first, first + len(found))):
        raise SchemaError(f"The migrations in {folder.name} are not numbered without gaps from {first:03} on.")
    return found


def postgres_migrations(folder: Path | None = None) -> list[Migration]:
    """
    Return the schema of Postgres as number 1, and the migrations after it.

    Args:
        folder: holds ``schema`` and, once there are any, ``migrations``; the program's own ``sql`` if None.

    Raises:
        SchemaError: see :func:`migrations_in`.
    """
    folder = folder or root_of("journal", "sql")
    data = b"\n".join(path.read_bytes() for path in sorted((folder / "schema").glob("*.sql")))
    text = data.decode()
    later = folder / "migrations"
    return [
        Migration(1, _SCHEMA, text, hashlib.sha256(data).hexdigest()),
        *(migrations_in(later, first=2) if later.is_dir() else []),
    ]


def pending(migrations: Sequence[Migration], applied: dict[int, str]) -> list[Migration]:
    """
    Return the migrations that are still to be applied.

    Args:
        applied: number → SHA-256, as stored with the schema.

    Raises:
        SchemaError: a file was changed after it was applied, the schema is newer than this program, or Postgres' schema
            is of a version from before the first release.
    """
    known = {one.number: one for one in migrations}
    if _SCHEMA in {one.name for one in migrations} and applied.get(1, known[1].sha256) != known[1].sha256:
        raise SchemaError(
            "The schema of this Postgres database was made by a version from before the first release, or the files of"
            " sql/schema were changed since.",
            mend="Migrate a new database and load the data again; in the local stack, `imem down --purge` and `imem up`"
            " make one.",
        )
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
    due_rules: Sequence[tuple[str, str, str, str]] | None = None,
    curated_facts: Sequence[tuple[str, str]] | None = None,
    folder: Path | None = None,
) -> list[str]:
    """
    Bring Postgres to the newest schema and return the names of what was applied: ``sql/schema``, and files.

    The audit's partitions of the months to come are created each time.

    Args:
        admin_url: URL of the owner.
        application_role: role that gets the application's rights; None when the owner itself serves.
        curator_role: role that gets the curators' rights; None when the owner itself serves, or none is named.
        pipeline_role: another role, which gets the pipelines' rights; None when the owner itself serves, or none run.
        due_rules: which events make which rows due: queue, kind, event, keys; None leaves what is stored.
        curated_facts: which facts curators and pipelines alone state: kind of the head, and group or ``*``; None leaves
            what is stored.
        folder: see :func:`postgres_migrations`.

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
            for one in pending(postgres_migrations(folder), applied):
                with conn.transaction():
                    conn.execute(one.text)
                    conn.execute(sql("add_schema_version"), (one.number, one.name, one.sha256))
                done.append(one.name)
            conn.execute(sql("audit_partitions"))
            if due_rules is not None:
                with conn.transaction():
                    conn.execute(sql("clear_due_rules"))
                    conn.execute(sql("declare_due_rules"), rule_columns(due_rules))
            if curated_facts is not None:
                kinds, groups = (list(one) for one in zip(*curated_facts, strict=True))
                with conn.transaction():
                    conn.execute(sql("clear_curated_facts"))
                    conn.execute(sql("declare_curated_facts"), {"kinds": kinds, "groups": groups})
            if application_role is not None:
                conn.execute(sql("grant_application"), (application_role,))
            if curator_role is not None:
                conn.execute(sql("grant_curators"), (curator_role,))
            if pipeline_role is not None:
                conn.execute(sql("grant_pipelines"), (pipeline_role,))
    except psycopg.Error as error:
        raise translate_error(error) from error
    return done


def rule_columns(due_rules: Sequence[tuple[str, str, str, str]]) -> dict[str, list[str]]:
    """Return rules (queue, kind, event, keys) as the arrays that statements take."""
    return {
        name: [rule[number] for rule in due_rules] for number, name in enumerate(("queues", "kinds", "events", "keys"))
    }


def applied_migrations(admin_url: str) -> dict[int, str]:
    """Return number → SHA-256 of the applied migrations; empty for a database without a schema."""
    try:
        with psycopg.connect(admin_url, autocommit=True, connect_timeout=5) as conn:
            if conn.execute(sql("has_schema_version")).fetchone() == (None,):
                return {}
            return {row[0]: row[1].strip() for row in conn.execute(sql("schema_versions")).fetchall()}
    except psycopg.Error as error:
        raise translate_error(error) from error
