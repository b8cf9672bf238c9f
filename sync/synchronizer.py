"""
Synchronising agents: pushes what each has published, waits until the graph holds it, and pulls updates for each.

Agents are flushed concurrently. Their items are routed at once, without the router's pass. Then each agent waits until
the graph holds all events of its owner, and pulls. Each agent has a result of its own: one that fails does not affect
the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import structlog

from imem.cache.working.store import WorkingStore
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, ImemError
from imem.journal.events.entry import Tier
from imem.journal.gateway import Gateway
from imem.journal.postgres.database import Database
from imem.sync.delivery.notices import Notice, Notices
from imem.sync.delivery.puller import URGENT, Puller
from imem.sync.delivery.pusher import DENIED, PushedItem, Pusher, PushState, RecordAppender
from imem.sync.delivery.relevance import NotifyReason
from imem.sync.delivery.routing import Router
from imem.sync.members import SyncMember, owners_of

log = structlog.get_logger()

FORCE_MS: Final = 2_000
"""Default timeout of a synchronisation, in milliseconds."""

AT_A_TIME: Final = 8
"""Agents that a background round flushes concurrently."""

_SPARE_MS: Final = 100.0
"""Part of the timeout that is reserved for the results, in milliseconds."""


class SyncState(StrEnum):
    """The outcome of synchronising one agent."""

    SYNCHRONIZED = "synchronized"
    DURABLE_NOT_VISIBLE = "durable_not_visible"
    """Everything is in the journal, but not all of it in the graph yet."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SyncResult:
    """
    The result of synchronising one agent.

    Attributes:
        agent_id: of the agent.
        state: the outcome.
        pushed: number of durable items, those of earlier pushes included.
        rejected: items that were refused, with the reasons.
        pulled: number of updates.
        reason: why it failed; a sentence.
        retryable: whether repeating a failed call may succeed.
    """

    agent_id: str
    state: SyncState
    pushed: int = 0
    rejected: tuple[PushedItem, ...] = ()
    pulled: int = 0
    reason: str | None = None
    retryable: bool = False


@dataclass(frozen=True, slots=True)
class RoutingDecision:
    """
    Whether an agent is notified of an event, and why.

    Attributes:
        agent_id: of the agent.
        tier: of the notice.
        score: the relevance of the event.
        parts: the five inputs of the score, unweighted.
        why: the reason of the notification, or of none.
    """

    agent_id: str
    tier: Tier
    score: float
    parts: tuple[float, ...]
    why: NotifyReason


class Synchronizer:
    """
    Synchronises the memories of agents, over one process's connections.

    Args:
        database: the journal.
        memories: the working memories.
        record: appends published items.
        gateway: waits until the graph holds events, and wakes the applier.
        notices: the queues; None without their server.

    Attributes:
        pusher, push: push what an agent published; see :meth:`imem.sync.delivery.pusher.Pusher.push`.
        pull: delivers updates to an agent; see :meth:`imem.sync.delivery.puller.Puller.pull`.
        router: routes events to agents.
    """

    def __init__(
        self,
        database: Database,
        memories: WorkingStore,
        record: RecordAppender,
        gateway: Gateway,
        *,
        notices: Notices | None = None,
    ) -> None:
        self.database = database
        self.pusher = Pusher(database, memories, record)
        self.push = self.pusher.push
        self.pull = Puller(database, memories, notices).pull
        self.router = Router(database, notices)
        self._gateway = gateway
        self._notices = notices

    @property
    def actor(self) -> Actor:
        """The process' own actor."""
        return self._gateway.actor

    async def route(self, position: int, *, deadline: Deadline) -> list[RoutingDecision]:
        """
        Return which agents are notified of the event at *position*, and why; those below the threshold as well.

        Empty where no agent is active, or the event is not routed: an import of history, a link, a score.
        """
        if position < 1:
            raise BadInput("event", "must be the position of an event, as receipts have it.")
        await self.router.route_all(deadline=deadline)
        rows = await self.database.named("recipients_of", {"position": position}, deadline=deadline)
        return [
            RoutingDecision(
                row["agent_id"], Tier(row["tier"]), row["score"], tuple(row["parts"]), NotifyReason(row["why"])
            )
            for row in rows
        ]

    async def notices(self, member: SyncMember, *, deadline: Deadline) -> list[Notice]:
        """Return the pending notices of an agent, the most urgent first; none without their server."""
        return [] if self._notices is None else await self._notices.waiting(member.agent_id, deadline=deadline)

    async def synchronize(
        self, found: Sequence[SyncMember], *, by: Actor | None = None, deadline: Deadline
    ) -> dict[str, SyncResult]:
        """
        Flush, apply and pull for several agents concurrently; return each result by the deadline.

        Args:
            by: who asks; the process' own actor by default.
        """
        inner = deadline.within_ms(max(1.0, deadline.left_ms() - min(_SPARE_MS, deadline.left_ms() / 2)))
        flushed = await self.flush(found, by=by, deadline=inner)
        # Concurrently: neither needs the other, and a long routing must not use up the time.
        visible, _ = await asyncio.gather(self.visible(found, deadline=inner), self._routed(inner))
        ended = await asyncio.gather(
            *(self._finished(one, flushed[one.agent_id], _state(visible, one), deadline) for one in found)
        )
        return {one.agent_id: one for one in ended}

    async def _routed(self, deadline: Deadline) -> None:
        """Route what was pushed; events that are not routed in time are pulled later."""
        try:
            await self.router.route_all(deadline=deadline)
        except ImemError as error:
            log.warning("sync.not_routed", reason=str(error))

    async def flush(
        self,
        found: Sequence[SyncMember],
        *,
        by: Actor | None = None,
        epochs: Mapping[str, int] | None = None,
        deadline: Deadline,
    ) -> dict[str, SyncResult]:
        """
        Push concurrently what agents published; SYNCHRONIZED means only durable here.

        Args:
            by: who asks; the process' own actor by default.
            epochs: owner → the epoch of the lock on its writes, for the holder of the locks.
        """
        done = await asyncio.gather(*(self._flushed(one, by, (epochs or {}).get(one.owner), deadline) for one in found))
        return {one.agent_id: one for one in done}

    async def _flushed(
        self, member: SyncMember, by: Actor | None, lock_epoch: int | None, deadline: Deadline
    ) -> SyncResult:
        try:
            done = await self.push(member, by=by, tier=Tier.CRITICAL, lock_epoch=lock_epoch, deadline=deadline)
        except ImemError as error:
            return _failed(SyncResult(member.agent_id, SyncState.FAILED), "pushing", error)
        rejected = tuple(one for one in done if one.state is PushState.REJECTED)
        held_back = [one for one in rejected if one.field == DENIED]
        pushed = len(done) - len(rejected)
        if held_back:
            reason = f"{len(held_back)} items are its owner's to push alone: {held_back[0].reason}"
            return SyncResult(member.agent_id, SyncState.FAILED, pushed, rejected, reason=reason)
        return SyncResult(member.agent_id, SyncState.SYNCHRONIZED, pushed, rejected)

    async def flush_all(self, *, deadline: Deadline) -> int:
        """
        Push what active agents have published and not pushed themselves.

        Return how many durable items are still in memories, those of earlier pushes included.

        Raises:
            PostgresUnavailable, BudgetExceeded: active agents could not be read.
        """
        rows = await self.database.named("members_at_work", deadline=deadline)
        done = 0
        for first in range(0, len(rows), AT_A_TIME):
            page = [SyncMember(**row) for row in rows[first : first + AT_A_TIME]]
            counts = await asyncio.gather(*(self._caught_up(member, deadline) for member in page))
            done += sum(counts)
        return done

    async def _caught_up(self, member: SyncMember, deadline: Deadline) -> int:
        try:
            done = await self.push(member, deadline=deadline)
        except ImemError as error:
            # For example while a snapshot is taken: the next round comes soon.
            log.info("sync.not_flushed", agent_id=member.agent_id, reason=str(error))
            return 0
        return sum(one.state is PushState.DURABLE for one in done)

    async def visible(self, found: Sequence[SyncMember], *, deadline: Deadline) -> dict[str, bool]:
        """Raise the priority of the owners' pending events, and wait; return by owner whether the graph holds all."""
        owners = owners_of(found)
        try:
            rows = await self.database.commit("hasten", {"actors": owners}, deadline=deadline)
            if rows:
                await self._gateway.publish_wakeup([Tier.CRITICAL])
            waiting = {owner: [row["position"] for row in rows if row["actor"] == owner] for owner in owners}
            seen = await asyncio.gather(*(self._gateway.wait_visible(waiting[owner], deadline) for owner in owners))
        except ImemError as error:
            log.warning("sync.not_visible", reason=str(error))
            return dict.fromkeys(owners, False)
        return dict(zip(owners, seen, strict=True))

    async def _finished(
        self,
        member: SyncMember,
        flushed: SyncResult,
        state: SyncState,
        deadline: Deadline,
    ) -> SyncResult:
        if flushed.state is SyncState.FAILED:
            return flushed
        pulled = 0
        try:
            while got := (await self.pull(member, None, URGENT, deadline=deadline)).updates:
                pulled += len(got)
                if len(got) < URGENT.limit:
                    break
        except ImemError as error:
            return _failed(replace(flushed, pulled=pulled), "pulling", error)
        return replace(flushed, state=state, pulled=pulled)


def _state(visible: Mapping[str, bool], member: SyncMember) -> SyncState:
    return SyncState.SYNCHRONIZED if visible[member.owner] else SyncState.DURABLE_NOT_VISIBLE


def _failed(so_far: SyncResult, what: str, error: ImemError) -> SyncResult:
    reason = f"{what}: {error.message}"
    return replace(so_far, state=SyncState.FAILED, reason=reason, retryable=error.retryable)
