"""How the stores here call Postgres: one statement that is a transaction of its own, or part of the caller's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from imem.cache.keys import checked_agent_type
from imem.checkpoints.model import LONGEST_ID, checked_text
from imem.journal.deadline import Deadline
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.database import Database
from imem.journal.statements import sql


async def call(
    database: Database,
    name: str,
    parameters: Mapping[str, Any],
    *,
    deadline: Deadline,
    conn: Connection | None = None,
) -> list[Row]:
    """
    Run the named writing statement and return its rows; with *conn* in the transaction there, which its owner commits.

    Raises:
        PostgresUnavailable: nothing was written; retryable.
        BudgetExceeded: the server stopped at *deadline*; nothing was written.
        OutcomeUnknown: the connection broke before the answer came.
    """
    if conn is None:
        return await database.commit(name, parameters, deadline=deadline)
    return await (await conn.execute(sql(name), parameters)).fetchall()


async def look(
    database: Database,
    name: str,
    parameters: Mapping[str, Any],
    *,
    deadline: Deadline,
    conn: Connection | None = None,
) -> list[Row]:
    """
    Run the named reading statement and return its rows; with *conn* on the connection there.

    Whoever holds a connection reads on it: in a pool that is used up, one that asks for another waits for itself.

    Raises:
        PostgresUnavailable: the server cannot be reached; retryable.
        BudgetExceeded: the server stopped the statement at *deadline*, or at that of *conn*.
    """
    if conn is None:
        return await database.named(name, parameters, deadline=deadline)
    return await (await conn.execute(sql(name), parameters)).fetchall()


def identity_of(analysis_id: str, agent_type: str) -> dict[str, str]:
    """
    Return the names of an agent in an analysis as parameters.

    Raises:
        BadInput: one of them is no such name.
    """
    return {
        "analysis_id": checked_text("analysis_id", analysis_id, LONGEST_ID),
        "agent_type": checked_agent_type(agent_type),
    }
