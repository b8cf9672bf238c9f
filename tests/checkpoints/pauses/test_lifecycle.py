"""The table of transitions: what is listed works under its guard, everything else is refused."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imem.checkpoints.pauses.lifecycle import (
    AUTO_RESUMES,
    PAUSE_STATES,
    FailureClass,
    Gate,
    GuardContext,
    Initiator,
    PauseStatus,
    Trigger,
)
from imem.journal.errors import TransitionRefused

NOW = datetime(2026, 6, 1, tzinfo=UTC)
STATES: list[PauseStatus | None] = [None, *PauseStatus]

GOOD: dict[tuple[PauseStatus | None, PauseStatus], list[GuardContext]] = {
    (None, PauseStatus.PAUSING): [
        GuardContext(by=Initiator.HUMAN, trigger=Trigger.MANUAL),
        GuardContext(by=Initiator.SYSTEM, trigger=Trigger.AUTO_TIER2, failure=FailureClass.PAUSE),
        GuardContext(by=Initiator.SYSTEM, trigger=Trigger.GATE_TIMEOUT, gate=Gate.TIMED_OUT),
        GuardContext(by=Initiator.SYSTEM, trigger=Trigger.GATE_REJECTION, gate=Gate.SOFT_REJECTED),
        GuardContext(by=Initiator.SYSTEM, trigger=Trigger.AUTO_BATCH_CORRELATION),
    ],
    (PauseStatus.PAUSING, PauseStatus.PAUSING): [GuardContext(by=Initiator.SYSTEM, failed=True)],
    (PauseStatus.PAUSING, PauseStatus.PAUSED): [GuardContext(by=Initiator.SYSTEM, stopped=True, verified=True)],
    (PauseStatus.PAUSED, PauseStatus.RESUMING): [
        GuardContext(by=Initiator.HUMAN),
        GuardContext(by=Initiator.HUMAN, attempts=AUTO_RESUMES),
        GuardContext(by=Initiator.AUTOMATIC, cause_resolved=True, attempts=AUTO_RESUMES - 1),
    ],
    (PauseStatus.RESUMING, PauseStatus.RESUMED): [GuardContext(by=Initiator.SYSTEM, recovered=True, scheduled=True)],
    (PauseStatus.RESUMING, PauseStatus.PAUSING): [GuardContext(by=Initiator.SYSTEM, failed=True)],
    (PauseStatus.PAUSED, PauseStatus.STALE): [GuardContext(by=Initiator.SYSTEM, now=NOW, stale_at=NOW)],
    (PauseStatus.STALE, PauseStatus.RESUMING): [GuardContext(by=Initiator.HUMAN)],
    (PauseStatus.STALE, PauseStatus.EXPIRED): [GuardContext(by=Initiator.SYSTEM, now=NOW, expires_at=NOW)],
    (PauseStatus.PAUSED, PauseStatus.EXPIRED): [GuardContext(by=Initiator.HUMAN)],
}

BAD: dict[tuple[PauseStatus | None, PauseStatus], list[GuardContext]] = {
    (None, PauseStatus.PAUSING): [
        GuardContext(by=Initiator.HUMAN, trigger=Trigger.MANUAL, gate_waiting=True),
        GuardContext(by=Initiator.SYSTEM, trigger=Trigger.AUTO_TIER2, failure=FailureClass.PAUSE, gate_waiting=True),
        GuardContext(by=Initiator.SYSTEM, trigger=Trigger.MANUAL),
        GuardContext(by=Initiator.SYSTEM, trigger=Trigger.AUTO_TIER2, failure=FailureClass.RETRY),
        GuardContext(by=Initiator.SYSTEM, trigger=Trigger.AUTO_TIER2, failure=FailureClass.FAIL),
        GuardContext(by=Initiator.SYSTEM, trigger=Trigger.GATE_TIMEOUT, gate=Gate.VALIDATED),
        GuardContext(by=Initiator.SYSTEM, trigger=Trigger.GATE_REJECTION, gate=Gate.HARD_REJECTED),
        GuardContext(by=Initiator.HUMAN, trigger=Trigger.AUTO_BATCH_CORRELATION),
        GuardContext(by=Initiator.HUMAN),
    ],
    (PauseStatus.PAUSING, PauseStatus.PAUSED): [
        GuardContext(by=Initiator.SYSTEM, stopped=True),
        GuardContext(by=Initiator.SYSTEM, verified=True),
    ],
    (PauseStatus.PAUSED, PauseStatus.RESUMING): [
        GuardContext(by=Initiator.SYSTEM, cause_resolved=True),
        GuardContext(by=Initiator.AUTOMATIC),
        GuardContext(by=Initiator.AUTOMATIC, cause_resolved=True, attempts=AUTO_RESUMES),
    ],
    (PauseStatus.RESUMING, PauseStatus.RESUMED): [
        GuardContext(by=Initiator.SYSTEM, recovered=True),
        GuardContext(by=Initiator.SYSTEM, scheduled=True),
    ],
    (PauseStatus.PAUSED, PauseStatus.STALE): [
        GuardContext(by=Initiator.HUMAN, now=NOW, stale_at=NOW + timedelta(seconds=1))
    ],
    (PauseStatus.STALE, PauseStatus.RESUMING): [
        GuardContext(by=Initiator.AUTOMATIC, cause_resolved=True),
        GuardContext(by=Initiator.SYSTEM),
    ],
    (PauseStatus.STALE, PauseStatus.EXPIRED): [
        GuardContext(by=Initiator.HUMAN, now=NOW, expires_at=NOW + timedelta(seconds=1))
    ],
    (PauseStatus.PAUSED, PauseStatus.EXPIRED): [GuardContext(by=Initiator.SYSTEM, now=NOW, expires_at=NOW)],
}


@pytest.mark.spec("CK-31")
def test_every_listed_transition_works_and_every_other_is_refused() -> None:
    """All pairs of states, with facts that would let a listed one pass."""
    assert {(one.before, one.after) for one in PAUSE_STATES.transitions} == set(GOOD)
    every = [facts for found in GOOD.values() for facts in found]
    for before, after in itertools.product(STATES, PauseStatus):
        if (before, after) in GOOD:
            for facts in GOOD[before, after]:
                PAUSE_STATES.check(before, after, facts)
            continue
        for facts in every:
            with pytest.raises(TransitionRefused, match="cannot become"):
                PAUSE_STATES.check(before, after, facts)


@pytest.mark.spec("CK-31")
def test_a_guard_keeps_what_it_guards() -> None:
    """A listed transition without what it needs is refused, with the reason."""
    for (before, after), found in BAD.items():
        for facts in found:
            with pytest.raises(TransitionRefused) as refused:
                PAUSE_STATES.check(before, after, facts)
            assert refused.value.mend, (before, after, facts)


FACTS = st.builds(
    GuardContext,
    by=st.sampled_from(Initiator),
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


@given(st.lists(st.tuples(st.sampled_from(PauseStatus), FACTS), max_size=30))
def test_whatever_is_tried_a_pause_is_always_where_the_table_lets_it_be(
    tried: list[tuple[PauseStatus, GuardContext]],
) -> None:
    """Random walks: nothing leaves EXPIRED or RESUMED, nothing runs unproven, a person alone revives a stale one."""
    at: PauseStatus | None = None
    for after, facts in tried:
        try:
            PAUSE_STATES.check(at, after, facts)
        except TransitionRefused:
            continue
        assert at not in {PauseStatus.EXPIRED, PauseStatus.RESUMED}
        assert after is not PauseStatus.RESUMED or (facts.recovered and facts.scheduled)
        assert after is not PauseStatus.PAUSED or (facts.stopped and facts.verified)
        assert not (at is PauseStatus.STALE and after is PauseStatus.RESUMING) or facts.by is Initiator.HUMAN
        assert after is not PauseStatus.PAUSING or at is not None or not facts.gate_waiting
        at = after
