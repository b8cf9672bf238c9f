"""
How late a call is, apart from what no program can help: waiting for a processor, and for Python's garbage collector.

Tests share a machine with whatever else runs there. The kernel says how long a thread that could run was not run; an
allowance of that size, measured beside each call, is exact on an idle machine and fair on a busy one. A collection of
the oldest generation stops a call for up to 35 ms whenever it falls due, which is allowed for as well. The absolute
figures, all of this included, are claimed in ``tests/bench``.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

STALL_S: Final = 5.0
"""How long a test keeps a store silent under load, in seconds: well above the two that a call may hang."""

TIMER_S: Final = 0.01
"""How late a timer may be on an idle machine, in seconds."""

_collecting_s = [0.0, 0.0]
"""When the collection that runs began, by the monotonic clock, and how long all together took, in seconds."""


def _collecting(phase: str, _: dict[str, int]) -> None:
    if phase == "start":
        _collecting_s[0] = time.monotonic()
    else:
        _collecting_s[1] += time.monotonic() - _collecting_s[0]


gc.callbacks.append(_collecting)

_SCHEDSTAT: Final = Path("/proc/thread-self/schedstat")
_NO_SCHEDSTAT_S: Final = 0.25
"""The allowance of a call where the kernel does not say, in seconds."""


def starved_s() -> float | None:
    """Return how long this thread has waited for a processor since it began, in seconds; None where nobody can say."""
    try:
        return int(_SCHEDSTAT.read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return None


class Punctual:
    """
    Times calls against their deadlines.

    Attributes:
        late_s: how much later than its deadline the latest call ended, in seconds, its allowance deducted.
        slowest_s: the longest call, in seconds, its allowance deducted.
        calls: how many ended.
    """

    def __init__(self) -> None:
        # A program of agents does not hold what hundreds of tests before have imported and left behind: looking through
        # that for garbage stops a call for 60 ms.
        gc.collect()
        gc.freeze()
        self.late_s = float("-inf")
        self.slowest_s = 0.0
        self.calls = 0

    @contextmanager
    def within(self, budget_s: float) -> Iterator[None]:
        """Time the block, which has *budget_s* seconds."""
        before, collected_s, begun = starved_s(), _collecting_s[1], time.monotonic()
        try:
            yield
        finally:
            took_s, after = time.monotonic() - begun, starved_s()
            starved = after - before if before is not None and after is not None else _NO_SCHEDSTAT_S
            took_s -= starved + _collecting_s[1] - collected_s + TIMER_S
            self.calls += 1
            self.slowest_s = max(self.slowest_s, took_s)
            self.late_s = max(self.late_s, took_s - budget_s)
