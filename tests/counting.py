"""What a metric says, for tests."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram


def total(metric: Counter | Gauge | Histogram, **labels: str) -> float:
    """Return how much was counted, or how many were timed, with these labels, whatever the others."""
    ends = ("_total", "_count") if not isinstance(metric, Gauge) else ("",)
    return sum(
        sample.value
        for family in metric.collect()
        for sample in family.samples
        if sample.name.endswith(ends) and labels.items() <= sample.labels.items()
    )
