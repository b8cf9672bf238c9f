"""Status of delivery: how far the graph is behind the journal, by tier, and whether an applier is active."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError
from imem.journal.events.entry import Tier
from imem.journal.modes import BEHIND_S
from imem.journal.postgres.database import Database
from imem.kg.projection.verification import compare
from imem.sync.delivery.metrics import DEEPEST
from imem.sync.metrics import BACKPRESSURE_ACTIVE, DELIVERY, QUEUE_DEPTH

if TYPE_CHECKING:
    from imem.kg.engine import Graph

ACTIVE_WITHIN_S: Final = 10.0
"""An applier that marked an event within this time, in seconds, is active."""

POLL_INTERVAL_S: Final = 5.0
"""Poll interval of the metrics, in seconds."""

BUDGET_MS: Final = 5_000
"""Timeout of one poll, in milliseconds."""


@dataclass(frozen=True, slots=True)
class TierDepth:
    """
    The events of one tier that are not applied.

    Attributes:
        tier: the tier.
        waiting, retrying, dead: events before their first attempt, before another attempt, and dead.
        oldest_s: age of the oldest that is not dead, in seconds; None where there is none.
    """

    tier: Tier
    waiting: int = 0
    retrying: int = 0
    dead: int = 0
    oldest_s: float | None = None


@dataclass(frozen=True, slots=True)
class DeliveryStatus:
    """
    The status of delivery into the graph.

    Attributes:
        leads: whether a process holds the applier's lease.
        lag_s: age of the oldest pending event, in seconds; 0 where there is none. Dead events do not count.
        applied_s: seconds since an event was last marked applied; None where none ever was.
        newest: the newest position, 0 in an empty journal.
        tiers: pending and dead events of all four tiers.
        applier_interval_s: polling interval of the applier, in seconds.
        mismatch: why the graph is no projection of this journal, as a sentence; None where it is.
        compared: whether the graph could be read.
    """

    leads: bool
    lag_s: float
    applied_s: float | None
    newest: int
    tiers: tuple[TierDepth, ...]
    applier_interval_s: float = 0.0
    mismatch: str | None = None
    compared: bool = False

    @property
    def stuck(self) -> bool:
        """Whether events are pending and no applier is active."""
        in_time = self.lag_s <= self.applier_interval_s + BEHIND_S
        at_work = in_time or (self.applied_s is not None and self.applied_s < ACTIVE_WITHIN_S)
        return self.lag_s > BEHIND_S and not (self.leads and at_work)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {
            "stuck": self.stuck,
            "applier": self.leads,
            "lag_s": self.lag_s,
            "applied_s": self.applied_s,
            "newest": self.newest,
            "graph": {"compared": self.compared, "mismatch": self.mismatch},
            "tiers": {
                one.tier.name.lower(): {name: value for name, value in asdict(one).items() if name != "tier"}
                for one in self.tiers
            },
        }


async def depths(database: Database, *, deadline: Deadline) -> tuple[TierDepth, ...]:
    """
    Return the events of each tier that are not applied.

    Raises:
        PostgresUnavailable, BudgetExceeded: they could not be read; retryable.
    """
    counted: dict[Tier, dict[str, Any]] = {tier: {} for tier in Tier}
    for row in await database.named("delivery_depth", deadline=deadline):
        found = counted[Tier(row["tier"])]
        found[row["state"]] = row["events"]
        if row["state"] != "dead":
            found["oldest_s"] = max(found.get("oldest_s", 0.0), row["oldest_s"], 0.0)
    return tuple(TierDepth(tier, **found) for tier, found in counted.items())


async def status(
    database: Database, graph: Graph | None = None, *, applier_interval_s: float = 0.0, deadline: Deadline
) -> DeliveryStatus:
    """
    Return the status of delivery into the graph.

    Args:
        graph: compared with the journal where it can be read.
        applier_interval_s: polling interval of the applier, in seconds.

    Raises:
        PostgresUnavailable, BudgetExceeded: it could not be read; retryable.
    """
    tiers = await depths(database, deadline=deadline)
    [row] = await database.named("delivery_progress", deadline=deadline)
    lag_s = max((one.oldest_s for one in tiers if one.oldest_s is not None), default=0.0)
    mismatch, compared = await _compared(database, graph, deadline)
    return DeliveryStatus(
        row["leads"], lag_s, row["applied_s"], row["newest"] or 0, tiers, applier_interval_s, mismatch, compared
    )


async def _compared(database: Database, graph: Graph | None, deadline: Deadline) -> tuple[str | None, bool]:
    if graph is None:
        return None, False
    try:
        return (await compare(database, graph, deadline=deadline)).mismatch, True
    except ImemError as error:
        if not error.retryable:
            raise
        return None, False


async def watch_queue(
    database: Database,
    yielding: Callable[[], bool],
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """
    Update the metrics of the queues until cancelled; without Postgres they keep their values.

    Args:
        yielding: whether batches are small at present because urgent events are pending.
    """
    while True:
        BACKPRESSURE_ACTIVE.labels(DELIVERY).set(yielding())
        try:
            for one in await depths(database, deadline=Deadline.after_ms(BUDGET_MS)):
                QUEUE_DEPTH.labels(DELIVERY, one.tier.name.lower()).set(one.waiting + one.retrying)
            [row] = await database.named("notices_deepest", deadline=Deadline.after_ms(BUDGET_MS))
            DEEPEST.set(row["deepest"])
        except ImemError as error:
            if not error.retryable:
                raise
        await sleep(POLL_INTERVAL_S)
