"""
Recovery from Postgres alone: the newest checkpoint's own row, proven by its digest, restored behind the fence.

It is the last of the three tiers, and enough where the others are not to be had.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cache.document import contents_of, digest
from cache.state import Identity
from cache.store import WorkingStore
from checkpoints.model import Lease
from checkpoints.store import Checkpoints
from journal.deadline import Deadline
from journal.errors import ConsistencyError, NotResumable

PATIENCE_MS: Final = 30_000
"""How long it may take, in milliseconds, where the caller does not say."""


@dataclass(frozen=True, slots=True)
class FromPostgres:
    """What was recovered: which tier served, and up to which checkpoint."""

    tier: str
    seq: int


class ThirdTier:
    """
    Restores from rows.

    Args:
        checkpoints: the newest row decides.
        working: where the agent works.
    """

    def __init__(self, checkpoints: Checkpoints, working: WorkingStore) -> None:
        self._checkpoints = checkpoints
        self._working = working

    async def recover(self, lease: Lease, *, deadline: Deadline | None = None) -> FromPostgres:
        """
        Bring back the working memory of the agent that *lease* is of.

        Raises:
            NotResumable: its newest checkpoint is not what its digest says, or there is none; nothing was touched.
            StaleEpoch: somebody else has the agent by now.
            PostgresUnavailable, ValkeyUnavailable: retryable.
        """
        deadline = deadline or Deadline.after_ms(PATIENCE_MS)
        latest = await self._checkpoints.load(lease.analysis_id, lease.agent_type, deadline=deadline)
        if latest is None:
            raise NotResumable(f"{lease.agent_type} has no checkpoint in {lease.analysis_id}.")
        identity = Identity(lease.agent_id, lease.analysis_id, lease.agent_type)
        if latest.clean:
            await self._working.open(identity, lease.epoch, replace=True, deadline=deadline)
            return FromPostgres("clean_start", latest.seq)
        stated = latest.l1_snapshot_hash or latest.working_memory_hash or ""
        try:
            contents = contents_of(latest.working_memory if latest.l1_snapshot is None else latest.l1_snapshot)
        except ConsistencyError as error:
            raise NotResumable(f"The newest checkpoint of {lease.agent_id} is damaged.") from error
        if digest(contents) != stated:
            raise NotResumable(f"The newest checkpoint of {lease.agent_id} is not what its digest says.")
        await self._working.restore(
            identity, contents, stated, lease.epoch, latest.seq, replace=True, deadline=deadline
        )
        return FromPostgres("postgresql_checkpoint", latest.seq)
