"""
The cases of a pattern: settled questions as they stood when its reference made a forecast of them.

All tests of a pattern read their cases here: hold-out, watching, probation, validation anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from math import sqrt
from typing import Any, Final

from imem.credibility.scores.context import DIMENSIONS
from imem.journal.deadline import Deadline
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.patterns.definition import PatternDefinition
from imem.patterns.evidence.splits import Case

LEAST_SD: Final = 0.05
"""Least standard deviation of an event about its probability: one that was stated as nearly sure has no more weight."""

EVER: Final = datetime(1, 1, 2, tzinfo=UTC)


async def cases(
    database: Database,
    definition: PatternDefinition,
    *,
    since: datetime = EVER,
    until: datetime,
    deadline: Deadline,
) -> list[Case]:
    """
    Return the cases of the questions of *definition*, those in which its condition does not hold included.

    Args:
        since: forecasts made before are left out.
        until: as of when: outcomes, and vintages of them, that became known later are left out.
    """
    given = {
        "metric": definition.metric, "reference": definition.reference, "period": definition.period.value,
        "since": since, "until": until,
    }  # fmt: skip
    found = await database.named("pattern_cases", given, deadline=deadline)
    return [case_of(row, definition.holds) for row in found]


def features_of(row: Row) -> dict[str, Any]:
    """Return what was known when the forecast of *row* was made, by the name of the feature."""
    return {name: row[name] for name in DIMENSIONS} | {"forecast": row["stated"], "drift": row["drift"]}


def case_of(row: Row, holds: Callable[[Mapping[str, Any]], bool]) -> Case:
    """
    Return the case of a settled forecast.

    For an event, the outcome is 0 or 1 and the reference is its probability. For a value, both are shares of the size
    of the value that was stated, which was known then; a stated zero has no size, and no case.
    """
    event = row["happened"] is not None
    size = 1.0 if event else abs(row["stated"])
    return Case(
        subject=row["subject_id"], period=f"{row['period']:%Y-%m-%d}", predicted_at=row["predicted_at"],
        known_at=row["known_at"], outcome=float(row["happened"]) if event else row["actual"] / size,
        reference=row["stated"] / size, matches=holds(features_of(row)),
        sd=max(sqrt(row["stated"] * (1.0 - row["stated"])), LEAST_SD) if event else 1.0,
    )  # fmt: skip
