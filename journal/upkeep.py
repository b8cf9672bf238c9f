"""Periodic upkeep of the journal."""

from __future__ import annotations

from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from imem.journal.statements import sql


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
