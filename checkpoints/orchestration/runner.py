"""
Agent runner: runs one agent, from its message to the state of its row.

The session holds the lease and the recovered memory, and is cancelled when the lease is lost. The row is updated, where
possible, before the lease is released: a process that finds no lease finds the reason in the row. A killed process
updates nothing; the manager finds its lease expired.

A transient failure (a timeout, too many requests, an unreachable server) does not end the run: the memory is rolled
back to the newest checkpoint and the program is called again, at most three times for a subtask, under the same lease.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import structlog

from imem.checkpoints.incidents.failures import AgentFailure, class_of, failure_of, wait_s
from imem.checkpoints.incidents.reports import Incidents
from imem.checkpoints.incidents.retries import AttemptTracker
from imem.checkpoints.model import AgentLease
from imem.checkpoints.orchestration.orchestrator import CeleryOrchestrator, DispatchMessage, StartedAgent
from imem.checkpoints.orchestration.programs import AgentRun, AgentStopped, program_of
from imem.checkpoints.pauses.lifecycle import FailureClass
from imem.checkpoints.session import Session, SessionFactory
from imem.journal.deadline import Deadline
from imem.journal.errors import (
    UNANSWERED,
    BudgetExceeded,
    ImemError,
    LeaseHeld,
    LeaseLost,
    NotResumable,
    StoreUnavailable,
    TransitionRefused,
)

log = structlog.get_logger()

CALL_BUDGET_MS: Final = 10_000
"""Timeout of a run's call of a store, in milliseconds; programs have deadlines of their own."""

POLL_INTERVAL_S: Final = 2.0
"""Interval of checks whether to stop, while an agent waits for its next attempt, in seconds."""


@dataclass(frozen=True, slots=True)
class AgentRunner:
    """
    Runs agents in this process.

    Attributes:
        orchestrator: starts and ends runs.
        session_factory: makes sessions.
        incidents: records failures.
        tools: passed to programs.
        sleep: waits between two attempts, in seconds.
        chance: jitter from 0 to 1.
    """

    orchestrator: CeleryOrchestrator
    session_factory: SessionFactory
    incidents: Incidents
    tools: Any = None
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random

    async def run(self, message: DispatchMessage) -> str:
        """
        Run the agent of a message to its end; return ``dropped``, ``superseded`` or the state of its row.

        Raises:
            PostgresUnavailable: nothing was started, or the end could not be recorded; the manager continues from
                there.
        """
        started = await self.orchestrator.begin(message, deadline=_soon())
        if started is None:
            return "dropped"
        try:
            async with self.session_factory.leased(
                analysis_id=started.analysis_id,
                agent_type=started.agent_type,
                agent_id=started.agent_id,
                subject_id=started.stock_id,
                owner=started.agent_type,
            ) as lease:
                return await self._worked(started, lease)
        except LeaseHeld:
            # The former holder crashed a moment ago: the agent is sent again when its lease has expired.
            return await self._ended(started, "WAITING")
        except TransitionRefused:
            return await self._ended(started, "STOPPED")
        except LeaseLost:
            # Another process runs the agent now, and writes its row.
            return "superseded"
        except UNANSWERED:
            raise
        except ImemError as error:
            return await self._failed(started, None, error, failure_of(error))

    async def _worked(self, started: StartedAgent, lease: AgentLease) -> str:
        """Run the program, again after transient failures; return how it ended."""
        attempts = AttemptTracker(self.incidents, started)
        session: Session | None = None
        while True:
            at_work: Session | None = None
            try:
                if session is None:
                    session = await self.session_factory.resumed(lease)
                else:
                    await session.rollback_to_checkpoint()
                at_work = session
                async with session.renewed():
                    await self._called(started, session, attempts.count + 1)
                await self._refuse_unfinished(started, session)
            except AgentStopped:
                return await self._ended(started, "STOPPED")
            except LeaseLost:
                return "superseded"
            except Exception as error:  # noqa: BLE001 - a program may raise anything, and all of it is a failure of its agent
                failure = await attempts.failed(error, session.checkpoint.seq if session is not None else None)
                if class_of(failure) is not FailureClass.RETRY:
                    return await self._failed(started, at_work, error, failure)
                if await self._stopped_while_waiting(started, wait_s(failure, self.chance())):
                    return await self._ended(started, "STOPPED")
            else:
                return await self._ended(started, "COMPLETED")

    async def _called(self, started: StartedAgent, session: Session, attempt: int) -> None:
        async def stop_requested() -> str | None:
            return await self.session_factory.leases.stop_reason(started.analysis_id, deadline=_soon())

        await program_of(started.agent_type)(AgentRun(started, session, stop_requested, self.tools, attempt))

    async def _stopped_while_waiting(self, started: StartedAgent, wait: float) -> bool:
        """Wait before another attempt, in seconds; return whether the agent must stop, which ends the wait."""
        while True:
            # Without Postgres no pause can begin either.
            with suppress(StoreUnavailable, BudgetExceeded):
                if await self.session_factory.leases.stop_reason(started.analysis_id, deadline=_soon()) is not None:
                    return True
            if wait <= 0:
                return False
            step = min(wait, POLL_INTERVAL_S)
            await self.sleep(step)
            wait -= step

    async def _refuse_unfinished(self, started: StartedAgent, session: Session) -> None:
        latest = await self.session_factory.checkpoints.load(started.analysis_id, started.agent_type, deadline=_soon())
        if latest is None or latest.pending_subtasks or session.lost:
            left = ", ".join((*session.lost, *latest.pending_subtasks)) if latest is not None else "everything"
            raise RuntimeError(f"The program of {started.agent_type} ended with subtasks left: {left}.")

    async def _ended(self, started: StartedAgent, state: str) -> str:
        await self.orchestrator.end(started, state, deadline=_soon())
        log.info("agent_ended", analysis_id=started.analysis_id, agent=started.agent_type, state=state)
        return state

    async def _failed(
        self, started: StartedAgent, session: Session | None, error: Exception, failure: AgentFailure
    ) -> str:
        """Save a failure checkpoint, report the failure, and update the row."""
        name = type(error).__name__
        log.warning("agent_failed", analysis_id=started.analysis_id, agent=started.agent_type, error=name)
        if session is not None:
            # Completed subtasks are saved; this adds only the reason.
            with suppress(ImemError):
                details = {"kind": failure.kind.value}
                await session.failed(failure.message, details=details, retry_count=failure.attempt - 1)
        await self.incidents.report(
            started.analysis_id, started.agent_type, failure, details={"error": name, "dispatch": started.dispatch},
            # An unrecoverable agent has raised its own alert.
            announce=not isinstance(error, NotResumable), deadline=_soon(),
        )  # fmt: skip
        return await self._ended(started, "FAILED")


def _soon() -> Deadline:
    return Deadline.after_ms(CALL_BUDGET_MS)
