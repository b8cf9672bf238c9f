"""What the journal needs done from time to time, whoever serves it."""

from __future__ import annotations

from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from imem.journal.statements import sql


async def make_audit_partitions(database: Database, *, deadline: Deadline) -> int:
    """
    Make the audit's partitions of this month and the next three; return how many were missing.

    Rows that came before their partition did are moved into it. The application's role may do this: the function that
    it calls has the owner's rights and does nothing else.

    Raises:
        PostgresUnavailable: it cannot be reached, or writers held the audit for long; retryable, nothing was changed.
        BudgetExceeded: the deadline passed first; nothing was changed.
    """
    async with database.transaction(deadline) as conn:
        row = await (await conn.execute(sql("audit_partitions"))).fetchone()
    return int(row["made"]) if row is not None else 0
