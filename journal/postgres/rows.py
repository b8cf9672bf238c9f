"""Named statements inside a caller's transaction; ids that make their writes idempotent, and values as JSON."""

from __future__ import annotations

from typing import Any, Final
from uuid import NAMESPACE_URL, UUID, uuid5

import orjson
from uuid_utils.compat import uuid7

from imem.journal.postgres.connection import Connection, Parameters, Row
from imem.journal.statements import sql

_NAMES: Final = uuid5(NAMESPACE_URL, "imem:workflow")


async def rows(conn: Connection, name: str, parameters: Parameters | None = None) -> list[Row]:
    """Run the named statement in the connection's transaction and return its rows."""
    return await (await conn.execute(sql(name), parameters)).fetchall()


async def execute(conn: Connection, name: str, parameters: Parameters | None = None) -> int:
    """Run the named statement in the connection's transaction and return how many rows it changed."""
    return (await conn.execute(sql(name), parameters)).rowcount


def new_id() -> UUID:
    """Return an id that sorts by its creation time."""
    return uuid7()


def id_of(*parts: object) -> UUID:
    """Return the deterministic id of *parts*: writing a row twice under it is idempotent."""
    return uuid5(_NAMES, "|".join(map(str, parts)))


def json(value: object) -> str:
    """Return a value of ours as JSON text: dataclasses by their fields, times with their zone, ids as text."""
    return orjson.dumps(value).decode()


def as_json(value: object) -> dict[str, Any]:
    """Return a value of ours, an object, as JSON types; see :func:`json`."""
    found: dict[str, Any] = orjson.loads(orjson.dumps(value))
    return found
