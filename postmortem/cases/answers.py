"""The effect that an answer of a reviewer, or its absence, has on a case."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from imem.jobs.due import make_due
from imem.jobs.lifecycle import Effects, LifecycleRow, move
from imem.journal.errors import TransitionRefused
from imem.journal.postgres.connection import Connection
from imem.journal.postgres.rows import rows
from imem.kg.kinds.enums import PostmortemStatus
from imem.postmortem.cases.facts import automatic_lesson, insight_of, investigated, stated
from imem.postmortem.cases.package import KIND as QUEUE
from imem.postmortem.cases.package import PostmortemCase, SixAnswers, case_kind
from imem.postmortem.cases.states import CASE_STATES, CaseFacts
from imem.review.kinds import Answer, Task

if TYPE_CHECKING:
    from imem.postmortem.cases.queue import PostmortemRuntime

_S = PostmortemStatus


async def _apply(
    runtime: PostmortemRuntime, conn: Connection, task: Task[PostmortemCase], answer: Answer | None, now: datetime
) -> Effects:
    """Give an answer, or its absence, its effect on the case."""
    case, policy = task.package, runtime.postmortem_priority
    # The lock comes before the row, as in the pipeline that opens and admits cases.
    await rows(conn, "cases_lock")
    [found] = await rows(conn, "case_lock", {"key": case.case_id})
    row = LifecycleRow.of(found)
    closed = Effects(over=[row.matter])
    if answer is None:
        moved = await move(conn, CASE_STATES, row, _S.TIMEOUT, CaseFacts(late=True))
        await _unseen(conn, moved)
        return closed + stated(moved, policy) + automatic_lesson(case) + await investigated(conn, moved, under=False)
    if answer.action == "reopen":
        return await _reopen(runtime, conn, row, answer)
    if not isinstance(answer.fields, SixAnswers):
        raise TransitionRefused("The six questions are not answered.")
    moved = await move(conn, CASE_STATES, row, _S.COMPLETED, CaseFacts(answered=True), reason=answer.rationale)
    await _unseen(conn, moved)
    lines = stated(moved, policy, now) + await investigated(conn, moved, under=False)
    return closed + lines + insight_of(case, answer.fields, answer, now)


async def _unseen(conn: Connection, row: LifecycleRow) -> None:
    """Make checkpoints due again that joined the case during its review, and that the reviewer did not see."""
    joined = [one["outcome_id"] for one in row.data["checkpoints"] if one["days"] not in row.data.get("shown", ())]
    if joined:
        await make_due(conn, QUEUE, "Outcome", joined)


async def _reopen(runtime: PostmortemRuntime, conn: Connection, row: LifecycleRow, answer: Answer) -> Effects:
    others = await rows(conn, "case_open_of", {"decision_id": row.about})
    facts = CaseFacts(asked=True, other=others[0]["key"] if others else None)
    moved = await move(conn, CASE_STATES, row, _S.QUEUED, facts, reason=answer.rationale)
    return stated(moved, runtime.postmortem_priority) + await investigated(conn, moved, under=True)


CASE: Final = case_kind(_apply)
