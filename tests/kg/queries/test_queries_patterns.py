"""Named queries about patterns and their evidence, with rows worked out by hand."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import neo4j
import pytest

from imem.kg.model import (
    ArchiveContent,
    ArchiveDirectory,
    DataFile,
    Human,
    Pattern,
    PatternStatus,
    PatternValidation,
    StorageTier,
    ValidationType,
)
from tests.kg.queries.build import Row, Story, ask, at

pytestmark = pytest.mark.spec("GR-8")

ACTIVE = PatternStatus.ACTIVE


def pattern(name: str, status: PatternStatus = ACTIVE, *, sector: str | None = None, **groups: Any) -> Pattern:
    stated = Pattern.Status(status=status, quarantined=status is not ACTIVE)
    return Pattern(pattern_id=name, name=name, category="momentum", sector=sector, status=stated, **groups)


def evidence(**fields: Any) -> Pattern.Evidence:
    return Pattern.Evidence(**fields)


def keys(rows: list[Row], column: str = "pattern", key: str = "pattern_id") -> list[str]:
    return [row[column][key] for row in rows]


def test_what_waits_for_gate_6_comes_oldest_first(driver: neo4j.Driver) -> None:
    """Validated and not approved; one validated on no known day waits last."""
    ready = PatternStatus.STATISTICALLY_VALIDATED
    story = Story()
    for name, day in (("b", "03-02"), ("a", "03-05"), ("c", "03-01")):
        story.tell(pattern(name, ready, validation=Pattern.Validation(validated_date=at(day))))
    story.tell(pattern("no day", ready), pattern("active"), pattern("rejected", PatternStatus.REJECTED_BLIND))
    story.tell(Human(id="ann"))
    story.link("APPROVED_AT_GATE6", ("Pattern", "c"), ("Human", "ann"), at=at("03-03"))
    story.link("REJECTED_AT_GATE6", ("Pattern", "b"), ("Human", "ann"), at=at("03-03"))
    story.write(driver)
    assert keys(ask(driver, "patterns_ready_for_gate6", limit=5)) == ["b", "a", "no day"]
    assert keys(ask(driver, "patterns_ready_for_gate6", limit=1)) == ["b"]


def validation(
    name: str,
    of: str,
    start: str,
    end: str | None,
    kind: ValidationType = ValidationType.HOLDOUT,
    *,
    passed: bool = True,
    **more: Any,
) -> PatternValidation:
    days: Row = {"test_start_date": at(start), "test_end_date": at(end) if end else None}
    return PatternValidation(
        id=name, pattern_id=of, validation_type=kind, passed=passed, sample_size=20, **days, **more
    )


@pytest.fixture
def tested(driver: neo4j.Driver) -> neo4j.Driver:
    """Two patterns and their tests: p passed after a first blind test that failed, q failed later."""
    blind, control = ValidationType.BLIND_TEST, ValidationType.CONTROL_GROUP
    story = Story().tell(pattern("p"), pattern("q", PatternStatus.REJECTED_BLIND))
    story.tell(
        validation("p1", "p", "01-01", "01-31"),
        validation(
            "p2", "p", "02-01", "02-20", blind, passed=False, improvement_ratio=1.01, failure_reason="Too weak."
        ),
        validation("p3", "p", "03-01", "03-20", blind),
        validation("q1", "q", "02-15", None, blind, passed=False, failure_reason="Stopped."),
        validation("q2", "q", "03-05", "03-31", blind, passed=False, improvement_ratio=0.9),
        validation("q3", "q", "01-05", "01-25", control),
    )
    story.link("BLOCKED_BY", ("PatternValidation", "p3"), ("PatternValidation", "p2"))
    story.link("BLOCKED_BY", ("PatternValidation", "p3"), ("PatternValidation", "p1"))
    story.write(driver)
    return driver


def test_validation_history_by_start_with_what_each_waited_for(tested: neo4j.Driver) -> None:
    rows = ask(tested, "pattern_validation_history", pattern_id="p", limit=5)
    assert [(row["validation"]["id"], row["blocked_by"]) for row in rows] == [
        ("p1", []),
        ("p2", []),
        ("p3", ["p1", "p2"]),
    ]
    assert rows[1]["validation"]["test_end_date"] == at("02-20")
    assert len(ask(tested, "pattern_validation_history", pattern_id="p", limit=2)) == 2


def test_failed_blind_tests_newest_first_with_ratio_and_reason(tested: neo4j.Driver) -> None:
    rows = ask(tested, "patterns_failed_blind", limit=5)
    assert [
        (row["pattern"]["status"], row["validation_id"], row["tested"], row["improvement_ratio"], row["failure_reason"])
        for row in rows
    ] == [
        ("rejected_blind", "q2", at("03-31"), 0.9, None),
        ("active", "p2", at("02-20"), 1.01, "Too weak."),
        ("rejected_blind", "q1", at("02-15"), None, "Stopped."),
    ]
    assert len(ask(tested, "patterns_failed_blind", limit=1)) == 1


def rates(driver: neo4j.Driver, since: datetime) -> list[tuple[str, int, int, float]]:
    rows = ask(driver, "validation_pass_rates", since=since, limit=10)
    return [(row["validation_type"], row["passed"], row["total"], row["rate"]) for row in rows]


def test_pass_rates_by_type_since_a_date(tested: neo4j.Driver) -> None:
    """A test counts from the day it ended; one without an end is under way."""
    assert rates(tested, at("01-01")) == [
        ("blind_test", 1, 3, pytest.approx(1 / 3)),
        ("control_group", 1, 1, 1.0),
        ("holdout", 1, 1, 1.0),
    ]
    assert rates(tested, at("03-20")) == [("blind_test", 1, 2, 0.5)]
    assert rates(tested, at("04-01")) == []


def test_degrading_patterns_worst_first(driver: neo4j.Driver) -> None:
    """Below four fifths of the promise; exactly four fifths is not below."""
    story = Story()
    for name, rate, promise, status in (
        ("worse", 0.30, 0.6, ACTIVE),
        ("bad", 0.39, 0.5, ACTIVE),
        ("limit", 0.40, 0.5, ACTIVE),
        ("fine", 0.60, 0.5, ACTIVE),
        ("retired", 0.10, 0.9, PatternStatus.DEPRECATED),
    ):
        story.tell(
            pattern(
                name,
                status,
                performance=Pattern.Performance(success_rate=rate, occurrence_count=9),
                validation=Pattern.Validation(training_correlation=promise),
            )
        )
    story.tell(pattern("unknown"))
    story.write(driver)
    rows = ask(driver, "patterns_degrading", limit=10)
    assert [(row["pattern"]["pattern_id"], row["ratio"]) for row in rows] == [("worse", 0.5), ("bad", 0.78)]
    assert keys(ask(driver, "patterns_degrading", limit=1)) == ["worse"]


@pytest.fixture
def library(driver: neo4j.Driver) -> neo4j.Driver:
    """Active patterns of two sectors and of none, and one of every other status."""
    story = Story()
    story.tell(
        pattern("t1", sector="Technology", evidence=evidence(confidence_score=0.6)),
        pattern("t2", sector="Technology", evidence=evidence(confidence_score=0.9)),
        pattern("t3", sector="Technology"),
        pattern("e1", sector="Energy", evidence=evidence(confidence_score=0.7)),
        pattern("any", evidence=evidence(confidence_score=0.99)),
    )
    for status in PatternStatus:
        if status is not ACTIVE:
            story.tell(
                pattern(f"not {status.value}", status, sector="Technology"), pattern(f"nor {status.value}", status)
            )
    story.tell(Pattern(pattern_id="no status", name="n", category="c", sector="Technology"))
    story.write(driver)
    return driver


def test_agents_reach_active_patterns_of_the_sector_then_those_of_none(library: neo4j.Driver) -> None:
    """Nothing of another status is ever among them."""
    assert keys(ask(library, "active_patterns", sector="Technology", limit=10)) == ["t2", "t1", "t3", "any"]
    assert keys(ask(library, "active_patterns", sector="Energy", limit=10)) == ["e1", "any"]
    assert keys(ask(library, "active_patterns", sector="Mining", limit=10)) == ["any"]
    assert keys(ask(library, "active_patterns", sector=None, limit=10)) == ["any", "t2", "e1", "t1", "t3"]
    assert keys(ask(library, "active_patterns", sector="Technology", limit=2)) == ["t2", "t1"]


def test_a_pattern_leaves_the_agents_when_it_is_no_longer_active(library: neo4j.Driver) -> None:
    """The label follows the status, both ways."""
    deprecated = Pattern.Status(status=PatternStatus.DEPRECATED, quarantined=True)
    Story().late(Pattern, "t2", status=deprecated, known=at("05-01")).write(library)
    assert keys(ask(library, "active_patterns", sector="Technology", limit=10)) == ["t1", "t3", "any"]


def test_tier_2_is_for_what_was_used_or_meets_two_of_three(driver: neo4j.Driver) -> None:
    """Strictly above 0.7 and 0.5, at least 3; the oldest small archive first."""
    cases: dict[str, Row] = {
        "used": {"used_in_investment_decision": True},
        "confident and weighty": {"confidence_score": 0.71, "impact_score": 0.51},
        "confident and validated": {"confidence_score": 0.9, "validation_count": 3},
        "weighty and validated": {"impact_score": 0.9, "validation_count": 5},
        "one alone": {"confidence_score": 0.9},
        "at the limits": {"confidence_score": 0.7, "impact_score": 0.5, "validation_count": 3},
        "not used": {"used_in_investment_decision": False, "validation_count": 9},
    }
    story = Story()
    for number, (name, fields) in enumerate(cases.items()):
        created = at(f"03-{20 - number:02}")
        story.tell(pattern(name, evidence=evidence(archive_tier=1, tier1_created_date=created, **fields)))
    story.tell(pattern("has it", evidence=evidence(archive_tier=2, used_in_investment_decision=True)))
    story.tell(pattern("has none", evidence=evidence(archive_tier=0, used_in_investment_decision=True)))
    story.write(driver)
    expected = ["weighty and validated", "confident and validated", "confident and weighty", "used"]
    assert keys(ask(driver, "tier2_candidates", limit=10)) == expected
    assert keys(ask(driver, "tier2_candidates", limit=2)) == expected[:2]


def file(
    name: str,
    tier: StorageTier = StorageTier.COLD,
    *,
    created: str = "01-01",
    size: float = 1.0,
    archived: bool = False,
    expires: str | None = None,
) -> DataFile:
    storage = DataFile.Storage(
        storage_tier=tier,
        supports_pattern_count=0,
        in_archive=archived,
        retention_expiry=at(expires) if expires else None,
    )
    return DataFile(file_path=name, created_date=at(created), size_mb=size, storage=storage)


def archive(of: str, tier: int, size: float) -> ArchiveDirectory:
    return ArchiveDirectory(pattern_id=of, tier=tier, path=f"{of}/{tier}", created_date=at("03-01"), size_mb=size,
                            retention_expiry=at("12-31"), content_types=[ArchiveContent.METADATA])  # fmt: skip


def test_deletable_files_rest_on_edges_not_on_the_counter(driver: neo4j.Driver) -> None:
    """A pattern of any status keeps its file; so does an archive, by flag or by edge."""
    story = Story().tell(
        file("small", size=1), file("large", size=9), file("middle", size=5),
        file("young", created="06-02", size=99), file("at the limit", created="06-01", size=99),
        file("warm", StorageTier.WARM, size=99), file("flagged", archived=True, size=99),
        file("in a folder", size=99), file("supports", size=99),
        pattern("rejected", PatternStatus.REJECTED_HOLDOUT), archive("rejected", 1, 1.0),
    )  # fmt: skip
    story.link("SUPPORTED_BY_FILE", ("Pattern", "rejected"), ("DataFile", "supports"))
    story.link("CONTAINS_FILE", ("ArchiveDirectory", "rejected/tier1"), ("DataFile", "in a folder"))
    story.write(driver)
    rows = ask(driver, "files_deletable", created_before=at("06-01"), limit=10)
    assert [(row["file"]["file_path"], row["size_mb"]) for row in rows] == [("large", 9), ("middle", 5), ("small", 1)]
    assert len(ask(driver, "files_deletable", created_before=at("06-01"), limit=1)) == 1


@pytest.fixture
def resting(driver: neo4j.Driver) -> neo4j.Driver:
    """Patterns that rest on files which expire."""
    story = Story().tell(
        file("soon", expires="06-01"), file("later", expires="06-10"), file("far", expires="12-01"), file("never"),
        pattern("bare"), pattern("tier 0", evidence=evidence(archive_tier=0)),
        pattern("archived", evidence=evidence(archive_tier=1)), pattern("candidate", PatternStatus.CANDIDATE),
    )  # fmt: skip
    for name, path in (
        ("bare", "later"), ("bare", "soon"), ("bare", "far"), ("bare", "never"), ("tier 0", "soon"),
        ("archived", "soon"), ("candidate", "soon"),
    ):  # fmt: skip
        story.link("SUPPORTED_BY_FILE", ("Pattern", name), ("DataFile", path))
    story.write(driver)
    return driver


def test_active_patterns_of_a_file_are_counted(resting: neo4j.Driver) -> None:
    assert ask(resting, "active_patterns_of_file", file_path="soon", limit=1) == [{"file_path": "soon", "patterns": 3}]
    Story().tell(file("alone")).write(resting)
    assert ask(resting, "active_patterns_of_file", file_path="alone", limit=1) == [
        {"file_path": "alone", "patterns": 0}
    ]
    assert ask(resting, "active_patterns_of_file", file_path="unknown", limit=1) == []


def test_evidence_at_risk_soonest_first(resting: neo4j.Driver) -> None:
    """Only active patterns without an archive, and files that expire before the day."""
    rows = ask(resting, "evidence_at_risk", expires_before=at("07-01"), limit=10)
    assert [(row["pattern"]["pattern_id"], row["file"]["file_path"], row["retention_expiry"]) for row in rows] == [
        ("bare", "soon", at("06-01")),
        ("tier 0", "soon", at("06-01")),
        ("bare", "later", at("06-10")),
    ]
    assert keys(ask(resting, "evidence_at_risk", expires_before=at("06-01"), limit=10)) == []


def test_archive_costs_by_tier(driver: neo4j.Driver) -> None:
    story = Story().tell(pattern("p"), pattern("q"))
    story.tell(archive("p", 1, 1.0), archive("q", 1, 2.0), archive("p", 2, 40.0)).write(driver)
    assert ask(driver, "archive_costs", limit=5) == [
        {"tier": 1, "archives": 2, "total_mb": 3.0, "mean_mb": 1.5},
        {"tier": 2, "archives": 1, "total_mb": 40.0, "mean_mb": 40.0},
    ]


def test_patterns_money_rests_on_without_an_archive(driver: neo4j.Driver) -> None:
    story = Story()
    for name, tier, used in (("b", None, True), ("a", 0, True), ("c", 1, True), ("d", 0, False), ("e", 0, None)):
        story.tell(pattern(name, evidence=evidence(archive_tier=tier, used_in_investment_decision=used)))
    story.write(driver)
    assert keys(ask(driver, "patterns_missing_archive", limit=5)) == ["a", "b"]
    assert keys(ask(driver, "patterns_missing_archive", limit=1)) == ["a"]
