"""Starting, pausing and resuming analyses, and gates: a part of ``Memory``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from imem.checkpoints.pauses.plan import Plan
from imem.journal.arguments import checks_arguments
from imem.journal.deadline import Deadline
from imem.services.arguments import MOST_WRITE_BUDGET_MS, budget_ms

if TYPE_CHECKING:
    from imem.checkpoints.orchestration.orchestrator import WorkflowState
    from imem.checkpoints.pauses.human_gates import HumanGate
    from imem.checkpoints.pauses.pause_service import PauseResult, PauseState, ResumeResult
    from imem.checkpoints.pauses.rows import Pause
    from imem.services.working import AgentServices

ORDER_BUDGET_MS: Final = 90_000
"""Default budget of a pause or resumption, in milliseconds."""


def _order_due(deadline_ms: float) -> Deadline:
    return Deadline.after_ms(budget_ms(deadline_ms, default=ORDER_BUDGET_MS, least=1, most=MOST_WRITE_BUDGET_MS))


@checks_arguments
class PauseApi:
    """Analyses, their pauses and their gates; see :class:`imem.memory.Memory`."""

    @property
    def work(self) -> AgentServices:
        """The services of running agents."""
        raise NotImplementedError  # Memory, which this is a part of, has it.

    async def start_analysis(
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
        return await self.work.orders.start(analysis_id, subject_id, agents, deadline=_order_due(deadline_ms))

    async def analysis_state(self, analysis_id: str, *, deadline_ms: float = ORDER_BUDGET_MS) -> WorkflowState:
        """Return the state of an analysis and of each of its agents."""
        return await self.work.orders.workflow(analysis_id, deadline=_order_due(deadline_ms))

    async def open_gate(
        self, analysis_id: str, gate: int, *, due_at: datetime | None = None, deadline_ms: float = ORDER_BUDGET_MS
    ) -> HumanGate:
        """
        Open a gate (1 to 6), at which an analysis waits for a person; a gate opened before is unchanged.

        While it waits, the working memories of its agents live as long as those of a paused analysis. Requires a human
        role.

        Args:
            due_at: until when it may be answered, aware; 24 hours from now by default.

        Raises:
            BadInput: no such analysis runs.
        """
        return await self.work.orders.open_gate(analysis_id, gate, due_at=due_at, deadline=_order_due(deadline_ms))

    async def answer_gate(
        self, analysis_id: str, gate: int, answer: str, *, reason: str, deadline_ms: float = ORDER_BUDGET_MS
    ) -> HumanGate:
        """
        Answer a gate: ``validate``, ``reject`` (the analysis is paused) or ``reject_for_good`` (it has failed).

        Repeating the same answer changes nothing. Requires a human role.

        Raises:
            BadInput: there is no such gate, or no such answer.
            TransitionRefused: it was answered otherwise, or its time is over.
        """
        due = _order_due(deadline_ms)
        return await self.work.orders.answer_gate(analysis_id, gate, answer, reason=reason, deadline=due)

    async def gates(self, *, deadline_ms: float = ORDER_BUDGET_MS) -> list[HumanGate]:
        """Return the gates that wait for a person, those due first."""
        return await self.work.orders.gates(deadline=_order_due(deadline_ms))

    async def pause(self, what: str, reason: str, *, deadline_ms: float = ORDER_BUDGET_MS) -> PauseResult:
        """
        Pause an analysis, by its id or its stock: its agents stop at a safe point, their snapshots are verified.

        The workers finish what is not done by the deadline, also after a crash; :meth:`pause_state` returns the state.
        Requires a human role.

        Raises:
            BadInput: nothing runs under that name, or several analyses do.
        """
        return await self.work.orders.pause(what, reason, deadline=_order_due(deadline_ms))

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
        return await self.work.orders.resume(what, plan, notify=notify, deadline=_order_due(deadline_ms))

    async def extend_pause(
        self, what: str, until: datetime, reason: str, *, deadline_ms: float = ORDER_BUDGET_MS
    ) -> Pause:
        """
        Extend a pause, once, to at most 30 days after it began; the memories of its agents live as long.

        Raises:
            TransitionRefused: it is not paused.
            BadInput: it was extended before, or *until* is more than 30 days after it began.
        """
        return await self.work.orders.extend(what, until, reason, deadline=_order_due(deadline_ms))

    async def cancel_pause(self, what: str, reason: str, *, deadline_ms: float = ORDER_BUDGET_MS) -> str:
        """Cancel a paused analysis: it fails, and its working memories are deleted at once; return its id."""
        return await self.work.orders.cancel(what, reason, deadline=_order_due(deadline_ms))

    async def paused(self, *, everything: bool = False, deadline_ms: float = ORDER_BUDGET_MS) -> list[Pause]:
        """Return the paused analyses; with *everything*, also those resumed recently."""
        return await self.work.orders.listed(everything=everything, deadline=_order_due(deadline_ms))

    async def pause_state(self, what: str, *, deadline_ms: float = ORDER_BUDGET_MS) -> PauseState:
        """Return whether an analysis is paused, and how its last pause ended."""
        return await self.work.orders.state(what, deadline=_order_due(deadline_ms))
