"""Loading into the journal alone: events a second, the same file again, and the memory of one ten times as long."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bench.table import MB, Figure, Table
from tests.imem.ingest.conftest import LoadHarness, analysis, company, finding, harness, performed

__all__ = ["harness"]

BAR_PER_S = 1000.0
BAR_GROWTH = 1.2
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
def test_load(harness: LoadHarness, table: Table) -> None:
    """At least 1,000 events a second become durable, and ten times the file takes at most a fifth more memory."""
    small = harness.load_measured(harness.file("small.jsonl", history(LINES // 10, 10**6)))
    large = harness.load_measured(harness.file("large.jsonl", history(LINES, 0)))
    again = harness.load_measured(harness.folder / "large.jsonl")
    rate, growth = large.told["events_per_s"], large.peak_kib / small.peak_kib
    repeated = again.told["identical"] / again.told["seconds"]

    data = f"{LINES:,} lines"
    table.add(
        Figure(
            name="journal alone", data=data, value=rate, unit="events/s", bar=BAR_PER_S, better="more",
            note="a load that nobody applies to the graph",
        ),
        Figure(name="journal alone, the same file again", data=data, value=repeated, unit="lines/s"),
        Figure(name="peak memory of imem load", data=data, value=large.peak_kib * 1024 / MB, unit="MB"),
        Figure(name="peak memory of imem load, growth", data=data, value=growth, unit="×", bar=BAR_GROWTH),
    )  # fmt: skip
