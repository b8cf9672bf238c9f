"""Lists cases for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pydantic import BaseModel, ConfigDict

from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from imem.kg.kinds.enums import PostmortemStatus
from imem.postmortem.cases.package import SeenCheckpoint
from imem.postmortem.cases.priorities import PriorityPolicy

LISTED = 200
"""Cases of one listing at most."""

OPEN = (PostmortemStatus.IN_REVIEW, PostmortemStatus.QUEUED)


class CaseSummary(BaseModel):
    """
    A case.

    Attributes:
        case_id, decision_id: of the case.
        status: its state, since *entered_at*.
        priority: what orders the queue; the largest comes first.
        impact: 0 to 100.
        checkpoints: those that are off, the worst first.
        attempt: how often it was reviewed, the present time included; 0: never.
        task_id, review_due_at: the review task of the last attempt, and until when it waits for an answer.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    case_id: str
    decision_id: str
    status: PostmortemStatus
    entered_at: datetime
    priority: float
    impact: float
    checkpoints: tuple[SeenCheckpoint, ...]
    attempt: int
    task_id: str | None = None
    review_due_at: datetime | None = None


async def list_cases(
    database: Database,
    policy: PriorityPolicy,
    *,
    states: Sequence[PostmortemStatus] = OPEN,
    limit: int = LISTED,
    deadline: Deadline,
) -> list[CaseSummary]:
    """Return cases: those in review, then those that wait, by priority, then others, the newest first."""
    given = {"states": [one.value for one in states], "by": policy.column, "limit": limit}
    return [
        CaseSummary(
            case_id=row["key"], decision_id=row["about"], status=PostmortemStatus(row["state"]),
            entered_at=row["entered_at"], priority=row["data"][policy.column], impact=row["data"]["impact"],
            checkpoints=tuple(SeenCheckpoint.of(one) for one in row["data"]["checkpoints"]),
            attempt=row["data"]["attempt"], task_id=row["data"].get("task_id"), review_due_at=row["review_due_at"],
        )
        for row in await database.named("cases_listed", given, deadline=deadline)
    ]  # fmt: skip
