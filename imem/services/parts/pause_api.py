"""Starting, pausing and resuming analyses, and gates: a part of ``Memory``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from imem.checkpoints.pauses.plan import Plan
from imem.journal.actors import Action, Resource, ResourceType
from imem.journal.arguments import checks_arguments
from imem.journal.deadline import Deadline
from imem.services.parts.actor_api import ActorApi

if TYPE_CHECKING:
    from imem.checkpoints.orchestration.orchestrator import WorkflowState
    from imem.checkpoints.pauses.assembly import PauseServices
    from imem.checkpoints.pauses.human_gates import HumanGate
    from imem.checkpoints.pauses.pause_service import PauseResult, PauseState, ResumeResult
    from imem.checkpoints.pauses.rows import Pause

T = TypeVar("T")

ORDER_BUDGET_MS: Final = 90_000
"""Default budget of a pause or resumption, in milliseconds."""


@checks_arguments
class PauseApi(ActorApi):
    """
    Analyses, their pauses and their gates; see :class:`imem.memory.Memory`.

    Reading takes the right to read workflows; changes require a human role. *what* names an analysis, or a stock by its
    subject, such as ``company:MU``. All raise :class:`~imem.journal.errors.PermissionDenied` if the actor may not, with
    one denial row written, and :class:`~imem.journal.errors.BadInput` if *what* matches none or several.
    """

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
        start = partial(self._pauses.orchestrator.start_analysis, analysis_id, subject_id, agents, by=self._actor)
        return await self._request(analysis_id, Action.RESUME, start, deadline_ms)

    async def analysis_state(self, analysis_id: str, *, deadline_ms: float = ORDER_BUDGET_MS) -> WorkflowState:
        """Return the state of an analysis and of each of its agents."""
        state = partial(self._pauses.orchestrator.get_workflow_state, analysis_id)
        return await self._request(analysis_id, Action.READ, state, deadline_ms)

    async def open_gate(
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
        from imem.checkpoints.pauses.human_gates import answer_gate  # noqa: PLC0415 - as above

        answered = partial(answer_gate, self._stores.database, analysis_id, gate, answer, reason=reason, by=self._actor)
        return await self._request(analysis_id, Action.APPEND_GATES, answered, deadline_ms, kind=ResourceType.JOURNAL)

    async def gates(self, *, deadline_ms: float = ORDER_BUDGET_MS) -> list[HumanGate]:
        """Return the gates that wait for a person, those due first."""
        from imem.checkpoints.pauses.human_gates import open_gates  # noqa: PLC0415 - as above

        return await self._request("gates", Action.READ, partial(open_gates, self._stores.database), deadline_ms)

    async def pause(self, what: str, reason: str, *, deadline_ms: float = ORDER_BUDGET_MS) -> PauseResult:
        """
        Pause an analysis, by its id or its stock: its agents stop at a safe point, their snapshots are verified.

        The workers finish what is not done by the deadline, also after a crash; :meth:`pause_state` returns the state.
        Requires a human role.

        Raises:
            BadInput: nothing runs under that name, or several analyses do.
        """
        pause = partial(self._pauses.pauses.pause_analysis, what, reason, by=self._actor)
        return await self._request(what, Action.PAUSE, pause, deadline_ms)

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
        resume = partial(self._pauses.pauses.resume_analysis, what, plan, notify, by=self._actor)
        return await self._request(what, Action.RESUME, resume, deadline_ms)

    async def extend_pause(
        self, what: str, until: datetime, reason: str, *, deadline_ms: float = ORDER_BUDGET_MS
    ) -> Pause:
        """
        Extend a pause, once, to at most 30 days after it began; the memories of its agents live as long.

        Raises:
            TransitionRefused: it is not paused.
            BadInput: it was extended before, or *until* is more than 30 days after it began.
        """
        extend = partial(self._pauses.pauses.extend, what, until, reason, by=self._actor)
        return await self._request(what, Action.EXTEND, extend, deadline_ms)

    async def cancel_pause(self, what: str, reason: str, *, deadline_ms: float = ORDER_BUDGET_MS) -> str:
        """Cancel a paused analysis: it fails, and its working memories are deleted at once; return its id."""
        cancel = partial(self._pauses.pauses.cancel, what, reason, by=self._actor)
        return await self._request(what, Action.CANCEL, cancel, deadline_ms)

    async def paused(self, *, everything: bool = False, deadline_ms: float = ORDER_BUDGET_MS) -> list[Pause]:
        """Return the paused analyses; with *everything*, also those resumed recently."""
        listed = partial(self._pauses.pauses.pauses, everything=everything)
        return await self._request("pauses", Action.READ, listed, deadline_ms)

    async def pause_state(self, what: str, *, deadline_ms: float = ORDER_BUDGET_MS) -> PauseState:
        """Return whether an analysis is paused, and how its last pause ended."""
        state = partial(self._pauses.pauses.get_pause_state, what)
        return await self._request(what, Action.READ, state, deadline_ms)

    @property
    def _pauses(self) -> PauseServices:
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
