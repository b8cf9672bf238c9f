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

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from imem.journal.arguments import checks_arguments
from imem.journal.deadline import Deadline
from imem.journal.events.entry import Tier
from imem.kg.load_format.lines import Line
from imem.kg.model import Kind
from imem.services.arguments import LEAST_BUDGET_MS, MOST_WRITE_BUDGET_MS, budget_ms

if TYPE_CHECKING:
    from imem.services.working import AgentServices
    from imem.sync.delivery.notices import Notice
    from imem.sync.delivery.puller import PullResult
    from imem.sync.delivery.pusher import PushedItem
    from imem.sync.gates import GateReport
    from imem.sync.snapshots import MemorySnapshot, SnapshotResult
    from imem.sync.synchronizer import RoutingDecision, SyncResult

EXCHANGE_MS: Final = 2_000
"""Default and largest budget of a synchronisation, in milliseconds."""


def _due(deadline_ms: float, most: int = EXCHANGE_MS) -> Deadline:
    return Deadline.after_ms(_budget(deadline_ms, most))


def _budget(deadline_ms: float, most: int = EXCHANGE_MS) -> float:
    return budget_ms(deadline_ms, default=EXCHANGE_MS, least=LEAST_BUDGET_MS, most=most)


@checks_arguments
class SyncApi:
    """
    Push, pull, notices, snapshots and gate reports; see :class:`imem.memory.Memory`.

    An agent pushes, pulls and synchronises itself alone; facilitators of debates, and people, synchronise others.
    Besides its own errors, each method raises :class:`~imem.journal.errors.BadInput` for an unknown agent or a deadline
    out of bounds, and :class:`~imem.journal.errors.StoreUnavailable` and :class:`~imem.journal.errors.BudgetExceeded`,
    after which repeating the call is safe.
    """

    @property
    def work(self) -> AgentServices:
        """The services of running agents."""
        raise NotImplementedError  # Memory, which this is a part of, has it.

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
            LeaseHeld: a snapshot is being taken; retryable, the items stay published.
        """
        due = _due(deadline_ms, MOST_WRITE_BUDGET_MS)
        return await self.work.synchronization.push(agent_id, items, tier, deadline=due)

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
        return await self.work.synchronization.pull(agent_id, since, wanted, deadline=_due(deadline_ms))

    async def notices(self, agent_id: str, *, deadline_ms: float = EXCHANGE_MS) -> list[Notice]:
        """Return the notices that wait for an agent, most urgent first; they have no content, :meth:`pull` does."""
        return await self.work.synchronization.notices(agent_id, deadline=_due(deadline_ms))

    async def route(self, event: int, *, deadline_ms: float = EXCHANGE_MS) -> list[RoutingDecision]:
        """Return to which agents the event at a position is routed, and why; the best score first."""
        return await self.work.synchronization.route(event, deadline=_due(deadline_ms))

    async def force_sync(self, agents: Collection[str], *, deadline_ms: float = EXCHANGE_MS) -> dict[str, SyncResult]:
        """
        Flush what agents have published, wait until the graph holds it, and pull urgent updates for each.

        Agents are synchronised in parallel; each ends ``synchronized``, ``durable_not_visible`` or ``failed``, with the
        reason, and does not affect the others.

        Args:
            deadline_ms: 10 to 2,000; it ends by then.
        """
        return await self.work.synchronization.force_sync(agents, deadline_ms=_budget(deadline_ms))

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
        due_ms = _budget(deadline_ms)
        return await self.work.synchronization.snapshot(debate_id, participants, topic, deadline_ms=due_ms)

    async def read_snapshot(self, snapshot_id: UUID | str, *, deadline_ms: float = EXCHANGE_MS) -> MemorySnapshot:
        """
        Return a snapshot, compared with its hash; its content never changes.

        Raises:
            ConsistencyError: the stored content does not match its hash and must not be used.
        """
        return await self.work.synchronization.read_snapshot(snapshot_id, deadline=_due(deadline_ms))

    async def sync_gate(self, gate: str, *, deadline_ms: float = EXCHANGE_MS) -> GateReport:
        """
        Synchronise all agents of a gate's analysis; return what each has not pushed, applied or pulled yet.

        Half an hour before a gate opens, and when it opens, the workers do this by themselves.

        Args:
            gate: by its analysis and number, such as ``analysis-7/3``.
        """
        return await self.work.synchronization.sync_gate(gate, deadline_ms=_budget(deadline_ms))

    async def gate_report(self, gate: str, *, deadline_ms: float = EXCHANGE_MS) -> GateReport | None:
        """Return the newest stored report of a gate; None if there is none."""
        return await self.work.synchronization.gate_report(gate, deadline=_due(deadline_ms))
