"""
Deadlines on the monotonic clock, made at the entry point and passed down.

A callee never sets a timeout of its own: it takes the time left, or a part of it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from imem.journal.arguments import checks_arguments
from imem.journal.errors import BudgetExceeded


@checks_arguments
@dataclass(frozen=True, slots=True)
class Deadline:
    """
    A moment on the monotonic clock after which a result is useless.

    Attributes:
        at_s: the moment, in seconds of :func:`time.monotonic`; infinity for background work.
    """

    at_s: float

    @classmethod
    def after_ms(cls, budget_ms: float) -> Deadline:
        """Return the deadline *budget_ms* milliseconds from now."""
        return cls(time.monotonic() + budget_ms / 1000.0)

    @classmethod
    def never(cls) -> Deadline:
        """Return a deadline that does not pass, for background work."""
        return cls(float("inf"))

    def left_s(self) -> float:
        """Return the seconds left, never below zero."""
        return max(0.0, self.at_s - time.monotonic())

    def left_ms(self) -> float:
        """Return the milliseconds left, never below zero."""
        return self.left_s() * 1000.0

    def late_ms(self) -> float | None:
        """Return how many whole milliseconds ago the deadline passed; None where it was less than one."""
        return float(round(late)) if (late := (time.monotonic() - self.at_s) * 1000.0) >= 1.0 else None

    @property
    def passed(self) -> bool:
        """Whether the moment is over."""
        return time.monotonic() >= self.at_s

    def within_ms(self, budget_ms: float) -> Deadline:
        """Return the earlier of this deadline and one *budget_ms* milliseconds from now."""
        return Deadline(min(self.at_s, time.monotonic() + budget_ms / 1000.0))

    def check(self, what: str) -> None:
        """
        Raise if the deadline has passed, before *what* is begun.

        Raises:
            BudgetExceeded: the deadline has passed; retryable.
        """
        if self.passed:
            raise BudgetExceeded(f"No time was left for {what}.")
