"""Authorized synchronisation of agents, and snapshots of debates."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from uuid import UUID

from imem.cache.client import Client
from imem.cache.working.published import item_of, publication
from imem.cache.working.store import WorkingStore
from imem.checkpoints.session import Session
from imem.ingest.recorder import Recorder
from imem.journal.actors import Action, Resource, ResourceType
from imem.journal.arguments import checks_arguments
from imem.journal.clock import SystemClock
from imem.journal.deadline import Deadline
from imem.journal.errors import NotOpen
from imem.journal.events.entry import Tier
from imem.kg.load_format.lines import Line
from imem.kg.model import Kind
from imem.services.stores import Stores, secret
from imem.sync.delivery.notices import Notice, Notices
from imem.sync.delivery.puller import PullFilter, PullResult
from imem.sync.delivery.pusher import PushedItem
from imem.sync.gates import GateReport, GateSync
from imem.sync.members import SyncMember, checked_tier, members
from imem.sync.snapshots import MemorySnapshot, SnapshotResult, Snapshots, checked_snapshot_id
from imem.sync.synchronizer import RoutingDecision, Synchronizer, SyncResult

T = TypeVar("T")


@checks_arguments
class SynchronizationService:
    """
    Synchronisations and snapshots; every call passes the gateway first.

    An agent pushes, pulls and synchronises itself alone; facilitators of debates, and people, synchronise others. All
    raise :class:`~imem.journal.errors.PermissionDenied` if the actor may not, with one denial row written.

    Args:
        stores: Postgres, and the gateway of the calling actor.
        memories: the working memories.
        durable: the durable Valkey.
        sessions: the sessions that are open in this process.
    """

    def __init__(
        self, stores: Stores, memories: WorkingStore, durable: Client, sessions: Mapping[str, Session]
    ) -> None:
        self._gateway = stores.gateway
        self._database = stores.database
        self._sessions = sessions
        self._sync = Synchronizer(
            stores.database,
            memories,
            Recorder(stores.gateway),
            stores.gateway,
            notices=Notices(durable),
            announce=stores.wakeup_publisher.publish_wakeup,
        )
        self._snapshots = Snapshots(stores.database, self._sync, durable)
        self._gates = GateSync(stores.database, self._sync)

    # One agent

    async def push(
        self,
        agent_id: str,
        items: Sequence[Kind | Line] = (),
        tier: Tier | int | str | None = None,
        *,
        deadline: Deadline,
    ) -> list[PushedItem]:
        """
        Publish *items*, if any, and make durable all that the agent has published.

        Raises:
            NotOpen: items are given, and no session of this process holds the agent's memory.
        """
        urgency = checked_tier(tier)
        member = await self._member(agent_id, deadline)
        session = self._sessions.get(agent_id)
        if items and session is None:
            raise NotOpen(
                f"No session of this process works with the memory of {agent_id}.",
                mend="Begin one, or push without items what it has published.",
            )
        changes = [publication(item_of(item)) for item in items]

        async def pushed() -> list[PushedItem]:
            if session is not None and changes:
                await session.memory.write(*changes, deadline=deadline)
            holder = session.memory if session is not None else None
            return await self._sync.push(member, holder=holder, tier=urgency, deadline=deadline)

        return await self._of(member, Action.WRITE, pushed, deadline)

    async def pull(
        self, agent_id: str, since: int | None = None, wanted: PullFilter | None = None, *, deadline: Deadline
    ) -> PullResult:
        """Pull the updates routed to an agent; see :meth:`imem.sync.delivery.puller.Puller.pull`."""
        member = await self._member(agent_id, deadline)
        return await self._of(
            member, Action.WRITE, lambda: self._sync.pull(member, since, wanted, deadline=deadline), deadline
        )

    async def notices(self, agent_id: str, *, deadline: Deadline) -> list[Notice]:
        """Return the notices that wait for an agent, most urgent first."""
        member = await self._member(agent_id, deadline)
        return await self._of(member, Action.READ, lambda: self._sync.notices(member, deadline=deadline), deadline)

    # Several

    async def route(self, event: int, *, deadline: Deadline) -> list[RoutingDecision]:
        """Return to which agents the event at a position is routed, and why."""
        return await self._allowed(
            Action.READ, f"event {event}", lambda: self._sync.route(event, deadline=deadline), deadline
        )

    async def force_sync(self, agents: Collection[str], *, deadline_ms: float) -> dict[str, SyncResult]:
        """Flush, apply and pull for several agents; see :meth:`imem.sync.synchronizer.Synchronizer.force_sync`."""
        due = Deadline.after_ms(deadline_ms)
        for member in await members(self._database, agents, deadline=due):
            resource = Resource(ResourceType.SYNC, member.agent_id, member.owner)
            await self._gateway.authorize(resource, Action.SYNCHRONIZE, deadline=due)
        return await self._sync.force_sync(agents, deadline_ms=max(10.0, due.left_ms()))

    async def snapshot(
        self, debate_id: str, participants: Collection[str] = (), topic: str | None = None, *, deadline_ms: float
    ) -> SnapshotResult:
        """Snapshot a debate; see :meth:`imem.sync.snapshots.Snapshots.take`."""
        return await self._allowed(
            Action.SYNCHRONIZE,
            f"debate {debate_id}",
            lambda: self._snapshots.take(debate_id, participants, topic, deadline_ms=deadline_ms),
            Deadline.after_ms(deadline_ms),
        )

    async def read_snapshot(self, snapshot_id: UUID | str, *, deadline: Deadline) -> MemorySnapshot:
        """Return a snapshot, compared with its hash; see :meth:`imem.sync.snapshots.Snapshots.read`."""
        which = checked_snapshot_id(snapshot_id)
        return await self._allowed(
            Action.READ, f"snapshot {which}", lambda: self._snapshots.read(which, deadline=deadline), deadline
        )

    async def sync_gate(self, gate: str, *, deadline_ms: float) -> GateReport:
        """Synchronise all agents of a gate's analysis; see :meth:`imem.sync.gates.GateSync.sync_gate`."""
        return await self._allowed(
            Action.SYNCHRONIZE,
            f"gate {gate}",
            lambda: self._gates.sync_gate(gate, deadline_ms=deadline_ms),
            Deadline.after_ms(deadline_ms),
        )

    async def gate_report(self, gate: str, *, deadline: Deadline) -> GateReport | None:
        """Return the newest stored report of a gate; None if there is none."""
        return await self._allowed(
            Action.READ, f"gate {gate}", lambda: self._gates.report(gate, deadline=deadline), deadline
        )

    # Authorization

    async def _member(self, agent_id: str, deadline: Deadline) -> SyncMember:
        return (await members(self._database, [agent_id], field="agent_id", deadline=deadline))[0]

    async def _of(
        self, member: SyncMember, action: Action, operation: Callable[[], Awaitable[T]], deadline: Deadline
    ) -> T:
        resource = Resource(ResourceType.WORKING_MEMORY, member.agent_id, member.owner)
        return await self._gateway.authorize_and_execute(resource, action, operation, deadline=deadline)

    async def _allowed(self, action: Action, what: str, operation: Callable[[], Awaitable[T]], deadline: Deadline) -> T:
        resource = Resource(ResourceType.SYNC, what[:200])
        return await self._gateway.authorize_and_execute(resource, action, operation, deadline=deadline)


@asynccontextmanager
async def open_synchronization(stores: Stores) -> AsyncIterator[SynchronizationService]:
    """
    Open the synchronisation service over *stores*, without sessions; its Valkey clients are closed at the end.

    Raises:
        SettingsError: an address is not set.
    """
    working = Client(secret(stores.settings, "valkey_working_url"), name="The working Valkey")
    durable = Client(secret(stores.settings, "valkey_durable_url"), name="The durable Valkey")
    none: dict[str, Any] = {}
    try:
        yield SynchronizationService(stores, WorkingStore(working, SystemClock()), durable, none)
    finally:
        await working.close()
        await durable.close()
