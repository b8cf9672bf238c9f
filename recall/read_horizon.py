"""The read horizon of a request: safe horizon, database time, epoch of pattern statuses, scored horizon."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from imem.kg.asof import AsOf, AsOfClock, clamp_to_horizon


@dataclass(frozen=True, slots=True)
class ReadHorizon:
    """
    Up to when a request may read.

    Attributes:
        horizon: the safe horizon: everything recorded until then is committed and in the graph.
        now: the database's time.
        epoch: counter of changes of pattern statuses.
        scored: everything recorded until then is scored; None on the known clock.
    """

    horizon: datetime
    now: datetime
    epoch: int
    scored: datetime | None = None

    def resolve(self, asked: datetime | None, on: AsOfClock) -> AsOf:
        """Return the as-of to use: *asked* clamped to the horizon; on the recorded clock to the scored one as well."""
        found = clamp_to_horizon(asked, on, self.horizon, self.now)
        if self.scored is None or on is not AsOfClock.RECORDED:
            return found
        return AsOf(min(found.at, self.scored), on, asked, found.complete_until)


async def pattern_epoch(database: Database, *, deadline: Deadline) -> int:
    """
    Return the epoch of pattern statuses.

    Raises:
        PostgresUnavailable, BudgetExceeded: Postgres did not answer in time; retryable.
    """
    epoch: int = (await database.named("pattern_epoch", deadline=deadline))[0]["epoch"]
    return epoch


async def fetch_read_horizon(database: Database, on: AsOfClock, *, deadline: Deadline) -> ReadHorizon:
    """
    Fetch the read horizon: one statement, on the recorded clock a second for the scored horizon.

    Raises:
        PostgresUnavailable, BudgetExceeded: Postgres did not answer in time; retryable.
    """
    row = (await database.named("read_horizon", deadline=deadline))[0]
    scored = None
    if on is AsOfClock.RECORDED:
        scored = (await database.named("scored_horizon", deadline=deadline))[0]["horizon"].astimezone(UTC)
    return ReadHorizon(row["horizon"].astimezone(UTC), row["now"].astimezone(UTC), row["epoch"], scored)


async def clamped_until(database: Database, asked: datetime | None, *, deadline: Deadline) -> datetime | None:
    """
    Return *asked*, a moment of the known clock, clamped to the safe horizon; None, for now, stays so.

    Raises:
        PostgresUnavailable, BudgetExceeded: as :func:`fetch_read_horizon`.
    """
    if asked is None:
        return None
    horizon = await fetch_read_horizon(database, AsOfClock.KNOWN, deadline=deadline)
    return horizon.resolve(asked, AsOfClock.KNOWN).at
