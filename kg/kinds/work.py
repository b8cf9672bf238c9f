"""Analyses, their findings, decisions, and outcomes."""

from datetime import datetime
from typing import Final, Self

from pydantic import Field, model_validator

from imem.journal.errors import BadInput
from imem.kg.kinds.archiving import Archive
from imem.kg.kinds.base import Group, Kind, Tag
from imem.kg.kinds.enums import DecisionOutcome, Direction, Recommendation, Regime, Stance
from imem.kg.kinds.fields import (
    Count,
    Flag,
    Integer,
    Json,
    Key,
    Moment,
    Name,
    Names,
    Number,
    PastMoment,
    Prob,
    ShortText,
    Strings,
    SubjectId,
    Text,
    refuse,
)
from imem.kg.kinds.forecasts import Forecast
from imem.kg.kinds.metrics import ASKS, Metric, metric_of

_CLAIM: Final = ("domain", "metric", "target_at", "vintage")
"""Fields of a claim or an outcome on which its scores hang; each kind has some of them."""


class Analysis(Kind, occurred="date", tags=(Tag("subject", "subject_id"),)):
    """An analysis of a subject by one or more agents."""

    class Outcome(Group, governed="credibility"):
        """The measured outcome of the analysis."""

        outcome: Number

    id: Key
    subject_id: SubjectId
    date: PastMoment = Field(description="When the analysis was made.")
    kind: ShortText = Field(description="The sort of work, such as equity_research.")
    recommendation: Recommendation | None = None
    confidence: Prob | None = None
    probability: Prob | None = Field(None, description="For a question: the probability given to yes.")
    horizon_days: Integer | None = Field(None, description="How far ahead it looks, in days.")
    regime: Regime | None = None
    model: ShortText | None = Field(None, description="The language model that wrote it.")
    summary: Text | None = None
    outcome: Outcome | None = None
    archive: Archive | None = None


class Finding(Kind, owner="agent", fixed=_CLAIM, tags=(Tag("subject", "subject_id"),)):
    """
    One agent's statement inside an analysis, which a debate disputes and credibility scores.

    With ``metric`` and ``target_at`` it is a claim that an outcome can settle; the metric decides whether the claim is
    in ``probability``, ``direction`` or ``value``.
    """

    id: Key
    analysis_id: Key
    subject_id: SubjectId
    agent: Name
    domain: Name
    statement: Text
    direction: Direction | None = None
    probability: Prob | None = Field(None, description="For a binary metric: the probability that it happens.")
    confidence: Prob | None = None
    importance: Prob | None = None
    key_drivers: Strings | None = None
    metric: ShortText | None = Field(None, description="The metric of the claim; a registered one.")
    value: Number | None = Field(None, description="For a value metric: the number claimed, in unit.")
    unit: ShortText | None = Field(None, description="The unit of the value; the metric's own where it is not stated.")
    period_start: Moment | None = Field(
        None,
        description="For a metric over a period, such as a quarter's revenue: when it begins; it ends at target_at.",
    )
    target_at: Moment | None = Field(None, description="When the claim is true: a session's close, a week's end.")
    distribution: Json | None = Field(None, description="Probability by possible answer.")
    archive: Archive | None = None

    @model_validator(mode="after")
    def _claim(self) -> Self:
        if self.metric is None:
            if self.period_start is not None:
                raise refuse("period_start", "is that of a metric, and there is none.")
            return self
        metric = metric_of(self.metric)
        if metric is None:
            raise refuse("metric", "is no registered metric, so that nothing could settle the claim.")
        if self.target_at is None:
            raise refuse("target_at", "is needed beside a metric: when will the claim be true or false?")
        _check_question(metric, self.unit, self.period_start, self.target_at)
        wanted = ASKS[metric.kind]
        if getattr(self, wanted) is None:
            raise refuse(wanted, f"is needed, because a claim on a {metric.kind} metric lies in it.")
        return self


class Decision(
    Kind, owner="agents_involved", occurred="decided_at", fixed=("forecast",), tags=(Tag("subject", "subject_id"),)
):
    """A decision, to act or not to act."""

    class Outcome(Group, governed="credibility"):
        """The outcome of the decision: its stance against the outcome of the finding that it cites first."""

        outcome: DecisionOutcome

    id: Key
    analysis_id: Key | None = None
    subject_id: SubjectId
    type: ShortText = Field(description="The type of the decision, such as portfolio.")
    agents_involved: Names = Field(description="The agents that made it.")
    decided_at: PastMoment
    action: ShortText | None = None
    stance: Stance | None = Field(
        None,
        description="The expected direction: decides with the outcome of the finding cited first how it turned out.",
    )
    forecast: Json | None = Field(None, description="The expectation at its checkpoints; see Forecast.")
    confidence: Prob | None = None
    size_usd: Number | None = Field(None, description="Size of the position, in USD.")
    portfolio_share: Prob | None = Field(None, description="Share of the position in the portfolio.")
    outcome: Outcome | None = None

    @model_validator(mode="after")
    def _expects(self) -> Self:
        if self.forecast is not None:
            try:
                Forecast.of(self.forecast)
            except BadInput as error:
                raise refuse(f"forecast.{error.field}", error.reason) from error
        return self


class Outcome(Kind, occurred="target_at", fixed=_CLAIM, settles=True, tags=(Tag("subject", "subject_id"),)):
    """
    The value of a metric of a subject at ``target_at``.

    A revised number is a new ``vintage``; ``decision_id`` and ``checkpoint`` are given when it reviews a decision.
    """

    class Assessment(Group, governed="postmortem"):
        """The deviation from what was predicted."""

        deviation: Number | None = None
        accuracy: Prob | None = None

    id: Key
    subject_id: SubjectId
    decision_id: Key | None = None
    checkpoint: Integer | None = Field(None, description="Days after the decision at which it is reviewed.")
    metric: ShortText = Field(description="The metric that was measured; a registered one.")
    period_start: Moment | None = Field(
        None,
        description="For a metric over a period, such as a quarter's revenue: when it begins; it ends at target_at.",
    )
    target_at: Moment = Field(description="When the value was true.")
    predicted: Number | None = None
    actual: Number
    unit: ShortText | None = Field(None, description="The unit of the value; the metric's own where it is not stated.")
    observed_at: PastMoment = Field(description="When the value was read from its source.")
    vintage: Count = Field(description="0 for the first number published, 1 for its first revision.")
    source: ShortText | None = None
    stock_return: Number | None = Field(
        None, description="For a checkpoint: total return of the subject since the decision, as a fraction."
    )
    market_return: Number | None = Field(None, description="The same of the company's market benchmark.")
    sector_return: Number | None = Field(None, description="The same of the company's sector benchmark.")
    volatility: Number | None = Field(
        None, description="Standard deviation of the metric over the time from the decision on, as known before it."
    )
    delisted: Flag | None = Field(None, description="Set where trading ended: the value is that of the last day.")
    withdrawn: Flag | None = Field(
        None, description="Set by a correction: the outcome settles nothing from then on; an older vintage does again."
    )
    assessment: Assessment | None = None

    @model_validator(mode="after")
    def _registered(self) -> Self:
        metric = metric_of(self.metric)
        if metric is None:
            raise refuse("metric", "is no registered metric, so that it could settle nothing.")
        _check_question(metric, self.unit, self.period_start, self.target_at)
        if not metric.permits(self.actual):
            raise refuse("actual", "must be 0 or 1: of a binary metric it says whether the event happened.")
        if self.volatility is not None and self.volatility < 0:
            raise refuse("volatility", "must be at least 0.")
        return self


def _check_question(metric: Metric, unit: str | None, period_start: datetime | None, target_at: datetime) -> None:
    """Refuse what no question of *metric* can have."""
    if metric.unit is not None and unit not in {None, metric.unit}:
        raise refuse("unit", f"must be {metric.unit}, the unit of that metric.")
    if period_start is not None and period_start >= target_at:
        raise refuse("period_start", "must be before target_at, when the period ends.")
