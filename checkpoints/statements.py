"""Calls of Postgres by the stores here: a statement in a transaction of its own, or in the caller's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from imem.cache.keys import checked_agent_type
from imem.checkpoints.model import LONGEST_ID, LONGEST_THREAD, checked_text
from imem.journal.deadline import Deadline
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import rows


async def call(
    database: Database,
    name: str,
    parameters: Mapping[str, Any],
    *,
    writes: bool = True,
    deadline: Deadline,
    conn: Connection | None = None,
) -> list[Row]:
    """
    Run the named statement and return its rows; with *conn* in its transaction, which the caller commits.

    A caller that holds a connection must use it: in an exhausted pool, taking another would wait for itself.

    Raises:
        PostgresUnavailable: the server cannot be reached, and nothing was written; retryable.
        BudgetExceeded: the server stopped at *deadline*, or at that of *conn*; nothing was written.
        OutcomeUnknown: the connection broke before the answer to a write came.
    """
    if conn is not None:
        return await rows(conn, name, parameters)
    run = database.commit if writes else database.named
    return await run(name, parameters, deadline=deadline)


def identity_of(analysis_id: str, agent_type: str) -> dict[str, str]:
    """
    Return the parameters that name an agent of an analysis.

    Raises:
        BadInput: one of them is invalid.
    """
    return {
        "analysis_id": checked_text("analysis_id", analysis_id, LONGEST_ID),
        "agent_type": checked_agent_type(agent_type),
    }


def thread_of(workflow_id: str, thread_id: str) -> dict[str, str]:
    """
    Return the parameters that name a thread of a workflow.

    Raises:
        BadInput: one of them is invalid.
    """
    return {
        "workflow_id": checked_text("workflow_id", workflow_id, LONGEST_ID),
        "thread_id": checked_text("thread_id", thread_id, LONGEST_THREAD),
    }
