"""Timers, batches, failures and their patterns: the rules, without rows."""

from __future__ import annotations

import errno
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imem.checkpoints.incidents.correlation import LEAST, WINDOW, Occurrence, correlated, signature_of
from imem.checkpoints.incidents.failures import AgentFailure, FailureKind, class_of, failure_of, wait_s
from imem.checkpoints.pauses import timers
from imem.checkpoints.pauses.batches import (
    BatchMemberState,
    BatchStatus,
    ordered,
    room,
    should_stop,
    startable,
    status_of,
)
from imem.checkpoints.pauses.lifecycle import FailureClass, Trigger
from imem.checkpoints.pauses.timers import Timer
from imem.journal.errors import (
    BadInput,
    ConsistencyError,
    PermissionDenied,
    ServerFull,
    SettingsError,
    ValkeyUnavailable,
)

PAUSED = datetime(2026, 6, 1, 9, 30, tzinfo=UTC)


def day(number: float) -> datetime:
    return PAUSED + timedelta(days=number)


# Timers


def test_the_days_of_a_pause() -> None:
    assert timers.due(PAUSED) == {
        Timer.REMINDER: day(3),
        Timer.WARNING: day(7),
        Timer.STALE: day(14),
        Timer.EXPIRE: day(30),
    }
    assert timers.due(PAUSED, day(20))[Timer.STALE] == day(20)
    assert timers.due(PAUSED, day(20))[Timer.EXPIRE] == day(36)


@pytest.mark.spec("CK-37")
def test_extensions_that_the_rules_do_not_allow() -> None:
    """Twice, beyond day 30, no longer than it lasts anyhow, and without a zone."""
    timers.check_extension(PAUSED, None, day(30), now=day(5))
    for before, until in (
        (day(20), day(21)),
        (None, day(30) + timedelta(microseconds=1)),
        (None, day(14)),
        (None, day(13)),
        (None, day(20).replace(tzinfo=None)),
    ):
        with pytest.raises(BadInput) as refused:
            timers.check_extension(PAUSED, before, until, now=day(5))
        assert refused.value.field == "until"


# Batches


def paused(analysis_id: str, trigger: Trigger, paused_at: datetime) -> Any:
    return SimpleNamespace(analysis_id=analysis_id, trigger=trigger, paused_at=paused_at)


def test_gate_timeouts_come_first_then_automatic_pauses_then_manual_ones_the_oldest_of_each_first() -> None:
    waiting = [
        paused("a", Trigger.MANUAL, day(0)),
        paused("b", Trigger.AUTO_TIER2, day(3)),
        paused("c", Trigger.AUTO_BATCH_CORRELATION, day(1)),
        paused("d", Trigger.GATE_TIMEOUT, day(9)),
        paused("e", Trigger.GATE_TIMEOUT, day(8)),
        paused("f", Trigger.AUTO_TIER2, day(1)),
    ]
    assert [one.analysis_id for one in ordered(waiting)] == ["e", "d", "c", "f", "b", "a"]


@pytest.mark.spec("CK-39")
def test_more_than_half_stops_and_exactly_half_goes_on() -> None:
    assert not should_stop(failed=5, total=10)
    assert should_stop(failed=6, total=10)
    assert not should_stop(failed=2, total=5)
    assert should_stop(failed=3, total=5)
    half = [BatchMemberState.FAILED] * 5 + [BatchMemberState.QUEUED] * 5
    assert room(half, limit=5) == 5
    assert room([BatchMemberState.FAILED, *half], limit=5) == 0
    assert status_of([BatchMemberState.FAILED, *half]) is BatchStatus.FAILED
    assert status_of([*half, BatchMemberState.DONE]) is BatchStatus.IN_PROGRESS
    assert status_of([BatchMemberState.DONE]) is BatchStatus.COMPLETED
    assert status_of([BatchMemberState.DONE, BatchMemberState.FAILED]) is BatchStatus.PARTIALLY_FAILED


@pytest.mark.spec("CK-39")
@given(st.lists(st.sampled_from(BatchMemberState), min_size=1, max_size=60), st.integers(1, 8))
def test_there_is_never_more_room_than_the_limit(members: list[BatchMemberState], limit: int) -> None:
    assert 0 <= room(members, limit=limit) <= max(0, limit - members.count(BatchMemberState.RUNNING))


@given(
    st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from("abc")), max_size=20, unique=True),
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 4)),
    st.dictionaries(st.sampled_from("abc"), st.integers(1, 4)),
)
def test_agents_of_a_type_start_up_to_its_limit(
    waiting: list[tuple[str, str]], running: dict[str, int], limits: dict[str, int]
) -> None:
    found = startable(waiting, running, limits)
    for kind in "abc":
        started = sum(agent == kind for _, agent in found)
        wanted = sum(agent == kind for _, agent in waiting)
        free = max(0, limits[kind] - running.get(kind, 0)) if kind in limits else wanted
        assert started == min(wanted, free)


# Failures


def test_what_a_failure_does() -> None:
    def does(kind: FailureKind, **named: float) -> FailureClass:
        return class_of(AgentFailure(kind=kind, message="m", **named))  # type: ignore[arg-type]

    assert does(FailureKind.TIMEOUT, timeouts=2) is FailureClass.RETRY
    assert does(FailureKind.TIMEOUT, timeouts=3) is FailureClass.PAUSE
    assert does(FailureKind.QUOTA) is FailureClass.RETRY
    assert does(FailureKind.QUOTA, attempt=3) is FailureClass.PAUSE
    assert does(FailureKind.OVERLOADED, retry_after_s=5) is FailureClass.RETRY
    assert does(FailureKind.OVERLOADED, retry_after_s=3_600) is FailureClass.PAUSE
    for kind in (
        FailureKind.CRASH,
        FailureKind.DATA_QUALITY,
        FailureKind.UPSTREAM,
        FailureKind.OUT_OF_MEMORY,
        FailureKind.DISK_FULL,
    ):
        assert does(kind) is FailureClass.PAUSE
    for kind in (FailureKind.CHECKPOINT, FailureKind.SECURITY, FailureKind.CONFIGURATION, FailureKind.DELISTED):
        assert does(kind) is FailureClass.FAIL


def test_the_wait_before_another_attempt_grows_and_is_never_shorter_than_was_asked_for() -> None:
    waits = [wait_s(AgentFailure(kind=FailureKind.QUOTA, message="m", attempt=attempt)) for attempt in (1, 2, 3)]
    assert waits == [1.0, 2.0, 4.0]
    assert wait_s(AgentFailure(kind=FailureKind.QUOTA, message="m", retry_after_s=30.0)) == 30.0


def answer(status: int, **headers: str) -> httpx.HTTPStatusError:
    request = httpx.Request("GET", "https://api.example/v1/x?key=1")
    return httpx.HTTPStatusError(
        "no", request=request, response=httpx.Response(status, headers=headers, request=request)
    )


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (answer(429), FailureKind.QUOTA),
        (answer(503, **{"retry-after": "7"}), FailureKind.OVERLOADED),
        (answer(500), FailureKind.UPSTREAM),
        (answer(404), FailureKind.UPSTREAM),
        (httpx.ReadTimeout("slow"), FailureKind.TIMEOUT),
        (httpx.ConnectError("refused"), FailureKind.NETWORK),
        (TimeoutError(), FailureKind.TIMEOUT),
        (ConnectionResetError(), FailureKind.NETWORK),
        (MemoryError(), FailureKind.OUT_OF_MEMORY),
        (ServerFull("full"), FailureKind.OUT_OF_MEMORY),
        (OSError(errno.ENOSPC, "full"), FailureKind.DISK_FULL),
        (ValkeyUnavailable("gone"), FailureKind.STORE),
        (ConsistencyError("torn"), FailureKind.CHECKPOINT),
        (PermissionDenied("no"), FailureKind.SECURITY),
        (SettingsError("wrong"), FailureKind.CONFIGURATION),
        (BadInput("x", "odd"), FailureKind.DATA_QUALITY),
        (ZeroDivisionError(), FailureKind.CRASH),
    ],
)
def test_errors_as_failures(error: Exception, kind: FailureKind) -> None:
    assert failure_of(error).kind is kind


def test_the_cause_behind_an_error_counts() -> None:
    """A program that wraps what went wrong is understood all the same; who was asked and when to come again is kept."""
    try:
        try:
            raise answer(503, **{"retry-after": "7"})
        except httpx.HTTPError as error:
            raise RuntimeError("prices could not be had") from error
    except RuntimeError as error:
        failure = failure_of(error, attempt=1)
    assert (failure.kind, failure.endpoint, failure.retry_after_s) == (FailureKind.OVERLOADED, "api.example", 7.0)


# Patterns


def test_a_pattern_is_what_failures_of_one_cause_have_in_common() -> None:
    """Numbers, ids, times and addresses do not count; the agent's type counts unless the cause lies outside."""
    one = AgentFailure(
        kind=FailureKind.DATA_QUALITY, message="Row 17 of 0f8e5c1a-1111-2222-3333-444455556666 at 2026-06-01T10:00:00Z"
    )
    other = AgentFailure(
        kind=FailureKind.DATA_QUALITY, message="Row 4 of 9a8e5c1a-1111-2222-3333-444455556666 at 2026-07-02T11:00:00Z"
    )
    assert signature_of(one, "valuation") == signature_of(other, "valuation")
    assert signature_of(one, "valuation").hash != signature_of(one, "screening").hash
    assert "valuation" in signature_of(one, "valuation").pattern
    quota = AgentFailure(kind=FailureKind.QUOTA, message="429 of key 77", endpoint="api.example")
    assert signature_of(quota, "valuation") == signature_of(quota, "screening")
    assert signature_of(quota, "valuation").external
    assert not signature_of(one, "valuation").external
    assert len(signature_of(one, "valuation").hash) == 64


@given(st.text(max_size=3_000), st.sampled_from(FailureKind))
def test_any_text_has_a_pattern_of_bounded_length(message: str, kind: FailureKind) -> None:
    found = signature_of(AgentFailure(kind=kind, message=message), "valuation")
    assert len(found.pattern) < 500


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 900)), max_size=12), st.integers(0, 900))
def test_failures_are_one_from_three_analyses_in_five_minutes(found: list[tuple[str, int]], at: int) -> None:
    occurrences = [Occurrence(name, "s", PAUSED + timedelta(seconds=after)) for name, after in found]
    last = Occurrence("z", "s", PAUSED + timedelta(seconds=at))
    near = {name for name, after in found if 0 <= at - after <= WINDOW.total_seconds()} | {"z"}
    assert correlated(occurrences, last) == (near if len(near) >= LEAST else frozenset())
    assert correlated([Occurrence(one.analysis_id, "other", one.at) for one in occurrences], last) == frozenset()
