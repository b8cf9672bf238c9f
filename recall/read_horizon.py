"""What every question begins with: the horizon, the present moment, and how often pattern statuses have changed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from imem.kg.asof import AsOf, AsOfClock, clamp_to_horizon


@dataclass(frozen=True, slots=True)
class ReadHorizon:
    """
    How things stood when a question began.

    Attributes:
        horizon: everything recorded by then is committed and in the graph.
        now: the journal's present moment.
        epoch: of the status of patterns.
        scored: everything recorded by then is scored; asked for on the recorded clock alone.
    """

    horizon: datetime
    now: datetime
    epoch: int
    scored: datetime | None = None

    def at(self, asked: datetime | None, on: AsOfClock) -> AsOf:
        """Return the T to use; on the recorded clock also nothing later than what is scored."""
        found = clamp_to_horizon(asked, on, self.horizon, self.now)
        if self.scored is None or on is not AsOfClock.RECORDED:
            return found
        return AsOf(min(found.at, self.scored), on, asked, found.complete_until)


async def pattern_epoch(database: Database, *, deadline: Deadline) -> int:
    """
    Return the epoch of pattern statuses.

    Raises:
        PostgresUnavailable, BudgetExceeded: nobody can say; retryable.
    """
    epoch: int = (await database.named("pattern_epoch", deadline=deadline))[0]["epoch"]
    return epoch


async def fetch_read_horizon(database: Database, on: AsOfClock, *, deadline: Deadline) -> ReadHorizon:
    """
    Return how things stand.

    Raises:
        PostgresUnavailable, BudgetExceeded: nobody can say; retryable.
    """
    row = (await database.named("read_horizon", deadline=deadline))[0]
    scored = None
    if on is AsOfClock.RECORDED:
        scored = (await database.named("scored_horizon", deadline=deadline))[0]["horizon"].astimezone(UTC)
    return ReadHorizon(row["horizon"].astimezone(UTC), row["now"].astimezone(UTC), row["epoch"], scored)
