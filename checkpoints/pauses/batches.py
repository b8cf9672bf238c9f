"""
Batches: which member is resumed next, and when launching stops.

The rules are pure; :class:`~imem.checkpoints.pauses.batch_runs.BatchRuns` applies them to rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from imem.checkpoints.pauses.lifecycle import Trigger
from imem.checkpoints.pauses.rows import Pause

CONCURRENCY: Final = 5
"""Members of one batch that are paused or resumed at a time, by default."""

LARGEST: Final = 1_000
"""Members of one batch at most."""


class BatchMemberState(StrEnum):
    """State of a member."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    """Being paused, or being resumed."""
    DONE = "DONE"
    FAILED = "FAILED"


class BatchStatus(StrEnum):
    """State of a batch."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    PARTIALLY_FAILED = "PARTIALLY_FAILED"
    FAILED = "FAILED"


_RANK: Final[Mapping[Trigger, int]] = MappingProxyType(
    {
        Trigger.GATE_TIMEOUT: 0,
        Trigger.AUTO_TIER2: 1,
        Trigger.AUTO_BATCH_CORRELATION: 1,
        # A gate rejection, like a manual pause, was deliberate; automatic pauses come first.
        Trigger.GATE_REJECTION: 2,
        Trigger.MANUAL: 2,
    }
)


def ordered(paused: Iterable[Pause]) -> list[Pause]:
    """Return pauses in the order of resumption: gate timeouts, automatic pauses, manual ones; the oldest first."""
    return sorted(paused, key=lambda one: (_RANK[one.trigger], one.paused_at, one.analysis_id))


def should_stop(*, failed: int, total: int) -> bool:
    """Return whether launching stops: when more than half has failed."""
    return 2 * failed > total


def room(members: Collection[BatchMemberState], *, limit: int) -> int:
    """Return how many members of a batch may be launched now."""
    counted = Counter(members)
    if should_stop(failed=counted[BatchMemberState.FAILED], total=len(members)):
        return 0
    return min(max(0, limit - counted[BatchMemberState.RUNNING]), counted[BatchMemberState.QUEUED])


def status_of(members: Collection[BatchMemberState]) -> BatchStatus:
    """Return the status of a batch from its members."""
    counted = Counter(members)
    stopped = should_stop(failed=counted[BatchMemberState.FAILED], total=len(members))
    if counted[BatchMemberState.RUNNING] or (counted[BatchMemberState.QUEUED] and not stopped):
        return BatchStatus.IN_PROGRESS
    if not counted[BatchMemberState.FAILED]:
        return BatchStatus.COMPLETED
    return BatchStatus.PARTIALLY_FAILED if counted[BatchMemberState.DONE] else BatchStatus.FAILED


def startable(
    ready: Sequence[tuple[str, str]],
    running: Mapping[str, int],
    limits: Mapping[str, int],
) -> list[tuple[str, str]]:
    """
    Return the agents of batches that may start now, in the given order.

    Args:
        ready: (analysis, agent type) of agents whose parents have completed, in order.
        running: running agents of each type, over all analyses.
        limits: agent type → most at a time; a missing type has no limit.
    """
    counted = Counter(running)
    found = []
    for analysis_id, agent_type in ready:
        limit = limits.get(agent_type)
        if limit is None or counted[agent_type] < limit:
            counted[agent_type] += 1
            found.append((analysis_id, agent_type))
    return found
