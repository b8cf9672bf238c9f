"""Named statements inside a caller's transaction, and values as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from imem.journal.postgres.connection import Connection, Parameters, Row
from imem.journal.statements import sql


async def rows(conn: Connection, name: str, parameters: Parameters | None = None) -> list[Row]:
    """Run the named statement in the connection's transaction and return its rows."""
    return await (await conn.execute(sql(name), parameters)).fetchall()


async def execute(conn: Connection, name: str, parameters: Parameters | None = None) -> int:
    """Run the named statement in the connection's transaction and return how many rows it changed."""
    return (await conn.execute(sql(name), parameters)).rowcount


def json(value: object) -> str:
    """Return a value of ours as JSON text: dataclasses by their fields, times with their zone, ids as text."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        # jsonb has no exponents: a large float comes back from it as an integer, which orjson refuses beyond 64 bits.
        return orjson.dumps(_without_large_integers(value)).decode()


def _without_large_integers(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _without_large_integers(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_large_integers(one) for one in value]
    return float(value) if type(value) is int and not -(2**63) <= value < 2**64 else value


def as_json(value: object) -> dict[str, Any]:
    """Return a value of ours, an object, as JSON types; see :func:`json`."""
    found: dict[str, Any] = orjson.loads(orjson.dumps(value))
    return found
