"""
A circuit breaker for calls of one server, in one process and one event loop.

It is closed until a number of calls in a row had no answer. Open, it refuses calls; after a while it is half-open and
admits one probe at a time. Any answer closes it; a failed probe opens it again, for twice as long.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

FAILURE_THRESHOLD: Final = 3
"""Calls in a row without an answer after which it opens."""


@dataclass(slots=True, kw_only=True)
class CircuitBreaker:
    """
    Whether calls of one server are worth their time.

    An answer that came after a call began shows that the server is only slow: such a call does not count as a failure.

    Attributes:
        first_open_s, longest_open_s: first and longest time for which it is open, in seconds.
        least_failure_s: least duration of a failure, in seconds; a call with a shorter deadline is no evidence.
        overlapping: whether calls that failed at the same time count each; if not, they count once.
    """

    first_open_s: float
    longest_open_s: float
    least_failure_s: float = 0.0
    overlapping: bool = True
    _answered_s: float = field(default=float("-inf"), init=False)
    _failed_s: float = field(default=float("-inf"), init=False)
    _failures: int = field(default=0, init=False)
    _open_until_s: float = field(default=float("-inf"), init=False)
    _open_s: float = field(default=0.0, init=False)
    _probing: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """Begin with the first open time."""
        self._open_s = self.first_open_s

    @property
    def is_open(self) -> bool:
        """Whether it is open or half-open."""
        return self._failures >= FAILURE_THRESHOLD

    @property
    def refuses(self) -> bool:
        """Whether it is open, or half-open with a probe under way."""
        return self.is_open and (self._probing or time.monotonic() < self._open_until_s)

    def begin_probe(self) -> bool:
        """Return whether the call that begins is the probe; :meth:`record_result` ends it."""
        self._probing = self._probing or self.is_open
        return self.is_open

    def record_result(self, begun_s: float, *, answered: bool | None, probe: bool) -> None:
        """
        Record the end of a call.

        Args:
            begun_s: when it began (monotonic).
            answered: whether it was answered; None where its caller was cancelled, which is no evidence.
            probe: whether it was the probe.
        """
        now_s = time.monotonic()
        if probe:
            self._probing = False
        if answered:
            self._answered_s, self._failures, self._open_s = now_s, 0, self.first_open_s
            return
        late = now_s - begun_s >= self.least_failure_s and self._answered_s < begun_s
        if answered is False and late and (self.overlapping or self._failed_s < begun_s):
            self._failed_s = now_s
            self._failures += 1
            if self.is_open:
                self._open_until_s = now_s + self._open_s
                self._open_s = min(self._open_s * 2.0, self.longest_open_s)
        elif probe:
            self._open_until_s = now_s + self._open_s
