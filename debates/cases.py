"""The review task of a debate that neither its sides nor their records settle: what a person sees and may answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from imem.debates.levels import Level2Reason
from imem.jobs.lifecycle import Effects
from imem.journal.postgres.connection import Connection
from imem.kg.kinds.enums import DebatePriority
from imem.review.kinds import Answer, Fields, Task, TaskAction, TaskKind
from imem.review.states import TaskState

KIND: Final = "debate"

ANSWER_WITHIN: Final = timedelta(hours=6)
"""How long a task waits for an answer before the default applies (sync-and-debates, section 2.2)."""

MORE_TIME: Final = timedelta(hours=2)
"""How much more time a request for evidence gives, once (postmortem-and-gates, section 5.2)."""

SHOWN_DEPENDANTS: Final = 20
"""Most analyses that a reviewer is shown of those that rest on a disputed finding."""

RANKS: Final = {priority: rank for rank, priority in enumerate(DebatePriority)}
"""Rank of a task by the priority of its debate; 0 is critical_path."""


class _Seen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SeenScore(_Seen):
    """The record of a side in the domain: settled claims, and the mean of the posterior with its 95 % interval."""

    n: float
    score: float
    lower: float
    upper: float


class SeenSide(_Seen):
    """
    A side, as the reviewer sees it.

    Attributes:
        agent: who it is.
        text: its position; the beginning of the last turn that states one.
        value: the position as a value of the metric, or a rating; None: it stated none.
        evidence: ids of findings that it rests on.
        score: its track record; None without one.
    """

    agent: str
    text: str
    value: float | str | None
    evidence: tuple[str, ...]
    score: SeenScore | None


class DebateCase(_Seen):
    """
    The view of a debate's reviewer.

    Attributes:
        debate_id, topic, subject_id, priority, metric: of the debate.
        finding_id: the disputed finding.
        challenger, challenged: the sides.
        wanted: evidence that the challenger asked for.
        escalated: why records did not decide.
        differential, threshold: of the scores, in force; None where a side has none.
        recommended: the side with the higher score; None where they do not differ, or a side has none.
        default_side: whose position applies if nobody answers; None: the value is uncertain.
        default_reason: why.
        dependants: analyses that rest on the finding when the task is opened; at most :data:`SHOWN_DEPENDANTS`.
    """

    debate_id: str
    topic: str
    subject_id: str
    priority: DebatePriority
    metric: str | None
    finding_id: str
    challenger: SeenSide
    challenged: SeenSide
    wanted: tuple[str, ...] = ()
    escalated: Level2Reason
    differential: float | None = None
    threshold: float | None = None
    recommended: Literal["challenger", "challenged"] | None = None
    default_side: Literal["challenger", "challenged"] | None = None
    default_reason: str
    dependants: tuple[str, ...] = ()

    def side(self, name: str | None) -> SeenSide | None:
        """Return a side by its name."""
        return {"challenger": self.challenger, "challenged": self.challenged}.get(name or "")


class ChosenSide(Fields):
    """The side whose position counts."""

    side: Literal["challenger", "challenged"]


def _said(side: SeenSide) -> str:
    value = "" if side.value is None else f" ({side.value})"
    return f"{side.agent}{value}"


def _headline(case: DebateCase) -> str:
    return f"{case.topic}: who is right, {_said(case.challenger)} or {_said(case.challenged)}?"


def _default(case: DebateCase) -> str:
    taken = case.side(case.default_side)
    if taken is None:
        return "no position counts: the value stays uncertain."
    return f"the position of {_said(taken)} counts provisionally, since it is the more cautious one."


def debate_kind(
    apply: Callable[[Any, Connection, Task[DebateCase], Answer | None, datetime], Awaitable[Effects]],
) -> TaskKind[Any, DebateCase]:
    """Return the kind of the tasks; *apply* gives an answer, or its absence, its effect on the debate."""
    return TaskKind(
        name=KIND,
        package=DebateCase,
        actions=TaskKind.of(
            TaskAction(name="choose", does="The position of a side counts, for good.", fields=ChosenSide),
            TaskAction(name="uncertain", does="Neither counts: the value stays uncertain.", rationale=True),
            TaskAction(name="evidence", does="Ask the sides for more: two more hours, once.", extends=True),
            TaskAction(
                name="confirm",
                does="The provisional value counts for good.",
                reviews=TaskState.CONFIRMED,
                only_default=True,
            ),
            TaskAction(name="redebate", does="Have the sides argue again, from new evidence.", only_default=True),
        ),
        headline=_headline,
        default=_default,
        apply=apply,
        due=ANSWER_WITHIN,
        extension=MORE_TIME,
        minutes=5.0,
        closes=True,
    )
