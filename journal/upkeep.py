"""Periodic upkeep of the journal."""

from __future__ import annotations

from typing import Final

from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from imem.journal.statements import sql

_MOST_REMOVED: Final = 1_000
"""Tokens, links and sessions that one statement deletes, of each."""


async def make_audit_partitions(database: Database, *, deadline: Deadline) -> int:
    """
    Create the audit's partitions of this month and the next three; return how many were missing.

    Rows that were written before their partition existed are moved into it. The application's role may run this, since
    the function has the owner's rights and does nothing else.

    Raises:
        PostgresUnavailable: it cannot be reached, or writers held the audit for long; retryable, nothing was changed.
        BudgetExceeded: the deadline passed first; nothing was changed.
    """
    async with database.transaction(deadline) as conn:
        row = await (await conn.execute(sql("audit_partitions"))).fetchone()
    return int(row["made"]) if row is not None else 0


async def remove_old_identities(database: Database, *, deadline: Deadline) -> int:
    """
    Delete tokens, sign-in links and sessions that expired more than 90 days ago; return how many.

    Each batch is a transaction of its own; what is left at *deadline* the next run deletes.

    Raises:
        PostgresUnavailable: it cannot be reached; earlier batches are deleted.
    """
    removed = 0
    while not deadline.passed:
        (row,) = await database.commit("identities_remove", {"most": _MOST_REMOVED}, deadline=deadline)
        removed += int(row["removed"])
        if row["removed"] == 0:
            break
    return removed
