"""The pipeline that measures the effect of applied lessons once a day; one that did harm comes back to Gate 6."""

from __future__ import annotations

from typing import Final

from imem.jobs.lifecycle import LifecycleRow
from imem.jobs.pipeline import Daily, Pipeline, Report
from imem.jobs.runtime import Runtime
from imem.journal.deadline import Deadline
from imem.journal.postgres.rows import json, rows
from imem.kg.kinds.enums import LessonState
from imem.postmortem.lessons.reading import lesson_effect

READ_MS: Final = 60_000
"""How long reading and measuring one lesson may take, in milliseconds."""


async def measure_lessons(runtime: Runtime, *, until: Deadline) -> Report:
    """
    Measure the effect of each applied lesson, and keep it with its row; return how many were measured.

    A crash leaves the effects that were kept; the next day measures all anew.

    Raises:
        PostgresUnavailable: as a crash.
    """
    database, count = runtime.database, 0
    for found in await database.named("lessons_applied", deadline=Deadline.after_ms(READ_MS)):
        if until.passed:
            return {"measured": count, "more": True}
        effect = await lesson_effect(database, found["key"], deadline=Deadline.after_ms(READ_MS))
        async with database.transaction(Deadline.after_ms(READ_MS)) as conn:
            locked = [LifecycleRow.of(row) for row in await rows(conn, "lesson_locked", {"key": found["key"]})]
            for row in locked:
                if row.state == LessonState.APPLIED:
                    data = json({**row.data, "effect": effect.model_dump(mode="json")})
                    await rows(conn, "lesson_keep", {"key": row.key, "data": data, "due_at": row.due_at})
                    count += 1
    return {"measured": count}


MEASURE_LESSONS: Final[Pipeline[Runtime]] = Pipeline(
    "postmortem.measure_lessons",
    lambda runtime, until: measure_lessons(runtime, until=until),
    Daily(3, 27),
    budget_ms=600_000,
    without_broker=True,
)
