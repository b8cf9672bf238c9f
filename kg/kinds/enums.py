"""The enums of properties: closed lists of values."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final


class Recommendation(StrEnum):
    """The recommendation of an analysis: to buy or sell a company, yes or no to a question."""

    STRONG_BUY = "strong_buy"
    BUY = "buy"
    HOLD = "hold"
    SELL = "sell"
    STRONG_SELL = "strong_sell"
    YES = "yes"
    NO = "no"
    NEUTRAL = "neutral"


class Direction(StrEnum):
    """The direction of a finding; neutral abstains."""

    POSITIVE = "positive"
    NEGATIVE = "negative"
    NEUTRAL = "neutral"


class SizeClass(StrEnum):
    """Size of a company."""

    SMALL = "small"
    MID = "mid"
    LARGE = "large"


class GrowthStage(StrEnum):
    """Stage of a company's growth."""

    EARLY = "early"
    GROWTH = "growth"
    MATURE = "mature"
    DECLINE = "decline"


class Regime(StrEnum):
    """The current regime of the market."""

    BULL_LOW_RATES = "BULL_LOW_RATES"
    BULL_HIGH_RATES = "BULL_HIGH_RATES"
    BEAR_HIGH_RATES = "BEAR_HIGH_RATES"
    BEAR_LOW_RATES = "BEAR_LOW_RATES"
    HIGH_VOLATILITY = "HIGH_VOLATILITY"
    NORMAL = "NORMAL"


class PatternStatus(StrEnum):
    """The status of a pattern, from candidate to retired."""

    CANDIDATE = "candidate"
    STATISTICALLY_VALIDATED = "statistically_validated"
    HUMAN_APPROVED = "human_approved"
    ACTIVE = "active"
    REJECTED_HOLDOUT = "rejected_holdout"
    REJECTED_BLIND = "rejected_blind"
    REJECTED_STATISTICAL = "rejected_statistical"
    DEPRECATED = "deprecated"
    PROBATIONARY = "probationary"
    ACTIVE_FROM_ARCHIVE = "active_from_archive"
    REJECTED_GATE6 = "rejected_gate6"
    REJECTED_PROBATION = "rejected_probation"
    REJECTED_HUMAN_OVERRIDE = "rejected_human_override"
    REJECTED_INSUFFICIENT = "rejected_insufficient"


class ResolutionLevelDebate(StrEnum):
    """The level at which a debate was settled."""

    AGENT = "1_agent"
    FACILITATOR = "2_facilitator"
    HUMAN = "3_human"
    FALLBACK = "4_fallback"
    GATE_REVIEW = "5_gate_review"


class ResolutionLevelData(StrEnum):
    """The level at which a contradiction between sources was settled."""

    EVIDENCE = "1_evidence"
    CREDIBILITY = "2_credibility"
    HUMAN = "3_human"
    FALLBACK = "4_fallback"


class DecisionOutcome(StrEnum):
    """The outcome of a decision."""

    PENDING = "pending"
    SUCCESS = "success"
    FAILURE = "failure"


class Stance(StrEnum):
    """
    The expectation behind a decision, by which its outcome is judged.

    Long expects that the subject goes up, short that it goes down, avoid that it does not go up, hold that it does not
    go down; none expects nothing, and has no verdict.
    """

    LONG = "long"
    SHORT = "short"
    AVOID = "avoid"
    HOLD = "hold"
    NONE = "none"


class AgentKind(StrEnum):
    """The kind of an agent; a baseline is a reference and never ranked."""

    MODEL = "model"
    HUMAN = "human"
    ENSEMBLE = "ensemble"
    BASELINE = "baseline"


class ValidationType(StrEnum):
    """The type of a pattern's test."""

    HOLDOUT = "holdout"
    BLIND_TEST = "blind_test"
    CONTROL_GROUP = "control_group"


class StorageTier(StrEnum):
    """The storage tier of a data file."""

    HOT = "hot"
    WARM = "warm"
    COLD = "cold"


class TrendDirection(StrEnum):
    """The trend of a score."""

    IMPROVING = "improving"
    STABLE = "stable"
    DEGRADING = "degrading"


class OverrideReason(StrEnum):
    """Why a person overrode a recommendation."""

    MISSED_QUALITATIVE_FACTOR = "missed_qualitative_factor"
    STALE_DATA = "stale_data"
    FLAWED_LOGIC = "flawed_logic"
    OTHER = "other"


class BiasKind(StrEnum):
    """Whether an error is a share of the outcome or a number."""

    RELATIVE = "relative"
    ABSOLUTE = "absolute"


class BiasStatus(StrEnum):
    """The status of a correction of a bias."""

    PROPOSED = "proposed"
    APPROVED = "approved"
    REJECTED = "rejected"
    RETIRED = "retired"


class ContradictionPriority(StrEnum):
    """The priority of a contradiction."""

    CRITICAL = "CRITICAL"
    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class ContradictionStatus(StrEnum):
    """
    The state of a contradiction.

    Queued ones wait for a person; what is said of them holds meanwhile. Provisional ones have a value that counts until
    a person has reviewed it, and so may those that somebody looks into; uncertain ones have none. One is withdrawn when
    a point that was known between its two arrives late, or one of the two is corrected.
    """

    QUEUED = "queued"
    RESOLVED = "resolved"
    PROVISIONAL = "provisional"
    UNCERTAIN = "uncertain"
    INVESTIGATING = "investigating"
    WITHDRAWN = "withdrawn"


class DataDifference(StrEnum):
    """How two values of one thing differ; only restatements, disagreements and scales are contradictions."""

    AGREEMENT = "agreement"
    ROUNDING = "rounding"
    SIGN = "sign"
    SCALE = "scale"
    SPLIT = "split"
    RESTATEMENT = "restatement"
    DISAGREEMENT = "disagreement"


class OutcomeProvenance(StrEnum):
    """The source of the verdict on two values; only the first two count as evidence about sources."""

    HUMAN_LABEL = "human_label"
    LATER_FILING = "later_filing"
    CONSENSUS = "consensus"
    AUTO = "auto"


class ContradictionSide(StrEnum):
    """One of the two values of a contradiction."""

    A = "a"
    B = "b"


class DebatePriority(StrEnum):
    """The priority of a debate, by what waits for it."""

    CRITICAL_PATH = "critical_path"
    VALUATION = "valuation"
    SUPPORTING = "supporting"


class DebateState(StrEnum):
    """The state of a debate."""

    INITIATED = "initiated"
    LEVEL1 = "level1"
    LEVEL2 = "level2"
    LEVEL3 = "level3"
    PROVISIONAL = "provisional"
    CLOSED = "closed"
    WITHDRAWN = "withdrawn"
    SUPERSEDED = "superseded"


ENDED_DEBATES: Final = frozenset({DebateState.CLOSED, DebateState.WITHDRAWN, DebateState.SUPERSEDED})
"""States that no debate leaves."""


class ResolutionMethod(StrEnum):
    """The method by which a debate was settled."""

    CONSENSUS = "consensus"
    CREDIBILITY_WEIGHTED = "credibility_weighted"
    JUDGED = "judged"
    HUMAN_BINDING = "human_binding"
    CONSERVATIVE_DEFAULT = "conservative_default"
    OVERRIDE = "override"


class PostmortemStatus(StrEnum):
    """The status of a post-mortem."""

    QUEUED = "queued"
    IN_REVIEW = "in_review"
    COMPLETED = "completed"
    TIMEOUT = "timeout"
    WITHDRAWN = "withdrawn"
    """The outcome was revised before anybody reviewed it, and is off no more."""


class RootCause(StrEnum):
    """The root cause of a failed decision."""

    DATA_QUALITY = "data_quality"
    MODEL_ASSUMPTIONS = "model_assumptions"
    MISSING_FACTORS = "missing_factors"
    TIMING = "timing"
    REGIME_CHANGE = "regime_change"
    BLACK_SWAN = "black_swan"


class SuccessClass(StrEnum):
    """The share of skill in a success."""

    GENUINE_SUCCESS = "genuine_success"
    PARTIAL_SUCCESS = "partial_success"
    LUCKY_SUCCESS = "lucky_success"
    NOT_ASSESSABLE = "not_assessable"
    """The return is too small to be divided."""


class LessonSource(StrEnum):
    """The source of a lesson."""

    AI_ANALYSIS = "ai_analysis"
    HUMAN_INSIGHT = "human_insight"
    COMBINED = "combined"


class LessonPriority(StrEnum):
    """The urgency of a lesson."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class LessonState(StrEnum):
    """The state of a lesson."""

    DRAFT = "draft"
    PENDING_GATE6 = "pending_gate6"
    APPROVED = "approved"
    APPLIED = "applied"
    """Approved, and delivered to the agents that it concerns."""
    REJECTED = "rejected"
    RETIRED = "retired"
    SUPERSEDED = "superseded"


class ArchiveContent(StrEnum):
    """The kinds of content of an archive."""

    METADATA = "metadata"
    PROCESSED_SUMMARY = "processed_summary"
    ANALYSIS_SNAPSHOT = "analysis_snapshot"
    FULL_PROCESSED = "full_processed"
    AGENT_ANALYSIS = "agent_analysis"
    VALIDATION_HISTORY = "validation_history"


def name_of(enum: type[StrEnum]) -> str:
    """Return the name of *enum* in the graph's specification: ``SizeClass`` is ``size_class``."""
    return re.sub(r"(?<=.)([A-Z])", r"_\1", enum.__name__).lower()
