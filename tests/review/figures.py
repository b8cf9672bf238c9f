"""A kind of review task: which of two figures counts."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from pydantic import BaseModel

from imem.jobs.lifecycle import Effects
from imem.journal.postgres.connection import Connection
from imem.review.kinds import Answer, Fields, Task, TaskAction, TaskKind
from imem.review.states import TaskState


class Figures(BaseModel):
    metric: str
    values: tuple[float, float]


class Value(Fields):
    value: float


async def apply(_: Any, conn: Connection, task: Task[Figures], answer: Answer | None, _now: datetime) -> Effects:
    """Note what was applied: in a table, so that it is undone with the transaction."""
    said = answer.fields.model_dump() if answer is not None else {"why": task.why}
    await conn.execute(
        "INSERT INTO applied (task_id, action, said) VALUES (%s, %s, %s)",
        (task.task_id, answer.action if answer else "default", str(said)),
    )
    return Effects()


def kind(name: str = "figure", **more: Any) -> TaskKind[Any, Figures]:
    return TaskKind(
        name=name,
        package=Figures,
        actions=TaskKind.of(
            TaskAction(name="choose", does="That value counts.", fields=Value),
            TaskAction(name="confirm", does="The default stands.", reviews=TaskState.CONFIRMED, only_default=True),
            TaskAction(name="investigate", does="Look into it.", reviews=TaskState.INVESTIGATING, only_default=True),
            TaskAction(name="more_time", does="Two hours more.", extends=True),
        ),
        headline=lambda package: f"Which {package.metric}?",
        default=lambda _: "the lower value counts.",
        apply=apply,
        due=timedelta(hours=6),
        extension=timedelta(hours=2),
        displaces=lambda rank: rank == 0,
        likeness=lambda package: package.metric,
        **more,
    )


FIGURE: Final = kind()
ENDLESS: Final = kind("endless")
KINDS: Final = {FIGURE.name: FIGURE, ENDLESS.name: ENDLESS}
