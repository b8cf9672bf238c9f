"""
Pause manager: a reconciliation loop over the rows of paused analyses.

Beat starts a round every few seconds. Any number of managers may run: each row is locked by one, and a round that is
killed leaves the rest to the next. Time comes from the database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final
from uuid import UUID

import structlog

from imem.checkpoints.cleanup import Cleanup
from imem.checkpoints.incidents.correlation import LEAST, WINDOW
from imem.checkpoints.incidents.failures import AgentFailure, FailureKind
from imem.checkpoints.incidents.reports import Incidents
from imem.checkpoints.incidents.reruns import LOOK_AGAIN, Reruns
from imem.checkpoints.pauses import transitions
from imem.checkpoints.pauses.batch_runs import BatchRuns
from imem.checkpoints.pauses.gate_memory import GateMemories
from imem.checkpoints.pauses.lifecycle import PauseStatus
from imem.checkpoints.pauses.pause_service import fenced
from imem.checkpoints.pauses.rows import Pause, alert, archive_pause, open_pause, pause_of, try_lock_analysis
from imem.checkpoints.pauses.saga import Saga
from imem.checkpoints.pauses.timers import Timer
from imem.journal.deadline import Deadline
from imem.journal.errors import BudgetExceeded, ImemError, StoreUnavailable
from imem.journal.events.ids import id_of
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import execute, rows

log = structlog.get_logger()

ROWS: Final = 200
"""Rows of each kind in one round."""

SAGAS_MS: Final = 30_000
"""
How long a round begins further steps of sagas, in milliseconds.

Less than a round has: an unreachable server delays each step by seconds, and later work of the round must run too.
"""

GRACE: Final = timedelta(seconds=35)
"""Age after which a started agent without a lease holder counts as crashed: a lease's lifetime, and a little."""

SEVERITY: Final = {Timer.REMINDER: "MEDIUM", Timer.WARNING: "HIGH"}
KINDS: Final = {Timer.REMINDER: "PAUSE_REMINDER", Timer.WARNING: "PAUSE_WARNING"}


@dataclass(slots=True)
class RoundReport:
    """
    Counts of what a round did.

    Attributes:
        done: name of the work → how many rows.
        troubles: name of the work → why it failed this time.
    """

    done: dict[str, int] = field(default_factory=dict)
    troubles: dict[str, str] = field(default_factory=dict)


class PauseManager:
    """
    One manager.

    Args:
        database: the rows.
        saga: carries out pauses and resumes.
        incidents: gives failures their effect.
        batches: launches members.
        gates: sets the expiry of memories by the gates.
        cleanup: ends analyses whose agents have all completed; without it, the manager does not end them.
    """

    def __init__(
        self,
        database: Database,
        saga: Saga,
        incidents: Incidents,
        batches: BatchRuns,
        *,
        gates: GateMemories,
        cleanup: Cleanup | None = None,
    ) -> None:
        self._database = database
        self._saga = saga
        self._incidents = incidents
        self._batches = batches
        self._gates = gates
        self._cleanup = cleanup
        self._reruns = Reruns(database, incidents)
        # Position of the search for completed analyses. Of this process alone: another begins at the first.
        self._looked_at: str | None = None

    async def round(self, *, deadline: Deadline) -> RoundReport:
        """
        Do everything that is due once. A failure is logged and left to the next round; the rest is still done.

        Raises:
            PostgresUnavailable: nothing can be done without it.
        """
        report = RoundReport()
        work: tuple[tuple[str, Callable[[Deadline], Awaitable[int]]], ...] = (
            ("crashed", self._crashed),
            ("failures", self._failures),
            ("correlations", self._correlations),
            ("timers", self._timers),
            ("resolved", self._resolved),
            ("batches", self._launches),
            ("sagas", self._sagas),
            ("started", lambda due: self._saga.start_ready(deadline=due)),
            ("completed", self._completed),
            # Last: an unreachable working server uses up the rest of the round.
            ("kept", self._kept),
            # Memories that wait at a gate live as long as a pause's; as before, once it is answered.
            ("waiting", lambda due: self._gates.run_due(limit=ROWS, deadline=due)),
        )
        for name, step in work:
            if deadline.passed:
                break
            try:
                done = await step(deadline)
            except ImemError as error:
                report.troubles[name] = error.message
                log.warning("round_step_failed", work=name, error=error.message)
                continue
            if done:
                report.done[name] = done
        return report

    # Sagas

    async def _sagas(self, deadline: Deadline) -> int:
        """Run due steps, the longest waiting first, until their time is over; the next round continues."""
        found = await self._database.named("sagas_due", {"limit": ROWS}, deadline=deadline)
        names = [row["analysis_id"] for row in found]
        until = deadline.within_ms(SAGAS_MS)
        results = await asyncio.gather(
            *(self._saga.advance(name, until=until) for name in names), return_exceptions=True
        )
        # An unexpected error of one step must not stop the round, every few seconds anew.
        for name, result in zip(names, results, strict=True):
            if isinstance(result, Exception):
                log.error("saga_broken", analysis_id=name, exc_info=result)
        return len(found)

    async def _kept(self, deadline: Deadline) -> int:
        """Extend memories of pauses whose server was unreachable when they were paused or extended."""
        found = await self._database.named("pauses_not_kept", {"limit": ROWS}, deadline=deadline)
        return await _each(found, lambda row: self._saga.keep(row["analysis_id"], deadline=deadline))

    # Failures

    async def _crashed(self, deadline: Deadline) -> int:
        """Report agents whose process has crashed: their row says that they run, and nothing holds their lease."""
        found = await self._database.named("tasks_dead", {"grace": GRACE, "limit": ROWS}, deadline=deadline)
        failure = AgentFailure(kind=FailureKind.CRASH, message="Its process ended without a word.", attempt=1)
        return await _each(
            found,
            lambda row: self._incidents.report(
                row["analysis_id"],
                row["agent_type"],
                failure,
                # Deterministic: a crash is reported once, by any number of managers.
                failure_id=id_of("crash", row["analysis_id"], row["agent_type"], row["dispatch"]),
                deadline=deadline,
            ),
        )

    async def _failures(self, deadline: Deadline) -> int:
        found = await self._database.named("failures_open", {"limit": ROWS}, deadline=deadline)
        return await _each(found, lambda row: self._incidents.settle(row["id"], row["analysis_id"], deadline=deadline))

    async def _correlations(self, deadline: Deadline) -> int:
        values = {"since": 2 * WINDOW, "least": LEAST, "limit": ROWS}
        found = await self._database.named("signatures_to_compare", values, deadline=deadline)
        return await _each(found, lambda row: self._incidents.compare(row["signature"], deadline=deadline))

    async def _resolved(self, deadline: Deadline) -> int:
        return int(await self._batches.resume_resolved(deadline=deadline) is not None)

    # Timers

    async def _timers(self, deadline: Deadline) -> int:
        found = await self._database.named("timers_due", {"limit": ROWS}, deadline=deadline)
        return await _each(
            found, lambda row: self._timer(row["pause_id"], row["analysis_id"], Timer(row["kind"]), deadline)
        )

    async def _timer(self, pause_id: UUID, analysis_id: str, kind: Timer, deadline: Deadline) -> None:
        agents: dict[str, int] = {}
        async with self._database.transaction(deadline) as conn:
            analysis = await try_lock_analysis(conn, analysis_id)
            pause = await open_pause(conn, analysis_id) if analysis is not None else None
            if analysis is None or pause is None or pause.id != pause_id:
                return
            values = {"pause_id": pause_id, "kind": kind.value}
            if not await rows(conn, "timer_claim", values):
                return
            now = (await rows(conn, "pause_now"))[0]["now"]
            if kind in SEVERITY and pause.status in {PauseStatus.PAUSED, PauseStatus.STALE}:
                await execute(conn, "timer_fired", values)
                await execute(conn, "pause_noticed", {"id": pause_id, "kind": kind.value})
                await alert(
                    conn, id_of(kind.value, pause_id), KINDS[kind], SEVERITY[kind], of=pause,
                    reason=pause.reason, day=(now - pause.paused_at).days, stale_at=pause.stale_at.isoformat(),
                )  # fmt: skip
            elif kind is Timer.STALE and pause.status is PauseStatus.PAUSED:
                await transitions.go_stale(conn, pause, now)
            elif kind is Timer.EXPIRE and pause.status is PauseStatus.STALE:
                agents = await fenced(conn, pause)
                reason = f"Paused since {pause.paused_at:%Y-%m-%d} and not resumed: {pause.reason}"[:2000]
                await transitions.expire(conn, pause, now=now, reason=reason)
        if agents:
            await self._saga.forget(agents, deadline=deadline)

    # Batches and agents

    async def _launches(self, deadline: Deadline) -> int:
        found = await self._database.named("batches_under_way", {"limit": ROWS}, deadline=deadline)
        return await _each(found, lambda row: self._batches.launch(row["id"], deadline=deadline))

    async def _completed(self, deadline: Deadline) -> int:
        """
        End analyses whose agents have all completed; where results are missing, restart agents.

        One page a round, in turn: analyses that cannot be ended must not block others.
        """
        cleanup = self._cleanup
        if cleanup is None:
            return 0
        values = {"after": self._looked_at, "limit": ROWS, "again_after": LOOK_AGAIN}
        found = await self._database.named("tasks_all_completed", values, deadline=deadline)
        done = await _each(found, lambda row: self._end(cleanup, row["analysis_id"], deadline))
        if len(found) < ROWS:
            self._looked_at = None
        return done

    async def _end(self, cleanup: Cleanup, analysis_id: str, deadline: Deadline) -> None:
        # First, so that an analysis that breaks the round off is not the first of the next as well.
        self._looked_at = analysis_id
        cleaned = await cleanup.cleanup_success(analysis_id, deadline=deadline)
        await self._reruns.after(analysis_id, cleaned.missing, deadline=deadline)

    # Retention

    async def retire(self, *, deadline: Deadline) -> dict[str, int]:
        """
        Archive or remove old rows: resumed pauses after 30 days, plans, batches after 90, correlations, failures.

        Closed alerts, their messages, and the tasks of ended analyses are removed after 90 days. It runs page by page
        until *deadline*. Idempotent; a crash leaves the rest to the next day.
        """
        done = {"pauses": await self._resumed(deadline)}
        done["correlations"] = await self._database.execute("retire_correlations", deadline=deadline)
        for name in ("retire_plans", "retire_batches", "retire_failures", "retire_alerts", "retire_messages",
                     "retire_overs", "retire_tasks"):  # fmt: skip
            done[name.removeprefix("retire_")] = await self._forgotten(name, deadline)
        return done

    async def _forgotten(self, name: str, deadline: Deadline) -> int:
        count = 0
        while not deadline.passed:
            gone = await self._database.execute(name, {"limit": ROWS}, deadline=deadline)
            count += gone
            if gone < ROWS:
                break
        return count

    async def _resumed(self, deadline: Deadline) -> int:
        count = 0
        while not deadline.passed:
            found = await self._database.named("retire_resumed", {"limit": ROWS}, deadline=deadline)
            gone = sum([await self._retired(row["id"], row["analysis_id"], deadline) for row in found])
            count += gone
            # Locked pauses are retired the next day.
            if gone < ROWS:
                break
        return count

    async def _retired(self, pause_id: UUID, analysis_id: str, deadline: Deadline) -> int:
        async with self._database.transaction(deadline) as conn:
            if await try_lock_analysis(conn, analysis_id) is None:
                return 0
            pause = await _pause(conn, pause_id)
            if pause is None or pause.status is not PauseStatus.RESUMED:
                return 0
            await archive_pause(conn, pause, "RESUMED")
        return 1


async def _pause(conn: Connection, pause_id: UUID) -> Pause | None:
    found = await rows(conn, "pause_locked", {"id": pause_id})
    return pause_of(found[0]) if found else None


async def _each(found: Sequence[Row], work: Callable[[Row], Awaitable[object]]) -> int:
    """
    Do *work* for each row and return how many rows there were; a refusal is logged, and the others are done.

    Raises:
        StoreUnavailable, BudgetExceeded: the other rows would fail alike; the next round continues.
    """
    for row in found:
        try:
            await work(row)
        except (StoreUnavailable, BudgetExceeded):
            raise
        except ImemError as error:
            log.warning("row_failed", row={name: str(value) for name, value in row.items()}, error=str(error))
    return len(found)
