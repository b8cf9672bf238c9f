"""
Metrics of checkpoints, of this process.

Counting never fails and never waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Final

from prometheus_client import Counter, Histogram

BUCKETS_MS: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 5000.0, 30_000.0)
"""Upper bounds of the buckets of timings, in milliseconds."""


SAVE_LATENCY: Final = Histogram(
    "checkpoint_save_latency_ms",
    "Milliseconds from the call until a store had a checkpoint.",
    ("store",),
    buckets=BUCKETS_MS,
)
SAVE_ERRORS: Final = Counter(
    "checkpoint_save_errors_total", "Saves that a store refused or did not confirm.", ("store",)
)
RESTORE_LATENCY: Final = Histogram(
    "checkpoint_restore_latency_ms", "Milliseconds to load a checkpoint, or to recover.", ("tier",), buckets=BUCKETS_MS
)
CONSISTENCY_ERRORS: Final = Counter(
    "checkpoint_consistency_errors_total", "Stored state that was not what it had to be.", ("store",)
)
TIER_USED: Final = Counter("dual_recovery_tier_used_total", "The tier that served a recovery.", ("tier",))


def name_of(counter: Counter) -> str:
    """Return the exported name of *counter*."""
    (described,) = counter.describe()
    return f"{described.name}_total"


@contextmanager
def latency_of(histogram: Histogram) -> Iterator[None]:
    """Time the block in milliseconds, unless it raises; *histogram* has its labels set."""
    began_s = perf_counter()
    yield
    histogram.observe((perf_counter() - began_s) * 1000.0)
