"""What tests do to whole servers: databases cloned from one template, and graphs emptied however large."""

from __future__ import annotations

import select
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, LiteralString
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psutil
import psycopg
from psycopg import sql as composed
from psycopg.rows import dict_row
from pydantic import SecretStr

from imem.journal.postgres.migrations import migrate
from imem.journal.settings import Settings
from imem.kg.load_format.ownership import curated_facts
from imem.workers.pipelines import DUE_RULES

EMPTYING: Final = (
    "MATCH ()-[r]->() CALL (r) { DELETE r } IN TRANSACTIONS OF 10000 ROWS",
    "MATCH (n) WHERE NOT n:SchemaVersion CALL (n) { DELETE n } IN TRANSACTIONS OF 5000 ROWS",
)
"""
Statements that empty a graph but for what migrations made; each in a session of its own transactions.

Links go first: a node that bears thousands of them would take them all into one transaction's memory.
"""


_kept: dict[str, psycopg.Connection] = {}
"""Open connections of this process, by URL: a small test spends more time on opening them than on its statements."""


def kept(url: str) -> psycopg.Connection:
    """Return an open connection that commits each statement; :func:`let_go` closes it."""
    conn = _kept.get(url)
    if conn is not None and not conn.closed:
        # What a server sends unasked is that it ends.
        readable, _, _ = select.select([conn.fileno()], [], [], 0)
        if readable:
            conn.close()
    if conn is None or conn.closed:
        conn = _kept[url] = psycopg.connect(url, autocommit=True, prepare_threshold=None)
    return conn


def let_go(url: str) -> None:
    """Close the connection to *url*, if there is one: what is set for a whole database holds for new ones."""
    if url in _kept:
        _kept.pop(url).close()


def ahead(admin_url: str, by: timedelta) -> str:
    """Let every role shift its clock, and return the options of a connection whose clock is ahead by so much."""
    allow = "CREATE OR REPLACE FUNCTION imem_may_shift_clock() RETURNS boolean LANGUAGE sql AS 'SELECT true'"
    asked(admin_url, allow)
    return f"-c imem.clock_shift={by.total_seconds():.0f}s"


def asked(url: str, query: Any, parameters: Sequence[Any] | None = None) -> list[dict[str, Any]]:
    """Have *url*'s user look, or change something; return the rows, if it returns any."""
    cursor = kept(url).cursor(row_factory=dict_row).execute(query, parameters)
    return cursor.fetchall() if cursor.description is not None else []


def with_database(url: str, name: str) -> str:
    """Return *url* with another database."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def as_pipelines(settings: Settings, url: str) -> str:
    """Return the URL of the database that *url* names for the pipelines' role, which the workers log in as."""
    assert settings.postgres_pipeline_url is not None
    return with_database(settings.postgres_pipeline_url.get_secret_value(), urlsplit(url).path.removeprefix("/"))


def as_curators(settings: Settings, url: str) -> str:
    """Return the URL of the database that *url* names for the curators' role, which imports and people log in as."""
    assert settings.postgres_curator_url is not None
    return with_database(settings.postgres_curator_url.get_secret_value(), urlsplit(url).path.removeprefix("/"))


def in_database(settings: Settings, url: str) -> dict[str, SecretStr]:
    """Return the settings by which application, curators and workers use the database that *url* names."""
    return {
        "postgres_url": SecretStr(url),
        "postgres_curator_url": SecretStr(as_curators(settings, url)),
        "postgres_pipeline_url": SecretStr(as_pipelines(settings, url)),
    }


@contextmanager
def migrated_template(settings: Settings) -> Iterator[str]:
    """Lend the name of a migrated, empty database that nobody is connected to."""
    assert settings.postgres_admin_url is not None
    assert settings.postgres_url is not None
    assert settings.postgres_pipeline_url is not None
    name = f"template_{uuid4().hex[:8]}"
    admin = settings.postgres_admin_url.get_secret_value()
    assert settings.postgres_curator_url is not None
    application, curators, pipelines = (
        urlsplit(url.get_secret_value()).username
        for url in (settings.postgres_url, settings.postgres_curator_url, settings.postgres_pipeline_url)
    )
    with psycopg.connect(admin, autocommit=True) as conn:
        conn.execute(composed.SQL("CREATE DATABASE {}").format(composed.Identifier(name)))
        try:
            migrate(
                with_database(admin, name),
                application_role=application,
                curator_role=curators,
                pipeline_role=pipelines,
                due_rules=DUE_RULES,
                curated_facts=curated_facts(),
            )
            yield name
        finally:
            let_go(admin)
            conn.execute(composed.SQL("DROP DATABASE {} WITH (FORCE)").format(composed.Identifier(name)))


def copying(settings: Settings, name: str, template: str) -> composed.Composed:
    """Return the statement that copies a database: in memory file by file, which takes a third less than by the log."""
    text: LiteralString = "CREATE DATABASE {} TEMPLATE {}"
    if settings.home.is_relative_to("/dev/shm"):  # noqa: S108 - see tests.conftest.in_memory
        text += " STRATEGY FILE_COPY"
    return composed.SQL(text).format(composed.Identifier(name), composed.Identifier(template))


@contextmanager
def cloned(settings: Settings, template: str) -> Iterator[tuple[str, str]]:
    """Lend a database of one's own, cloned from *template*: its URL as the application, and as its owner."""
    assert settings.postgres_admin_url is not None
    assert settings.postgres_url is not None
    name = f"{template}_{uuid4().hex[:8]}"
    admin = settings.postgres_admin_url.get_secret_value()
    owner = with_database(admin, name)
    kept(admin).execute(copying(settings, name, template))
    try:
        yield with_database(settings.postgres_url.get_secret_value(), name), owner
    finally:
        let_go(owner)
        kept(admin).execute(composed.SQL("DROP DATABASE {} WITH (FORCE)").format(composed.Identifier(name)))


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Stop a server with all its processes, as SIGSTOP does."""
    server = psutil.Process(pid)
    server.suspend()
    children = server.children(recursive=True)
    for child in children:
        child.suspend()
    try:
        yield
    finally:
        for process in (*children, server):
            process.resume()
