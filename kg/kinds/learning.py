"""Post-mortems, analyses of failure and success, and lessons."""

from pydantic import Field

from imem.kg.kinds.base import Group, Kind
from imem.kg.kinds.enums import LessonPriority, LessonSource, PostmortemStatus, RootCause, SuccessClass
from imem.kg.kinds.fields import Flag, Integer, Key, LongText, Moment, Names, Number, Prob, ShortText, Strings, Text


class PostMortem(Kind, governed="postmortem"):
    """The review of a decision that turned out other than expected."""

    class State(Group):
        """Where the review stands."""

        status: PostmortemStatus
        priority: Number
        completion_date: Moment | None = None

    id: Key
    decision_id: Key
    checkpoint: Integer = Field(description="Days after the decision at which it was reviewed.")
    deviation: Number
    trigger_date: Moment
    state: State | None = None


class FailureAnalysis(Kind, governed="postmortem"):
    """Why a decision failed, as analysed by the machine."""

    id: Key
    postmortem_id: Key
    root_cause_category: RootCause
    root_cause_details: LongText
    foreseeability_rating: Integer
    unexpected_changes: Strings | None = None
    missing_factors: Strings | None = None
    warning_signs: Strings | None = None


class HumanInsight(Kind, governed="postmortem"):
    """Why a decision failed, as a person sees it."""

    id: Key
    postmortem_id: Key
    primary_reason: ShortText
    factors_missed: LongText
    warning_signs_missed: LongText
    future_actions: LongText
    patterns_to_revise: Strings | None = None
    foreseeability_rating: Integer
    review_date: Moment


class SuccessValidation(Kind, governed="postmortem"):
    """How much of a success was the thesis, and how much the market."""

    id: Key
    decision_id: Key
    thesis_score: Prob
    market_contribution: Number
    sector_contribution: Number
    stock_specific_contribution: Number
    skill_ratio: Number
    classification: SuccessClass


class Lesson(Kind):
    """Something to do differently from now on."""

    class State(Group, governed="postmortem"):
        """Whether the lesson is applied, and whether its effect is measured."""

        applied: Flag
        applied_date: Moment | None = None
        effectiveness_tracked: Flag

    id: Key
    source: LessonSource
    postmortem_id: Key | None = None
    category: ShortText
    insight: Text
    recommended_action: Text
    affected_domains: Names | None = None
    priority: LessonPriority
    state: State | None = None
