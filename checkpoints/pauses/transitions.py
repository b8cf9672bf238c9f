"""
Transitions of a pause, each within a transaction of its caller that holds the lock of the analysis.

Each checks its guard (:mod:`imem.checkpoints.pauses.lifecycle`), writes its changes, the audit row, and, last, the
alert: all are committed together or not at all, so that pauses and alerts always match.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from imem.alerts.store import AlertContext, close_alerts
from imem.checkpoints.pauses import timers
from imem.checkpoints.pauses.lifecycle import (
    PAUSE_STATES,
    FailureClass,
    Gate,
    GuardContext,
    Initiator,
    PauseStatus,
    Trigger,
)
from imem.checkpoints.pauses.plan import AgentState, Graph, Plan, Progress, checked, plan
from imem.checkpoints.pauses.rows import (
    DRAIN,
    LockedAnalysis,
    Pause,
    alert,
    archive_pause,
    audit,
    missing_results_id,
    move_pause,
    newest_checkpoint,
    open_pause,
    pause_of,
    role_of,
    who,
)
from imem.journal.actors import Actor
from imem.journal.errors import BadInput, TransitionRefused
from imem.journal.events.ids import id_of, new_id
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.rows import execute, json, rows

SEVERITY: Final[Mapping[Trigger, str]] = {
    Trigger.AUTO_TIER2: "HIGH",
    Trigger.AUTO_BATCH_CORRELATION: "HIGH",
    Trigger.GATE_TIMEOUT: "HIGH",
    Trigger.GATE_REJECTION: "NORMAL",
    Trigger.MANUAL: "NORMAL",
}
"""Severity of the alert about a pause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseCause:
    """
    Cause of a pause.

    Attributes:
        trigger, reason: as in the row.
        by: the requesting human; None for the manager.
        pause_id: the id of the pause; makes the request idempotent.
        checkpoint_id: the checkpoint to show, where the caller knows it.
        failure: the row of the failure behind it.
        failure_class: of a failure that has no row.
        gate: state of the gate behind it.
        batch_id: the batch that it belongs to.
    """

    trigger: Trigger
    reason: str
    by: Actor | None = None
    pause_id: UUID | None = None
    checkpoint_id: UUID | None = None
    failure: Mapping[str, Any] | None = None
    failure_class: FailureClass | None = None
    gate: Gate | None = None
    batch_id: UUID | None = None


async def begin(conn: Connection, analysis: LockedAnalysis, cause: PauseCause) -> tuple[Pause, bool]:
    """
    Pause an analysis; return the pause and whether it is new: the cause is added to one that is being paused.

    Raises:
        TransitionRefused: it has ended, is paused already, or a gate waits for a human.
        BadInput: the checkpoint is of another analysis, or the id is another pause's.
    """
    refuse_ended(analysis)
    before = await open_pause(conn, analysis.analysis_id)
    if before is not None:
        await _append(conn, before, cause)
        return before, False
    known = await _known(conn, analysis, cause)
    if known is not None:
        return known, False
    failure = cause.failure
    facts = GuardContext(
        by=role_of(cause.by),
        trigger=cause.trigger,
        failure=FailureClass(failure["class"]) if failure is not None else cause.failure_class,
        gate=cause.gate,
        gate_waiting=bool(await rows(conn, "gate_waiting", {"analysis_id": analysis.analysis_id})),
    )
    PAUSE_STATES.check(None, PauseStatus.PAUSING, facts)
    shown = await _shown_checkpoint(conn, analysis, cause)
    values = {
        "id": cause.pause_id or new_id(),
        "stock_id": analysis.stock_id,
        "analysis_id": analysis.analysis_id,
        "reason": cause.reason,
        "trigger": cause.trigger.value,
        "checkpoint_id": shown["id"] if shown is not None else None,
        "failed_agent": failure["agent_type"] if failure is not None else None,
        "created_by": who(cause.by),
        "batch_id": cause.batch_id,
        "drain": DRAIN,
    }
    pause = pause_of((await rows(conn, "pause_insert", values))[0])
    # The expiry of its memories is the pause's from now on.
    await execute(conn, "gate_memories_left", {"analysis_id": analysis.analysis_id})
    if failure is not None:
        await execute(conn, "failure_settled", {"id": failure["id"], "pause_id": pause.id})
    await audit(
        conn, cause.by, "pause", analysis.analysis_id, cause.reason, pause_id=str(pause.id), trigger=cause.trigger.value
    )
    await _announce(conn, pause, shown, failure)
    return pause, True


async def _known(conn: Connection, analysis: LockedAnalysis, cause: PauseCause) -> Pause | None:
    """Return the earlier pause of a repeated request, which may have ended."""
    found = await rows(conn, "pause_by_id", {"id": cause.pause_id}) if cause.pause_id is not None else []
    if not found:
        return None
    pause = pause_of(found[0])
    if pause.analysis_id != analysis.analysis_id:
        raise BadInput("pause_id", f"is that of a pause of {pause.analysis_id!r}.")
    return pause


async def _append(conn: Connection, pause: Pause, cause: PauseCause) -> None:
    """Add a failure to an open pause; refuse a request, except a repeated one."""
    if cause.failure is not None:
        if pause.status is PauseStatus.PAUSING:
            PAUSE_STATES.check(pause.status, PauseStatus.PAUSING, GuardContext(by=Initiator.SYSTEM, failed=True))
        await execute(conn, "failure_settled", {"id": cause.failure["id"], "pause_id": pause.id})
        # Announced while a gate waited: its alert would otherwise never be closed.
        await execute(conn, "set_alert_about", {"alert_id": id_of("failure", cause.failure["id"]), "about": pause.id})
        return
    if pause.status is not PauseStatus.PAUSING and pause.id != cause.pause_id:
        PAUSE_STATES.check(pause.status, PauseStatus.PAUSING, GuardContext(by=role_of(cause.by)))


async def _shown_checkpoint(conn: Connection, analysis: LockedAnalysis, cause: PauseCause) -> Row | None:
    """Return the checkpoint to show: a given one, the failed agent's newest, or the newest."""
    if cause.checkpoint_id is not None:
        found = await rows(
            conn, "pause_checkpoint_of", {"id": cause.checkpoint_id, "analysis_id": analysis.analysis_id}
        )
        if not found:
            raise BadInput("checkpoint_id", f"{cause.checkpoint_id} is no checkpoint of {analysis.analysis_id!r}.")
        return found[0]
    agent_type = cause.failure["agent_type"] if cause.failure is not None else None
    return await newest_checkpoint(conn, analysis.analysis_id, agent_type)


async def _announce(conn: Connection, pause: Pause, shown: Row | None, failure: Mapping[str, Any] | None) -> None:
    """Raise the one alert of a pause; a failure that waited for a gate was announced under the same id."""
    failed = failure is not None or pause.trigger is Trigger.AUTO_TIER2
    alert_id = id_of("failure", failure["id"]) if failure is not None else id_of("pause", pause.id)
    await alert(
        conn, alert_id, "AGENT_FAILURE" if failed else "ANALYSIS_PAUSED", SEVERITY[pause.trigger], of=pause,
        trigger=pause.trigger.value,
        **{**checkpoint_details(shown), **failure_details(failure), "reason": pause.reason, "day": 0},
    )  # fmt: skip


def checkpoint_details(shown: Row | None) -> dict[str, Any]:
    """Return an alert's details about an agent's progress."""
    if shown is None:
        return AlertContext().to_payload()
    return AlertContext(
        checkpoint_id=shown["id"],
        progress_pct=float(shown["progress_pct"]),
        completed=shown["completed_subtasks"],
        pending=shown["pending_subtasks"],
        phase=shown["current_subtask"],
        agent=shown["agent_type"],
    ).to_payload()


def failure_details(failure: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return an alert's details about a failure."""
    if failure is None:
        return {}
    return {
        "failed_agent": failure["agent_type"],
        "failure": failure["kind"],
        "message": failure["message"],
        "signature": failure["signature"],
    }


def refuse_ended(analysis: LockedAnalysis) -> None:
    """
    Refuse to pause or resume an analysis that has ended.

    Raises:
        TransitionRefused: the analysis has ended.
    """
    if analysis.outcome is not None:
        raise TransitionRefused(f"The analysis {analysis.analysis_id!r} has ended: it {analysis.outcome}.")


async def settle(conn: Connection, pause: Pause) -> Pause:
    """
    Set a pause from PAUSING to PAUSED, and its timers.

    Raises:
        TransitionRefused: an agent runs, or a snapshot is not verified.
    """
    running = await rows(conn, "pause_running", {"analysis_id": pause.analysis_id})
    unproven = await rows(conn, "pause_unproven", {"id": pause.id})
    PAUSE_STATES.check(
        pause.status, PauseStatus.PAUSED, GuardContext(by=Initiator.SYSTEM, stopped=not running, verified=not unproven)
    )
    await execute(conn, "pause_refers_to", {"id": pause.id})
    pause = await move_pause(conn, pause, PauseStatus.PAUSED, 6)
    await set_timers(conn, pause, "timers_set")
    await _batches(conn, pause, "pause", "DONE")
    return pause


async def set_timers(conn: Connection, pause: Pause, statement: str) -> None:
    """Set, or postpone, the timers of a pause by the named statement."""
    due = timers.due(pause.paused_at, pause.extended_until)
    values = {"pause_id": pause.id, "kinds": [timer.value for timer in due], "due": list(due.values())}
    await execute(conn, statement, values)


async def _batches(conn: Connection, pause: Pause, operation: str, state: str, trouble: str | None = None) -> None:
    values = {"pause_id": pause.id, "operation": operation, "state": state, "trouble": trouble}
    await execute(conn, "batch_pause_ended", values)


# Resuming


async def order_resume(
    conn: Connection,
    analysis: LockedAnalysis,
    pause: Pause,
    *,
    graph: Graph,
    given: Plan | None = None,
    by: Actor | None,
    automatic: bool = False,
    notify: bool = True,
) -> Pause:
    """
    Request a resume, with its plan: PAUSED or STALE → RESUMING. One of several concurrent requests succeeds.

    Raises:
        TransitionRefused: it is not paused, or the initiator may not resume it.
        BadInput: the plan is invalid; names the field. Nothing was changed.
    """
    refuse_ended(analysis)
    over = automatic and bool((await rows(conn, "cause_over", {"pause_id": pause.id}))[0]["over"])
    role = Initiator.AUTOMATIC if automatic else role_of(by)
    PAUSE_STATES.check(
        pause.status,
        PauseStatus.RESUMING,
        GuardContext(by=role, cause_resolved=over, attempts=pause.auto_resume_attempts),
    )
    states = await agent_states(conn, pause)
    wanted = plan(states, graph) if given is None else checked(given, states, graph)
    document = wanted.to_dict()
    values = {
        "id": pause.id,
        "was": pause.status.value,
        "by": who(by),
        "automatic": automatic,
        "notify": notify,
        "plan": json(document),
    }
    pause = pause_of((await rows(conn, "pause_resume", values))[0])
    await execute(
        conn,
        "plan_insert",
        {
            "id": new_id(),
            "pause_id": pause.id,
            "restart": json(document["restart"]),
            "skip": list(wanted.skip),
            "wait": list(wanted.wait),
        },
    )
    await audit(conn, by, "resume", pause.analysis_id, "A cause outside is over." if automatic else "Ordered.",
                pause_id=str(pause.id), plan=document)  # fmt: skip
    return pause


async def agent_states(conn: Connection, pause: Pause) -> list[AgentState]:
    """Return the progress of each agent of a paused analysis, from its task, or without one from its checkpoints."""
    begun = {row["agent_type"]: row for row in await rows(conn, "pause_begun", {"analysis_id": pause.analysis_id})}
    tasks = {row["agent_type"]: row for row in await rows(conn, "tasks_of", {"analysis_id": pause.analysis_id})}
    failed = {row["agent_type"] for row in await rows(conn, "failed_agents", {"pause_id": pause.id})}
    failed |= {pause.failed_agent} if pause.failed_agent is not None else set()
    states = []
    for name in sorted(begun.keys() | tasks.keys()):
        if name in tasks:
            progress = _progress(tasks[name])
        else:
            progress = Progress.COMPLETED if begun[name]["completed"] else Progress.IN_PROGRESS
        states.append(AgentState(name, progress, checkpointed=name in begun, failed=name in failed))
    return states


def _progress(task: Row) -> Progress:
    if task["state"] == "COMPLETED":
        return Progress.COMPLETED
    # A task that was to continue from its checkpoint, and did not start before the next pause, had begun.
    waits = task["state"] in {"WAITING", "SENT"} and task["begin_as"] == "clean"
    return Progress.NOT_BEGUN if waits else Progress.IN_PROGRESS


async def finish(conn: Connection, pause: Pause) -> Pause:
    """
    Set a pause from RESUMING to RESUMED: its recovery is verified, and the orchestrator has its tasks.

    Raises:
        TransitionRefused: it is not being resumed.
    """
    PAUSE_STATES.check(
        pause.status, PauseStatus.RESUMED, GuardContext(by=Initiator.SYSTEM, recovered=True, scheduled=True)
    )
    pause = await move_pause(conn, pause, PauseStatus.RESUMED, 6)
    await execute(conn, "plan_end", {"pause_id": pause.id, "status": "COMPLETED", "trouble": None})
    await execute(conn, "timers_forget", {"pause_id": pause.id})
    await _batches(conn, pause, "resume", "DONE")
    await close_alerts(conn, pause.id)
    if pause.notify or pause.automatic:
        await alert(
            conn, id_of("resumed", pause.id), "ANALYSIS_RESUMED", "NORMAL", of=pause,
            automatic=pause.automatic, plan=pause.plan.to_dict(),
        )  # fmt: skip
    return pause


async def revert_resume(conn: Connection, pause: Pause, *, trouble: str) -> Pause:
    """
    Revert a resume after a failure: RESUMING → PAUSING. Nothing was started.

    Raises:
        TransitionRefused: it is not being resumed.
    """
    PAUSE_STATES.check(pause.status, PauseStatus.PAUSING, GuardContext(by=Initiator.SYSTEM, failed=True))
    found = await rows(conn, "plan_newest", {"pause_id": pause.id})
    automatic = pause.automatic
    values = {"id": pause.id, "trouble": trouble[:500], "drain": DRAIN}
    pause = pause_of((await rows(conn, "pause_again", values))[0])
    await execute(conn, "plan_end", {"pause_id": pause.id, "status": "FAILED", "trouble": trouble[:500]})
    await _batches(conn, pause, "resume", "FAILED", trouble)
    plan_id = found[0]["id"] if found else pause.id
    await alert(
        conn, id_of("resume failed", plan_id), "RESUME_FAILED", "CRITICAL" if automatic else "HIGH", of=pause,
        automatic=automatic, attempts=pause.auto_resume_attempts, message=trouble,
    )  # fmt: skip
    return pause


# Staleness, expiry, failure


async def go_stale(conn: Connection, pause: Pause, now: datetime) -> Pause:
    """
    Set a pause from PAUSED to STALE: its working memory has expired; only a human resumes it, from Postgres.

    Raises:
        TransitionRefused: it is not due.
    """
    PAUSE_STATES.check(
        pause.status, PauseStatus.STALE, GuardContext(by=Initiator.SYSTEM, now=now, stale_at=pause.stale_at)
    )
    pause = await move_pause(conn, pause, PauseStatus.STALE, 6)
    await execute(conn, "timer_fired", {"pause_id": pause.id, "kind": "stale"})
    await alert(
        conn, id_of("stale", pause.id), "PAUSE_STALE", "HIGH", of=pause, reason=pause.reason,
        day=(now - pause.paused_at).days, expires_at=pause.expires_at.isoformat(),
    )  # fmt: skip
    return pause


async def expire(conn: Connection, pause: Pause, *, now: datetime, by: Actor | None = None, reason: str) -> None:
    """
    End the pause and its analysis: STALE → EXPIRED by time, PAUSED → EXPIRED by a human.

    The row is moved to the history; the checkpoints are kept for as long as those of a failed analysis.

    Raises:
        TransitionRefused: it is not due, or the initiator may not end it.
    """
    PAUSE_STATES.check(
        pause.status, PauseStatus.EXPIRED, GuardContext(by=role_of(by), now=now, expires_at=pause.expires_at)
    )
    pause = await move_pause(conn, pause, PauseStatus.EXPIRED, 6)
    await rows(conn, "analysis_end", {"analysis_id": pause.analysis_id, "reason": reason})
    await execute(conn, "tasks_end", {"analysis_id": pause.analysis_id})
    await archive_pause(conn, pause, "EXPIRED")
    await close_alerts(conn, pause.id)
    await close_alerts(conn, missing_results_id(pause.analysis_id))
    await audit(conn, by, "cancel" if by is not None else "expire", pause.analysis_id, reason, pause_id=str(pause.id))
    await alert(
        conn, id_of("expired", pause.id), "PAUSE_EXPIRED", "NORMAL" if by is not None else "HIGH", of=pause,
        reason=reason, day=(now - pause.paused_at).days,
    )  # fmt: skip


async def fail(
    conn: Connection,
    analysis: LockedAnalysis,
    *,
    reason: str,
    by: Actor | None = None,
    failure: Mapping[str, Any] | None = None,
    announce: bool = True,
) -> Pause | None:
    """
    End an analysis as failed: a failure of class 3, or a hard rejection at a gate. Return the pause that it ends.

    An analysis that has ended already is not changed.

    Args:
        announce: whether to raise an alert; False where one was raised already.
    """
    pause = await open_pause(conn, analysis.analysis_id)
    if failure is not None:
        values = {"id": failure["id"], "pause_id": pause.id if pause is not None else None}
        await execute(conn, "failure_settled", values)
    if analysis.outcome is not None:
        return None
    await rows(conn, "analysis_end", {"analysis_id": analysis.analysis_id, "reason": reason})
    await execute(conn, "tasks_end", {"analysis_id": analysis.analysis_id})
    if pause is not None:
        await execute(conn, "plan_end", {"pause_id": pause.id, "status": "FAILED", "trouble": reason[:500]})
        for operation in ("pause", "resume"):
            await _batches(conn, pause, operation, "FAILED", reason)
        await archive_pause(conn, pause, "FAILED")
        await close_alerts(conn, pause.id)
    await close_alerts(conn, missing_results_id(analysis.analysis_id))
    await audit(conn, by, "fail", analysis.analysis_id, reason)
    if announce:
        await alert(
            conn, id_of("failed", analysis.analysis_id), "ANALYSIS_FAILED", "CRITICAL", of=pause or analysis,
            reason=reason, **failure_details(failure),
        )  # fmt: skip
    return pause


async def needs_person(conn: Connection, pause: Pause) -> None:
    """Raise an alert, once, that a resolved pause is not resumed automatically any more."""
    await alert(
        conn, id_of("needs person", pause.id), "RESUME_NEEDS_PERSON", "CRITICAL", of=pause,
        attempts=pause.auto_resume_attempts, reason=pause.reason,
    )  # fmt: skip
