"""Alerts when reads of signals are slow, or fail, over a minute."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from imem.journal.postgres.database import Database
from imem.recall.timing.alerting import BackgroundAlerts

SLOW: Final = "SIGNALS_SLOW"
FAILING: Final = "SIGNALS_FAILING"
"""Kinds of the alerts."""

WINDOW_S: Final = 60.0
"""Length of the window, in seconds."""

MOST_P95_MS: Final = 200.0
"""95th percentile above which the first is raised, in milliseconds."""

MOST_FAILED: Final = 0.05
"""Share of failed reads above which the second is raised."""

ENOUGH: Final = 20
"""Least reads in the window from which anything is concluded."""

CHECK_INTERVAL_S: Final = 1.0
"""Least time between two looks at the window, in seconds."""


class SignalWatch:
    """
    Looks at the reads of one process.

    Args:
        database: where alerts are raised.
        now: a monotonic clock, in seconds.
    """

    def __init__(self, database: Database, *, now: Callable[[], float] = time.monotonic) -> None:
        self.alerts = BackgroundAlerts(database, now=now)
        self._now = now
        self._reads: deque[tuple[float, float, bool]] = deque()
        self._checked_s = float("-inf")

    def observe(self, took_ms: float, *, failed: bool) -> None:
        """Count one read."""
        now = self._now()
        self._reads.append((now, took_ms, failed))
        while self._reads[0][0] < now - WINDOW_S:
            self._reads.popleft()
        if len(self._reads) < ENOUGH or now - self._checked_s < CHECK_INTERVAL_S:
            return
        self._checked_s = now
        count = len(self._reads)
        p95_ms = sorted(took for _, took, _ in self._reads)[int(0.95 * (count - 1))]
        share = sum(failed for *_, failed in self._reads) / count
        if p95_ms > MOST_P95_MS:
            reason = f"95 % of {count} reads of signals within a minute took up to {p95_ms:.0f} ms."
            self.alerts.start(SLOW, "signals", reason, {"metric": "agent_signal_read_seconds", "p95_ms": round(p95_ms)})
        if share > MOST_FAILED:
            reason = f"{share:.0%} of {count} reads of signals within a minute failed."
            self.alerts.start(
                FAILING, "signals", reason, {"metric": "agent_signal_reads_total", "share": round(share, 3)}
            )
