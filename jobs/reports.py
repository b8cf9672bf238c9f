"""Reports of pipelines' runs: the newest of each are kept, for ``imem jobs``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import orjson
import structlog

from imem.journal.deadline import Deadline
from imem.journal.errors import ImemError
from imem.journal.postgres.database import Database

log = structlog.get_logger()

BUDGET_MS: Final = 5_000
"""How long keeping a report may take, in milliseconds."""


@dataclass(frozen=True, slots=True)
class StoredReport:
    """
    The report of a run of a pipeline.

    Attributes:
        pipeline: its name.
        started_at, finished_at: when.
        report: as the pipeline describes it.
        error: why it ended early; None if it did not.
    """

    pipeline: str
    started_at: datetime
    finished_at: datetime
    report: Mapping[str, Any]
    error: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        times = {"started_at": self.started_at.isoformat(), "finished_at": self.finished_at.isoformat()}
        return {"pipeline": self.pipeline, **times, "report": dict(self.report), "error": self.error}


async def keep_report(
    database: Database, pipeline: str, report: Mapping[str, Any], *, took_s: float, error: str | None, keep: int
) -> None:
    """
    Keep the report of a run that ends now; one that cannot be written is logged and lost.

    Args:
        took_s: seconds since it began.
        error: why it ended early.
        keep: how many of the pipeline's are kept.
    """
    idle = error is None and not any(report.values())
    given = {
        "pipeline": pipeline,
        "took_s": took_s,
        "report": "{}" if idle else orjson.dumps(dict(report), default=str).decode(),
        "error": error,
        "idle": idle,
        "keep": keep,
    }
    try:
        await database.commit("add_pipeline_report", given, deadline=Deadline.after_ms(BUDGET_MS))
    except ImemError as failed:
        log.info("pipeline.report_lost", pipeline=pipeline, reason=str(failed))


async def stored_reports(database: Database, pipeline: str | None, *, deadline: Deadline) -> list[StoredReport]:
    """
    Return the newest report of each pipeline, or all that are kept of one, newest first.

    Raises:
        PostgresUnavailable, BudgetExceeded: they could not be read in time; retryable.
    """
    found = await database.named("pipeline_reports", {"pipeline": pipeline}, deadline=deadline)
    return [
        StoredReport(
            row["pipeline"],
            row["started_at"].astimezone(UTC),
            row["finished_at"].astimezone(UTC),
            orjson.loads(row["report"]),
            row["error"],
        )
        for row in found
    ]
