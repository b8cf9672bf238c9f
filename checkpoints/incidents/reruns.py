"""
Reruns: restarts completed agents whose results are missing.

Only the agents whose results are missing restart, from their checkpoints, and run only those subtasks. One alert is
raised. After the third time the analysis is paused and a human decides: `imem resume` tries again, `imem pauses cancel`
gives up.

Each round is one transaction under the lock of the analysis: a crash leaves the rest to the next round.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from imem.alerts.store import close_alerts
from imem.checkpoints.cleanup import MissingResult
from imem.checkpoints.incidents.failures import ATTEMPTS, AgentFailure, FailureKind
from imem.checkpoints.incidents.reports import Incidents
from imem.checkpoints.pauses.rows import alert, missing_results_id, try_lock_analysis
from imem.journal.deadline import Deadline
from imem.journal.events.ids import id_of
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import execute, rows

MOST: Final = 3
"""Restarts of a completed agent for missing results, before its analysis is paused."""

LOOK_AGAIN: Final = timedelta(minutes=10)
"""Interval between checks of an analysis whose missing results no agent of it can bring back."""

SHOWN: Final = 50
"""Missing results that an alert names at most."""


class Reruns:
    """
    Restarts agents whose results are missing.

    Args:
        incidents: reports results that stay missing.
    """

    def __init__(self, database: Database, incidents: Incidents) -> None:
        self._database = database
        self._incidents = incidents

    async def after(self, analysis_id: str, missing: Sequence[MissingResult], *, deadline: Deadline) -> None:
        """Act on the missing results that a clean-up found. Idempotent."""
        if not missing:
            async with self._database.transaction(deadline) as conn:
                await close_alerts(conn, missing_results_id(analysis_id))
            return
        exhausted = None
        async with self._database.transaction(deadline) as conn:
            analysis = await try_lock_analysis(conn, analysis_id)
            if analysis is None or analysis.outcome is not None:
                return
            whose = {"analysis_id": analysis_id, "agent_types": sorted({one.agent_type for one in missing})}
            found = await rows(conn, "tasks_exhausted", {**whose, "most": MOST})
            if found:
                exhausted = found[0]
            else:
                await execute(conn, "tasks_checked", whose)
                await execute(conn, "tasks_rerun", whose)
            await alert(
                conn, missing_results_id(analysis_id), "RESULTS_MISSING", "HIGH", of=analysis,
                about=missing_results_id(analysis_id), missing=[_named(one) for one in missing[:SHOWN]],
            )  # fmt: skip
        if exhausted is not None:
            lost = ", ".join(_named(one) for one in missing if one.agent_type == exhausted["agent_type"])
            message = f"Run again {MOST} times, and still without its results: {lost}."
            await self._incidents.report(
                analysis_id,
                exhausted["agent_type"],
                AgentFailure(kind=FailureKind.DATA_QUALITY, message=message, attempt=ATTEMPTS),
                failure_id=id_of("results missing", analysis_id, exhausted["agent_type"], exhausted["dispatch"]),
                deadline=deadline,
            )


def _named(one: MissingResult) -> str:
    """Return a missing result, in words."""
    where = f"not in {one.location.value}" if one.location is not None else "not completed"
    return f"{one.agent_type}.{one.subtask} ({where})"
