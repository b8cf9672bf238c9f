"""A small load with everything in it: claims of three agents on several questions, two vintages, decisions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from .conftest import agent, cites, decision, finding, outcome

START = datetime(2026, 1, 1, tzinfo=UTC)


def day(number: float) -> datetime:
    return START + timedelta(days=number)


def lines(questions: int) -> list[dict[str, Any]]:
    """Return the lines; each decision's claim is right by the first report and wrong by the revision."""
    found = [agent("base", day(0), "baseline")]
    for number in range(questions):
        subject = {"subject_id": f"market:{number}"}
        target = day(5 + number)
        for name, probability in (("ann", 0.8), ("bob", 0.5), ("base", 0.4)):
            key = f"{name}-{number}"
            found.append(finding(key, day(1), target, agent=name, probability=probability, **subject))
        found.append(decision(f"d-{number}", day(2), **subject))
        found.append(cites(f"d-{number}", f"ann-{number}", day(2)))
        found.append(outcome(f"o0-{number}", target + timedelta(days=1), target, 1.0, **subject))
        found.append(outcome(f"o1-{number}", target + timedelta(days=90), target, 0.0, vintage=1, **subject))
    return found
