"""Detection on real filings with planted faults, and the value of every day of real revisions."""

from __future__ import annotations

import pytest

from imem.kg.kinds.enums import DataDifference

from . import measured


@pytest.mark.parametrize("source", ["SEC_EDGAR", "Bloomberg"])
@pytest.mark.parametrize("name", [name for name in measured.PLANTS if name != "rounding"])
def test_planted_faults_are_found_as_what_they_are(name: str, source: str) -> None:
    found, planted = measured.recall(name, source)
    assert planted >= 60
    assert found / planted >= 0.95


def test_a_rounding_is_mostly_seen_without_stated_decimals() -> None:
    """What looks like one digit alone could be anything, and is called a contradiction."""
    found, planted = measured.recall("rounding", "Bloomberg")
    assert found / planted >= 0.85


@pytest.mark.parametrize("source", ["SEC_EDGAR", "Bloomberg"])
@pytest.mark.parametrize("name", ["× 10", "× 1,000"])
def test_no_planted_fault_of_scale_wins_by_evidence(name: str, source: str) -> None:
    """Without the guard the later filing would."""
    assert measured.wins_of_evidence(name, source) == 0
    assert (measured.wins_of_evidence(name, source, guard=False) > 0) is (source == "SEC_EDGAR")


def test_the_next_filing_confirms_the_newer_value() -> None:
    told = measured.confirmed()
    assert told["newer"] / told.total() >= 0.85


def test_filings_that_agree_are_no_contradiction() -> None:
    """And nine tenths of what the data call rounding, sign or split is none either."""
    found = measured.compared()
    assert sum(count for (label, kinds), count in found.items() if label == "same" and kinds != "same") == 0
    contradictions = {DataDifference.RESTATEMENT, DataDifference.DISAGREEMENT, DataDifference.SCALE}
    for label in ("rounding", "sign", "split_basis"):
        counts = {kinds: count for (of, kinds), count in found.items() if of == label}
        wrong = sum(count for kinds, count in counts.items() if contradictions.intersection(kinds.split(" + ")))
        assert wrong <= 0.1 * sum(counts.values()), label


def test_the_value_of_a_day_is_the_one_that_was_published_last() -> None:
    """On each day of publication of 13,235 reports, of which more than half are revisions."""
    days = [(points, point) for points in measured.reports().values() for point in points]
    assert len(days) == 13_235
    assert all(measured.value_on(points, point.known_at) == point.value for points, point in days)


def test_analysts_at_odds_are_asked_about() -> None:
    """No analyst is a filing, and none has a record: nothing but a person decides, and until then no value counts."""
    assert measured.reported() == {("4_fallback", "uncertain"): 15}
