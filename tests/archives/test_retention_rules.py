"""The rules by which files are kept, at their edges."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imem.archives.retention_rules import (
    PatternState,
    RetentionRule,
    exceeds_cap,
    explain_file,
    label_of,
    rule_of,
)
from imem.journal.clock import months_after
from imem.kg.kinds.enums import PatternStatus

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
OLD = datetime(2015, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
IN_USE = {
    "candidate", "statistically_validated", "human_approved", "active", "probationary", "active_from_archive",
}  # fmt: skip
"""The statuses that keep a file without an end, as the table of the rules has them."""


def state(
    status: PatternStatus | None = PatternStatus.DEPRECATED, since: datetime | None = OLD, **more: Any
) -> PatternState:
    given = {"pattern_id": "p", "late": True, "investigated": False, "tiers": frozenset({2})}
    return PatternState(status=status, since=since, **{**given, **more})


@pytest.mark.spec("AR-6")
@pytest.mark.parametrize(
    ("age", "label"),
    [((1, 364), "hot"), ((2, 0), "warm"), ((4, 364), "warm"), ((5, 0), "cold"), ((0, 0), "hot"), ((40, 0), "cold")],
)
def test_labels_by_age(age: tuple[int, int], label: str) -> None:
    years, days = age
    created = datetime(2019, 3, 1, tzinfo=UTC)
    assert label_of(created, created.replace(year=2019 + years) + days * DAY).value == label


@pytest.mark.spec("AR-11")
def test_eighteen_months_after_the_end() -> None:
    since = datetime(2025, 1, 31, tzinfo=UTC)
    assert rule_of(state(since=since), datetime(2026, 7, 30, 23, 59, tzinfo=UTC)).rule is RetentionRule.ENDED_LATELY
    assert rule_of(state(since=since), datetime(2026, 7, 31, tzinfo=UTC)).rule is RetentionRule.DELETABLE
    ends = datetime(2026, 7, 1, tzinfo=UTC)
    month_before = datetime(2025, 1, 1, tzinfo=UTC)
    lately = rule_of(state(since=month_before), ends - DAY)
    assert (lately.rule, lately.until) == (RetentionRule.ENDED_LATELY, ends)
    assert rule_of(state(since=month_before, tiers=frozenset({1})), ends).rule is RetentionRule.NO_ARCHIVE
    assert rule_of(state(since=month_before, tiers=frozenset({2})), ends).rule is RetentionRule.DELETABLE
    early: dict[str, Any] = {"since": month_before, "late": False}
    assert rule_of(state(tiers=frozenset({1}), **early), ends).rule is RetentionRule.DELETABLE
    assert rule_of(state(tiers=frozenset(), **early), ends).rule is RetentionRule.NO_ARCHIVE


@pytest.mark.spec("AR-12")
def test_an_investigation_keeps_at_any_age() -> None:
    since = months_after(NOW, -20)
    assert rule_of(state(since=since, investigated=True), NOW).rule is RetentionRule.UNDER_INVESTIGATION
    assert rule_of(state(since=since), NOW).rule is RetentionRule.DELETABLE


@pytest.mark.spec("AR-13")
@pytest.mark.parametrize("status", [None, *PatternStatus])
def test_every_status_is_decided(status: PatternStatus | None) -> None:
    """What is in use, and what is unknown, keeps without an end; what was rejected lets go without an archive."""
    found = rule_of(state(status, tiers=frozenset()), NOW)
    if status is None:
        assert found.rule is RetentionRule.UNKNOWN_STATUS
    elif status in IN_USE:
        assert found.rule is RetentionRule.IN_USE
    elif status is PatternStatus.DEPRECATED:
        assert found.rule is RetentionRule.NO_ARCHIVE
    else:
        assert found.rule is RetentionRule.DELETABLE
        assert rule_of(state(status, NOW - 30 * DAY), NOW).rule is RetentionRule.ENDED_LATELY


@given(
    statuses=st.lists(st.sampled_from([None, *PatternStatus]), max_size=4),
    pinned=st.booleans(), held=st.booleans(), days=st.integers(0, 12 * 365),
)  # fmt: skip
def test_all_must_let_go(statuses: list[PatternStatus | None], *, pinned: bool, held: bool, days: int) -> None:
    patterns = [state(one) for one in statuses]
    found = explain_file(created_at=NOW - days * DAY, pinned=pinned, held=held, patterns=patterns, now=NOW)
    kept = any(one.keeps for one in found)
    old = months_after(NOW - days * DAY, 84) <= NOW
    assert kept is (pinned or held or not old or any(one is None or one in IN_USE for one in statuses))


@pytest.mark.spec("AR-17")
def test_the_cap() -> None:
    assert exceeds_cap(6, 100)
    assert not exceeds_cap(5, 100)
    assert exceeds_cap(1, 19)
    assert not exceeds_cap(0, 0)
