"""Track records, sources, contradictions and debates."""

from typing import Any, Self

from pydantic import Field, model_validator

from imem.kg.kinds.archiving import Archive
from imem.kg.kinds.base import Group, Kind, StrictModel, Tag
from imem.kg.kinds.enums import (
    BiasKind,
    BiasStatus,
    ContradictionPriority,
    ContradictionSide,
    ContradictionStatus,
    DataDifference,
    DebatePriority,
    DebateState,
    OutcomeProvenance,
    OverrideReason,
    Regime,
    ResolutionLevelData,
    ResolutionLevelDebate,
    ResolutionMethod,
    TrendDirection,
)
from imem.kg.kinds.fields import (
    Count,
    Flag,
    Integer,
    Json,
    Key,
    Keys,
    LongText,
    Moment,
    Name,
    Names,
    Number,
    Ordinal,
    PastMoment,
    Prob,
    Reason,
    ShortText,
    Strings,
    SubjectId,
    Text,
    refuse,
)


def _credibility_id(data: dict[str, Any]) -> str:
    return f"{data.get('agent_id')}/{data.get('domain')}"


class AgentCredibility(Kind, governed="credibility", tags=(Tag("agent", "agent_id"),)):
    """The track record of one agent in one domain."""

    class Score(Group):
        """The numbers of the track record."""

        overall_score: Prob | None = Field(
            None,
            description="Product of base_accuracy, temporal_weight, regime_adjustment, trend_adjusted and "
            "override_credibility_penalty.",
        )
        base_accuracy: Prob | None = Field(None, description="Mean over the domain.")
        base_accuracy_lower: Prob | None = Field(None, description="Lower end of Wilson's interval of it.")
        base_accuracy_upper: Prob | None = Field(None, description="Its upper end.")
        temporal_weight: Prob | None = Field(None, description="Decay by the age of the newest outcome.")
        regime_adjustment: Prob | None = Field(None, description="Mean in the regime of the run, blended.")
        trend_adjusted: Prob | None = Field(None, description="Latest weekly accuracy, drawn toward its trend.")
        sample_size: Integer = Field(description="Observations: outcomes of one target_at count once.")
        rows: Integer | None = Field(None, description="Settled claims, each counted.")
        regime: Regime | None = Field(None, description="The regime of regime_adjustment.")
        regime_run: Key | None = Field(None, description="The run of that regime under which it was published.")
        pin: Json | None = Field(
            None, description="The score that a person held when it was published: its id, score, and until when."
        )
        recent_accuracy: Prob | None = Field(None, description="Mean of the last ten observations.")
        time_weighted_score: Prob | None = None
        bias_corrections: Json | None = None
        last_updated: Moment
        decay_halflife_years: Number = Field(description="Age in years at which an observation weighs half.")
        last_decay_calculation: Moment | None = None
        regime_credibility: Json | None = Field(None, description="Accuracy and sample size by regime.")
        trend_slope: Number | None = Field(None, description="Change of accuracy per year.")
        trend_direction: TrendDirection | None = None
        trend_strength: Prob | None = Field(None, description="R squared of the trend.")
        extrapolated_6mo: Prob | None = None
        trend_last_calculated: Moment | None = None
        override_rate: Prob | None = None
        override_rate_by_context: Json | None = None
        override_outcome_accuracy: Prob | None = None
        override_reasons: Json | None = None
        override_credibility_penalty: Prob | None = None
        context_dimensions: Json | None = Field(None, description="Accuracy and sample size by context.")
        decayed_weight: Number | None = Field(None, description="Sum of the decayed weights.")
        decayed_weight_sq: Number | None = Field(None, description="Sum of their squares.")
        posterior_mean: Prob | None = None
        posterior_lower: Prob | None = None
        posterior_upper: Prob | None = None
        formula_version: ShortText | None = None

    class Review(Group):
        """A person's remark on a change of the score at Gate 6; later changes are measured from it."""

        reviewed_score: Prob = Field(description="The mean of the posterior that the person was shown.")
        reviewed_n: Integer = Field(description="The observations that it rested on.")
        review_action: ShortText
        reviewed_by: Key
        reviewed_at: Moment
        review_task: Key
        review_hasty: Flag | None = Field(
            None, description="Whether the package was answered in less than a fifth of the time that it takes."
        )

    agent_id: Name
    domain: Name
    id: Key = Field(default_factory=_credibility_id, description="<agent>/<domain>; follows from them.")
    score: Score | None = None
    review: Review | None = None

    @model_validator(mode="after")
    def _own_id(self) -> Self:
        if self.id != f"{self.agent_id}/{self.domain}":
            raise refuse("id", "must be <agent>/<domain>.")
        return self


class SourceCredibility(Kind, key="source_name", governed="credibility", tags=()):
    """The reliability of a source of data."""

    class Score(Group):
        """The numbers of the source's record."""

        base_accuracy: Prob | None = None
        hierarchy_weight: Prob | None = None
        temporal_decay_halflife: Number = Field(description="In years.")
        contradiction_count: Integer
        resolution_outcomes: Json | None = None
        credibility_score: Prob | None = None
        last_updated: Moment

    source_name: Key
    source_type: ShortText
    score: Score | None = None


class RegimeReading(Kind, occurred="observed_at", reference=True, tags=()):
    """
    The regime of a market at a moment.

    In force is the latest reading by ``observed_at`` that could be known and is not withdrawn; of two at one moment,
    the one that was known later.
    """

    id: Key
    market: Key = Field("US", description="The market that is in it.")
    observed_at: PastMoment = Field(description="When the market was in that regime.")
    regime: Regime
    stale: Flag = Field(description="Whether an indicator was missing, so that the previous regime was kept.")
    sp500_return_12m: Number | None = Field(
        None, description="Return of the S&P 500 over the trailing twelve months, as a fraction."
    )
    fed_funds: Number | None = Field(None, description="Federal funds rate, in percent points.")
    vix: Number | None = Field(None, description="VIX, in index points.")
    source: ShortText = Field(description="The reader: a person, or the provider of the indicators.")
    run_id: Key | None = Field(None, description="The run that detected it.")
    withdrawn: Flag | None = Field(None, description="Set by a correction: the reading no longer counts.")


class HumanOverride(
    Kind, occurred="overridden_at", reference=True, fixed=("agent", "domain", "overridden_at"), tags=()
):
    """A person's override of what an agent recommended: of one finding, analysis or decision."""

    id: Key
    agent: Name = Field(description="The agent that was overridden.")
    domain: Name
    finding_id: Key | None = None
    analysis_id: Key | None = None
    decision_id: Key | None = None
    reason: OverrideReason
    rationale: Text | None = None
    overridden_at: PastMoment
    withdrawn: Flag | None = Field(None, description="Set by a correction: the override no longer counts.")

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        if sum(key is not None for key in (self.finding_id, self.analysis_id, self.decision_id)) != 1:
            raise refuse(
                "finding_id", "is one of three, of which one is needed: analysis_id and decision_id are the others."
            )
        return self


class CredibilityPin(Kind, occurred="pinned_at", reference=True, fixed=("agent", "domain"), tags=()):
    """
    The score of an agent in a domain that a person holds in place of the computed ones, which are shown beside it.

    Of several the latest by ``pinned_at`` is in force, until its end.
    """

    class End(Group):
        """When the pin was taken out, and why."""

        ended_at: PastMoment
        end_reason: Reason

    id: Key
    agent: Name
    domain: Name
    score: Prob
    reason: Reason
    pinned_at: PastMoment
    until: Moment | None = Field(None, description="When it ends by itself.")
    end: End | None = None

    @model_validator(mode="after")
    def _ends_later(self) -> Self:
        if self.until is not None and self.until <= self.pinned_at:
            raise refuse("until", "is not after pinned_at.")
        return self


class BiasCorrection(
    Kind, occurred="proposed_at", reference=True, fixed=("agent", "domain", "of_metric", "kind", "bias"), tags=()
):
    """
    A systematic error of an agent's values, with what a back-test of its correction found.

    It is shown beside a claim while a person has approved it, and changes no claim, score or outcome.
    """

    class State(Group):
        """The decision about it; only a person approves."""

        status: BiasStatus
        decided_at: PastMoment
        rationale: Text | None = None

    id: Key
    agent: Name
    domain: Name
    of_metric: ShortText = Field(description="The metric of the claims.")
    sector: ShortText | None = None
    regime: Regime | None = None
    kind: BiasKind
    bias: Number = Field(description="Above zero: the values are too high; relative ones as a fraction.")
    n: Count = Field(description="Observations that it was estimated on.")
    accuracy_before: Prob = Field(description="Share right of the newer claims, as stated.")
    accuracy_after: Prob = Field(description="Share right of them, corrected.")
    proposed_at: PastMoment
    state: State | None = None

    @model_validator(mode="after")
    def _corrects(self) -> Self:
        if self.kind is BiasKind.RELATIVE and not self.bias > -1.0:
            raise refuse("bias", "must be above -1 where it is relative: a value is divided by 1 + bias.")
        return self


class DataContradiction(Kind, occurred="timestamp", tags=(Tag("subject", "subject_id"),)):
    """Two documents, of two sources or of one, that state different values of one thing."""

    class Resolution(Group, governed="credibility"):
        """How important it is, which value was accepted, and how it was found; a pipeline computes it."""

        priority: ContradictionPriority
        status: ContradictionStatus
        resolution_level: ResolutionLevelData | None = None
        resolution_method: ShortText | None = None
        final_value: Number | None = Field(None, description="None while it is uncertain.")
        confidence: Prob | None = None
        credibility_differential: Number | None = Field(
            None, description="The difference of the sources' scores, without its sign."
        )
        provisional: Flag
        reviewed_at_gate3: Flag
        decided_by: Key | None = Field(None, description="The person who decided it.")

    class Outcome(Group, governed="credibility"):
        """The value that turned out to be right."""

        outcome_label: ContradictionSide
        outcome_provenance: OutcomeProvenance

    id: Key
    subject_id: SubjectId
    analysis_id: Key | None = None
    data_point: ShortText = Field(description="The quantity of the two values.")
    source_a: Key
    source_b: Key
    document_a: Key | None = Field(None, description="The document of source_a, if it is known.")
    document_b: Key | None = Field(None, description="The document of source_b, if it is known.")
    point_a: Key | None = Field(None, description="The data point of value_a, if it is recorded.")
    point_b: Key | None = Field(None, description="The data point of value_b, if it is recorded.")
    value_a: Number
    value_b: Number
    difference: DataDifference | None = Field(None, description="How the values differ, if both points are recorded.")
    valuation_impact: Number | None = Field(
        None, description="How far the difference moves the valuation, as a fraction of it."
    )
    timestamp: PastMoment
    resolution: Resolution | None = None
    outcome: Outcome | None = None

    @model_validator(mode="after")
    def _two_documents(self) -> Self:
        if self.source_a != self.source_b:
            return self
        if self.document_a is None or self.document_b is None:
            raise refuse("source_b", "is source_a: a contradiction within one source needs document_a and document_b.")
        if self.document_a == self.document_b:
            raise refuse("document_b", "is document_a: a document at odds with itself is no contradiction between two.")
        return self


class Debate(Kind, owner="challenger_agent", occurred="timestamp", tags=(Tag("subject", "subject_id"),)):
    """One agent's challenge of another's position, and the turns that follow."""

    class State(Group, unowned=True):
        """The state of the debate; the process that runs the debate and imports write it, and no agent does."""

        state: DebateState
        resolution_level: ResolutionLevelDebate | None = None
        resolution_method: ResolutionMethod | None = None
        final_position: Text | None = None
        provisional: Flag
        override_window_closed: Moment | None = None
        defaulted_at: Moment | None = Field(None, description="When a default was applied for want of an answer.")
        snapshot_id: Key | None = Field(None, description="The snapshot of the evidence that both sides argue from.")
        level_deadline: Moment | None = Field(None, description="When the present level ends.")
        version: Count | None = Field(None, description="How many states the debate has had.")

    class Records(Group, unowned=True):
        """The records of both sides at level 2, on both bases; the process that runs the debate writes it."""

        reason: ShortText = Field(description="Why the records decide the debate, or why they do not.")
        domain: Name
        basis: ShortText | None = Field(None, description="The basis of the verdict in force.")
        challenger_n: Number | None = Field(None, description="Settled claims of the challenger in the domain.")
        challenger_score: Number | None = None
        challenger_lower: Number | None = None
        challenger_upper: Number | None = None
        challenged_n: Number | None = Field(None, description="Settled claims of the challenged side in the domain.")
        challenged_score: Number | None = None
        challenged_lower: Number | None = None
        challenged_upper: Number | None = None
        posterior_resolved: Flag | None = None
        posterior_differential: Number | None = None
        posterior_threshold: Number | None = None
        as_designed_resolved: Flag | None = None
        as_designed_differential: Number | None = None
        as_designed_threshold: Number | None = None

    id: Key
    subject_id: SubjectId
    analysis_id: Key | None = None
    topic: ShortText
    challenger_agent: Name
    challenged_agent: Name
    participants: Names
    disputed_finding: Key | None = None
    challenge_basis: Text | None = None
    required_evidence: Strings | None = Field(
        None, description="The evidence that the challenger asks the other side to show."
    )
    timestamp: PastMoment = Field(description="When the challenge was made.")
    priority: DebatePriority | None = None
    judge: Key | None = Field(None, description="The agent or person that the debate names to judge it at level 2.")
    metric: ShortText | None = Field(
        None, description="The metric of the positions; it declares which one is the most cautious."
    )
    state: State | None = None
    records: Records | None = None
    archive: Archive | None = None


def _turn_id(data: dict[str, Any]) -> str:
    return f"{data.get('debate_id')}#{data.get('number')}/{data.get('speaker')}"


class DebateTurn(Kind, owner="speaker", fixed=("debate_id", "number", "speaker"), tags=(Tag("subject", "subject_id"),)):
    """One turn of a debate, which its speaker records; turns are read by number, then by when they were known."""

    subject_id: SubjectId
    debate_id: Key
    number: Ordinal = Field(description="Place in the order of speaking.")
    speaker: Name
    stage: ShortText | None = Field(None, description="The part of the debate, such as research or risk.")
    stance: ShortText | None = None
    value: Number | None = Field(None, description="The speaker's value of the debate's metric.")
    text: LongText
    cites: Keys = Field((), description="Findings that the speaker rests on.")
    id: Key = Field(default_factory=_turn_id, description="<debate_id>#<number>/<speaker>; follows from them.")

    @model_validator(mode="after")
    def _own_id(self) -> Self:
        if self.id != f"{self.debate_id}#{self.number}/{self.speaker}":
            raise refuse("id", "must be <debate_id>#<number>/<speaker>.")
        return self


class Turn(StrictModel):
    """
    One turn of a debate that is imported with all of them; turns of live agents are records, :class:`DebateTurn`.

    It is stored in Postgres, under the debate's id and the turn's number.
    """

    number: Ordinal = Field(description="Place in the order of speaking, unique within the debate.")
    stage: ShortText | None = Field(None, description="The part of the debate, such as research or risk.")
    speaker: Name
    stance: ShortText | None = None
    text: LongText
    cites: Keys = Field((), description="Findings that the speaker rests on.")


class DebateResolution(Kind, unowned=True, tags=()):
    """The end of a debate."""

    class Review(Group, governed="gates"):
        """A person's review of the resolution."""

        human_override: Flag
        override_rationale: LongText | None = None
        downstream_impact: Strings | None = None

    class Outcome(Group, governed="debates"):
        """Whether the winning position was right."""

        accuracy_tracked: Flag
        outcome_correctness: Prob | None = None

    id: Key
    debate_id: Key
    winning_position: Text
    winning_agent: Name | None = Field(None, description="None where nobody won.")
    credibility_differential: Number | None = None
    resolution_time_seconds: Integer | None = None
    review: Review | None = None
    outcome: Outcome | None = None
