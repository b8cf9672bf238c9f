"""The database of a backup, by its owner's login: snapshots, counts, roles, and databases of a moment."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection, IsolationLevel
from psycopg import sql as composed
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import DictRow, dict_row

from imem.backup.programs import LEAST_SERVER
from imem.journal.errors import BackupError, LeaseHeld
from imem.journal.postgres.database import translate_error
from imem.journal.statements import sql

CONNECT_S: Final = 10
"""Timeout of a connection, in seconds."""

_UNLIMITED: Final = "-c idle_in_transaction_session_timeout=0 -c statement_timeout=0"
"""Of a session whose transaction is open for as long as a dump takes."""

MAINTENANCE: Final = "postgres"
"""The database that a session is in while another one is dropped or made."""


def with_database(url: str, name: str) -> str:
    """Return *url* with another database."""
    address: dict[str, Any] = dict(conninfo_to_dict(url))
    return make_conninfo(**{**address, "dbname": name})


def database_of(url: str) -> str:
    """Return the name of the database of *url*."""
    address = conninfo_to_dict(url)
    return str(address.get("dbname") or address.get("user"))


@asynccontextmanager
async def session(url: str) -> AsyncIterator[AsyncConnection[DictRow]]:
    """
    Open a session that commits each statement.

    Raises:
        ImemError: errors of the driver, in the block as well, translated.
    """
    try:
        async with await AsyncConnection.connect(
            url, autocommit=True, connect_timeout=CONNECT_S, options=_UNLIMITED, row_factory=dict_row
        ) as conn:
            yield conn
    except psycopg.Error as error:
        raise translate_error(error) from error


async def ask(conn: AsyncConnection[DictRow], name: str, parameters: Any = None) -> list[DictRow]:
    """Run a named statement and return its rows."""
    cursor = await conn.execute(sql(name), parameters)
    return await cursor.fetchall() if cursor.description is not None else []


async def change(conn: AsyncConnection[DictRow], name: str, **names: str) -> None:
    """Run a named statement with identifiers in place of its braces."""
    await conn.execute(
        composed.SQL(sql(name)).format(**{key: composed.Identifier(name) for key, name in names.items()})
    )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """
    A moment of the database.

    Attributes:
        id: by which pg_dump sees it, while the transaction is open.
        server: version of Postgres.
        journal, position: the journal's identity and last position.
        tables: rows of each table.
        roles: those with rights beside the owner.
        migrations: number → SHA-256.
        events, pending: how many events there are, and how many the graph does not hold.
    """

    id: str
    server: str
    journal: str
    position: int
    tables: dict[str, int]
    roles: tuple[str, ...]
    migrations: dict[int, str]
    events: int
    pending: int


@asynccontextmanager
async def snapshot(url: str) -> AsyncIterator[Snapshot]:
    """
    Yield a moment of the database; until the end of the block pg_dump may use it.

    Raises:
        StoreUnavailable: Postgres cannot be reached.
    """
    async with session(url) as conn:
        await ask(conn, "backup_counter")  # Before the transaction: one that has written holds back the safe horizon.
        await conn.set_isolation_level(IsolationLevel.REPEATABLE_READ)
        await conn.set_read_only(True)
        async with conn.transaction():
            [taken] = await ask(conn, "backup_snapshot")
            [progress] = await ask(conn, "backup_progress")
            yield Snapshot(
                taken["snapshot"],
                taken["server"],
                taken["journal"],
                taken["position"],
                await _counts(conn),
                tuple(row["name"] for row in await ask(conn, "backup_roles")),
                {row["number"]: row["sha256"].strip() for row in await ask(conn, "schema_versions")},
                progress["events"],
                progress["pending"],
            )


@asynccontextmanager
async def locked(url: str) -> AsyncIterator[None]:
    """
    Let no other process back up or verify this journal during the block; a crash releases it.

    Raises:
        LeaseHeld: another process does.
        StoreUnavailable: Postgres cannot be reached.
    """
    async with session(url) as conn:
        if not (await ask(conn, "backup_lock"))[0]["taken"]:
            raise LeaseHeld("Another backup or check of this journal is under way.", mend="Wait until it has ended.")
        yield


async def row_counts(url: str) -> dict[str, int]:
    """Return the rows of each table, by schema and name; empty for a database without tables."""
    async with session(url) as conn:
        await ask(conn, "backup_counter")
        return await _counts(conn)


async def _counts(conn: AsyncConnection[DictRow]) -> dict[str, int]:
    return {row["name"]: row["number"] for row in await ask(conn, "backup_row_counts")}


def differing_rows(expected: dict[str, int], found: dict[str, int]) -> list[str]:
    """Return the tables whose rows differ, in words."""
    return [
        f"{name}: {found.get(name, 0):,} rows instead of {expected.get(name, 0):,}"
        for name in sorted(expected.keys() | found.keys())
        if expected.get(name) != found.get(name)
    ]


@dataclass(frozen=True, slots=True)
class Target:
    """
    A database to restore into.

    Attributes:
        version: of its server, as a number.
        makes_roles: whether the login may make roles.
        sessions: other sessions in it.
    """

    version: int
    makes_roles: bool
    sessions: int


async def target_of(url: str) -> Target:
    """
    Return what the database at *url* is.

    Raises:
        BackupError: its server is too old for these binaries.
    """
    async with session(url) as conn:
        target = Target(**(await ask(conn, "restore_target"))[0])
    if target.version < LEAST_SERVER:
        raise BackupError(
            f"The server is Postgres {target.version // 10_000}; restoring takes {LEAST_SERVER // 10_000} or newer.",
            mend="Restore journal.dump with the pg_restore of that server, then run `imem migrate`.",
        )
    return target


async def make_anew(url: str) -> None:
    """
    Replace the database of *url* by an empty one of the same name, with the extensions that a dump leaves out.

    Raises:
        ImemError: the login may not.
    """
    name = database_of(url)
    async with session(with_database(url, MAINTENANCE)) as conn:
        await change(conn, "restore_database_drop", database=name)
        await change(conn, "restore_database_create", database=name)
    await make_extension(url)


async def make_extension(url: str) -> None:
    """
    Make the extensions that a dump leaves out, where they are missing.

    Raises:
        StatementRejected: the login may not.
    """
    async with session(url) as conn:
        await ask(conn, "restore_extension")


async def drop(url: str) -> None:
    """Remove the database of *url*."""
    async with session(with_database(url, MAINTENANCE)) as conn:
        await change(conn, "restore_database_drop", database=database_of(url))


@asynccontextmanager
async def roles_present(url: str, names: Sequence[str], *, ours: Sequence[str]) -> AsyncIterator[None]:
    """
    Have roles of these *names* for the block, in which a dump is restored.

    Those that are missing are made, and removed at the end. Those that are none of *ours*, the roles of this
    installation, then lose what the dump gave them. A crash leaves roles that cannot log in.

    Raises:
        BackupError: one is missing, and the login may not make it.
    """
    async with session(url) as conn:
        missing = [row["name"] for row in await ask(conn, "restore_missing_roles", {"names": list(names)})]
        if missing and not (await ask(conn, "restore_target"))[0]["makes_roles"]:
            raise BackupError(
                f"The backup gives rights to roles that this server does not have: {', '.join(missing)}.",
                mend="Make them (CREATE ROLE … NOLOGIN), or let the owner make roles, and restore again.",
            )
        for name in missing:
            await change(conn, "restore_role_create", role=name)
        try:
            yield
        finally:
            for name in sorted(set(names) - set(ours)):
                await ask(conn, "stack_setting", ("imem.role", name))
                await ask(conn, "restore_role_revoke")
            for name in sorted(set(missing) - set(ours)):
                await change(conn, "restore_role_drop", role=name)
