"""Everything that a database holds, to show that nothing of it changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

TABLES = """
    SELECT n.nspname, c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relkind = 'r' AND n.nspname IN ('public', 'workflow', 'langgraph') ORDER BY 1, 2
"""
ROWS = "SELECT count(*), md5(string_agg(t::text, E'\\n' ORDER BY t::text)) FROM {} AS t"

REFUSING = """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no audit'; END $$;
    CREATE TRIGGER refuse BEFORE INSERT ON memory_access_audit FOR EACH ROW EXECUTE FUNCTION refuse();
"""


def contents(url: str) -> dict[str, tuple[int, str | None]]:
    """Return of every table how many rows it has, and what they come to."""
    found = {}
    with psycopg.connect(url) as conn:
        for schema, table in conn.execute(TABLES).fetchall():
            row = conn.execute(sql.SQL(ROWS).format(sql.Identifier(schema, table))).fetchone()
            assert row is not None
            found[f"{schema}.{table}"] = (row[0], row[1])
    return found


@contextmanager
def no_audit(admin_url: str) -> Iterator[None]:
    """Have every insertion into the audit fail, while other statements go on as ever."""
    with psycopg.connect(admin_url, autocommit=True) as conn:
        conn.execute(REFUSING)
        try:
            yield
        finally:
            conn.execute("DROP TRIGGER refuse ON memory_access_audit; DROP FUNCTION refuse()")
