"""
Sorting and limiting of named queries' rows by the values of a moment.

The graph chooses and sorts by the newest values, and returns records corrected after the moment in addition to the
limit (cypher/queries/subjects.cypher). Here rows are sorted and cut by the values of the moment, so that nothing known
later adds, moves or removes a row. Rows whose record was not known then are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from imem.credibility.track_record import BASELINE
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


def newest(rows: Iterable[Row], answer: ValuesAsOf, column: str, kind: str, field: str) -> list[Row]:
    """Return the rows whose *column* names a known *kind*, by its time in *field*, newest first, then by key."""
    kept = [row for row in rows if (kind, row[column]) in answer.records]
    kept.sort(key=lambda row: row[column])
    kept.sort(key=lambda row: str(answer.records[kind, row[column]].core[field]), reverse=True)
    return kept


def history(rows: Iterable[Row], answer: ValuesAsOf, limit: int, findings_limit: int, detailed: int) -> list[Row]:
    """Return rows of ``company_history``, own ones before those of the series; the first ones name their findings."""
    kept = newest(rows, answer, "analysis", "Analysis", "date")
    kept.sort(key=lambda row: not row["own"])
    return [
        _detailed(row, answer, findings_limit)
        if place < detailed
        else {**row, "findings": [], "performed_by": [], "makers": [], "baselines": []}
        for place, row in enumerate(kept[:limit])
    ]


def _detailed(row: Row, answer: ValuesAsOf, findings_limit: int) -> Row:
    """Return a row with its findings in order; ``baselines`` holds the agents that were baselines at the moment."""
    baselines = sorted({agent for agent in row["baselines"] if _is_baseline(agent, answer)})
    findings = weightiest({**row, "baselines": baselines}, answer)[:findings_limit]
    return {**row, "makers": sorted(row["makers"]), "baselines": baselines, "findings": findings}


def weightiest(row: Row, answer: ValuesAsOf) -> list[str]:
    """
    Return the recorded findings of a row of ``company_history``, by weight.

    Findings of agents that ran the analysis or took its decisions come first, those of baselines last; then by recorded
    importance, then claims before remarks. The briefing sorts the chosen ones further, by track record.
    """
    makers, baselines = set(row["makers"]), set(row["baselines"])

    def rank(key: str) -> tuple[bool, bool, float, bool, str]:
        core = answer.records["Finding", key].core
        agent, importance = core["agent"], float(core.get("importance", -1.0))
        return agent in baselines, agent not in makers, -importance, core.get("metric") is None, key

    return sorted((key for key in row["findings"] if ("Finding", key) in answer.records), key=rank)


def _is_baseline(agent: str, answer: ValuesAsOf) -> bool:
    known = answer.records.get(("Agent", agent))
    return known is not None and known.groups.get("profile", {}).get("kind") == BASELINE


PRIORITIES: Final = ("CRITICAL", "HIGH", "MEDIUM", "LOW")
"""Priorities of contradictions, highest first."""


def contradictions(rows: Iterable[Row], answer: ValuesAsOf, limit: int) -> list[Row]:
    """Return rows of ``contradictions_of_subject``: open ones before resolved ones, by priority, the newest first."""
    kept = newest(rows, answer, "contradiction", "DataContradiction", "timestamp")

    def rank(row: Row) -> tuple[bool, int]:
        known = answer.records["DataContradiction", row["contradiction"]]
        return "resolution" in known.groups, PRIORITIES.index(known.core["priority"])

    return sorted(kept, key=rank)[:limit]


def lessons(rows: Sequence[Row], answer: ValuesAsOf, limit: int) -> list[Row]:
    """Return rows of ``lessons_of_subject`` that concern the subject by their values of the moment, with the total."""
    if not rows:
        return []
    total = rows[0]["total"]
    corrected = len(rows) - min(limit, total)  # They come first, in addition to the limit, and are not in the total.
    kept = []
    for number, row in enumerate(rows):
        via = _ways(row, answer)
        if via:
            kept.append({**row, "via": via})
            total += number < corrected
    kept.sort(key=lambda row: (-row["newness"], row["lesson"]))
    return [{**row, "total": total} for row in kept[:limit]]


def _ways(row: Row, answer: ValuesAsOf) -> list[str]:
    """Return the ways in which a lesson concerns the subject."""
    lesson = answer.records.get(("Lesson", row["lesson"]))
    if lesson is None:
        return []
    by_domain = not set(lesson.get("affected_domains") or ()).isdisjoint(row["domains"])
    return sorted({way for way in row["via"] if way != "domain"} | ({"domain"} if by_domain else set()))


def _history_refs(rows: Iterable[Row]) -> list[Ref]:
    refs: list[Ref] = []
    for row in rows:
        refs.append(("Analysis", row["analysis"]))
        refs += [("Finding", key) for key in row["findings"]]
        refs += [("Agent", agent) for agent in row["baselines"]]
    return refs


def _refs(column: str, kind: str) -> Callable[[Iterable[Row]], list[Ref]]:
    return lambda rows: [(kind, row[column]) for row in rows]


_Finish = Callable[[Sequence[Row], ValuesAsOf, Mapping[str, Any]], list[Row]]

_FINISHERS: Final[Mapping[str, tuple[Callable[[Iterable[Row]], list[Ref]], _Finish]]] = {
    "company_history": (
        _history_refs,
        lambda rows, answer, given: history(rows, answer, given["limit"], given["findings_limit"], given["detailed"]),
    ),
    "debates_of_subject": (
        _refs("debate", "Debate"),
        lambda rows, answer, given: newest(rows, answer, "debate", "Debate", "timestamp")[: given["limit"]],
    ),
    "contradictions_of_subject": (
        _refs("contradiction", "DataContradiction"),
        lambda rows, answer, given: contradictions(rows, answer, given["limit"]),
    ),
    "lessons_of_subject": (
        _refs("lesson", "Lesson"),
        lambda rows, answer, given: lessons(rows, answer, given["limit"]),
    ),
}
"""By query: the records to read as of the moment, and the function that finishes the rows with them."""

_AS_THEY_COME: Final = frozenset({"speakers_of_subject"})
"""Queries that neither choose nor sort by what a correction may change."""


async def finish_rows(
    name: str, rows: Sequence[Row], given: Mapping[str, Any], database: Database, at: AsOf, *, deadline: Deadline
) -> list[Row]:
    """
    Return the rows of the query *name* as of the moment.

    Args:
        given: the parameters with which the query was run.

    Raises:
        KeyError: the query is not in :data:`DATED_QUERIES`.
        PostgresUnavailable, BudgetExceeded: no answer in time; retryable.
    """
    if name in _AS_THEY_COME:
        return list(rows)
    refs, finish = _FINISHERS[name]
    return finish(rows, await dated(database, refs(rows), at, deadline=deadline), given)


DATED_QUERIES: Final = frozenset(_FINISHERS) | _AS_THEY_COME
"""Queries whose rows :func:`finish_rows` knows."""
