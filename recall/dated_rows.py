"""
Sorting and limiting of named queries' rows by the values of a moment.

The graph chooses and sorts by the newest values, and returns records corrected after the moment in addition to the
limit (cypher/queries/subjects.cypher). Here rows are sorted and cut by the values of the moment, so that nothing known
later adds, moves or removes a row. Rows whose record was not known then are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from imem.journal.deadline import Deadline
from imem.journal.postgres.database import Database
from imem.kg.asof import AsOf, Ref, ValuesAsOf, dated

Row = dict[str, Any]

MOST_PATTERNS: Final = 10_000
"""Most active patterns considered: twice as many as the largest institution is meant to have."""


async def active_patterns(database: Database, subject_id: str, at: AsOf, *, deadline: Deadline) -> list[str]:
    """
    Return the keys of the patterns that analyses of a subject showed and that were active at the moment.

    Raises:
        PostgresUnavailable, BudgetExceeded: they could not be read in time; retryable.
    """
    given = {"subject_id": subject_id, "limit": MOST_PATTERNS, **at.limits}
    return [row["key"] for row in await database.named("active_patterns_of_subject", given, deadline=deadline)]


def newest_rows(rows: Iterable[Row], answer: ValuesAsOf, column: str, kind: str, field: str) -> list[Row]:
    """Return the rows whose *column* names a known *kind*, by its time in *field*, newest first, then by key."""
    kept = [row for row in rows if (kind, row[column]) in answer.records]
    kept.sort(key=lambda row: row[column])
    kept.sort(key=lambda row: str(answer.records[kind, row[column]].core[field]), reverse=True)
    return kept


@dataclass(frozen=True, slots=True)
class DatedQuery:
    """
    A named query whose rows are dated before they are shown.

    Attributes:
        name: its name.
        refs: the records of its rows to read as of the moment.
        finish: sorts and cuts the rows by those records, given the parameters with which the query was run; None for a
            query that neither chooses nor sorts by what a correction may change.
    """

    name: str
    refs: Callable[[Iterable[Row]], list[Ref]] = field(default=lambda _: [])
    finish: Callable[[Sequence[Row], ValuesAsOf, Mapping[str, Any]], list[Row]] | None = None

    async def finished(
        self, rows: Sequence[Row], given: Mapping[str, Any], database: Database, at: AsOf, *, deadline: Deadline
    ) -> list[Row]:
        """
        Return the rows as of the moment.

        Args:
            given: the parameters with which the query was run.

        Raises:
            PostgresUnavailable, BudgetExceeded: no answer in time; retryable.
        """
        if self.finish is None:
            return list(rows)
        return self.finish(rows, await dated(database, self.refs(rows), at, deadline=deadline), given)


def refs_in(column: str, kind: str) -> Callable[[Iterable[Row]], list[Ref]]:
    """Return the function that takes the records of *kind* from a column."""
    return lambda rows: [(kind, row[column]) for row in rows]
