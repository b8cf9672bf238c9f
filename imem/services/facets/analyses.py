"""Analyses, their pauses and their gates."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from imem.checkpoints.pauses.plan import Plan
from imem.journal.actors import Action, Resource, ResourceType
from imem.journal.deadline import Deadline
from imem.services.arguments import MOST_BUDGET_MS
from imem.services.facets.agents import EXCHANGE_MS, exchange_budget, exchange_due
from imem.services.facets.facet import Facet
from imem.services.operations import declares_operations, reads, writes

if TYPE_CHECKING:
    from imem.checkpoints.orchestration.orchestrator import WorkflowState
    from imem.checkpoints.pauses.assembly import PauseServices
    from imem.checkpoints.pauses.human_gates import HumanGate
    from imem.checkpoints.pauses.pause_service import PauseResult, PauseState, ResumeResult
    from imem.checkpoints.pauses.rows import Pause
    from imem.sync.gates import GateReport

T = TypeVar("T")

ORDER_BUDGET_MS: Final = 90_000
"""Default budget of a pause or resumption, in milliseconds."""


class WorkflowFacet(Facet):
    """
    What the facets of analyses have in common.

    Reading takes the right to read workflows; changes require a human role. *what* names an analysis, or a stock by its
    subject, such as ``company:MU``. All raise :class:`~imem.journal.errors.PermissionDenied` if the actor may not, with
    one denial row written, and :class:`~imem.journal.errors.BadInput` if *what* matches none or several.
    """

    @property
    def _services(self) -> PauseServices:
        return self._stores.agents.pauses

    async def _request(
        self,
        what: str,
        action: Action,
        operation: Callable[..., Awaitable[T]],
        within: float | Deadline,
        kind: ResourceType = ResourceType.WORKFLOW,
    ) -> T:
        """Run *operation*, which takes the deadline, if the actor may do *action* to *what*."""
        due = within if isinstance(within, Deadline) else self._write_due(within, ORDER_BUDGET_MS)
        return await self._allowed(Resource(kind, what), action, partial(operation, deadline=due), due)


@declares_operations("analyses")
class AnalysesFacet(WorkflowFacet):
    """Analyses that run; see :attr:`imem.memory.Memory.analyses`."""

    @writes(ResourceType.WORKFLOW, Action.RESUME)
    async def start(
        self, analysis_id: str, subject_id: str, agents: Mapping[str, str], *, deadline_ms: float = ORDER_BUDGET_MS
    ) -> WorkflowState:
        """
        Register an analysis; the workers start each agent once its dependencies have completed.

        Idempotent. Requires a human role.

        Args:
            agents: agent type → instance, such as ``{"valuation": "mu-valuation"}``.

        Raises:
            BadInput: no agent is given, one is not defined, an instance belongs to another analysis, or the analysis
                is of another subject.
        """
        start = partial(self._services.orchestrator.start_analysis, analysis_id, subject_id, agents, by=self._actor)
        return await self._request(analysis_id, Action.RESUME, start, deadline_ms)

    @reads(ResourceType.WORKFLOW)
    async def state(self, analysis_id: str, *, deadline_ms: float = ORDER_BUDGET_MS) -> WorkflowState:
        """Return the state of an analysis and of each of its agents."""
        state = partial(self._services.orchestrator.get_workflow_state, analysis_id)
        return await self._request(analysis_id, Action.READ, state, deadline_ms)


@declares_operations("pauses")
class PausesFacet(WorkflowFacet):
    """
    Pauses of analyses; see :attr:`imem.memory.Memory.pauses`.

    *what* names an analysis, or a stock by its subject, such as ``company:MU``; BadInput if it matches none or several.
    """

    @writes(ResourceType.WORKFLOW, Action.PAUSE)
    async def pause(self, what: str, reason: str, *, deadline_ms: float = ORDER_BUDGET_MS) -> PauseResult:
        """
        Pause an analysis, by its id or its stock: its agents stop at a safe point, their snapshots are verified.

        The workers finish what is not done by the deadline, also after a crash; :meth:`state` returns the state.
        Requires a human role.

        Raises:
            BadInput: nothing runs under that name, or several analyses do.
        """
        pause = partial(self._services.pauses.pause_analysis, what, reason, by=self._actor)
        return await self._request(what, Action.PAUSE, pause, deadline_ms)

    @writes(ResourceType.WORKFLOW, Action.RESUME)
    async def resume(
        self,
        what: str,
        plan: Plan | Mapping[str, Any] | None = None,
        *,
        notify: bool = True,
        deadline_ms: float = ORDER_BUDGET_MS,
    ) -> ResumeResult:
        """
        Resume a paused analysis, each agent as *plan* says, once its memory is verified.

        Args:
            plan: ``{"restart": {agent: "checkpoint" or "clean"}, "skip": […], "wait": […]}``; for agents that it does
                not name, the failure and the dependencies decide.
            notify: whether to raise an alert when it runs.

        Raises:
            TransitionRefused: it is not paused, or is being resumed already.
        """
        resume = partial(self._services.pauses.resume_analysis, what, plan, notify, by=self._actor)
        return await self._request(what, Action.RESUME, resume, deadline_ms)

    @writes(ResourceType.WORKFLOW, Action.EXTEND)
    async def extend(self, what: str, until: datetime, reason: str, *, deadline_ms: float = ORDER_BUDGET_MS) -> Pause:
        """
        Extend a pause, once, to at most 30 days after it began; the memories of its agents live as long.

        Raises:
            TransitionRefused: it is not paused.
            BadInput: it was extended before, or *until* is more than 30 days after it began.
        """
        extend = partial(self._services.pauses.extend, what, until, reason, by=self._actor)
        return await self._request(what, Action.EXTEND, extend, deadline_ms)

    @writes(ResourceType.WORKFLOW, Action.CANCEL)
    async def cancel(self, what: str, reason: str, *, deadline_ms: float = ORDER_BUDGET_MS) -> str:
        """Cancel a paused analysis: it fails, and its working memories are deleted at once; return its id."""
        cancel = partial(self._services.pauses.cancel, what, reason, by=self._actor)
        return await self._request(what, Action.CANCEL, cancel, deadline_ms)

    @reads(ResourceType.WORKFLOW)
    async def list(self, *, everything: bool = False, deadline_ms: float = ORDER_BUDGET_MS) -> Sequence[Pause]:
        """Return the paused analyses; with *everything*, also those resumed recently."""
        listed = partial(self._services.pauses.pauses, everything=everything)
        return await self._request("pauses", Action.READ, listed, deadline_ms)

    @reads(ResourceType.WORKFLOW)
    async def state(self, what: str, *, deadline_ms: float = ORDER_BUDGET_MS) -> PauseState:
        """Return whether an analysis is paused, and how its last pause ended."""
        state = partial(self._services.pauses.get_pause_state, what)
        return await self._request(what, Action.READ, state, deadline_ms)


@declares_operations("gates")
class GatesFacet(WorkflowFacet):
    """Gates, at which an analysis waits for a person; see :attr:`imem.memory.Memory.gates`."""

    @writes(ResourceType.JOURNAL, Action.APPEND_GATES)
    async def open(
        self, analysis_id: str, gate: int, *, due_at: datetime | None = None, deadline_ms: float = ORDER_BUDGET_MS
    ) -> HumanGate:
        """
        Open a gate (1 to 6), at which an analysis waits for a person; a gate opened before is unchanged.

        While it waits, the working memories of its agents live as long as those of a paused analysis. Requires a human
        role.

        Args:
            due_at: until when it may be answered, aware; by default 24 hours from now, and without end at gate 5.

        Raises:
            BadInput: no such analysis runs.
        """
        from imem.checkpoints.pauses.human_gates import open_gate  # noqa: PLC0415 - who has no gates needs none of it

        opened = partial(open_gate, self._stores.database, analysis_id, gate, due_at=due_at, by=self._actor)
        return await self._request(analysis_id, Action.APPEND_GATES, opened, deadline_ms, kind=ResourceType.JOURNAL)

    @writes(ResourceType.JOURNAL, Action.APPEND_GATES)
    async def answer(
        self, analysis_id: str, gate: int, answer: str, *, reason: str, deadline_ms: float = ORDER_BUDGET_MS
    ) -> HumanGate:
        """
        Answer a gate: ``validate``, ``reject`` (the analysis is paused) or ``reject_for_good`` (it has failed).

        Repeating the same answer changes nothing. Requires a human role.

        Raises:
            BadInput: there is no such gate, or no such answer.
            TransitionRefused: it was answered otherwise, or its time is over.
        """
        from imem.checkpoints.pauses.human_gates import answer_gate  # noqa: PLC0415 - as above

        answered = partial(answer_gate, self._stores.database, analysis_id, gate, answer, reason=reason, by=self._actor)
        return await self._request(analysis_id, Action.APPEND_GATES, answered, deadline_ms, kind=ResourceType.JOURNAL)

    @reads(ResourceType.WORKFLOW)
    async def list(self, *, deadline_ms: float = ORDER_BUDGET_MS) -> Sequence[HumanGate]:
        """Return the gates that wait for a person, those due first."""
        from imem.checkpoints.pauses.human_gates import open_gates  # noqa: PLC0415 - as above

        return await self._request("gates", Action.READ, partial(open_gates, self._stores.database), deadline_ms)

    @writes(ResourceType.SYNC, Action.SYNCHRONIZE)
    async def sync(self, gate: str, *, deadline_ms: float = EXCHANGE_MS) -> GateReport:
        """
        Synchronise all agents of a gate's analysis; return what each has not pushed, applied or pulled yet.

        Half an hour before a gate opens, and when it opens, the workers do this by themselves.

        Args:
            gate: by its analysis and number, such as ``analysis-7/3``.
        """
        due_ms, sync_gate = exchange_budget(deadline_ms), self._stores.agents.gate_sync.sync_gate
        return await self._allowed(
            Resource(ResourceType.SYNC, f"gate {gate}"[:200]),
            Action.SYNCHRONIZE,
            lambda: sync_gate(gate, by=self._actor, deadline_ms=due_ms),
            Deadline.after_ms(due_ms),
        )

    @reads(ResourceType.SYNC)
    async def report(self, gate: str, *, deadline_ms: float = EXCHANGE_MS) -> GateReport | None:
        """Return the newest stored report of a gate; None if there is none."""
        due, report = exchange_due(deadline_ms, MOST_BUDGET_MS), self._stores.agents.gate_sync.report
        return await self._allowed(
            Resource(ResourceType.SYNC, f"gate {gate}"[:200]), Action.READ, lambda: report(gate, deadline=due), due
        )
