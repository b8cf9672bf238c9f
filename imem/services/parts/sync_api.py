"""
Synchronisation of agents, and snapshots of debates: a part of ``Memory``.

::

    await session.memory.publish(finding)
    await memory.push("mu-valuation")
    for update in (await memory.pull("mu-business")).updates: …

    taken = await memory.snapshot("debate-7")
    snapshot = await memory.read_snapshot(taken.snapshot_id)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID

from imem.cache.working.published import item_of, publication
from imem.journal.actors import Action, Resource, ResourceType
from imem.journal.arguments import checks_arguments
from imem.journal.deadline import Deadline
from imem.journal.errors import NotOpen
from imem.journal.events.entry import Tier
from imem.journal.events.tiers import tier_named
from imem.kg.load_format.lines import Line
from imem.kg.model import Kind
from imem.services.arguments import LEAST_BUDGET_MS, MOST_BUDGET_MS, MOST_WRITE_BUDGET_MS, budget_ms
from imem.services.parts.actor_api import ActorApi
from imem.sync.members import SyncMember, members

if TYPE_CHECKING:
    from imem.sync.delivery.notices import Notice
    from imem.sync.delivery.puller import PullResult
    from imem.sync.delivery.pusher import PushedItem
    from imem.sync.gates import GateReport
    from imem.sync.snapshots import MemorySnapshot, SnapshotResult
    from imem.sync.synchronizer import RoutingDecision, SyncResult

T = TypeVar("T")

EXCHANGE_MS: Final = 2_000
"""Default and largest budget of a synchronisation, and default of a read, in milliseconds."""


def _due(deadline_ms: float, most: int = EXCHANGE_MS) -> Deadline:
    return Deadline.after_ms(_budget(deadline_ms, most))


def _budget(deadline_ms: float, most: int = EXCHANGE_MS) -> float:
    return budget_ms(deadline_ms, default=EXCHANGE_MS, least=LEAST_BUDGET_MS, most=most)


@checks_arguments
class SyncApi(ActorApi):
    """
    Push, pull, notices, snapshots and gate reports; see :class:`imem.memory.Memory`.

    An agent pushes, pulls and synchronises itself alone; facilitators of debates, and people, synchronise others.
    Besides its own errors, each method raises :class:`~imem.journal.errors.BadInput` for an unknown agent or a deadline
    out of bounds, and :class:`~imem.journal.errors.StoreUnavailable` and :class:`~imem.journal.errors.BudgetExceeded`,
    after which repeating the call is safe.
    """

    async def push(
        self,
        agent_id: str,
        items: Sequence[Kind | Line] = (),
        *,
        tier: Tier | int | str | None = None,
        deadline_ms: float = EXCHANGE_MS,
    ) -> list[PushedItem]:
        """
        Make durable all that an agent has published, and *items*; return the result of each.

        It returns when the journal has committed; items pushed before are not written again. An item that cannot be
        written is ``rejected``, with its field and the reason, and does not affect the others.

        Args:
            items: records and links to be published first; that takes a session of this process.
            tier: least urgency of the items: 0 to 3, or its name.
            deadline_ms: at least 10.

        Raises:
            NotOpen: items are given, and no session of this process holds the agent's memory.
            LeaseHeld: a snapshot is being taken; retryable, the items stay published.
        """
        urgency, due = tier_named(tier) if tier is not None else None, _due(deadline_ms, MOST_WRITE_BUDGET_MS)
        agents = self._stores.agents
        member = await self._member(agent_id, due)
        session = agents.sessions.get((self._actor.id, agent_id))
        if items and session is None:
            raise NotOpen(
                f"No session of this process works with the memory of {agent_id}.",
                mend="Begin one, or push without items what it has published.",
            )
        changes = [publication(item_of(item)) for item in items]

        async def pushed() -> list[PushedItem]:
            holder = session.memory if session is not None else None
            if holder is not None and changes:
                await holder.write(*changes, deadline=due)
            return await agents.synchronizer.push(member, by=self._actor, holder=holder, tier=urgency, deadline=due)

        return await self._of_member(member, Action.WRITE, pushed, due)

    async def pull(
        self,
        agent_id: str,
        since: int | None = None,
        *,
        tiers: Collection[Tier | int | str] | None = None,
        kinds: Collection[str] | None = None,
        analysis_id: str | None = None,
        apart: bool = False,
        limit: int = 100,
        deadline_ms: float = EXCHANGE_MS,
    ) -> PullResult:
        """
        Return the updates routed to an agent that it has not pulled, and store them beside its working memory.

        Args:
            since: instead, all updates with a larger number, pulled or not.
            tiers, kinds, analysis_id: of these alone; the others still wait.
            apart: whether to include records below the relevance threshold, of other domains than the agent's.
            limit: most updates, at most 100.
            deadline_ms: 10 to 2,000.
        """
        from imem.sync.delivery.puller import PullFilter  # noqa: PLC0415 - who only asks needs none of it

        wanted = PullFilter.of(tiers=tiers, kinds=kinds, analysis_id=analysis_id, apart=apart, limit=limit)
        due, pull = _due(deadline_ms), self._stores.agents.synchronizer.pull
        member = await self._member(agent_id, due)
        return await self._of_member(member, Action.WRITE, lambda: pull(member, since, wanted, deadline=due), due)

    async def notices(self, agent_id: str, *, deadline_ms: float = EXCHANGE_MS) -> list[Notice]:
        """Return the notices that wait for an agent, most urgent first; they have no content, :meth:`pull` does."""
        due, notices = _due(deadline_ms), self._stores.agents.synchronizer.notices
        member = await self._member(agent_id, due)
        return await self._of_member(member, Action.READ, lambda: notices(member, deadline=due), due)

    async def route(self, event: int, *, deadline_ms: float = EXCHANGE_MS) -> list[RoutingDecision]:
        """Return to which agents the event at a position is routed, and why; the best score first."""
        due, route = _due(deadline_ms), self._stores.agents.synchronizer.route
        return await self._of_sync(f"event {event}", Action.READ, lambda: route(event, deadline=due), due)

    async def force_sync(self, agents: Collection[str], *, deadline_ms: float = EXCHANGE_MS) -> dict[str, SyncResult]:
        """
        Flush what agents have published, wait until the graph holds it, and pull urgent updates for each.

        Agents are synchronised in parallel; each ends ``synchronized``, ``durable_not_visible`` or ``failed``, with the
        reason, and does not affect the others.

        Args:
            deadline_ms: 10 to 2,000; it ends by then.
        """
        due = _due(deadline_ms)
        found = await members(self._stores.database, agents, deadline=due)
        for member in found:
            resource = Resource(ResourceType.SYNC, member.agent_id, member.owner)
            await self._stores.gateway.authorize(resource, Action.SYNCHRONIZE, deadline=due, actor=self._actor)
        return await self._stores.agents.synchronizer.synchronize(found, by=self._actor, deadline=due)

    async def snapshot(
        self,
        debate_id: str,
        participants: Collection[str] = (),
        topic: str | None = None,
        *,
        deadline_ms: float = EXCHANGE_MS,
    ) -> SnapshotResult:
        """
        Take the snapshot of a debate: everything its analysis has published, at one moment.

        What challenger, challenged and *participants* have published is flushed first, under a lock on their writes. A
        debate has one snapshot; a repeated call returns it. If one of the two sides cannot be reached, the debate is
        ``deferred`` for five minutes, after three times it is left to people (``level3``); another participant is left
        out, and named.

        Args:
            deadline_ms: how long waiting for other snapshots may take, and flushing, each 10 to 2,000.

        Raises:
            TransitionRefused: the debate is closed.
            LeaseHeld: another snapshot holds a participant; retryable.
            LeaseLost: the locks expired first; nothing was stored; retryable.
        """
        due_ms, take = _budget(deadline_ms), self._stores.agents.snapshots.take
        return await self._of_sync(
            f"debate {debate_id}",
            Action.SYNCHRONIZE,
            lambda: take(debate_id, participants, topic, by=self._actor, deadline_ms=due_ms),
            Deadline.after_ms(due_ms),
        )

    async def read_snapshot(self, snapshot_id: UUID | str, *, deadline_ms: float = EXCHANGE_MS) -> MemorySnapshot:
        """
        Return a snapshot, compared with its hash; its content never changes.

        Raises:
            ConsistencyError: the stored content does not match its hash and must not be used.
        """
        from imem.checkpoints.model import checked_uuid  # noqa: PLC0415 - as above

        which, due = checked_uuid("snapshot_id", snapshot_id), _due(deadline_ms, MOST_BUDGET_MS)
        read = self._stores.agents.snapshots.read
        return await self._of_sync(f"snapshot {which}", Action.READ, lambda: read(which, deadline=due), due)

    async def sync_gate(self, gate: str, *, deadline_ms: float = EXCHANGE_MS) -> GateReport:
        """
        Synchronise all agents of a gate's analysis; return what each has not pushed, applied or pulled yet.

        Half an hour before a gate opens, and when it opens, the workers do this by themselves.

        Args:
            gate: by its analysis and number, such as ``analysis-7/3``.
        """
        due_ms, sync_gate = _budget(deadline_ms), self._stores.agents.gate_sync.sync_gate
        return await self._of_sync(
            f"gate {gate}",
            Action.SYNCHRONIZE,
            lambda: sync_gate(gate, by=self._actor, deadline_ms=due_ms),
            Deadline.after_ms(due_ms),
        )

    async def gate_report(self, gate: str, *, deadline_ms: float = EXCHANGE_MS) -> GateReport | None:
        """Return the newest stored report of a gate; None if there is none."""
        due, report = _due(deadline_ms, MOST_BUDGET_MS), self._stores.agents.gate_sync.report
        return await self._of_sync(f"gate {gate}", Action.READ, lambda: report(gate, deadline=due), due)

    async def _member(self, agent_id: str, deadline: Deadline) -> SyncMember:
        return (await members(self._stores.database, [agent_id], field="agent_id", deadline=deadline))[0]

    async def _of_member(
        self, member: SyncMember, action: Action, operation: Callable[[], Awaitable[T]], deadline: Deadline
    ) -> T:
        resource = Resource(ResourceType.WORKING_MEMORY, member.agent_id, member.owner)
        return await self._allowed(resource, action, operation, deadline)

    async def _of_sync(self, what: str, action: Action, operation: Callable[[], Awaitable[T]], deadline: Deadline) -> T:
        return await self._allowed(Resource(ResourceType.SYNC, what[:200]), action, operation, deadline)
