"""Kinds of review tasks: one declaration each, from which queue, timers and the inbox are derived."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from imem.jobs.lifecycle import Effects, LifecycleRuntime
from imem.journal.postgres.connection import Connection
from imem.review.states import TaskState, Why

R = TypeVar("R", bound=LifecycleRuntime)
P = TypeVar("P", bound=BaseModel)


class Fields(BaseModel):
    """Fields of an answer; a subclass declares them."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, str_strip_whitespace=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAction:
    """
    A way to answer.

    Attributes:
        name: as people type it.
        does: what it does, in a sentence.
        fields: model of what the answer states beside the rationale.
        reviews: what a default becomes by it: confirmed, overridden, or investigating.
        only_default: whether it answers a default alone, and not an open task.
        extends: whether it answers nothing and gives the task more time, once.
        rationale: whether a rationale is required; it always is for an override.
        alone: whether it answers one task at a time, and not all that are alike.
        check: takes what the reviewer sees and the fields, and raises :class:`~imem.journal.errors.BadInput` where they
            do not fit each other.
    """

    name: str
    does: str
    fields: type[Fields] = Fields
    reviews: TaskState = TaskState.OVERRIDDEN
    only_default: bool = False
    extends: bool = False
    rationale: bool = False
    alone: bool = False
    check: Callable[[Any, Any], None] = lambda _package, _fields: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """
    An answer that has its effect now.

    Attributes:
        action: the name of the action.
        fields: its fields, checked.
        by, role: the person, and the role.
        rationale: why.
        at: when it was given.
    """

    action: str
    fields: Fields
    by: str
    role: str
    rationale: str | None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Generic[P]):
    """
    A task.

    Attributes:
        task_id: its id.
        kind: name of its kind.
        rank: urgency; 0 is the most urgent.
        state: its state.
        package: what the reviewer sees; it may grow until somebody looks at it.
        analysis_id: of which analysis it is a part, if of one.
        subject_ids: subjects that it is about.
        reviewer: who has it; None where it is not queued or the default applied at once.
        opened_at, due_at: when it was opened, and when the default applies; *due_at* None: never.
        why: why the default applies.
        extended: whether it was given more time.
        trail: who had it before: reviewer, moment and reason of each delegation.
        answer: action, fields, person, rationale and moment of the answer.
        minutes: from the first look at it to the answer, in minutes; None where either is unknown.
    """

    task_id: str
    kind: str
    rank: int
    state: TaskState
    package: P
    analysis_id: str | None
    subject_ids: tuple[str, ...] = ()
    reviewer: str | None = None
    opened_at: datetime
    due_at: datetime | None
    why: Why | None = None
    extended: bool = False
    trail: tuple[Mapping[str, Any], ...] = ()
    answer: Mapping[str, Any] | None = None
    minutes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskKind(Generic[R, P]):
    """
    A kind of task.

    Attributes:
        name: as ``contradiction``.
        package: model of what the reviewer sees.
        actions: by name.
        headline: one line that says what is asked.
        default: one sentence that says what happens if nobody answers.
        apply: gives an answer, or with None the default, its effect, in the transaction of the connection.
        due: how long a task waits for an answer; None: without end.
        extension: how much more time an action gives.
        queued: whether a task takes a place of a reviewer.
        minutes: estimated time of an answer, in minutes; *estimate*: that of a package, where it differs.
        lines: what a reviewer reads of a package, line by line; None: its fields one after the other.
        displaces: whether a task of a rank may displace a less urgent one.
        urgent: whether a task of a rank is told to its reviewer at once, and not with the digest.
        likeness: tasks with the same text may be answered together; None: alone.
        closes: whether *apply* is called once more, without an answer, when a human gate closes the window.
    """

    name: str
    package: type[P]
    actions: Mapping[str, TaskAction]
    headline: Callable[[P], str]
    default: Callable[[P], str]
    apply: Callable[[R, Connection, Task[P], Answer | None, datetime], Awaitable[Effects]]
    due: timedelta | None
    extension: timedelta = timedelta()
    queued: bool = True
    minutes: float = 5.0
    estimate: Callable[[P], float] | None = None
    lines: Callable[[P], Iterable[str]] | None = None
    displaces: Callable[[int], bool] = field(default=lambda _: False)
    urgent: Callable[[int], bool] = field(default=lambda rank: rank == 0)
    likeness: Callable[[P], str | None] = field(default=lambda _: None)
    closes: bool = False

    def minutes_of(self, package: P) -> float:
        """Return the estimated time of an answer to *package*, in minutes."""
        return self.minutes if self.estimate is None else self.estimate(package)

    @staticmethod
    def of(*actions: TaskAction) -> Mapping[str, TaskAction]:
        """Return actions by their names."""
        return MappingProxyType({one.name: one for one in actions})
