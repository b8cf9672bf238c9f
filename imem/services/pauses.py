"""Authorized pauses, gates and batches, over this process's stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final, TypeVar
from uuid import UUID

import kombu.exceptions
from celery import Celery

from imem.cache.client import Client
from imem.checkpoints.orchestration.definitions import Definitions
from imem.checkpoints.orchestration.orchestrator import LOST_AFTER, DispatchMessage, Send, WorkflowState
from imem.checkpoints.pauses.assembly import PauseServices, assemble
from imem.checkpoints.pauses.batch_runs import BatchState
from imem.checkpoints.pauses.batches import CONCURRENCY
from imem.checkpoints.pauses.human_gates import HumanGate, answer_gate, open_gate, open_gates
from imem.checkpoints.pauses.pause_service import PauseResult, PauseState, ResumeResult
from imem.checkpoints.pauses.pipelines import RUN_AGENT
from imem.checkpoints.pauses.plan import Plan
from imem.checkpoints.pauses.rows import Pause
from imem.journal.actors import Action, Resource, ResourceType
from imem.journal.arguments import checks_arguments
from imem.journal.deadline import Deadline
from imem.journal.errors import ValkeyUnavailable
from imem.journal.gateway import Gateway
from imem.services.stores import Stores, secret
from imem.workers.celery_app import AGENTS_QUEUE, make_app

T = TypeVar("T")

SEND_S: Final = 1.5
"""Timeout of sending the message that starts an agent, in seconds."""


def sender(app: Celery) -> Send:
    """
    Return the function that sends the message that starts an agent to Celery's queue of agents.

    It raises ValkeyUnavailable after ``SEND_S``; the message may still be sent later, which is harmless.
    """

    def send(message: DispatchMessage) -> None:
        app.send_task(
            RUN_AGENT,
            args=(message.analysis_id, message.agent_type, message.dispatch),
            queue=AGENTS_QUEUE,
            ignore_result=True,
            retry=False,
            # By then it is sent again, unless the agent was started.
            expires=LOST_AFTER.total_seconds(),
        )

    async def put(message: DispatchMessage) -> None:
        try:
            # A silent broker ends the call in its thread only after its socket's timeout. TimeoutError is an OSError.
            await asyncio.wait_for(asyncio.to_thread(send, message), SEND_S)
        except (kombu.exceptions.KombuError, OSError) as error:
            raise ValkeyUnavailable(
                "The broker cannot be reached.", mend="`imem doctor` checks every server."
            ) from error

    return put


def pause_service_over(
    stores: Stores, working: Client, durable: Client, definitions: Definitions
) -> AuthorizedPauseService:
    """Return the pause service over these stores and *definitions*."""
    parts = assemble(stores.database, working, durable, definitions, sender(make_app(stores.settings)))
    return AuthorizedPauseService(stores.gateway, parts)


@asynccontextmanager
async def open_pause_service(stores: Stores) -> AsyncIterator[AuthorizedPauseService]:
    """
    Open the pause service over *stores*; its Valkey clients are closed at the end.

    Raises:
        SettingsError: an address is not set, or the file of agents is wrong.
    """
    working = Client(secret(stores.settings, "valkey_working_url"), name="The working Valkey")
    durable = Client(secret(stores.settings, "valkey_durable_url"), name="The durable Valkey")
    try:
        yield pause_service_over(stores, working, durable, Definitions.read(stores.settings.agents))
    finally:
        await working.close()
        await durable.close()


@checks_arguments
class AuthorizedPauseService:
    """
    Starting, pausing and resuming analyses; every call passes the gateway first.

    Reading takes the right to read workflows; changes require a human role. *what* names an analysis, or a stock by its
    subject, such as ``company:MU``. All raise :class:`~imem.journal.errors.PermissionDenied` if the actor may not, with
    one denial row written, and :class:`~imem.journal.errors.BadInput` if *what* matches none or several.

    Args:
        gateway: of the calling actor.
        parts: the services of pauses, over the same process's stores.
    """

    def __init__(self, gateway: Gateway, parts: PauseServices) -> None:
        self._gateway = gateway
        self._parts = parts

    async def start(
        self, analysis_id: str, stock_id: str, agents: Mapping[str, str], *, deadline: Deadline
    ) -> WorkflowState:
        """
        Register an analysis and have the workers start the agents without unmet dependencies; idempotent.

        Args:
            agents: agent type → instance.
        """
        return await self._allowed(
            Action.RESUME,
            analysis_id,
            lambda: self._parts.orchestrator.start_analysis(
                analysis_id, stock_id, agents, by=self._gateway.actor, deadline=deadline
            ),
            deadline,
        )

    async def workflow(self, analysis_id: str, *, deadline: Deadline) -> WorkflowState:
        """Return the state of an analysis and of each of its agents."""
        return await self._allowed(
            Action.READ,
            analysis_id,
            lambda: self._parts.orchestrator.get_workflow_state(analysis_id, deadline=deadline),
            deadline,
        )

    # Gates

    async def open_gate(
        self, analysis_id: str, gate: int, *, due_at: datetime | None = None, deadline: Deadline
    ) -> HumanGate:
        """Open a gate for a person's decision; see :func:`imem.checkpoints.pauses.human_gates.open_gate`."""
        by, database = self._gateway.actor, self._gateway.database
        return await self._gated(
            analysis_id,
            lambda: open_gate(database, analysis_id, gate, due_at=due_at, by=by, deadline=deadline),
            deadline,
        )

    async def answer_gate(
        self, analysis_id: str, gate: int, answer: str, *, reason: str, deadline: Deadline
    ) -> HumanGate:
        """Answer a gate that waits; see :func:`imem.checkpoints.pauses.human_gates.answer_gate`."""
        by, database = self._gateway.actor, self._gateway.database
        return await self._gated(
            analysis_id,
            lambda: answer_gate(database, analysis_id, gate, answer, reason=reason, by=by, deadline=deadline),
            deadline,
        )

    async def gates(self, *, deadline: Deadline) -> list[HumanGate]:
        """Return the gates that wait for a person."""
        return await self._allowed(
            Action.READ, "gates", lambda: open_gates(self._gateway.database, deadline=deadline), deadline
        )

    async def _gated(self, what: str, operation: Callable[[], Awaitable[T]], deadline: Deadline) -> T:
        resource = Resource(ResourceType.JOURNAL, what)
        return await self._gateway.authorize_and_execute(resource, Action.APPEND_GATES, operation, deadline=deadline)

    async def pause(self, what: str, reason: str, *, deadline: Deadline) -> PauseResult:
        """
        Pause an analysis: its agents stop at a safe point, and their snapshots are verified by digest.

        It is carried out here until the deadline; the pause manager finishes the rest, also after a crash.
        """

        async def order() -> PauseResult:
            by = self._gateway.actor
            return await self._parts.pauses.pause_analysis(what, reason, by=by, deadline=deadline)

        return await self._allowed(Action.PAUSE, what, order, deadline)

    async def resume(
        self, what: str, plan: Plan | Mapping[str, Any] | None = None, *, notify: bool = True, deadline: Deadline
    ) -> ResumeResult:
        """
        Resume a paused analysis, each agent as *plan* says, or as the failure and the dependencies ask for.

        Args:
            notify: whether to raise an alert when it runs.

        Raises:
            TransitionRefused: it is not paused, or is being resumed already.
        """

        async def order() -> ResumeResult:
            by = self._gateway.actor
            return await self._parts.pauses.resume_analysis(what, plan, notify, by=by, deadline=deadline)

        return await self._allowed(Action.RESUME, what, order, deadline)

    async def extend(self, what: str, until: datetime, reason: str, *, deadline: Deadline) -> Pause:
        """
        Extend a pause, once, to at most 30 days after it began; the memories of its agents live as long.

        Raises:
            TransitionRefused: it is not paused.
            BadInput: it was extended before, or *until* is more than 30 days after it began.
        """

        async def order() -> Pause:
            by = self._gateway.actor
            return await self._parts.pauses.extend(what, until, reason, by=by, deadline=deadline)

        return await self._allowed(Action.EXTEND, what, order, deadline)

    async def cancel(self, what: str, reason: str, *, deadline: Deadline) -> str:
        """Cancel a paused analysis: it fails, and its working memories are deleted at once; return its id."""

        async def order() -> str:
            by = self._gateway.actor
            return await self._parts.pauses.cancel(what, reason, by=by, deadline=deadline)

        return await self._allowed(Action.CANCEL, what, order, deadline)

    async def resolve(self, cause: str, *, deadline: Deadline) -> str:
        """Mark an external cause, named by its signature, as resolved; return the pattern of its failures."""
        by = self._gateway.actor
        return await self._allowed(
            Action.RESUME,
            f"cause {cause}",
            lambda: self._parts.incidents.cause_resolved(cause, by=by, deadline=deadline),
            deadline,
        )

    # Several at once

    async def pause_batch(
        self, what: Sequence[str], reason: str, *, limit: int = CONCURRENCY, within_ms: float, deadline: Deadline
    ) -> BatchState:
        """
        Order a batch of pauses, *limit* at a time, and return its state after *within_ms*.

        If one analysis cannot be paused, nothing is changed. :meth:`carry_out` and the pause manager continue it.
        """

        async def order() -> BatchState:
            due = deadline.within_ms(within_ms)
            by = self._gateway.actor
            return await self._parts.batches.pause_batch(what, reason, limit, by=by, deadline=due)

        return await self._allowed(Action.PAUSE, "batch", order, deadline)

    async def resume_batch(
        self, what: Sequence[str], *, limit: int = CONCURRENCY, within_ms: float, deadline: Deadline
    ) -> BatchState:
        """Order a batch of resumptions, *limit* at a time; see :meth:`pause_batch`."""

        async def order() -> BatchState:
            due = deadline.within_ms(within_ms)
            by = self._gateway.actor
            return await self._parts.batches.resume_batch(what, limit, by=by, deadline=due)

        return await self._allowed(Action.RESUME, "batch", order, deadline)

    async def carry_out(self, state: BatchState, *, within_ms: float, deadline: Deadline) -> BatchState:
        """Continue a batch for *within_ms*, and return its state."""
        await self._parts.batches.carry_out(state.batch_id, deadline.within_ms(within_ms))
        return await self._parts.batches.get_batch_status(state.batch_id, deadline=deadline)

    # Reading

    async def listed(self, *, everything: bool = False, deadline: Deadline) -> list[Pause]:
        """Return the paused analyses; with *everything*, also those resumed recently."""
        return await self._allowed(
            Action.READ, "pauses", lambda: self._parts.pauses.pauses(everything=everything, deadline=deadline), deadline
        )

    async def state(self, what: str, *, deadline: Deadline) -> PauseState:
        """Return whether an analysis is paused, and how its last pause ended."""
        return await self._allowed(
            Action.READ, what, lambda: self._parts.pauses.get_pause_state(what, deadline=deadline), deadline
        )

    async def batch(self, batch_id: UUID | str, *, deadline: Deadline) -> BatchState:
        """Return the state of a batch, with its analyses."""
        return await self._allowed(
            Action.READ,
            "batches",
            lambda: self._parts.batches.get_batch_status(batch_id, deadline=deadline),
            deadline,
        )

    async def batches(self, *, deadline: Deadline) -> list[BatchState]:
        """Return the newest batches, without their analyses."""
        return await self._allowed(
            Action.READ, "batches", lambda: self._parts.batches.batches(deadline=deadline), deadline
        )

    async def _allowed(self, action: Action, what: str, operation: Callable[[], Awaitable[T]], deadline: Deadline) -> T:
        resource = Resource(ResourceType.WORKFLOW, what)
        return await self._gateway.authorize_and_execute(resource, action, operation, deadline=deadline)
