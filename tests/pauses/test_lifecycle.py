"""The table of transitions: what is listed works under its guard, everything else is refused."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imem.checkpoints.pauses.lifecycle import (
    AUTO_RESUMES,
    TRANSITIONS,
    By,
    Facts,
    FailureClass,
    Gate,
    Status,
    Trigger,
    check,
)
from imem.journal.errors import TransitionRefused

NOW = datetime(2026, 6, 1, tzinfo=UTC)
STATES: list[Status | None] = [None, *Status]

GOOD: dict[tuple[Status | None, Status], list[Facts]] = {
    (None, Status.PAUSING): [
        Facts(by=By.HUMAN, trigger=Trigger.MANUAL),
        Facts(by=By.SYSTEM, trigger=Trigger.AUTO_TIER2, failure=FailureClass.PAUSE),
        Facts(by=By.SYSTEM, trigger=Trigger.GATE_TIMEOUT, gate=Gate.TIMED_OUT),
        Facts(by=By.SYSTEM, trigger=Trigger.GATE_REJECTION, gate=Gate.SOFT_REJECTED),
        Facts(by=By.SYSTEM, trigger=Trigger.AUTO_BATCH_CORRELATION),
    ],
    (Status.PAUSING, Status.PAUSING): [Facts(by=By.SYSTEM, failed=True)],
    (Status.PAUSING, Status.PAUSED): [Facts(by=By.SYSTEM, stopped=True, verified=True)],
    (Status.PAUSED, Status.RESUMING): [
        Facts(by=By.HUMAN),
        Facts(by=By.HUMAN, attempts=AUTO_RESUMES),
        Facts(by=By.AUTOMATIC, cause_resolved=True, attempts=AUTO_RESUMES - 1),
    ],
    (Status.RESUMING, Status.RESUMED): [Facts(by=By.SYSTEM, recovered=True, scheduled=True)],
    (Status.RESUMING, Status.PAUSING): [Facts(by=By.SYSTEM, failed=True)],
    (Status.PAUSED, Status.STALE): [Facts(by=By.SYSTEM, now=NOW, stale_at=NOW)],
    (Status.STALE, Status.RESUMING): [Facts(by=By.HUMAN)],
    (Status.STALE, Status.EXPIRED): [Facts(by=By.SYSTEM, now=NOW, expires_at=NOW)],
    (Status.PAUSED, Status.EXPIRED): [Facts(by=By.HUMAN)],
}

BAD: dict[tuple[Status | None, Status], list[Facts]] = {
    (None, Status.PAUSING): [
        Facts(by=By.HUMAN, trigger=Trigger.MANUAL, gate_waiting=True),
        Facts(by=By.SYSTEM, trigger=Trigger.AUTO_TIER2, failure=FailureClass.PAUSE, gate_waiting=True),
        Facts(by=By.SYSTEM, trigger=Trigger.MANUAL),
        Facts(by=By.SYSTEM, trigger=Trigger.AUTO_TIER2, failure=FailureClass.RETRY),
        Facts(by=By.SYSTEM, trigger=Trigger.AUTO_TIER2, failure=FailureClass.FAIL),
        Facts(by=By.SYSTEM, trigger=Trigger.GATE_TIMEOUT, gate=Gate.VALIDATED),
        Facts(by=By.SYSTEM, trigger=Trigger.GATE_REJECTION, gate=Gate.HARD_REJECTED),
        Facts(by=By.HUMAN, trigger=Trigger.AUTO_BATCH_CORRELATION),
        Facts(by=By.HUMAN),
    ],
    (Status.PAUSING, Status.PAUSED): [
        Facts(by=By.SYSTEM, stopped=True),
        Facts(by=By.SYSTEM, verified=True),
    ],
    (Status.PAUSED, Status.RESUMING): [
        Facts(by=By.SYSTEM, cause_resolved=True),
        Facts(by=By.AUTOMATIC),
        Facts(by=By.AUTOMATIC, cause_resolved=True, attempts=AUTO_RESUMES),
    ],
    (Status.RESUMING, Status.RESUMED): [
        Facts(by=By.SYSTEM, recovered=True),
        Facts(by=By.SYSTEM, scheduled=True),
    ],
    (Status.PAUSED, Status.STALE): [Facts(by=By.HUMAN, now=NOW, stale_at=NOW + timedelta(seconds=1))],
    (Status.STALE, Status.RESUMING): [Facts(by=By.AUTOMATIC, cause_resolved=True), Facts(by=By.SYSTEM)],
    (Status.STALE, Status.EXPIRED): [Facts(by=By.HUMAN, now=NOW, expires_at=NOW + timedelta(seconds=1))],
    (Status.PAUSED, Status.EXPIRED): [Facts(by=By.SYSTEM, now=NOW, expires_at=NOW)],
}


@pytest.mark.spec("CK-31")
def test_every_listed_transition_works_and_every_other_is_refused() -> None:
    """All pairs of states, with facts that would let a listed one pass."""
    assert set(TRANSITIONS) == set(GOOD)
    every = [facts for found in GOOD.values() for facts in found]
    for before, after in itertools.product(STATES, Status):
        if (before, after) in GOOD:
            for facts in GOOD[before, after]:
                check(before, after, facts)
            continue
        for facts in every:
            with pytest.raises(TransitionRefused, match="cannot become"):
                check(before, after, facts)


@pytest.mark.spec("CK-31")
def test_a_guard_keeps_what_it_guards() -> None:
    """A listed transition without what it needs is refused, with the reason."""
    for (before, after), found in BAD.items():
        for facts in found:
            with pytest.raises(TransitionRefused) as refused:
                check(before, after, facts)
            assert refused.value.mend, (before, after, facts)


FACTS = st.builds(
    Facts,
    by=st.sampled_from(By),
    now=st.none() | st.just(NOW),
    trigger=st.none() | st.sampled_from(Trigger),
    failure=st.none() | st.sampled_from(FailureClass),
    gate=st.none() | st.sampled_from(Gate),
    gate_waiting=st.booleans(),
    stopped=st.booleans(),
    verified=st.booleans(),
    cause_resolved=st.booleans(),
    attempts=st.integers(0, 4),
    recovered=st.booleans(),
    scheduled=st.booleans(),
    failed=st.booleans(),
    stale_at=st.none() | st.sampled_from([NOW - timedelta(1), NOW, NOW + timedelta(1)]),
    expires_at=st.none() | st.sampled_from([NOW - timedelta(1), NOW, NOW + timedelta(1)]),
)


@given(st.lists(st.tuples(st.sampled_from(Status), FACTS), max_size=30))
def test_whatever_is_tried_a_pause_is_always_where_the_table_lets_it_be(tried: list[tuple[Status, Facts]]) -> None:
    """Random walks: nothing leaves EXPIRED or RESUMED, nothing runs unproven, a person alone revives a stale one."""
    at: Status | None = None
    for after, facts in tried:
        try:
            check(at, after, facts)
        except TransitionRefused:
            continue
        assert at not in {Status.EXPIRED, Status.RESUMED}
        assert after is not Status.RESUMED or (facts.recovered and facts.scheduled)
        assert after is not Status.PAUSED or (facts.stopped and facts.verified)
        assert not (at is Status.STALE and after is Status.RESUMING) or facts.by is By.HUMAN
        assert after is not Status.PAUSING or at is not None or not facts.gate_waiting
        at = after
