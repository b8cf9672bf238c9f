"""
Pulling: delivers to an agent the updates that its recipient rows name.

The content is read from the journal: an update is pulled whether or not the graph holds it, and says which. It is
written beside the agent's working keys before it is marked as pulled; after a crash in between it is pulled again,
under the same number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import orjson
import structlog

from imem.cache.keys import checked_analysis_id
from imem.cache.working.store import WorkingStore
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, ImemError, NotOpen
from imem.journal.events.entry import Tier
from imem.journal.events.tiers import tier_named
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import execute, rows
from imem.kg.kinds.catalog import KINDS
from imem.sync.delivery.notices import Notices
from imem.sync.members import SyncMember

log = structlog.get_logger()

PAGE: Final = 100
"""Updates of one pull, at most."""


@dataclass(frozen=True, slots=True)
class Update:
    """
    One update of which an agent was notified.

    Attributes:
        seq: its number among the agent's updates; None where the agent was not notified of it.
        position, event_id: of the event.
        tier: of the notice.
        why: the reason of the notification.
        score: its relevance.
        kind, key: of the record.
        actor: who recorded it.
        analysis_id: its analysis.
        content: ``core`` and ``groups``, as in the journal.
        known_at, recorded_at: since when it is known, and recorded.
        in_graph: whether the graph holds it.
    """

    seq: int | None
    position: int
    event_id: UUID
    tier: Tier
    why: str
    score: float
    kind: str
    key: str
    actor: str
    analysis_id: str | None
    content: Mapping[str, Any]
    known_at: datetime
    recorded_at: datetime
    in_graph: bool

    @classmethod
    def from_row(cls, row: Row) -> Update:
        """Return the update of a row of ``updates_to_pull``."""
        payload = {name: value for name, value in row["payload"].items() if name != "key"}
        values = {name: row[name] for name in cls.__slots__ if name in row}
        typed = {"tier": Tier(row["tier"]), "kind": row["kind"].partition(".")[2]}
        return cls(**{**values, **typed, "key": row["record_key"], "content": payload})


@dataclass(frozen=True, slots=True)
class PullResult:
    """
    The result of a pull.

    Attributes:
        updates: in the order of their numbers; those without one come last.
        cursor: up to which number everything is pulled; with *since*, the last number of this pull.
        waiting: how many more are pending.
        kept: whether they were written beside the agent's memory; False where it has none.
    """

    updates: tuple[Update, ...]
    cursor: int
    waiting: int
    kept: bool


@dataclass(frozen=True, slots=True)
class PullFilter:
    """
    Restricts a pull.

    Attributes:
        tiers: only these tiers.
        kinds: only these kinds of records.
        analysis_id: only this analysis.
        apart: also updates below the notification threshold.
        limit: most updates.
    """

    tiers: tuple[Tier, ...] = tuple(Tier)
    kinds: tuple[str, ...] | None = None
    analysis_id: str | None = None
    apart: bool = False
    limit: int = PAGE

    @classmethod
    def of(
        cls,
        *,
        tiers: Collection[Tier | int | str] | None = None,
        kinds: Collection[str] | None = None,
        analysis_id: str | None = None,
        apart: bool = False,
        limit: int = PAGE,
    ) -> PullFilter:
        """
        Return a filter from the arguments of a call.

        Raises:
            BadInput: a tier or a kind is unknown, or the limit is out of bounds; names the field.
        """
        chosen = tuple(Tier) if tiers is None else tuple(tier_named(one, "tiers") for one in tiers)
        if not chosen:
            raise BadInput("tiers", "names no tier.")
        for kind in kinds or ():
            if kind not in KINDS:
                raise BadInput("kinds", f"{kind!r:.60} is no kind of record.")
        if not 1 <= limit <= PAGE:
            raise BadInput("limit", f"must be a whole number from 1 to {PAGE}.")
        if analysis_id is not None:
            checked_analysis_id(analysis_id)
        return cls(chosen, tuple(kinds) if kinds is not None else None, analysis_id, apart, limit)


URGENT: Final = PullFilter(tiers=(Tier.SYSTEM_CRITICAL, Tier.CRITICAL, Tier.HIGH))
"""The filter of a synchronisation."""


class Puller:
    """
    Delivers updates to agents.

    Args:
        database: rows and content.
        memories: where updates are written.
        notices: queues from which notices of pulled updates are removed; None where there are none.
    """

    def __init__(self, database: Database, memories: WorkingStore, notices: Notices | None = None) -> None:
        self._database = database
        self._memories = memories
        self._notices = notices

    async def pull(
        self, member: SyncMember, since: int | None = None, wanted: PullFilter | None = None, *, deadline: Deadline
    ) -> PullResult:
        """
        Return the updates that *member* has not pulled, write them beside its memory, and mark them as pulled.

        Args:
            since: instead, return everything with a later number, pulled or not: for an agent that lost its memory.

        Raises:
            BadInput: *since* is no whole number.
            PostgresUnavailable, BudgetExceeded: nothing is marked as pulled; retryable.
            ValkeyUnavailable: the updates cannot be written; nothing is marked as pulled; retryable.
        """
        if since is not None and since < 0:
            raise BadInput("since", "must be a whole number from 0 on.")
        by = wanted or PullFilter()
        asked = {
            "agent_id": member.agent_id,
            "since": since,
            "tiers": [int(tier) for tier in by.tiers],
            "kinds": list(by.kinds) if by.kinds is not None else None,
            "analysis_id": by.analysis_id,
            "apart": by.apart,
            "limit": by.limit,
        }
        found = await self._database.named("updates_to_pull", asked, deadline=deadline)
        updates = tuple(Update.from_row(row) for row in found)
        kept = await self._keep(member.agent_id, updates, deadline)
        await self._count(member.agent_id, updates, deadline)
        await self._drop(member.agent_id, deadline)
        row = (await self._database.named("pulled_upto", {"agent_id": member.agent_id}, deadline=deadline))[0]
        numbers = [update.seq for update in updates if update.seq is not None]
        cursor = row["upto"] if since is None else max(numbers, default=since)
        return PullResult(updates, cursor, row["waiting"], kept)

    async def _keep(self, agent_id: str, updates: Sequence[Update], deadline: Deadline) -> bool:
        if not updates:
            return True
        # By position: updates without a notification have no number.
        encoded = {update.position: orjson.dumps(update) for update in updates}
        try:
            await self._memories.learn(agent_id, encoded, deadline=deadline)
        except NotOpen:
            return False  # No memory: the caller has the updates.
        return True

    async def _count(self, agent_id: str, updates: Sequence[Update], deadline: Deadline) -> None:
        if not updates:
            return
        async with self._database.transaction(deadline) as conn:
            positions = [update.position for update in updates]
            taken = await rows(conn, "updates_pulled", {"agent_id": agent_id, "positions": positions})
            by_sender = Counter(row["actor"] for row in taken)
            if by_sender:
                senders = sorted(by_sender)
                counts = [by_sender[sender] for sender in senders]
                await execute(conn, "usage_pulled", {"agent_id": agent_id, "senders": senders, "counts": counts})

    async def _drop(self, agent_id: str, deadline: Deadline) -> None:
        """Remove the notices of pulled updates from the queue; on an error they stay until the next pull."""
        if self._notices is None:
            return
        try:
            waiting = [notice.position for notice in await self._notices.waiting(agent_id, deadline=deadline)]
            if not waiting:
                return
            stale = await self._database.named(
                "notices_stale", {"agent_id": agent_id, "positions": waiting}, deadline=deadline
            )
            if stale:
                await self._notices.drop(agent_id, [row["position"] for row in stale], deadline=deadline)
        except ImemError as error:
            log.warning("notices.not_dropped", agent_id=agent_id, reason=str(error))
