"""Pauses for people and programs: who may order what, and the parts over this process's stores."""

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
"""How long the broker may keep whoever starts an agent, in seconds."""


def sender(app: Celery) -> Send:
    """
    Return what puts the message that starts an agent into Celery's queue of agents.

    It raises ValkeyUnavailable after ``SEND_S``; a message that leaves later is as good as one that left in time.
    """

    def send(message: DispatchMessage) -> None:
        app.send_task(
            RUN_AGENT,
            args=(message.analysis_id, message.agent_type, message.dispatch),
            queue=AGENTS_QUEUE,
            ignore_result=True,
            retry=False,
            # Sent again by then, if nobody has started it.
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
    """Return what orders pauses over these stores, of agents as *definitions* have them."""
    parts = assemble(stores.database, working, durable, definitions, sender(make_app(stores.settings)))
    return AuthorizedPauseService(stores.gateway, parts)


@asynccontextmanager
async def open_pause_service(stores: Stores) -> AsyncIterator[AuthorizedPauseService]:
    """
    Lend what orders pauses over *stores*; its clients of the Valkeys are closed at the end.

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
    The orders and questions of pauses that an actor may give and ask; every one passes the gateway first.

    Looking is for whoever may read workflows, ordering for people. *what* names an analysis, or a stock by its
    subject, such as ``company:MU``. All raise :class:`~imem.journal.errors.PermissionDenied` where the actor may not,
    with one denial row written, and :class:`~imem.journal.errors.BadInput` where nothing, or more than one thing, is
    meant.

    Args:
        gateway: knows who asks.
        parts: what pauses are made of, over the same process's stores.
    """

    def __init__(self, gateway: Gateway, parts: PauseServices) -> None:
        self._gateway = gateway
        self._parts = parts

    async def start(
        self, analysis_id: str, stock_id: str, agents: Mapping[str, str], *, deadline: Deadline
    ) -> WorkflowState:
        """
        Take an analysis in and have the workers start the agents that wait for nobody; repeated, it changes nothing.

        Args:
            agents: agent type → instance, whose working memory it will be.
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
        """Return where an analysis and each of its agents stand."""
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
        Pause an analysis: its agents stop at a safe point, and what they know is kept and proven.

        Carried out here until the deadline; the manager goes on with what is not done then, or after a crash.
        """

        async def order() -> PauseResult:
            name = await self._parts.pauses.meant(what, paused=False, deadline=deadline)
            by = self._gateway.actor
            return await self._parts.pauses.pause_analysis(None, reason, analysis_id=name, by=by, deadline=deadline)

        return await self._allowed(Action.PAUSE, what, order, deadline)

    async def resume(
        self, what: str, plan: Plan | Mapping[str, Any] | None = None, *, notify: bool = True, deadline: Deadline
    ) -> ResumeResult:
        """
        Resume a paused analysis, each agent as *plan* says, or as the failure and the dependencies ask for.

        Args:
            notify: tell people when it runs.

        Raises:
            TransitionRefused: it is not paused, or somebody else resumes it already.
        """

        async def order() -> ResumeResult:
            name = await self._parts.pauses.meant(what, paused=True, deadline=deadline)
            by = self._gateway.actor
            return await self._parts.pauses.resume_analysis(
                None, plan, notify, analysis_id=name, by=by, deadline=deadline
            )

        return await self._allowed(Action.RESUME, what, order, deadline)

    async def extend(self, what: str, until: datetime, reason: str, *, deadline: Deadline) -> Pause:
        """
        Extend a pause, once, to at most 30 days after it began; the memories of its agents live as long.

        Raises:
            TransitionRefused: it is not paused.
            BadInput: it was extended before, or *until* is more than 30 days after it began.
        """

        async def order() -> Pause:
            name = await self._parts.pauses.meant(what, paused=True, deadline=deadline)
            by = self._gateway.actor
            return await self._parts.pauses.extend(None, until, reason, analysis_id=name, by=by, deadline=deadline)

        return await self._allowed(Action.EXTEND, what, order, deadline)

    async def cancel(self, what: str, reason: str, *, deadline: Deadline) -> str:
        """Give a paused analysis up: it has failed, its memories go at once; return its id."""

        async def order() -> str:
            name = await self._parts.pauses.meant(what, paused=True, deadline=deadline)
            by = self._gateway.actor
            await self._parts.pauses.cancel(None, reason, analysis_id=name, by=by, deadline=deadline)
            return name

        return await self._allowed(Action.CANCEL, what, order, deadline)

    async def resolve(self, cause: str, *, deadline: Deadline) -> str:
        """Say that a cause outside, named by its signature, is over; return the pattern of what waited for it."""
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
        Order that analyses be paused, *limit* at a time, and return how that stands after *within_ms*.

        Nothing is changed where one of them cannot be. :meth:`carry_out` goes on with it; so does the manager.
        """

        async def order() -> BatchState:
            due = deadline.within_ms(within_ms)
            names = [await self._parts.pauses.meant(one, paused=False, deadline=due) for one in what]
            by = self._gateway.actor
            return await self._parts.batches.pause_batch([], reason, limit, analysis_ids=names, by=by, deadline=due)

        return await self._allowed(Action.PAUSE, "batch", order, deadline)

    async def resume_batch(
        self, what: Sequence[str], *, limit: int = CONCURRENCY, within_ms: float, deadline: Deadline
    ) -> BatchState:
        """Order that paused analyses be resumed, *limit* at a time; see :meth:`pause_batch`."""

        async def order() -> BatchState:
            due = deadline.within_ms(within_ms)
            names = [await self._parts.pauses.meant(one, paused=True, deadline=due) for one in what]
            by = self._gateway.actor
            return await self._parts.batches.resume_batch([], limit, analysis_ids=names, by=by, deadline=due)

        return await self._allowed(Action.RESUME, "batch", order, deadline)

    async def carry_out(self, state: BatchState, *, within_ms: float, deadline: Deadline) -> BatchState:
        """Go on with a batch that was ordered, for *within_ms*, and return how it stands then."""
        await self._parts.batches.carry_out(state.batch_id, deadline.within_ms(within_ms))
        return await self._parts.batches.get_batch_status(state.batch_id, deadline=deadline)

    # Looking

    async def listed(self, *, everything: bool = False, deadline: Deadline) -> list[Pause]:
        """Return what is paused; *everything*: and what was resumed of late."""
        return await self._allowed(
            Action.READ, "pauses", lambda: self._parts.pauses.pauses(everything=everything, deadline=deadline), deadline
        )

    async def state(self, what: str, *, deadline: Deadline) -> PauseState:
        """Return whether an analysis is paused, and how its last pause ended."""

        async def ask() -> PauseState:
            # A stock may have a paused analysis, or one that runs.
            known = await self._parts.pauses.known(what, deadline=deadline)
            return await self._parts.pauses.get_pause_state(
                None if known else what, analysis_id=what if known else None, deadline=deadline
            )

        return await self._allowed(Action.READ, what, ask, deadline)

    async def batch(self, batch_id: UUID | str, *, deadline: Deadline) -> BatchState:
        """Return how a batch stands, with its analyses."""
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
