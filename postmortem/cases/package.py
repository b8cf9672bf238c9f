"""The review task of a case: what a person sees of a decision that was off, and the six questions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field

from imem.jobs.lifecycle import Effects
from imem.journal.errors import BadInput
from imem.journal.postgres.connection import Connection
from imem.kg.kinds.enums import RootCause
from imem.review.kinds import Answer, Fields, Task, TaskAction, TaskKind

KIND: Final = "postmortem"

REVIEW_WITHIN: Final = timedelta(hours=48)
"""How long a review waits for its answer (postmortem-and-gates, section 2)."""

REMARK_CHARS: Final = 400
"""Longest remark of a model, in characters."""

REMIND_AFTER: Final = timedelta(hours=24)
"""Time after which the reviewers get a reminder."""


class _Seen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SeenCheckpoint(_Seen):
    """
    A checkpoint that was off: what was forecast, and what happened.

    Attributes:
        days: after the decision.
        metric, predicted, low, high, actual: the forecast, its interval and the outcome, in the unit of the metric.
        deviation: relative to the forecast.
        outcome_id: the outcome.
        counterfactual: whether the position had been left before.
    """

    days: int
    metric: str
    predicted: float
    low: float | None = None
    high: float | None = None
    actual: float
    deviation: float
    outcome_id: str
    counterfactual: bool = False

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        """Return a checkpoint that a case keeps, as JSON types."""
        return cls(**{name: stored[name] for name in cls.model_fields if name in stored})


class SeenFinding(_Seen):
    """A finding that the decision cites; *right* says how its claim turned out, None where it has no result."""

    id: str
    agent: str
    statement: str
    right: bool | None = None


class Evidence(_Seen):
    """A record that speaks for a cause: what it says, and its kind and key."""

    cause: RootCause
    record: str
    says: str


class Remark(_Seen):
    """A sentence of a model about a cause, and the records that it cites, as kind and key."""

    cause: RootCause
    says: str
    records: tuple[str, ...]


class Remarks(_Seen):
    """
    A model's remarks about a case; they have no effect.

    Attributes:
        model: its name.
        remarks: each cites records of the case.
        refused: lines of its reply without such a citation.
        none_because: why it gave no reply.
    """

    model: str
    remarks: tuple[Remark, ...] = ()
    refused: int = 0
    none_because: str | None = None


class SeenDecision(_Seen):
    """An earlier decision about the same subject."""

    id: str
    decided_at: datetime
    action: str | None = None
    stance: str | None = None


class PostmortemCase(_Seen):
    """
    The view of a case's reviewer.

    Attributes:
        case_id, decision_id, subject_id: of the case.
        decided_at, action, stance: of the decision.
        agents: who made it.
        reviewed_as_of: the day of the review: what became known later is not shown.
        reasoning: the findings that it cites, the most important first.
        patterns: ids of the patterns that it cites.
        domains: of the cited findings.
        checkpoints: those that were off, the worst first.
        earlier: earlier decisions about the subject, the newest first.
        cause: what the records speak for; *evidence* quotes them.
        model: what a language model remarks on it; None where none is asked.
        cluster: what cases with the same cause share; None if the cause is of this one alone.
        impact: 0 to 100.
        systemic: whether many decisions of the sector failed lately.
        attempt: how often it is reviewed, this time included.
    """

    case_id: str
    decision_id: str
    subject_id: str
    decided_at: datetime
    action: str | None
    stance: str | None
    agents: tuple[str, ...]
    reviewed_as_of: datetime
    reasoning: tuple[SeenFinding, ...] = ()
    patterns: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    checkpoints: tuple[SeenCheckpoint, ...]
    earlier: tuple[SeenDecision, ...] = ()
    cause: RootCause
    evidence: tuple[Evidence, ...] = ()
    model: Remarks | None = None
    cluster: str | None = None
    impact: float = 0.0
    systemic: bool = False
    attempt: int = 1


_Said = Annotated[str, Field(min_length=1, max_length=2_000)]


class PrimaryReason(StrEnum):
    """The first question: why the decision was off."""

    DATA_QUALITY = "data_quality"
    MODEL_ASSUMPTIONS = "model_assumptions"
    MISSING_FACTORS = "missing_factors"
    TIMING = "timing"
    REGIME_CHANGE = "regime_change"
    BLACK_SWAN = "black_swan"
    OTHER = "other"


class SixAnswers(Fields):
    """
    The six questions; all are required.

    Attributes:
        primary_reason: why: one of the six causes, or other.
        factors_missed: which factors nobody had considered.
        warning_signs_missed: which signs there were.
        future_actions: what is to be done differently.
        patterns_to_revise: ids of patterns that the decision cites, separated by commas; ``none`` for none.
        foreseeability: 1, nobody could have seen it, to 5, it should have been seen.
    """

    primary_reason: PrimaryReason
    factors_missed: _Said
    warning_signs_missed: _Said
    future_actions: _Said
    patterns_to_revise: _Said
    foreseeability: int = Field(ge=1, le=5)

    @property
    def patterns(self) -> list[str]:
        """Return the ids of patterns."""
        named = [one.strip() for one in self.patterns_to_revise.split(",")]
        return [one for one in named if one and one.lower() != "none"]


def _headline(case: PostmortemCase) -> str:
    worst = case.checkpoints[0]
    return (
        f"Why was {case.decision_id} off? After {worst.days} days {worst.metric} was {worst.actual:g}, "
        f"and {worst.predicted:g} was forecast."
    )


def _default(case: PostmortemCase) -> str:
    return f"the automatic cause ({case.cause}) stands, and no agent sees a lesson of it before it is approved."


def _cited(case: PostmortemCase, said: SixAnswers) -> None:
    unknown = sorted(set(said.patterns) - set(case.patterns))
    if unknown:
        cited = ", ".join(case.patterns) or "none"
        raise BadInput("patterns_to_revise", f"names {unknown[0]}, which the decision does not cite; it cites {cited}.")


def case_kind(
    apply: Callable[[Any, Connection, Task[PostmortemCase], Answer | None, datetime], Awaitable[Effects]],
) -> TaskKind[Any, PostmortemCase]:
    """Return the kind of the tasks; *apply* gives an answer, or its absence, its effect on the case."""
    return TaskKind(
        name=KIND,
        package=PostmortemCase,
        actions=TaskKind.of(
            TaskAction(name="review", does="Answer the six questions.", fields=SixAnswers, check=_cited),
            TaskAction(name="reopen", does="Have it reviewed again, for another 48 hours.", only_default=True),
        ),
        headline=_headline,
        default=_default,
        apply=apply,
        due=REVIEW_WITHIN,
        queued=False,
        minutes=60.0,
        likeness=lambda case: case.cluster,
    )
