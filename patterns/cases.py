"""
The cases of a pattern: settled questions as they stood when its reference made a forecast of them.

All tests of a pattern read their cases here: hold-out, watching, probation, validation anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from math import sqrt
from typing import Any, Final, NamedTuple

from imem.credibility.scores.context import DIMENSIONS
from imem.journal.deadline import Deadline
from imem.journal.postgres.connection import Row
from imem.journal.postgres.database import Database
from imem.patterns.definition import PatternDefinition, Period
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
    questions = await featured_cases(
        database, definition.metric, definition.reference, definition.period, since=since, until=until,
        deadline=deadline,
    )  # fmt: skip
    return [one.of(definition) for one in questions]


class FeaturedCase(NamedTuple):
    """A case in which no condition holds yet, and what was known when its forecast was made, by name of the feature."""

    case: Case
    features: Mapping[str, Any]

    def of(self, definition: PatternDefinition) -> Case:
        """Return the case with whether the condition of *definition* held."""
        return replace(self.case, matches=definition.holds(self.features))


async def featured_cases(
    database: Database, metric: str, reference: str, period: Period, *,
    since: datetime = EVER, until: datetime, deadline: Deadline,
) -> list[FeaturedCase]:  # fmt: skip
    """
    Return the settled questions of *metric* as *reference* first forecast them in each period.

    Args:
        since, until: as of :func:`cases`.
    """
    given = {"metric": metric, "reference": reference, "period": period.value, "since": since, "until": until}
    return [featured(row) for row in await database.named("pattern_cases", given, deadline=deadline)]


def featured(row: Row) -> FeaturedCase:
    """
    Return the case of a row of ``pattern_cases``, with its features.

    For an event, the outcome is 0 or 1 and the reference is its probability. For a value, both are shares of the size
    of the value that was stated, which was known then; a stated zero has no size, and no case.
    """
    event = row["happened"] is not None
    size = 1.0 if event else abs(row["stated"])
    case = Case(
        subject=row["subject_id"], period=f"{row['period']:%Y-%m-%d}", predicted_at=row["predicted_at"],
        known_at=row["known_at"], outcome=float(row["happened"]) if event else row["actual"] / size,
        reference=row["stated"] / size, matches=False,
        sd=max(sqrt(row["stated"] * (1.0 - row["stated"])), LEAST_SD) if event else 1.0,
    )  # fmt: skip
    features = {name: row[name] for name in DIMENSIONS} | {"forecast": row["stated"], "drift": row["drift"]}
    return FeaturedCase(case, features)
