"""Post-mortems, analyses of failure and success, and lessons."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, Self

from pydantic import Field, model_validator

from imem.kg.kinds.base import Group, Kind, Tag
from imem.kg.kinds.enums import (
    LessonPriority,
    LessonSource,
    LessonState,
    PostmortemStatus,
    Regime,
    RootCause,
    SuccessClass,
)
from imem.kg.kinds.fields import (
    Flag,
    Integer,
    Key,
    LongText,
    Moment,
    Names,
    Number,
    PastMoment,
    Prob,
    ShortText,
    Strings,
    Text,
    refuse,
)


class PostMortem(Kind, governed="postmortem", tags=(Tag("lessons"),)):
    """The review of a decision whose outcome was not the expected one."""

    class State(Group):
        """The state of the review."""

        status: PostmortemStatus
        priority: Number
        completion_date: Moment | None = None
        impact_score: Number | None = Field(None, description="0 to 100: by deviation, loss, share and sector.")

    id: Key
    decision_id: Key
    checkpoint: Integer = Field(description="Days after the decision at which it was reviewed.")
    deviation: Number
    trigger_date: PastMoment
    state: State | None = None


class FailureAnalysis(Kind, governed="postmortem", tags=()):
    """The cause of a decision's failure, from automatic analysis."""

    id: Key
    postmortem_id: Key
    root_cause_category: RootCause
    root_cause_details: LongText
    foreseeability_rating: Integer
    unexpected_changes: Strings | None = None
    missing_factors: Strings | None = None
    warning_signs: Strings | None = None


class HumanInsight(Kind, governed="postmortem", tags=()):
    """The cause of a decision's failure, from a person."""

    id: Key
    postmortem_id: Key
    primary_reason: ShortText
    factors_missed: LongText
    warning_signs_missed: LongText
    future_actions: LongText
    patterns_to_revise: Strings | None = None
    foreseeability_rating: Integer
    review_date: PastMoment


class SuccessValidation(Kind, governed="postmortem", tags=()):
    """
    The shares of thesis and market in a success.

    Contributions are shares from 0 to 1. Parts are signed and sum to the return; of decisions that expect a fall, each
    times -1.
    """

    id: Key
    decision_id: Key
    checkpoint: Integer | None = Field(None, description="Days after the decision.")
    outcome_id: Key | None = Field(None, description="The outcome that says the returns.")
    thesis_score: Prob
    market_part: Number | None = Field(None, description="Return of the market.")
    sector_part: Number | None = Field(None, description="Return of the sector beyond the market's.")
    specific_part: Number | None = Field(None, description="Return of the subject beyond the sector's.")
    market_contribution: Number
    sector_contribution: Number
    stock_specific_contribution: Number
    skill_ratio: Number
    classification: SuccessClass


class Lesson(Kind, unowned=True, tags=(Tag("lessons"),)):
    """A lesson: a change in how agents work."""

    class State(Group, governed="postmortem"):
        """The state of the lesson, whether it is applied, and whether its effect is measured."""

        state: LessonState
        reviewed: Flag = Field(description="Whether a person reviewed the post-mortem, or wrote the lesson.")
        applied: Flag
        applied_date: Moment | None = None
        effectiveness_tracked: Flag

        @model_validator(mode="after")
        def _applied_in_its_state(self) -> Self:
            if self.applied and self.state is not LessonState.APPLIED:
                raise refuse("applied", "is true in the state applied alone.")
            return self

    id: Key
    source: LessonSource
    postmortem_id: Key | None = None
    category: ShortText
    insight: Text
    recommended_action: Text
    affected_domains: Names | None = None
    priority: LessonPriority
    confirmations: Integer | None = Field(None, description="Cases that say the same, this one included; 1 by default.")
    confidence: Prob | None = None
    contradicting_ids: Strings | None = Field(None, description="Lessons that say the opposite.")
    scope_sector: ShortText | None = Field(None, description="It speaks of subjects of this sector alone.")
    scope_regime: Regime | None = Field(None, description="It speaks of decisions made in this regime alone.")
    scope_metric: ShortText | None = Field(None, description="It speaks of forecasts of this metric alone.")
    state: State | None = None


class LessonVisibility(StrEnum):
    """How agents see a lesson."""

    APPROVED = "approved"
    """A person approved it."""
    ADVISORY = "advisory"
    """A person reviewed its post-mortem, or wrote it; it is not approved yet."""


SHOWN_STATES: Final = frozenset({LessonState.APPROVED, LessonState.APPLIED})
"""States in which agents see a lesson; in pending_gate6 they see a reviewed one as advisory."""


def visibility(state: Mapping[str, Any] | None) -> LessonVisibility | None:
    """Return how agents see a lesson whose canonical group ``state`` this is; None where they do not see it."""
    name = None if state is None else state["state"]
    if name in SHOWN_STATES:
        return LessonVisibility.APPROVED
    if state is not None and name == LessonState.PENDING_GATE6 and state["reviewed"]:
        return LessonVisibility.ADVISORY
    return None
