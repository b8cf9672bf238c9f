"""
What is counted and timed, in this process: the names are those under which it is to be scraped.

Counting never fails and never waits. A process begins at zero.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Bag
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final

Labels = tuple[tuple[str, str], ...]

BUCKETS_MS: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 5000.0, 30_000.0)
"""Upper bounds of the buckets of timings, in milliseconds; what took longer is in none of them."""


def _labels(labels: dict[str, str]) -> Labels:
    return tuple(sorted(labels.items()))


@dataclass(frozen=True, slots=True)
class Counter:
    """
    Something that is counted.

    Attributes:
        name, help: as they are shown.
        labels: the names of its labels.
        counts: how often, by the values of the labels.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()
    counts: Bag[Labels] = field(default_factory=Bag)

    def add(self, **labels: str) -> None:
        """Count one."""
        self.counts[_labels(labels)] += 1

    def total(self, **labels: str) -> int:
        """Return how many were counted with these labels, whatever the others."""
        wanted = set(_labels(labels))
        return sum(count for found, count in self.counts.items() if wanted <= set(found))


@dataclass(slots=True)
class _Series:
    buckets: list[int]
    sum_ms: float = 0.0
    count: int = 0


@dataclass(frozen=True, slots=True)
class Timing:
    """
    Something that is timed, in milliseconds.

    Attributes:
        name, help, labels: as of a :class:`Counter`.
        series: counts in buckets, sum and count, by the values of the labels.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()
    series: dict[Labels, _Series] = field(default_factory=dict)

    def observe(self, took_ms: float, **labels: str) -> None:
        """Count one that took so long."""
        series = self.series.setdefault(_labels(labels), _Series([0] * (len(BUCKETS_MS) + 1)))
        series.buckets[bisect_left(BUCKETS_MS, took_ms)] += 1
        series.sum_ms += took_ms
        series.count += 1

    @contextmanager
    def timed(self, **labels: str) -> Iterator[None]:
        """Time the block, unless it raises."""
        began = perf_counter()
        yield
        self.observe((perf_counter() - began) * 1000.0, **labels)

    def count(self, **labels: str) -> int:
        """Return how many were timed with these labels, whatever the others."""
        wanted = set(_labels(labels))
        return sum(series.count for found, series in self.series.items() if wanted <= set(found))


@dataclass(frozen=True, slots=True)
class Metrics:
    """Everything that is counted about checkpoints; one for each process (:data:`METRICS`), tests make their own."""

    save_latency: Timing = field(
        default_factory=lambda: Timing(
            "checkpoint_save_latency_ms", "Time from the call until a store had it.", ("store",)
        )
    )
    save_errors: Counter = field(
        default_factory=lambda: Counter(
            "checkpoint_save_errors_total", "Saves that a store refused or did not confirm.", ("store",)
        )
    )
    restore_latency: Timing = field(
        default_factory=lambda: Timing("checkpoint_restore_latency_ms", "Time to load a checkpoint.", ("tier",))
    )
    consistency_errors: Counter = field(
        default_factory=lambda: Counter(
            "checkpoint_consistency_errors_total", "Stored state that was not what it had to be.", ("store",)
        )
    )
    tier_used: Counter = field(
        default_factory=lambda: Counter("dual_recovery_tier_used", "Which tier a recovery was served by.", ("tier",))
    )


METRICS: Final = Metrics()
"""Of this process."""
