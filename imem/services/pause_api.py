"""Starting, pausing and resuming analyses, and gates: the part of ``Memory`` that gives people's orders."""

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
"""How long an order about a pause is carried out here, in milliseconds, where the call does not say."""


def _order_due(deadline_ms: float) -> Deadline:
    return Deadline.after_ms(budget_ms(deadline_ms, default=ORDER_BUDGET_MS, least=1, most=MOST_WRITE_BUDGET_MS))


@checks_arguments
class PauseApi:
    """Orders and questions about analyses, their pauses and their gates; see :class:`imem.memory.Memory`."""

    @property
    def work(self) -> AgentServices:
        """What agents under way need."""
        raise NotImplementedError  # Memory, which this is a part of, has it.

    async def start_analysis(
        self, analysis_id: str, subject_id: str, agents: Mapping[str, str], *, deadline_ms: float = ORDER_BUDGET_MS
    ) -> WorkflowState:
        """
        Take an analysis in; the workers start each agent once all that it waits for have completed.

        The same call again changes nothing. Requires a human role.

        Args:
            agents: agent type → instance, such as ``{"valuation": "mu-valuation"}``.

        Raises:
            BadInput: no agent is given, one is not defined, an instance works elsewhere, or the analysis is of another
                subject.
        """
        return await self.work.orders.start(analysis_id, subject_id, agents, deadline=_order_due(deadline_ms))

    async def analysis_state(self, analysis_id: str, *, deadline_ms: float = ORDER_BUDGET_MS) -> WorkflowState:
        """Return where an analysis and each of its agents stand."""
        return await self.work.orders.workflow(analysis_id, deadline=_order_due(deadline_ms))

    async def open_gate(
        self, analysis_id: str, gate: int, *, due_at: datetime | None = None, deadline_ms: float = ORDER_BUDGET_MS
    ) -> HumanGate:
        """
        Open a gate (1 to 6), at which an analysis waits for a person; one that was opened before stays as it is.

        While it waits, the working memories of its agents live as long as those of a paused analysis. Requires a human
        role.

        Args:
            due_at: until when somebody may answer, aware; 24 hours from now by default.

        Raises:
            BadInput: no such analysis runs.
        """
        return await self.work.orders.open_gate(analysis_id, gate, due_at=due_at, deadline=_order_due(deadline_ms))

    async def answer_gate(
        self, analysis_id: str, gate: int, answer: str, *, reason: str, deadline_ms: float = ORDER_BUDGET_MS
    ) -> HumanGate:
        """
        Answer a gate: ``validate``, ``reject`` (the analysis is paused) or ``reject_for_good`` (it has failed).

        The same answer again changes nothing. Requires a human role.

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
        Pause an analysis, named by its id or by its stock: its agents stop at a safe point, what they know is proven.

        What is not done by the deadline, or after a crash, the workers go on with; :meth:`pause_state` says how it
        stands. Orders are for people.

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
        Resume a paused analysis, each agent as *plan* says, once its memory is proven.

        Args:
            plan: ``{"restart": {agent: "checkpoint" or "clean"}, "skip": […], "wait": […]}``; agents that it does not
                name do what failure and dependencies ask for.
            notify: tell people when it runs.

        Raises:
            TransitionRefused: it is not paused, or somebody else resumes it already.
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
        """Give a paused analysis up: it has failed, its memories go at once; return its id."""
        return await self.work.orders.cancel(what, reason, deadline=_order_due(deadline_ms))

    async def paused(self, *, everything: bool = False, deadline_ms: float = ORDER_BUDGET_MS) -> list[Pause]:
        """Return what is paused; *everything*: and what was resumed of late."""
        return await self.work.orders.listed(everything=everything, deadline=_order_due(deadline_ms))

    async def pause_state(self, what: str, *, deadline_ms: float = ORDER_BUDGET_MS) -> PauseState:
        """Return whether an analysis is paused, and how its last pause ended."""
        return await self.work.orders.state(what, deadline=_order_due(deadline_ms))
