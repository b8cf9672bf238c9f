"""
The public models: one per kind of node, and the enums of their fields.

::

    from imem.kg.model import Analysis, Company, Recommendation

    Company(ticker="MU", profile=Company.Profile(name="Micron Technology"))
    Analysis(id="desk:MU-1", subject_id="company:MU", date=now, kind="equity_research",
             recommendation=Recommendation.BUY)
"""

from imem.kg.kinds.base import Group, Kind
from imem.kg.kinds.data_points import DataPoint
from imem.kg.kinds.enums import (
    AgentKind,
    ArchiveContent,
    BiasKind,
    BiasStatus,
    ContradictionPriority,
    ContradictionSide,
    ContradictionStatus,
    DataDifference,
    DebatePriority,
    DebateState,
    DecisionOutcome,
    Direction,
    GrowthStage,
    LessonPriority,
    LessonSource,
    OutcomeProvenance,
    OverrideReason,
    PatternStatus,
    PostmortemStatus,
    Recommendation,
    Regime,
    ResolutionLevelData,
    ResolutionLevelDebate,
    ResolutionMethod,
    RootCause,
    SizeClass,
    StorageTier,
    SuccessClass,
    TrendDirection,
    ValidationType,
)
from imem.kg.kinds.fields import JsonObject
from imem.kg.kinds.forecasts import Forecast, ForecastPoint
from imem.kg.kinds.learning import FailureAnalysis, HumanInsight, Lesson, PostMortem, SuccessValidation
from imem.kg.kinds.patterns import ArchiveDirectory, DataFile, Pattern, PatternValidation, ShadowAnalysis
from imem.kg.kinds.subjects import Agent, Company, Domain, Human, Market
from imem.kg.kinds.trust import (
    AgentCredibility,
    BiasCorrection,
    CredibilityPin,
    DataContradiction,
    Debate,
    DebateResolution,
    DebateTurn,
    HumanOverride,
    RegimeReading,
    SourceCredibility,
    Turn,
)
from imem.kg.kinds.work import Analysis, Decision, Finding, Outcome

__all__ = [
    "Agent",
    "AgentCredibility",
    "AgentKind",
    "Analysis",
    "ArchiveContent",
    "ArchiveDirectory",
    "BiasCorrection",
    "BiasKind",
    "BiasStatus",
    "Company",
    "ContradictionPriority",
    "ContradictionSide",
    "ContradictionStatus",
    "CredibilityPin",
    "DataContradiction",
    "DataDifference",
    "DataFile",
    "DataPoint",
    "Debate",
    "DebatePriority",
    "DebateResolution",
    "DebateState",
    "DebateTurn",
    "Decision",
    "DecisionOutcome",
    "Direction",
    "Domain",
    "FailureAnalysis",
    "Finding",
    "Forecast",
    "ForecastPoint",
    "Group",
    "GrowthStage",
    "Human",
    "HumanInsight",
    "HumanOverride",
    "JsonObject",
    "Kind",
    "Lesson",
    "LessonPriority",
    "LessonSource",
    "Market",
    "Outcome",
    "OutcomeProvenance",
    "OverrideReason",
    "Pattern",
    "PatternStatus",
    "PatternValidation",
    "PostMortem",
    "PostmortemStatus",
    "Recommendation",
    "Regime",
    "RegimeReading",
    "ResolutionLevelData",
    "ResolutionLevelDebate",
    "ResolutionMethod",
    "RootCause",
    "ShadowAnalysis",
    "SizeClass",
    "SourceCredibility",
    "StorageTier",
    "SuccessClass",
    "SuccessValidation",
    "TrendDirection",
    "Turn",
    "ValidationType",
]
