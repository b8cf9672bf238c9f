"""The message that starts an agent, and what the command line does to pauses beside ``Memory``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final
from uuid import UUID

import kombu.exceptions
from celery import Celery

from imem.checkpoints.orchestration.orchestrator import LOST_AFTER, DispatchMessage, Send
from imem.checkpoints.pauses.batch_runs import BatchState
from imem.checkpoints.pauses.batches import CONCURRENCY
from imem.checkpoints.pauses.pipelines import RUN_AGENT
from imem.journal.actors import Action
from imem.journal.arguments import checks_arguments
from imem.journal.deadline import Deadline
from imem.journal.errors import ValkeyUnavailable
from imem.services.parts.pause_api import PauseApi
from imem.workers.celery_app import AGENTS_QUEUE

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


@checks_arguments
class PauseCommands(PauseApi):
    """The operations that only the command line has: batches, and ending causes."""

    async def resolve(self, cause: str, *, deadline: Deadline) -> str:
        """Mark an external cause, named by its signature, as resolved; return the pattern of its failures."""
        resolved = partial(self._pauses.incidents.cause_resolved, cause, by=self._actor)
        return await self._request(f"cause {cause}", Action.RESUME, resolved, deadline)

    async def pause_batch(
        self, what: Sequence[str], reason: str, *, limit: int = CONCURRENCY, within_ms: float, deadline: Deadline
    ) -> BatchState:
        """
        Order a batch of pauses, *limit* at a time, and return its state after *within_ms*.

        If one analysis cannot be paused, nothing is changed. :meth:`carry_out` and the pause manager continue it.
        """
        pause = partial(self._pauses.batches.pause_batch, what, reason, limit, by=self._actor)
        return await self._of_batch(Action.PAUSE, pause, within_ms, deadline)

    async def resume_batch(
        self, what: Sequence[str], *, limit: int = CONCURRENCY, within_ms: float, deadline: Deadline
    ) -> BatchState:
        """Order a batch of resumptions, *limit* at a time; see :meth:`pause_batch`."""
        resume = partial(self._pauses.batches.resume_batch, what, limit, by=self._actor)
        return await self._of_batch(Action.RESUME, resume, within_ms, deadline)

    async def _of_batch(
        self, action: Action, order: Callable[..., Awaitable[BatchState]], within_ms: float, deadline: Deadline
    ) -> BatchState:
        return await self._request(
            "batch", action, lambda deadline: order(deadline=deadline.within_ms(within_ms)), deadline
        )

    async def carry_out(self, state: BatchState, *, within_ms: float, deadline: Deadline) -> BatchState:
        """Continue a batch for *within_ms*, and return its state."""
        await self._pauses.batches.carry_out(state.batch_id, deadline.within_ms(within_ms))
        return await self._pauses.batches.get_batch_status(state.batch_id, deadline=deadline)

    async def batch(self, batch_id: UUID | str, *, deadline: Deadline) -> BatchState:
        """Return the state of a batch, with its analyses."""
        status = partial(self._pauses.batches.get_batch_status, batch_id)
        return await self._request("batches", Action.READ, status, deadline)

    async def batches(self, *, deadline: Deadline) -> list[BatchState]:
        """Return the newest batches, without their analyses."""
        return await self._request("batches", Action.READ, self._pauses.batches.batches, deadline)
