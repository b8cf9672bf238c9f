"""A circuit breaker opens by evidence alone, and lets one probe at a time find out whether the server answers again."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

from imem.journal.circuit_breaker import FAILURE_THRESHOLD, CircuitBreaker

OPEN_S = 0.25
LEAST_FAILURE_S = 0.2


@dataclass
class Monotonic:
    """The monotonic clock, which stands still."""

    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Monotonic:
    clock = Monotonic()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def _breaker(*, overlapping: bool = True) -> CircuitBreaker:
    return CircuitBreaker(
        first_open_s=OPEN_S, longest_open_s=2.0, least_failure_s=LEAST_FAILURE_S, overlapping=overlapping
    )


def _refuses(breaker: CircuitBreaker) -> bool:
    return breaker.refuses


def test_calls_with_little_time_are_no_evidence(clock: Monotonic) -> None:
    breaker = _breaker()
    for _ in range(10 * FAILURE_THRESHOLD):
        breaker.record_result(clock.now_s, answered=False, probe=False)
    assert not breaker.begin_probe()
    for _ in range(FAILURE_THRESHOLD):
        breaker.record_result(clock.now_s - LEAST_FAILURE_S - 0.1, answered=False, probe=False)
    assert _refuses(breaker)


@pytest.mark.parametrize(("overlapping", "opens"), [(True, True), (False, False)])
def test_overlapping_failures_count_each_or_once(clock: Monotonic, *, overlapping: bool, opens: bool) -> None:
    breaker = _breaker(overlapping=overlapping)
    for _ in range(10 * FAILURE_THRESHOLD):
        breaker.record_result(clock.now_s - 1, answered=False, probe=False)
    assert _refuses(breaker) is opens
    for _ in range(FAILURE_THRESHOLD):
        clock.now_s += 1
        breaker.record_result(clock.now_s - 0.5, answered=False, probe=False)
    assert _refuses(breaker)


def test_a_cancelled_call_is_no_evidence_and_leaves_the_probe_to_another(clock: Monotonic) -> None:
    breaker = _breaker()
    for _ in range(FAILURE_THRESHOLD):
        breaker.record_result(clock.now_s - 1, answered=None, probe=False)
    assert not breaker.is_open
    for _ in range(FAILURE_THRESHOLD):
        breaker.record_result(clock.now_s - 1, answered=False, probe=False)
    clock.now_s += OPEN_S + 0.01
    assert breaker.begin_probe()
    breaker.record_result(clock.now_s - 1, answered=None, probe=True)
    clock.now_s += 2 * OPEN_S + 0.01
    assert not _refuses(breaker)


def test_one_call_probes_when_the_open_time_is_over(clock: Monotonic) -> None:
    breaker = _breaker()
    for _ in range(FAILURE_THRESHOLD):
        breaker.record_result(clock.now_s - 1, answered=False, probe=False)
    clock.now_s += OPEN_S + 0.01
    assert not _refuses(breaker)
    assert breaker.begin_probe()
    assert _refuses(breaker)
    breaker.record_result(clock.now_s - 0.5, answered=False, probe=True)
    clock.now_s += OPEN_S + 0.01
    assert _refuses(breaker), "a failed probe doubles the time"
    clock.now_s += OPEN_S
    assert not _refuses(breaker)
    assert breaker.begin_probe()
    breaker.record_result(clock.now_s, answered=True, probe=True)
    assert not breaker.begin_probe()
