"""
Three tiers of recovery: an agent goes on with exactly what it knew, or it does not start and somebody is told.

The lease comes first, so that whoever was presumed dead can no longer write; then each tier is asked in turn, and the
first that proves itself serves:

1. the live working memory, if it is that of the newest checkpoint, whole, and either equal to its snapshot or the
   subtask under way may be entered again;
2. the snapshot on the durable server, if it is of the newest checkpoint;
3. the newest checkpoint's own row in Postgres.

What is proven is proven by digest, and against the newest row in Postgres, which decides. An older state is never
resumed, and neither is an empty one, except by an agent that has completed nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

import structlog

from cache.document import Contents, contents_of, digest
from cache.snapshots import SnapshotStore
from cache.store import Identity, State, WorkingStore
from checkpoints.definitions import Definitions
from checkpoints.metrics import Metrics
from checkpoints.model import Checkpoint, Kind, Lease
from checkpoints.store import Checkpoints
from journal.deadline import Deadline
from journal.errors import ConsistencyError, NotOpen, NotResumable, StaleEpoch, ValkeyUnavailable

log = structlog.get_logger(__name__)


class Tier(StrEnum):
    """Which store served; the names that metrics and answers use."""

    CLEAN = "clean_start"
    """Nothing was completed yet: the memory begins empty."""
    LIVE = "l1_existing"
    SECONDARY = "redis_secondary"
    POSTGRES = "postgresql_checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """
    What an agent goes on with.

    Attributes:
        tier: which store served.
        checkpoint: the newest one; its ``current_subtask`` is what comes next.
        keys: how many keys the working memory holds.
        dirty: whether it holds writes after the checkpoint, of a subtask that may be entered again.
        refused: why each tier above was not good enough, in words.
    """

    tier: Tier
    checkpoint: Checkpoint
    keys: int
    dirty: bool = False
    refused: Mapping[Tier, str]


class Alarm(Protocol):
    """Who is told when nothing can be recovered; see :mod:`checkpoints.alerts`."""

    async def unrecoverable(self, checkpoint: Checkpoint, reasons: Mapping[Tier, str], *, deadline: Deadline) -> None:
        """Raise one alert about *checkpoint*, however often it is asked."""


class _Refused(Exception):
    """A tier is not good enough; the message says why."""


PATIENCE_MS: Final = 30_000
"""How long a recovery may take as a whole, in milliseconds, where the caller does not say."""


class Recovery:
    """
    Brings an agent's working memory back.

    Args:
        checkpoints: the newest row decides.
        working: where the agent works.
        snapshots: the copy of the newest snapshot.
        definitions: which subtasks may be entered again.
        alarm: told when nothing is left.
        metrics: counts which tier served, and what was inconsistent.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        working: WorkingStore,
        snapshots: SnapshotStore,
        definitions: Definitions,
        alarm: Alarm,
        metrics: Metrics,
    ) -> None:
        self._checkpoints = checkpoints
        self._working = working
        self._snapshots = snapshots
        self._definitions = definitions
        self._alarm = alarm
        self._metrics = metrics

    async def recover(self, lease: Lease, *, deadline: Deadline | None = None) -> Recovered:
        """
        Bring back the working memory of the agent that holds *lease*.

        A crash at any point leaves a memory that the next recovery either proves or replaces.

        Raises:
            NotResumable: no tier holds the state of the newest checkpoint; one alert was raised; nothing was started.
            StaleEpoch: somebody else has taken the lease meanwhile.
            PostgresUnavailable, ValkeyUnavailable: the newest checkpoint, or the place to work in, cannot be reached;
                retryable; nothing was started.
        """
        deadline = deadline or Deadline.after_ms(PATIENCE_MS)
        begun = time.monotonic()
        latest = await self._checkpoints.load(lease.analysis_id, lease.agent_type, deadline=deadline)
        if latest is None:
            raise NotResumable(
                f"{lease.agent_type} has no checkpoint in the analysis {lease.analysis_id}.",
                mend="Acquiring its lease writes the first one.",
            )
        identity = Identity(lease.agent_id, lease.analysis_id, lease.agent_type)
        if latest.kind is Kind.START:
            await self._working.open(identity, lease.epoch, replace=True, seq=latest.seq, deadline=deadline)
            recovered = Recovered(tier=Tier.CLEAN, checkpoint=latest, keys=0, refused={})
        else:
            recovered = await self._from_tiers(lease, identity, latest, deadline)
        self._metrics.recovered(recovered.tier, (time.monotonic() - begun) * 1000.0)
        log.info(
            "recovered", agent_id=lease.agent_id, analysis_id=lease.analysis_id, tier=recovered.tier.value,
            seq=latest.seq, keys=recovered.keys, refused={tier.value: why for tier, why in recovered.refused.items()},
        )  # fmt: skip
        return recovered

    async def _from_tiers(
        self, lease: Lease, identity: Identity, latest: Checkpoint, deadline: Deadline
    ) -> Recovered:
        refused: dict[Tier, str] = {}
        for tier, attempt in (
            (Tier.LIVE, self._live),
            (Tier.SECONDARY, self._secondary),
            (Tier.POSTGRES, self._postgres),
        ):
            try:
                keys, dirty = await attempt(lease, identity, latest, deadline)
            except _Refused as reason:
                refused[tier] = str(reason)
                self._metrics.refused(tier, consistent=True)
            except ConsistencyError as error:
                refused[tier] = error.message
                self._metrics.refused(tier, consistent=False)
            else:
                return Recovered(tier=tier, checkpoint=latest, keys=keys, dirty=dirty, refused=refused)
        await self._alarm.unrecoverable(latest, refused, deadline=deadline)
        raise NotResumable(
            f"Nothing that is stored of {lease.agent_id} is what it was at checkpoint {latest.seq}: "
            + "; ".join(f"{tier.value}: {why}" for tier, why in refused.items()),
            mend="Nothing was started, and an alert was raised. `imem checkpoints show` shows what is left.",
        )

    async def _live(
        self, lease: Lease, identity: Identity, latest: Checkpoint, deadline: Deadline
    ) -> tuple[int, bool]:
        """Prove what is in the working memory, behind the fence of the new epoch."""
        meta = await self._working.meta(lease.agent_id, deadline=deadline)
        if meta is None:
            raise _Refused("it is gone")
        if meta.identity != identity:
            raise _Refused("it is of another analysis or agent type")
        if meta.state is not State.OPEN:
            raise _Refused("a restore into it was never finished")
        if meta.checkpoint_seq != latest.seq:
            raise _Refused(f"it follows checkpoint {meta.checkpoint_seq}, not {latest.seq}")
        try:
            meta = await self._working.open(identity, lease.epoch, deadline=deadline)
            meta, contents = await self._working.read(lease.agent_id, epoch=lease.epoch, deadline=deadline)
        except NotOpen as error:
            raise _Refused(error.message) from error
        found = digest(contents)
        if found == meta.digest == latest.digest:
            return len(contents), False
        if meta.digest != latest.digest:
            raise ConsistencyError("its snapshot is not that of the newest checkpoint")
        if meta.rev == meta.checkpoint_rev:
            raise ConsistencyError("it is not what its digest says, though nobody wrote to it")
        if not self._definitions.reentrant(lease.agent_type, latest.current_subtask):
            raise _Refused(f"it holds writes of {latest.current_subtask}, which may not be entered twice")
        return len(contents), True

    async def _secondary(
        self, lease: Lease, identity: Identity, latest: Checkpoint, deadline: Deadline
    ) -> tuple[int, bool]:
        try:
            found = await self._snapshots.get(lease.agent_id, deadline=deadline)
        except ValkeyUnavailable as error:
            raise _Refused(error.message) from error
        if found is None:
            raise _Refused("there is no snapshot")
        meta, document = found
        if meta.identity != identity:
            raise _Refused("the snapshot is of another analysis or agent type")
        if meta.seq != latest.seq:
            raise _Refused(f"the snapshot is of checkpoint {meta.seq}, not {latest.seq}")
        contents = _proven(document, meta.digest, latest)
        return await self._restore(lease, identity, latest, contents, deadline)

    async def _postgres(
        self, lease: Lease, identity: Identity, latest: Checkpoint, deadline: Deadline
    ) -> tuple[int, bool]:
        row = await self._checkpoints.load(lease.analysis_id, lease.agent_type, row_only=True, deadline=deadline)
        if row is None or row.seq != latest.seq:
            raise StaleEpoch(f"Another checkpoint of {lease.agent_id} was saved meanwhile.")
        document, stated = row.memory()
        if document is None or stated is None:
            raise _Refused("the row holds no memory")
        return await self._restore(lease, identity, latest, _proven(document, stated, latest), deadline)

    async def _restore(
        self, lease: Lease, identity: Identity, latest: Checkpoint, contents: Contents, deadline: Deadline
    ) -> tuple[int, bool]:
        keys = await self._working.restore(
            identity, contents, digest(contents), lease.epoch, latest.seq, deadline=deadline
        )
        return keys, False


def _proven(document: Any, stated: str, latest: Checkpoint) -> Contents:
    """
    Return the contents of *document* if they are what its own store and the newest checkpoint say.

    Raises:
        ConsistencyError: they are not.
    """
    contents = contents_of(document)
    found = digest(contents)
    if found != stated or (latest.digest is not None and found != latest.digest):
        raise ConsistencyError("the snapshot is not what its digest says")
    return contents
