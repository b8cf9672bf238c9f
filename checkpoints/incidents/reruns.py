"""
What follows when all agents of an analysis have completed, and results of theirs are missing.

The agents whose results they are start again, from their checkpoints, and run those subtasks alone; nobody else begins
anew. People are told once. What is missing after the third time pauses the analysis, and a person decides:
`imem resume` tries again, `imem pauses cancel` gives up.

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
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import execute, id_of, rows

MOST: Final = 3
"""How often an agent that has completed is started again for results that are lost, before its analysis is paused."""

LOOK_AGAIN: Final = timedelta(minutes=10)
"""How long an analysis that lacks results rests where nothing that we run can bring them back."""

SHOWN: Final = 50
"""Missing results that an alert names at most."""


class Reruns:
    """
    Starts agents again whose results are lost.

    Args:
        incidents: is told of what does not come back.
    """

    def __init__(self, database: Database, incidents: Incidents) -> None:
        self._database = database
        self._incidents = incidents

    async def after(self, analysis_id: str, missing: Sequence[MissingResult], *, deadline: Deadline) -> None:
        """Do what follows a clean-up that found so much missing; twice is once."""
        if not missing:
            async with self._database.transaction(deadline) as conn:
                await close_alerts(conn, missing_results_id(analysis_id))
            return
        worn = None
        async with self._database.transaction(deadline) as conn:
            analysis = await try_lock_analysis(conn, analysis_id)
            if analysis is None or analysis.outcome is not None:
                return
            whose = {"analysis_id": analysis_id, "agent_types": sorted({one.agent_type for one in missing})}
            found = await rows(conn, "tasks_exhausted", {**whose, "most": MOST})
            if found:
                worn = found[0]
            else:
                await execute(conn, "tasks_checked", whose)
                await execute(conn, "tasks_rerun", whose)
            await alert(
                conn, missing_results_id(analysis_id), "RESULTS_MISSING", "HIGH", pause=None, analysis=analysis,
                about=missing_results_id(analysis_id), missing=[_named(one) for one in missing[:SHOWN]],
            )  # fmt: skip
        if worn is not None:
            lost = ", ".join(_named(one) for one in missing if one.agent_type == worn["agent_type"])
            message = f"Run again {MOST} times, and still without its results: {lost}."
            await self._incidents.report(
                analysis_id,
                worn["agent_type"],
                AgentFailure(kind=FailureKind.DATA_QUALITY, message=message, attempt=ATTEMPTS),
                failure_id=id_of("results missing", analysis_id, worn["agent_type"], worn["dispatch"]),
                deadline=deadline,
            )


def _named(one: MissingResult) -> str:
    """Return what is missing, in words."""
    where = f"not in {one.location.value}" if one.location is not None else "not completed"
    return f"{one.agent_type}.{one.subtask} ({where})"
