"""Reads for people the lessons of a state, and whether one worked; from the journal and the rows alone."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Final

from pydantic import BaseModel, ConfigDict

from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput
from imem.journal.postgres.database import Database
from imem.kg.kinds.enums import LessonState
from imem.kg.kinds.fields import shown
from imem.kg.kinds.learning import Lesson
from imem.postmortem.lessons.effect import CHECKPOINT, LessonEffect, MeasuredDecision, effect_of

LISTED: Final = 200
"""Lessons of one list at most."""

MOST_DECISIONS: Final = 100_000
"""Decisions that an effect is measured on at most, the newest ones."""


class ListedLesson(BaseModel):
    """
    A lesson as people see it.

    Attributes:
        lesson_id, category, insight, recommended_action: of the lesson.
        state, since: its state, and when it entered it.
        reviewed: whether a person reviewed what it is learned from, or wrote it.
        confirmations: cases that say the same, this one included.
        delivered, waiting: how many agents have it, and how many are to get it.
        superseded_by: the lesson that stands in its place.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    lesson_id: str
    category: str
    insight: str
    recommended_action: str
    state: LessonState
    since: datetime
    reviewed: bool
    confirmations: int
    delivered: int
    waiting: int
    superseded_by: str | None = None


async def lessons_listed(database: Database, state: LessonState | None, *, deadline: Deadline) -> list[ListedLesson]:
    """Return the lessons in *state*, or in any, the newest first; at most :data:`LISTED`."""
    given = {"state": None if state is None else state.value, "limit": LISTED}
    found = []
    for row in await database.named("lessons_listed", given, deadline=deadline):
        data, core = row["data"], row["core"]
        waiting = sum(at is None for at in data["deliveries"].values())
        found.append(
            ListedLesson(
                lesson_id=row["key"],
                **{name: core[name] for name in ("category", "insight", "recommended_action")},
                state=row["state"],
                since=row["entered_at"],
                reviewed=data["reviewed"],
                confirmations=data["confirmations"],
                delivered=len(data["deliveries"]) - waiting,
                waiting=waiting,
                superseded_by=data.get("superseded_by"),
            )
        )
    return found


async def lesson_effect(database: Database, lesson_id: str, *, deadline: Deadline) -> LessonEffect:
    """
    Return the effect of a lesson on the accuracy of the agents that have it, at the checkpoint of 90 days.

    Raises:
        BadInput: there is no such lesson.
    """
    found = await database.named("lesson_measured", {"lesson_id": lesson_id}, deadline=deadline)
    if not found:
        raise BadInput("lesson_id", f"no lesson {shown(lesson_id)} is known.")
    row, lesson = found[0], Lesson.model_validate(found[0]["core"])
    given = {
        "agents": row["agents"], "checkpoint": CHECKPOINT, "domains": list(lesson.affected_domains or ()),
        "sector": lesson.scope_sector, "regime": lesson.scope_regime, "metric": lesson.scope_metric,
        "limit": MOST_DECISIONS,
    }  # fmt: skip
    decisions = [MeasuredDecision(**one) for one in await database.named("lesson_decisions", given, deadline=deadline)]
    # Thousands of deals take a second: the loop goes on meanwhile.
    return await asyncio.to_thread(effect_of, decisions, row["applied_at"], made_it=row["decision_ids"])
