"""
Running one agent: from the message that names it to the row that says how it ended.

The lease comes first, then the recovery, then the program, which is cancelled when the lease is lost. Whatever ends the
run, the row is told, if it can be; a process that is killed tells nothing, and the manager finds the lease run out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import structlog

from checkpoints.failures import failure_of
from checkpoints.incidents import Incidents
from checkpoints.leases import Leases
from checkpoints.model import Lease
from checkpoints.orchestrator import CeleryOrchestrator, Message, Started
from checkpoints.pauses import Pauses
from checkpoints.programs import AgentRun, Stopped, program_of
from checkpoints.saga import Recovery
from checkpoints.store import Checkpoints
from journal.deadline import Deadline
from journal.errors import BadInput, LeaseHeld, LeaseLost, TransitionRefused

log = structlog.get_logger()

CALL_BUDGET_MS: Final = 10_000
"""How long one call of a run to a store may take, in milliseconds; programs have budgets of their own."""

RECOVERY_BUDGET_MS: Final = 40_000
"""How long a recovery may take, in milliseconds: the slowest tier has 30 s."""


@dataclass(frozen=True, slots=True)
class Runner:
    """
    Runs agents in this process.

    Attributes:
        orchestrator: says which may run, and is told how they ended.
        leases, checkpoints, recovery: the right to run, and where to go on.
        pauses: says whether to stop.
        incidents: is told of failures.
        tools: lent to programs.
    """

    orchestrator: CeleryOrchestrator
    leases: Leases
    checkpoints: Checkpoints
    recovery: Recovery
    pauses: Pauses
    incidents: Incidents
    tools: Any = None

    async def run(self, message: Message) -> str:
        """
        Run the agent that a message names, to its end, and return how that was: dropped, or the state of its row.

        Raises:
            PostgresUnavailable: nothing was started, or the end could not be told; the manager goes on from there.
        """
        started = await self.orchestrator.begin(message, deadline=_soon())
        if started is None:
            return "dropped"
        try:
            lease = await self._lease(started)
        except LeaseHeld:
            # Whoever had it died a moment ago: the agent is sent again when the lease has run out.
            return await self._ended(started, "WAITING")
        except TransitionRefused:
            return await self._ended(started, "STOPPED")
        except BadInput as error:
            return await self._failed(started, None, error)
        try:
            async with self.leases.kept(lease):
                await self._program(started, lease)
        except Stopped:
            return await self._ended(started, "STOPPED", lease)
        except LeaseLost:
            # Somebody else is responsible for the agent now, and for what its row says.
            return "superseded"
        except asyncio.CancelledError:
            await self._ended(started, "STOPPED", lease)
            raise
        except Exception as error:  # noqa: BLE001 - a program may raise anything, and all of it is a failure of its agent
            return await self._failed(started, lease, error)
        return await self._ended(started, "COMPLETED", lease)

    async def _lease(self, started: Started) -> Lease:
        return await self.leases.acquire(
            analysis_id=started.analysis_id,
            agent_type=started.agent_type,
            agent_id=started.agent_id,
            subject_id=started.stock_id,
            holder=f"run-{uuid4().hex}",
            owner=started.agent_type,
            deadline=_soon(),
        )

    async def _program(self, started: Started, lease: Lease) -> None:
        program = program_of(started.agent_type)
        await self.recovery.recover(lease, deadline=Deadline.after_ms(RECOVERY_BUDGET_MS))
        checkpoint = await self.checkpoints.load(started.analysis_id, started.agent_type, deadline=_soon())
        if checkpoint is None:
            raise BadInput("checkpoint", f"{started.agent_type} has none, though its lease was given.")

        async def wanted() -> str | None:
            return await self.pauses.stop_wanted(started.analysis_id, deadline=_soon())

        await program(AgentRun(started, lease, checkpoint, wanted, self.tools))
        latest = await self.checkpoints.load(started.analysis_id, started.agent_type, deadline=_soon())
        if latest is None or latest.pending_subtasks:
            left = ", ".join(latest.pending_subtasks) if latest is not None else "everything"
            raise RuntimeError(f"The program of {started.agent_type} ended with subtasks left: {left}.")

    async def _ended(self, started: Started, state: str, lease: Lease | None = None) -> str:
        """Tell the row, then give the lease up: whoever sees no lease finds a row that says why."""
        await self.orchestrator.end(started, state, deadline=_soon())
        if lease is not None:
            await self.leases.release(lease, deadline=_soon())
        log.info("agent_ended", analysis_id=started.analysis_id, agent=started.agent_type, state=state)
        return state

    async def _failed(self, started: Started, lease: Lease | None, error: Exception) -> str:
        log.warning(
            "agent_failed", analysis_id=started.analysis_id, agent=started.agent_type, error=type(error).__name__
        )
        details: Mapping[str, Any] = {"error": type(error).__name__, "dispatch": started.dispatch}
        await self.incidents.report(
            started.analysis_id, started.agent_type, failure_of(error), details=details, deadline=_soon()
        )
        return await self._ended(started, "FAILED", lease)


def _soon() -> Deadline:
    return Deadline.after_ms(CALL_BUDGET_MS)
