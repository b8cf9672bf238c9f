"""The window of the limiter, against a plain reading of its promise."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from imem.cache.rate_limit import WINDOW_S, LocalCalls


@given(st.integers(1, 5), st.lists(st.floats(0.0, 70.0, allow_nan=False), max_size=60))
def test_no_window_has_more_calls_than_the_limit_and_none_is_refused_early(limit: int, pauses: list[float]) -> None:
    """A call is refused exactly if as many as the limit were admitted within the minute before it."""
    now_s = 0.0
    calls = LocalCalls(clock=lambda: now_s)
    admitted: list[float] = []
    for pause in pauses:
        now_s += pause
        within = [at for at in admitted if now_s - at < WINDOW_S]
        wait_s = calls.admit(b"key", limit)
        assert (wait_s == 0.0) is (len(within) < limit)
        if wait_s == 0.0:
            admitted.append(now_s)
        else:
            assert 0.0 < wait_s <= WINDOW_S
            assert now_s + wait_s >= within[-limit] + WINDOW_S - 1e-6


def test_identities_are_bounded_and_a_lowered_limit_counts() -> None:
    calls = LocalCalls(clock=lambda: 1.0)
    for number in range(20_000):
        assert calls.admit(str(number).encode(), 3) == 0.0
    assert len(calls._moments) == 10_000
    last = b"19999"
    assert [calls.admit(last, 3) for _ in range(3)] == [0.0, 0.0, 60.0]
    assert calls.admit(last, 1) == 60.0
