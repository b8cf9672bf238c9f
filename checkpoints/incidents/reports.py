"""
Failure reports: recorded, given their effect, and correlated.

A report is one transaction: the failure, its effect on the analysis (none for a retry, a pause, the end), and the
alert. While a gate waits for a human, a pause is only announced: the failure stays recorded, and the manager gives it
its effect once the gate is answered. Correlation is a transaction of its own, under a lock of the signature. After a
crash between the two, the manager repeats it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from imem.alerts.store import close_alerts
from imem.checkpoints.incidents.correlation import LEAST, WINDOW, Occurrence, correlated
from imem.checkpoints.incidents.failures import ATTEMPTS, AgentFailure, FailureKind, class_of
from imem.checkpoints.pauses import transitions
from imem.checkpoints.pauses.batches import CONCURRENCY, BatchMemberState
from imem.checkpoints.pauses.lifecycle import FailureClass, Trigger
from imem.checkpoints.pauses.rows import (
    LockedAnalysis,
    alert,
    audit,
    checked_id,
    insert_batch,
    lock_analysis,
    newest_checkpoint,
    record_failure,
    who,
)
from imem.checkpoints.pauses.transitions import PauseCause, checkpoint_details, failure_details
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput
from imem.journal.events.ids import id_of, new_id
from imem.journal.postgres.connection import Connection, Row
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import execute, rows
from imem.journal.texts.json_text import object_text

JOINS_FOR: Final = timedelta(days=14)
"""How long a later failure joins an unresolved correlation."""


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """A failed attempt: its kind, and the called endpoint, if any."""

    kind: FailureKind
    endpoint: str | None


class Incidents:
    """Records failures and gives them their effect."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def report(
        self,
        analysis_id: str,
        agent_type: str,
        failure: AgentFailure,
        *,
        failure_id: UUID | None = None,
        details: Mapping[str, Any] | None = None,
        announce: bool = True,
        deadline: Deadline,
    ) -> None:
        """
        Record a failure of an agent and give it its effect.

        The agent reports, releases its lease and ends; this call does not wait for that.

        Args:
            failure_id: chosen by the caller; makes the report idempotent.
            details: for diagnosis, as JSON.
            announce: whether to raise an alert when it ends the analysis; False where one was raised already.

        Raises:
            BadInput: there is no such analysis, or the details are no JSON.
        """
        async with self._database.transaction(deadline) as conn:
            analysis = await lock_analysis(conn, checked_id("analysis_id", analysis_id))
            row = await record_failure(
                conn, analysis, checked_id("agent_type", agent_type), failure, failure_id=failure_id or new_id(),
                effect=class_of(failure), details=object_text(details or {}, "details"),
            )  # fmt: skip
            await _effect(conn, analysis, row, announce=announce)
        if class_of(failure) is not FailureClass.FAIL:
            await self.compare(row["signature"], deadline=deadline)

    async def earlier(self, analysis_id: str, agent_type: str, *, deadline: Deadline) -> list[FailedAttempt]:
        """
        Return the failed attempts of the current subtask that were to be retried, newest first.

        The count begins anew with each checkpoint: after a completed subtask, and after a pause.
        """
        values = {"analysis_id": analysis_id, "agent_type": agent_type, "limit": ATTEMPTS}
        found = await self._database.named("failures_retried", values, deadline=deadline)
        return [FailedAttempt(FailureKind(row["kind"]), row["endpoint"]) for row in found]

    async def settle(self, failure_id: UUID, analysis_id: str, *, deadline: Deadline) -> bool:
        """Give a failure its delayed effect; return whether it has it now."""
        async with self._database.transaction(deadline) as conn:
            analysis = await lock_analysis(conn, analysis_id)
            found = await rows(conn, "failure_unsettled", {"id": failure_id})
            if not found:
                return False
            await _effect(conn, analysis, found[0])
        return True

    async def compare(self, signature: str, *, deadline: Deadline) -> UUID | None:
        """
        Correlate the failures of a signature; return their batch, or None.

        Three analyses within five minutes make a batch; later ones join until the cause is resolved. Open pauses are
        adopted; the batch pauses the other analyses.
        """
        async with self._database.transaction(deadline) as conn:
            await rows(conn, "failure_lock", {"signature": signature})
            known = await rows(conn, "correlation_open", {"signature": signature})
            # Twice the window for a new correlation: the comparison may run some time after the failure.
            since = JOINS_FOR if known else 2 * WINDOW
            found = await rows(conn, "failures_of_signature", {"signature": signature, "since": since})
            if known:
                # Not failures from long before, whose analyses were resumed since.
                begun = known[0]["detected_at"] - WINDOW
                return await _join(conn, known[0], [row for row in found if row["failed_at"] >= begun])
            found = [row for row in found if row["correlation_id"] is None]
            together = _together(found)
            if len(together) < LEAST:
                return None
            return await _correlate(conn, [row for row in found if row["analysis_id"] in together])

    async def cause_resolved(self, signature: str, *, by: Actor, deadline: Deadline) -> str:
        """
        Mark an external cause as resolved: earlier failures no longer keep their analyses paused. Return its pattern.

        The manager resumes the pauses without another cause, at most three times each, and raises an alert each time.

        Args:
            signature: whole, or its first eight characters or more.

        Raises:
            BadInput: no failure has that signature, several begin with it, or its cause is not external.
        """
        if not signature:
            raise BadInput("signature", "is the signature of a failure.")
        async with self._database.transaction(deadline) as conn:
            found = await rows(conn, "cause_known", {"signature": signature})
            if not found:
                raise BadInput("signature", f"nothing failed with {signature[:64]!r}.")
            if len(found) > 1:
                raise BadInput("signature", f"{signature!r} begins several signatures; give more of it.")
            if not found[0]["external"]:
                raise BadInput(
                    "signature", f"{found[0]['pattern']!r} is no cause from outside.", mend="A person resumes those."
                )
            values = {"signature": found[0]["signature"], "by": who(by)}
            await execute(conn, "cause_resolve", values)
            for row in await rows(conn, "correlation_resolve", {"signature": found[0]["signature"]}):
                await close_alerts(conn, row["id"])
            await audit(conn, by, "resolve", found[0]["signature"], found[0]["pattern"])
        return str(found[0]["pattern"])


async def _effect(conn: Connection, analysis: LockedAnalysis, failure: Row, *, announce: bool = True) -> None:
    """Give a recorded failure its effect, if it has none yet; while a gate waits, only announce it."""
    if failure["settled_at"] is not None:
        return
    does = FailureClass(failure["class"])
    if does is FailureClass.RETRY or analysis.outcome is not None:
        await execute(conn, "failure_settled", {"id": failure["id"], "pause_id": None})
        if does is not FailureClass.RETRY:
            # Announced while a gate waited: its pause is no longer begun.
            await close_alerts(conn, _pause_of(failure))
        return
    reason = f"{failure['agent_type']}: {failure['message']}"[:2000]
    if does is FailureClass.FAIL:
        await transitions.fail(conn, analysis, reason=reason, failure=failure, announce=announce)
        return
    if await rows(conn, "gate_waiting", {"analysis_id": analysis.analysis_id}):
        shown = await newest_checkpoint(conn, analysis.analysis_id, failure["agent_type"])
        await alert(
            conn, id_of("failure", failure["id"]), "AGENT_FAILURE", "HIGH", of=analysis,
            about=_pause_of(failure), waits_for="gate",
            **{**checkpoint_details(shown), **failure_details(failure), "reason": reason, "day":
            0},
        )  # fmt: skip
        return
    correlation = await rows(conn, "correlation_open", {"signature": failure["signature"]})
    cause = PauseCause(
        trigger=Trigger.AUTO_TIER2,
        reason=reason,
        failure=failure,
        pause_id=_pause_of(failure),
        batch_id=correlation[0]["batch_id"] if correlation else None,
    )
    await transitions.begin(conn, analysis, cause)


def _pause_of(failure: Row) -> UUID:
    """Return the id of the pause of a failure; deterministic, so that it is paused once."""
    return id_of("pause of failure", failure["id"])


# Correlated failures


def _together(found: Sequence[Row]) -> frozenset[str]:
    """Return the analyses that failed within one window: the newest window with enough of them."""
    occurrences = [Occurrence(row["analysis_id"], row["signature"], row["failed_at"]) for row in found]
    for last in reversed(occurrences):
        together = correlated(occurrences, last)
        if together:
            return together
    return frozenset()


async def _correlate(conn: Connection, found: Sequence[Row]) -> UUID:
    """Insert a correlation of failures, its batch, and one alert."""
    first = found[0]
    newest = {row["analysis_id"]: row for row in found}
    batch_id = await insert_batch(
        conn, "pause", name=f"correlated {first['signature'][:12]}", limit=CONCURRENCY, by=None,
        reason=f"Failures with one cause: {first['pattern']}"[:2000],
        members=[
            (row["analysis_id"], row["stock_id"], row["open_pause"], member_of(row["pause_status"]).value)
            for row in newest.values()
        ],
    )  # fmt: skip
    correlation_id = new_id()
    values = {"signature": first["signature"], "pattern": first["pattern"], "external": first["external"]}
    await execute(conn, "correlation_insert", {"id": correlation_id, "batch_id": batch_id, **values})
    await execute(conn, "correlation_joined", {"id": correlation_id, "failures": [row["id"] for row in found]})
    await _adopt(conn, batch_id, found)
    analysis = LockedAnalysis(first["analysis_id"], first["stock_id"], None)
    await alert(
        conn, id_of("correlated", correlation_id), "FAILURES_CORRELATED", "HIGH", of=analysis,
        about=correlation_id, batch_id=str(batch_id), analyses=sorted(newest), **values,
    )  # fmt: skip
    return batch_id


async def _join(conn: Connection, correlation: Row, found: Sequence[Row]) -> UUID | None:
    """Add failures to the open correlation."""
    batch_id: UUID | None = correlation["batch_id"]
    late = [row for row in found if row["correlation_id"] is None]
    if late:
        await execute(conn, "correlation_joined", {"id": correlation["id"], "failures": [row["id"] for row in late]})
    if batch_id is None:
        return None
    for row in late:
        values = {"analysis_id": row["analysis_id"], "stock_id": row["stock_id"], "pause_id": row["open_pause"]}
        state = member_of(row["pause_status"]).value
        await execute(conn, "batch_join", {"batch_id": batch_id, "state": state, **values})
    await _adopt(conn, batch_id, late)
    return batch_id


async def _adopt(conn: Connection, batch_id: UUID, found: Sequence[Row]) -> None:
    """Add open pauses to the batch."""
    ids = sorted({row["open_pause"] for row in found if row["open_pause"] is not None})
    if ids:
        await execute(conn, "pause_adopt", {"batch_id": batch_id, "ids": ids})


def member_of(status: str | None) -> BatchMemberState:
    """Return a member's state in a pausing batch, from the state of its pause."""
    if status is None:
        return BatchMemberState.QUEUED
    return BatchMemberState.DONE if status in {"PAUSED", "STALE"} else BatchMemberState.RUNNING
