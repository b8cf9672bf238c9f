"""
Running one agent: from the message that names it to the row that says how it ended.

The session holds the lease and the recovered memory, and is cancelled when the lease is lost. Whatever ends the run,
the row is told, if it can be, before the lease is given up: whoever sees no lease finds a row that says why. A process
that is killed tells nothing, and the manager finds the lease run out.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import structlog

from checkpoints.failures import failure_of
from checkpoints.incidents import Incidents
from checkpoints.orchestrator import CeleryOrchestrator, Message, Started
from checkpoints.pauses import Pauses
from checkpoints.programs import AgentRun, Stopped, program_of
from checkpoints.session import Desk, Session
from journal.deadline import Deadline
from journal.errors import ImemError, LeaseHeld, LeaseLost, NotResumable, StoreUnavailable, TransitionRefused

log = structlog.get_logger()

CALL_BUDGET_MS: Final = 10_000
"""How long one call of a run to a store may take, in milliseconds; programs have budgets of their own."""


@dataclass(frozen=True, slots=True)
class Runner:
    """
    Runs agents in this process.

    Attributes:
        orchestrator: says which may run, and is told how they ended.
        desk: gives sessions.
        pauses: says whether to stop.
        incidents: is told of failures.
        tools: lent to programs.
    """

    orchestrator: CeleryOrchestrator
    desk: Desk
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
            async with self.desk.begin(
                analysis_id=started.analysis_id,
                agent_type=started.agent_type,
                agent_id=started.agent_id,
                subject_id=started.stock_id,
                owner=started.agent_type,
            ) as session:
                return await self._worked(started, session)
        except LeaseHeld:
            # Whoever had it died a moment ago: the agent is sent again when the lease has run out.
            return await self._ended(started, "WAITING")
        except TransitionRefused:
            return await self._ended(started, "STOPPED")
        except LeaseLost:
            # Somebody else is responsible for the agent now, and for what its row says.
            return "superseded"
        except StoreUnavailable:
            raise
        except ImemError as error:
            return await self._failed(started, None, error)

    async def _worked(self, started: Started, session: Session) -> str:
        async def wanted() -> str | None:
            return await self.pauses.stop_wanted(started.analysis_id, deadline=_soon())

        try:
            await program_of(started.agent_type)(AgentRun(started, session, wanted, self.tools))
            await self._refuse_unfinished(started, session)
        except Stopped:
            return await self._ended(started, "STOPPED")
        except LeaseLost:
            return "superseded"
        except Exception as error:  # noqa: BLE001 - a program may raise anything, and all of it is a failure of its agent
            return await self._failed(started, session, error)
        return await self._ended(started, "COMPLETED")

    async def _refuse_unfinished(self, started: Started, session: Session) -> None:
        latest = await self.desk.checkpoints.load(started.analysis_id, started.agent_type, deadline=_soon())
        if latest is None or latest.pending_subtasks or session.lost:
            left = ", ".join((*session.lost, *latest.pending_subtasks)) if latest is not None else "everything"
            raise RuntimeError(f"The program of {started.agent_type} ended with subtasks left: {left}.")

    async def _ended(self, started: Started, state: str) -> str:
        await self.orchestrator.end(started, state, deadline=_soon())
        log.info("agent_ended", analysis_id=started.analysis_id, agent=started.agent_type, state=state)
        return state

    async def _failed(self, started: Started, session: Session | None, error: Exception) -> str:
        """Save where the agent stands, report why it failed, and tell its row."""
        name = type(error).__name__
        log.warning("agent_failed", analysis_id=started.analysis_id, agent=started.agent_type, error=name)
        failure = failure_of(error)
        if session is not None:
            # What was completed is saved; this only says more.
            with suppress(ImemError):
                await session.failed(failure.message, details={"kind": failure.kind.value})
        await self.incidents.report(
            started.analysis_id, started.agent_type, failure, details={"error": name, "dispatch": started.dispatch},
            # A recovery that finds nothing left has told people so itself.
            announce=not isinstance(error, NotResumable), deadline=_soon(),
        )  # fmt: skip
        return await self._ended(started, "FAILED")


def _soon() -> Deadline:
    return Deadline.after_ms(CALL_BUDGET_MS)
