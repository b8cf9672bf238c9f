"""A kind of lifecycle row: a question that a person answers in time, or that closes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from imem.jobs.lifecycle import Effects, Lifecycle, LifecycleRow, move
from imem.jobs.state_machine import StateMachine, Transition
from imem.journal.postgres.connection import Connection


class Question(StrEnum):
    OPEN = "OPEN"
    ANSWERED = "ANSWERED"
    CLOSED = "CLOSED"


def _in_time(late: bool) -> str | None:  # noqa: FBT001 - the facts of a guard
    return "Its time is over." if late else None


MACHINE: Final[StateMachine[Question, bool]] = StateMachine(
    "question",
    Transition("answer", Question.OPEN, Question.ANSWERED, _in_time, "in time"),
    Transition("close", Question.OPEN, Question.CLOSED, lambda late: None if late else "Early.", "its time is over"),
    initial="not asked",
)


async def answer_or_close(_: Any, conn: Connection, row: LifecycleRow, _now: datetime) -> Effects:
    late = row.request is None
    after = Question.CLOSED if row.request is None else Question(row.request.state)
    await move(conn, MACHINE, row, after, late, data={"said": dict(row.request.details)} if row.request else None)
    return Effects()


@dataclass(frozen=True)
class QuestionKind:
    def stepping(self, step: Callable[..., Awaitable[Effects | None]]) -> Lifecycle[Any]:
        return Lifecycle("question", step)


QUESTIONS: Final = QuestionKind()
