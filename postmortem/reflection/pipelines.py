"""The pipeline that writes reflection notes: deployments are due since a trade closed, or since an hour of the day."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from imem.jobs.due import BAD_CONTENT, DueRow, finish_due, next_due, set_due_aside
from imem.jobs.pipeline import Every, Pipeline, Report
from imem.jobs.runtime import Runtime
from imem.journal.deadline import Deadline
from imem.journal.events.ids import new_id
from imem.journal.postgres.database import Database
from imem.journal.postgres.rows import rows
from imem.postmortem.reflection.config import ReflectionCadence
from imem.postmortem.reflection.distiller import Distiller
from imem.postmortem.reflection.notes import ReflectionTable
from imem.postmortem.trades.model import Trade

QUEUE: Final = "reflection"
"""The queue of its due rows, which a trigger of the trade ledger inserts."""

KIND: Final = "Deployment"

MOST_TRADES: Final = 1000
"""Closed trades that a note considers at most, the newest of the newest version of the skill."""

BUDGET_MS: Final = 60_000
"""Budget of a run, in milliseconds; then it requests another."""

DISTILLER_MS: Final = 30_000
"""Budget of making the lessons of one note, in milliseconds."""

PAGE: Final = 50
"""Due rows that are read at a time."""

_STATEMENT_MS: Final = 10_000

DistillerOf = Callable[[str | None], Distiller]
"""Returns the distiller for a configured model; None: statistics alone."""


async def reflect_due(database: Database, distiller_of: DistillerOf, *, until: Deadline) -> Report:
    """
    Write a note for each deployment that is due.

    Raises:
        PostgresUnavailable: written notes stay, the rest is still due; retryable.
    """
    await database.execute("reflections_due_daily", deadline=_deadline())
    notes = 0
    while not until.passed:
        async with database.transaction(_deadline()) as conn:
            page = await next_due(conn, QUEUE, (KIND,), PAGE)
        if not page:
            return {"notes": notes, "more": False}
        for deployment in dict.fromkeys(one.key for one in page):
            due = [one for one in page if one.key == deployment]
            try:
                notes += await _reflect(database, distiller_of, deployment, due)
            except BAD_CONTENT as error:
                async with database.transaction(_deadline()) as conn:
                    await set_due_aside(conn, QUEUE, due, error)
    return {"notes": notes, "more": True}


async def _reflect(database: Database, distiller_of: DistillerOf, deployment: str, due: Sequence[DueRow]) -> int:
    """Write the note of *deployment* and finish *due*; return how many notes were written."""
    given = {"deployment_id": deployment, "limit": MOST_TRADES}
    trades = [Trade.from_row(row) for row in await database.named("trades_to_reflect_on", given, deadline=_deadline())]
    note = await _note_of(database, distiller_of, trades) if trades else None
    async with database.transaction(_deadline()) as conn:
        # None: another worker has written the note meanwhile.
        if not await finish_due(conn, QUEUE, due) or note is None:
            return 0
        await rows(conn, "add_reflection", note)
    return 1


async def _note_of(database: Database, distiller_of: DistillerOf, trades: Sequence[Trade]) -> dict[str, Any] | None:
    """Return the columns of the note that *trades* make; None if the deployment wants none any more."""
    newest = trades[-1]
    memory = await ReflectionTable(database).skill_memory(
        newest.deployment_id, newest.skill_id, None, deadline=_deadline()
    )
    if not memory.config.enabled or memory.config.reflection.cadence is ReflectionCadence.OFF:
        return None
    distiller = distiller_of(memory.config.reflection.model)
    lessons = await distiller.distil(trades, memory.avoid, deadline=Deadline.after_ms(DISTILLER_MS))
    return {
        "id": new_id(),
        "skill_id": newest.skill_id,
        "skill_version": newest.skill_version,
        "deployment_id": newest.deployment_id,
        "window_start": min(trade.entry_tick_at for trade in trades),
        "window_end": newest.exit_tick_at,
        "trades": len(trades),
        "lessons": lessons.text,
        "model": lessons.model_used,
        "input_tokens": lessons.input_tokens,
        "output_tokens": lessons.output_tokens,
        "cost_usd": lessons.cost_usd,
    }


def _deadline() -> Deadline:
    return Deadline.after_ms(_STATEMENT_MS)


class ReflectionRuntime(Runtime, Protocol):
    """A runtime with the distillers that the settings allow."""

    distiller_of: DistillerOf


async def _step(runtime: ReflectionRuntime, until: Deadline) -> Report:
    return await reflect_due(runtime.database, runtime.distiller_of, until=until)


REFLECT: Final = Pipeline("postmortem.reflect", _step, Every(60.0), budget_ms=BUDGET_MS, retry_max_s=600)
