"""
Sagas of pausing and resuming: each step leaves rows from which the next one continues.

A pause: (1) the row with its alert, written by the request; (2) the agents reach a safe point, or their 60 s are over;
(3) the epochs are raised, which fences off running agents, in Postgres and in working memory; (4) of every begun agent
a checkpoint with its working memory, in Postgres and on the durable server, both read back and verified; (5) the expiry
of the memories is extended to the end of the pause; (6) the orchestrator starts no more agents; (7) PAUSED.

A resume: (0) the request, with its plan; (1) agents that restart clean get a new start checkpoint; (2) the memory of
every agent that restarts is recovered and verified; (3) the orchestrator has the tasks; RESUMED, and agents that are
ready start.

A step holds the lock of the analysis' row, in the transaction that records its completion. After a crash it is
completed or repeated, and repeating it changes nothing: epochs without a holder are not raised again, an equal
checkpoint is not saved again, and the memories' servers refuse what is older than their content. A manager that hung
loses its transaction, and finds its epochs superseded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final

import structlog

from imem.cache.working.document import Contents, contents_of, digest, document_of
from imem.cache.working.snapshots import SnapshotStore
from imem.cache.working.state import ACTIVE_TTL, ExpiryMode
from imem.cache.working.store import WorkingStore
from imem.checkpoints.incidents.failures import failure_of
from imem.checkpoints.leases import Leases
from imem.checkpoints.model import AgentLease, Checkpoint, CheckpointKind, snapshot_of
from imem.checkpoints.orchestration.definitions import Definitions
from imem.checkpoints.orchestration.orchestrator import CeleryOrchestrator
from imem.checkpoints.paid_calls import CallOwner, calls_in, joined
from imem.checkpoints.pauses import transitions
from imem.checkpoints.pauses.lifecycle import FailureClass, PauseStatus
from imem.checkpoints.pauses.plan import Begin, Restart
from imem.checkpoints.pauses.rows import (
    Pause,
    alert,
    move_pause,
    open_pause,
    record_failure,
    try_lock_analysis,
)
from imem.checkpoints.recovery import Recovery, Unrecoverable
from imem.checkpoints.store import Checkpoints
from imem.journal.clock import Clock
from imem.journal.deadline import Deadline
from imem.journal.errors import (
    UNANSWERED,
    ConsistencyError,
    ImemError,
    LeaseHeld,
    LeaseLost,
    NotOpen,
    NotResumable,
)
from imem.journal.events.ids import id_of, new_id
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import execute, rows

log = structlog.get_logger()

STEP_BUDGET_MS: Final = 20_000
"""Timeout of one step, in milliseconds: less than a manager may hang."""

MEMORY_MS: Final = 3_000
"""Longest wait of one step for the working server, in milliseconds: a pause must not depend on it."""

AT_ONCE: Final = 4
"""
Concurrent steps of one process: each holds a connection, and other calls of the process need some as well.

A step reads and writes on the connection that it holds and never takes another: in an exhausted pool it would wait for
itself.
"""

LOOK_S: Final = 0.05
"""Interval of checks whether agents have stopped, while a caller waits, in seconds."""

RECOVERIES: Final = 3
"""Attempts of a recovery whose servers do not answer, before the analysis is paused again."""

STUCK_AFTER: Final = 6
"""Failed attempts of a step before an alert is raised: about a minute."""

MANAGER: Final = "manager"
"""Agent type of the failures of a resume."""

TRANSIENT_ERRORS: Final = (*UNANSWERED, LeaseHeld)
"""Errors of a step that a retry may get over."""


class StepOutcome(Enum):
    """The outcome of an attempt at a step."""

    ON = "on"
    """The step is completed; there may be another."""
    WAITS = "waits"
    """Agents are still stopping, the next attempt is not due, or the analysis is locked."""
    OVER = "over"
    """There is no step to run."""


@dataclass(frozen=True, slots=True)
class SagaStores:
    """
    Stores and services of a saga.

    Attributes:
        database: the rows.
        leases, checkpoints: of the agents.
        working, snapshots: the memories, and their copies.
        definitions: of the agents.
        orchestrator: starts agents.
        recovery: recovers memories.
        clock: for the expiry of memories.
    """

    database: Database
    leases: Leases
    checkpoints: Checkpoints
    working: WorkingStore
    snapshots: SnapshotStore
    definitions: Definitions
    orchestrator: CeleryOrchestrator
    recovery: Recovery
    clock: Clock


class Saga:
    """Runs the steps of pauses and resumes; any number of processes may do so."""

    def __init__(self, stores: SagaStores) -> None:
        self._s = stores
        self._places = asyncio.Semaphore(AT_ONCE)
        # A step that returns None is completed, and the pause moves to the next one.
        self._steps: Mapping[
            tuple[PauseStatus, int], Callable[[Connection, Pause, Deadline], Awaitable[StepOutcome | None]]
        ] = {
            (PauseStatus.PAUSING, 1): self._drain,
            (PauseStatus.PAUSING, 2): self._fence,
            (PauseStatus.PAUSING, 3): self._snapshot,
            (PauseStatus.PAUSING, 4): self._keep,
            (PauseStatus.PAUSING, 5): self._hold,
            (PauseStatus.PAUSING, 6): self._settle,
            (PauseStatus.RESUMING, 0): self._begin_anew,
            (PauseStatus.RESUMING, 1): self._recover,
            (PauseStatus.RESUMING, 2): self._hand_over,
            (PauseStatus.RESUMING, 3): self._finish,
        }

    async def drive(self, analysis_id: str, *, until: Deadline) -> None:
        """
        Run due steps, waiting for agents to stop, until the saga is complete, or *until*.

        Raises:
            PostgresUnavailable: completed steps are stored; the manager continues.
        """
        while not until.passed:
            went = await self.step(analysis_id)
            if went is StepOutcome.OVER:
                return
            if went is StepOutcome.WAITS:
                await asyncio.sleep(min(LOOK_S, until.left_s()))

    async def advance(self, analysis_id: str, *, until: Deadline) -> None:
        """
        Run due steps, without waiting for agents: for the manager.

        After *until* no step begins; a running step keeps its own deadline, so that it does not count as failed.
        """
        while await self.step(analysis_id, until=until) is StepOutcome.ON:
            pass

    async def step(self, analysis_id: str, *, until: Deadline | None = None) -> StepOutcome:
        """Run one step, if one is due, the analysis is not locked, and a place is free before *until*."""
        async with self._places:
            if until is not None and until.passed:
                return StepOutcome.WAITS
            return await self._one(analysis_id)

    async def _one(self, analysis_id: str) -> StepOutcome:
        deadline = Deadline.after_ms(STEP_BUDGET_MS)
        pause: Pause | None = None
        try:
            async with self._s.database.transaction(deadline) as conn:
                analysis = await try_lock_analysis(conn, analysis_id)
                pause = await open_pause(conn, analysis_id) if analysis is not None else None
                step = self._steps.get((pause.status, pause.step)) if pause is not None else None
                if analysis is None or (pause is not None and pause.rests):
                    return StepOutcome.WAITS
                if pause is None or step is None:
                    return StepOutcome.OVER
                went = await step(conn, pause, deadline)
                if went is None:
                    await move_pause(conn, pause, pause.status, pause.step + 1)
        except ImemError as error:
            if pause is None:
                raise
            return await self._handle_step_error(pause, error)
        if (pause.status, pause.step) == (PauseStatus.RESUMING, 3):
            await self._s.orchestrator.start_ready(deadline=deadline)
        return went or StepOutcome.ON

    async def start_ready(self, *, deadline: Deadline) -> int:
        """Start every agent that may start; return how many."""
        return await self._s.orchestrator.start_ready(deadline=deadline)

    async def keep(self, analysis_id: str, *, deadline: Deadline) -> None:
        """Extend the memories of a paused analysis to the end of its pause."""
        async with self._s.database.transaction(deadline) as conn:
            analysis = await try_lock_analysis(conn, analysis_id)
            pause = await open_pause(conn, analysis_id) if analysis is not None else None
            if pause is not None and pause.status is PauseStatus.PAUSED:
                await self._keep(conn, pause, deadline)

    async def forget(self, agents: Mapping[str, int], *, deadline: Deadline) -> None:
        """Remove the memories of agents (agent_id → epoch) whose analysis is over; what cannot be removed expires."""
        for agent_id, epoch in agents.items():
            try:
                await self._s.working.clear(agent_id, epoch, deadline=deadline)
                await self._s.snapshots.drop(agent_id, deadline=deadline)
            except (*TRANSIENT_ERRORS, LeaseLost) as error:
                log.warning("memory_not_removed", agent_id=agent_id, error=error.message)

    # Pausing

    async def _drain(self, conn: Connection, pause: Pause, _: Deadline) -> StepOutcome | None:
        running = await rows(conn, "pause_running", {"analysis_id": pause.analysis_id})
        now = (await rows(conn, "pause_now"))[0]["now"]
        if running and now < pause.drain_until:
            return StepOutcome.WAITS
        if running:
            log.warning("agents_fenced", analysis_id=pause.analysis_id, agents=[row["agent_type"] for row in running])
        return None

    async def _fence(self, conn: Connection, pause: Pause, deadline: Deadline) -> None:
        timeout = deadline.within_ms(MEMORY_MS)
        for lease in await self._s.leases.raise_epoch(pause.analysis_id, deadline=deadline, conn=conn):
            agent = {"agent_type": lease.agent_type, "agent_id": lease.agent_id, "epoch": lease.epoch}
            await execute(conn, "pause_agent_fenced", {"pause_id": pause.id, **agent})
            try:
                await self._s.working.fence(lease.agent_id, lease.epoch, deadline=timeout)
            except (*TRANSIENT_ERRORS, LeaseLost) as error:
                # A pause is needed most while that server is unreachable. Its content then has an epoch below that of
                # Postgres, and is verified before it is used.
                log.warning("memory_not_fenced", agent_id=lease.agent_id, error=error.message)

    async def _snapshot(self, conn: Connection, pause: Pause, deadline: Deadline) -> StepOutcome | None:
        """Save, then verify, one agent a time: committed rows are verified."""
        values = {"pause_id": pause.id, "analysis_id": pause.analysis_id}
        agents = await rows(conn, "pause_agents", values)
        for agent in agents:
            if agent["checkpoint_id"] is None or agent["checkpoint_id"] != agent["newest_id"]:
                await self._save(conn, pause, agent, deadline)
                return StepOutcome.ON
        for agent in agents:
            if agent["verified_at"] is None:
                await self._prove(conn, pause, agent, deadline)
                return StepOutcome.ON
        return None

    async def _save(self, conn: Connection, pause: Pause, agent: Row, deadline: Deadline) -> None:
        """Save the pause checkpoint of one agent; its version stays that of the latest one."""
        latest = await self._s.checkpoints.load(pause.analysis_id, agent["agent_type"], deadline=deadline, conn=conn)
        if latest is None:
            raise ConsistencyError(f"{agent['agent_type']} has a lease and no checkpoint in {pause.analysis_id}.")
        contents, source, rev = await self._memory(agent, latest, deadline)
        saved = await self._s.checkpoints.save(
            _lease(pause, agent), kind=CheckpointKind.PAUSE, document=document_of(contents), digest=digest(contents),
            interim_results=latest.interim_results, agent_config=latest.agent_config, version=latest.agent_version,
            deadline=deadline, conn=conn,
        )  # fmt: skip
        values = {"checkpoint_id": saved.id, "seq": saved.seq, "digest": saved.working_memory_hash, "source": source}
        names = {"pause_id": pause.id, "agent_type": agent["agent_type"]}
        await execute(conn, "pause_agent_saved", {**names, **values, "rev": rev})

    async def _memory(self, agent: Row, latest: Checkpoint, deadline: Deadline) -> tuple[Contents, str, int | None]:
        """
        Return the agent's memory, its source, and the revision if that is the working memory.

        The last checkpoint is used where the memory is lost, or where the agent was stopped within a subtask that is
        not reentrant; with the answers of calls that it has paid for since.
        """
        try:
            meta, contents = await self._s.working.read(
                agent["agent_id"], epoch=agent["epoch"], deadline=deadline.within_ms(MEMORY_MS)
            )
        except (*TRANSIENT_ERRORS, NotOpen, ConsistencyError, LeaseLost) as error:
            log.warning("memory_lost", agent_id=agent["agent_id"], error=error.message)
            return latest.contents(), "checkpoint", None
        of_its_own = meta.identity == latest.identity
        if of_its_own and meta.checkpoint_seq == latest.seq and (meta.clean or self._reentrant(latest)):
            return contents, "working", meta.rev
        # An agent without a completed subtask has no digest to compare with; its writes belong to its first subtask.
        if of_its_own and latest.clean and meta.checkpoint_seq is None and self._reentrant(latest):
            return contents, "working", meta.rev
        # Answers of paid calls are kept in any case.
        paid = calls_in(contents, CallOwner(meta.identity, latest.run)) if of_its_own else {}
        return joined(latest.contents(), paid), "checkpoint", None

    def _reentrant(self, latest: Checkpoint) -> bool:
        return self._s.definitions.reentrant(latest.agent_type, latest.current_subtask)

    async def _prove(self, conn: Connection, pause: Pause, agent: Row, deadline: Deadline) -> None:
        """Read the committed row from Postgres, put it on the durable server, and read that back as well."""
        # The transaction that saved it has ended: this reads committed data.
        kept = await self._s.checkpoints.get(agent["checkpoint_id"], deadline=deadline, conn=conn)
        if kept is None or kept.l1_snapshot is None:
            raise ConsistencyError(f"The pause's checkpoint of {agent['agent_type']} is not recorded.")
        contents = contents_of(kept.l1_snapshot)
        if not agent["digest"] == kept.l1_snapshot_hash == digest(contents):
            raise ConsistencyError(f"The pause's checkpoint of {agent['agent_type']} does not match its digest.")
        meta = snapshot_of(kept, taken_at=kept.created_at, protects_until=self._lives_until(pause))
        await self._s.snapshots.put(meta, dict(kept.l1_snapshot), flush=True, deadline=deadline)
        found = await self._s.snapshots.get(agent["agent_id"], deadline=deadline)
        if found is None or found[0].seq != kept.seq or digest(contents_of(found[1])) != agent["digest"]:
            raise ConsistencyError(f"The snapshot of {agent['agent_id']} is not what was put there.")
        if agent["source"] == "working":
            await self._mark(agent, kept, deadline)
        await execute(conn, "pause_agent_verified", {"pause_id": pause.id, "agent_type": agent["agent_type"]})

    async def _mark(self, agent: Row, kept: Checkpoint, deadline: Deadline) -> None:
        """Mark the pause checkpoint in the working memory, so that it is the first tier of a recovery."""
        try:
            await self._s.working.mark(
                agent["agent_id"], agent["epoch"], seq=kept.seq, digest=agent["digest"], rev=agent["rev"],
                deadline=deadline.within_ms(MEMORY_MS),
            )  # fmt: skip
        except (*TRANSIENT_ERRORS, NotOpen, LeaseLost) as error:
            # It is lost since; the other tiers are verified.
            log.warning("memory_not_marked", agent_id=agent["agent_id"], error=error.message)

    async def _keep(self, conn: Connection, pause: Pause, deadline: Deadline) -> None:
        """Extend the memories to the end of the pause; record those whose server is unreachable."""
        mode = ExpiryMode.EXTENDED if pause.extended_until is not None else ExpiryMode.PAUSED
        at = self._lives_until(pause)
        timeout = deadline.within_ms(2 * MEMORY_MS)
        for agent in await rows(conn, "pause_agents", {"pause_id": pause.id, "analysis_id": pause.analysis_id}):
            if agent["memory_kept"]:
                continue
            kept = True
            try:
                await self._s.snapshots.expire(agent["agent_id"], at, deadline=timeout)
                await self._s.working.expire(agent["agent_id"], mode, at, epoch=agent["epoch"], deadline=timeout)
            except (NotOpen, LeaseLost) as error:
                # There is no memory that this pause could keep.
                log.warning("memory_not_there", agent_id=agent["agent_id"], error=error.message)
            except TRANSIENT_ERRORS as error:
                kept = False
                log.warning("memory_not_kept", agent_id=agent["agent_id"], error=error.message)
            values = {"pause_id": pause.id, "agent_type": agent["agent_type"], "kept": kept}
            await execute(conn, "pause_agent_kept", values)

    def _lives_until(self, pause: Pause) -> datetime:
        """Return the expiry of a paused memory: the end of the pause; at least a day from now."""
        return max(pause.stale_at, self._s.clock.now() + ACTIVE_TTL - timedelta(seconds=1))

    async def _hold(self, conn: Connection, pause: Pause, _: Deadline) -> None:
        await self._s.orchestrator.pause_workflow(pause.analysis_id, conn=conn)

    async def _settle(self, conn: Connection, pause: Pause, _: Deadline) -> StepOutcome | None:
        pause = await transitions.settle(conn, pause)
        log.info("paused", analysis_id=pause.analysis_id, pause_id=str(pause.id), trigger=pause.trigger.value)
        return StepOutcome.OVER

    # Resuming

    async def _begin_anew(self, conn: Connection, pause: Pause, deadline: Deadline) -> None:
        """Write a start checkpoint of every agent that restarts clean."""
        for one, agent in await self._restarting(conn, pause):
            if one.begin is Begin.CLEAN:
                await self._s.checkpoints.save(
                    _lease(pause, agent), kind=CheckpointKind.START, deadline=deadline, conn=conn
                )

    async def _recover(self, conn: Connection, pause: Pause, deadline: Deadline) -> None:
        for _, agent in await self._restarting(conn, pause):
            found = await self._s.recovery.recover(_lease(pause, agent), deadline=deadline, conn=conn)
            log.info("recovered_for_resume", agent_id=agent["agent_id"], tier=str(found.tier))

    async def _restarting(self, conn: Connection, pause: Pause) -> list[tuple[Restart, Row]]:
        """Return the agents that restart, with their rows, where they have begun."""
        agents = await rows(conn, "pause_agents", {"pause_id": pause.id, "analysis_id": pause.analysis_id})
        by_type = {agent["agent_type"]: agent for agent in agents}
        return [(one, by_type[one.agent_type]) for one in pause.plan.restart if one.agent_type in by_type]

    async def _hand_over(self, conn: Connection, pause: Pause, deadline: Deadline) -> None:
        for _, agent in await self._restarting(conn, pause):
            await self._s.working.expire(agent["agent_id"], ExpiryMode.RESUMED, epoch=agent["epoch"], deadline=deadline)
        await self._s.orchestrator.resume_workflow(pause.analysis_id, pause.plan, conn=conn)

    async def _finish(self, conn: Connection, pause: Pause, _: Deadline) -> StepOutcome | None:
        pause = await transitions.finish(conn, pause)
        log.info("resumed", analysis_id=pause.analysis_id, pause_id=str(pause.id), automatic=pause.automatic)
        return StepOutcome.OVER

    # Errors

    async def _handle_step_error(self, pause: Pause, error: ImemError) -> StepOutcome:
        """Record the error of a step, and decide its effect."""
        log.warning(
            "step_failed",
            analysis_id=pause.analysis_id,
            status=pause.status.value,
            step=pause.step,
            error=error.message,
        )
        deadline = Deadline.after_ms(STEP_BUDGET_MS)
        async with self._s.database.transaction(deadline) as conn:
            analysis = await try_lock_analysis(conn, pause.analysis_id)
            now = await open_pause(conn, pause.analysis_id) if analysis is not None else None
            if (
                analysis is None
                or now is None
                or (now.id, now.status, now.step) != (pause.id, pause.status, pause.step)
            ):
                return StepOutcome.OVER
            if now.status is PauseStatus.RESUMING and isinstance(error, NotResumable | ConsistencyError):
                # An unrecoverable agent has its own alert, which comes last.
                nothing = error if isinstance(error, Unrecoverable) else None
                await transitions.fail(conn, analysis, reason=error.message, announce=nothing is None)
                if nothing is not None:
                    await self._s.recovery.raise_alert(nothing, deadline=deadline, conn=conn)
                return StepOutcome.OVER
            if now.status is PauseStatus.RESUMING and (
                not isinstance(error, TRANSIENT_ERRORS) or now.troubles + 1 >= RECOVERIES
            ):
                await _failed_by_itself(conn, now, error)
                await transitions.revert_resume(conn, now, trouble=error.message)
                return StepOutcome.ON
            await execute(conn, "pause_trouble", {"id": now.id, "was": now.status.value, "trouble": error.message})
            if now.troubles + 1 == STUCK_AFTER:
                await alert(
                    conn, id_of("stuck", now.id), "PAUSE_STUCK", "CRITICAL", of=now,
                    status=now.status.value, step=now.step, message=error.message,
                )  # fmt: skip
        return StepOutcome.WAITS


async def _failed_by_itself(conn: Connection, pause: Pause, error: ImemError) -> None:
    """Record the error of a resume as a failure of the pause: no agent caused it, but it has to be resolved first."""
    row = await record_failure(conn, pause, MANAGER, failure_of(error), failure_id=new_id(), effect=FailureClass.RETRY)
    await execute(conn, "failure_settled", {"id": row["id"], "pause_id": pause.id})


def _lease(pause: Pause, agent: Row) -> AgentLease:
    """Return a lease without a holder on an agent of a paused analysis, with the raised epoch."""
    return AgentLease(
        analysis_id=pause.analysis_id,
        agent_type=agent["agent_type"],
        agent_id=agent["agent_id"],
        subject_id=pause.stock_id,
        holder=None,
        epoch=agent["epoch"],
        expires_at=datetime.max.replace(tzinfo=UTC),
    )
