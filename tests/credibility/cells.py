"""Cells of track records as of any moment, in one call."""

from __future__ import annotations

from collections.abc import Sequence

from imem.credibility.scores.context import ContextCell
from imem.credibility.scores.evidence import cells_read
from imem.credibility.store import TrackRecordKey
from imem.credibility.track_record import moments_read
from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import rows
from imem.kg.asof import AsOf


async def cells_of(
    database: Database, asked: Sequence[tuple[str, str, AsOf]], *, halflife_years: float, deadline: Deadline
) -> list[list[ContextCell]]:
    """Return the cells of each agent and domain as of each moment, all moments on one clock."""
    async with database.connection(deadline) as conn:
        waiting = (await rows(conn, "settled_horizon"))[0]["waiting_since"]
        moments = [moments_read(as_of, waiting) for _, _, as_of in asked]
        pairs = [TrackRecordKey(agent, domain) for agent, domain, _ in asked]
        return await cells_read(conn, pairs, moments, asked[0][2].clock, halflife_years=halflife_years)
