"""Loading into the journal: events a second, and the memory of a file ten times as long."""

from __future__ import annotations

from typing import Any

import pytest

from tests.load.conftest import Desk, analysis, company, desk, finding, performed, template

__all__ = ["desk", "template"]

FLOOR_PER_S = 1000.0
FLOOR_GROWTH = 1.2
LINES = 20_000


def history(lines: int, start: int) -> list[dict[str, Any]]:
    """Return generated analyses, each with its company, three claims and the agent that made it."""
    claim = {"direction": "positive", "confidence": 0.7, "metric": "return_1s", "target_at": "2026-06-02T20:00:00Z"}
    made: list[dict[str, Any]] = []
    for number in range(start, start + lines // 6):
        key = f"analysis-{number}"
        made.append(company(f"T{number}", name=f"Company {number}", sector=f"Sector {number % 11}"))
        made.append(analysis(key, subject_id=f"company:T{number}", summary="What was found. " * 8))
        made += [
            finding(
                f"{key}/{n}",
                analysis_id=key,
                subject_id=f"company:T{number}",
                agent=f"agent-{(number + n) % 40}",
                **claim,
            )
            for n in range(3)
        ]
        made.append(performed(f"agent-{number % 40}", key))
    return made


@pytest.mark.bench
def test_load(desk: Desk) -> None:
    """At least 1,000 events a second become durable, and ten times the file takes at most a fifth more memory."""
    small = desk.load_measured(desk.file("small.jsonl", history(LINES // 10, 10**6)))
    large = desk.load_measured(desk.file("large.jsonl", history(LINES, 0)))
    again = desk.load_measured(desk.folder / "large.jsonl")
    rate, growth = large.told["events_per_s"], large.peak_kib / small.peak_kib
    repeated = again.told["identical"] / again.told["seconds"]

    print(  # noqa: T201 - the figure is what this is for
        f"\nload into the journal: {rate:,.0f} events/s (floor {FLOOR_PER_S:,.0f}), "
        f"loaded again {repeated:,.0f} lines/s; peak memory {small.peak_kib / 1024:.0f} MiB, "
        f"of ten times the file {large.peak_kib / 1024:.0f} MiB "
        f"({growth:.2f} times, floor {FLOOR_GROWTH})"
    )
    assert rate >= FLOOR_PER_S
    assert growth <= FLOOR_GROWTH
