"""Patterns, the tests that they must pass, and the evidence kept for them."""

from typing import Any, Self

from pydantic import Field, model_validator

from imem.kg.kinds.base import Group, Kind, Tag
from imem.kg.kinds.enums import PatternStatus, StorageTier, ValidationType
from imem.kg.kinds.fields import (
    ArchiveContents,
    Flag,
    Integer,
    Json,
    Key,
    Moment,
    Number,
    PastMoment,
    Prob,
    ShortText,
    Strings,
    Text,
    refuse,
)


class Pattern(
    Kind,
    key="pattern_id",
    unowned=True,
    labels_when={"ActivePattern": ("status", "status", PatternStatus.ACTIVE.value)},
    tags=(Tag("patterns"),),
):
    """A regularity that may help to predict; agents see it only while it is active."""

    class Performance(Group, governed="patterns"):
        """The recent performance of the pattern."""

        success_rate: Prob | None = None
        occurrence_count: Integer
        last_performance_check: Moment | None = None

    class Status(Group, governed="patterns"):
        """The status of the pattern."""

        status: PatternStatus
        quarantined: Flag
        approved_date: Moment | None = None

    class Definition(Group, governed="patterns"):
        """The computable form of the pattern: which forecasts, under which condition, and where outcomes then lie."""

        metric: ShortText
        reference: ShortText = Field(description="The agent whose recorded forecasts are the best that existed.")
        says: Text = Field(description="Condition and claim in words.")
        condition: Json = Field(description="all: the comparisons, all of which have to hold.")
        claim: ShortText
        period: ShortText
        mechanism: Text
        frequency: ShortText
        search_space_size: Integer | None = Field(None, description="Candidates that its mining run looked at.")
        run: ShortText | None = Field(None, description="The mining run; None for a proposal by hand.")

    class Validation(Group, governed="patterns"):
        """The results of the tests."""

        training_correlation: Number | None = None
        validation_correlation: Number | None = None
        test_correlation: Number | None = None
        blind_test_score: Number | None = None
        control_p_value: Prob | None = None
        validation_sample_size: Integer | None = None
        validated_date: Moment | None = None

    class Evidence(Group, governed="patterns"):
        """The evidence of the pattern, and where it is archived."""

        evidence_refs: Strings | None = None
        archive_tier: Integer | None = None
        archive_refs: Strings | None = None
        is_critical: Flag | None = None
        critical_score: Integer | None = None
        used_in_investment_decision: Flag | None = None
        confidence_score: Prob | None = None
        impact_score: Number | None = None
        validation_count: Integer | None = None
        tier1_created_date: Moment | None = None
        tier2_created_date: Moment | None = None
        archive_size_mb: Number | None = Field(None, description="In MB of 10^6 bytes.")

    class Investigation(Group, governed="postmortem"):
        """Whether an open post-mortem concerns a decision that cites the pattern."""

        under_investigation: Flag

    pattern_id: Key
    name: ShortText
    category: ShortText
    sector: ShortText | None = None
    performance: Performance | None = None
    status: Status | None = None
    definition: Definition | None = None
    validation: Validation | None = None
    evidence: Evidence | None = None
    investigation: Investigation | None = None


class PatternValidation(Kind, governed="patterns", tags=()):
    """One test of a pattern."""

    id: Key
    pattern_id: Key
    validation_type: ValidationType
    test_start_date: Moment
    test_end_date: Moment | None = None
    passed: Flag
    test_correlation: Number | None = None
    sample_size: Integer
    p_value: Prob | None = None
    improvement_ratio: Number | None = None
    failure_reason: ShortText | None = None
    test_metadata: Json | None = None


class ShadowAnalysis(Kind, governed="patterns", tags=()):
    """An analysis repeated without effect on decisions, once with the pattern and once without."""

    class Outcome(Group):
        """The actual outcome, and whether the pattern helped."""

        actual_outcome: Number
        pattern_helped: Flag | None = None

    id: Key
    pattern_id: Key
    analysis_id: Key
    finding_id: Key | None = Field(None, description="The recorded forecast, which was made without the pattern.")
    with_pattern_prediction: Number
    without_pattern_prediction: Number
    timestamp: PastMoment
    outcome: Outcome | None = None


def _archive_id(data: dict[str, Any]) -> str:
    return f"{data.get('pattern_id')}/tier{data.get('tier')}"


class ArchiveDirectory(Kind, governed="patterns", tags=()):
    """The evidence archive of a pattern in one tier."""

    pattern_id: Key
    tier: Integer
    id: Key = Field(default_factory=_archive_id, description="<pattern_id>/tier<tier>; follows from them.")
    path: Text
    created_date: PastMoment
    size_mb: Number = Field(description="In MB of 10^6 bytes.")
    retention_expiry: Moment
    content_types: ArchiveContents

    @model_validator(mode="after")
    def _own_id(self) -> Self:
        if self.id != f"{self.pattern_id}/tier{self.tier}":
            raise refuse("id", "must be <pattern_id>/tier<tier>.")
        return self


class DataFile(Kind, key="file_path", governed="patterns", tags=()):
    """A file of data that findings and patterns are based on."""

    class Storage(Group):
        """The storage tier of the file, and its retention."""

        storage_tier: StorageTier
        tier_migration_date: Moment | None = None
        supports_pattern_count: Integer
        retention_expiry: Moment | None = None
        in_archive: Flag

    file_path: Key
    created_date: PastMoment
    size_mb: Number = Field(description="In MB of 10^6 bytes.")
    storage: Storage | None = None
