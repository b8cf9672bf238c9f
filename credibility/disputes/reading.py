"""Reads from the journal, as of any moment, the value of a metric that counts, and how its neighbours differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from imem.credibility.disputes.cells import CONTRADICTIONS, Pair, Point, pairs_of
from imem.credibility.disputes.explanations import Explanation, explanation_of
from imem.credibility.disputes.findings import sources_at
from imem.credibility.disputes.histories import Cell, histories_of, outcomes_of, points_at
from imem.credibility.disputes.levels import Verdict
from imem.credibility.disputes.priorities import priority_of
from imem.credibility.disputes.rules import rules_of
from imem.credibility.disputes.sources import PERSON, SOURCE_TYPES, tallies_of
from imem.credibility.disputes.values import Judge, Rival, Standing, decisions_of, standing_of
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput
from imem.journal.postgres.database import Database
from imem.kg.asof import AsOf
from imem.kg.kinds.enums import ContradictionStatus
from imem.kg.kinds.fields import moment_text

Period = datetime | tuple[datetime | None, datetime]
"""An instant, or the beginning and the end of a period."""


@dataclass(frozen=True, slots=True)
class MetricValue:
    """
    The value of a metric over a period, as of a moment.

    Attributes:
        cell: what it is a value of.
        as_of: the moment in use.
        value: None where no data point was known, and where it is uncertain which of them counts.
        standing: the point that states it, how sure it is, and its rivals; None where no data point was known.
        explanation: why it counts: scores, rules, decisions, and the documents that confirm it.
    """

    cell: Cell | None
    as_of: datetime
    standing: Standing | None
    explanation: Explanation | None = None

    @property
    def value(self) -> float | None:
        """The value that counts."""
        return None if self.point is None else self.point.value

    @property
    def point(self) -> Point | None:
        """The data point that states it."""
        return None if self.standing is None else self.standing.point

    @property
    def confidence(self) -> float | None:
        """How sure the value is, 0 to 1."""
        return None if self.standing is None else self.standing.confidence

    @property
    def provisional(self) -> bool:
        """Whether it counts only until a person has reviewed it, or is uncertain."""
        return self.standing is not None and self.standing.status is not ContradictionStatus.RESOLVED

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        common: dict[str, Any] = {"as_of": self.as_of.isoformat(), "value": self.value}
        if self.cell is None or self.standing is None or self.explanation is None:
            return common
        cell = {name: _plain(value) for name, value in self.cell._asdict().items()}
        candidate = self.standing.candidate
        return {
            **cell,
            **common,
            "confidence": self.confidence,
            "status": self.standing.status.value,
            "provisional": self.provisional,
            **_stated(self.point),
            **_decided(self.standing.deciding),
            "candidate": {"value": candidate.value, "score": self.explanation.score, **_stated(candidate)},
            "stated_in": [_stated(one) for one in self.explanation.stated],
            "rivals": [
                {**_rival(one), **reason.to_dict()}
                for one, reason in zip(self.standing.rivals, self.explanation.reasons, strict=True)
            ],
        }


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _stated(point: Point | None) -> dict[str, Any]:
    if point is None:
        return {}
    return {
        "point": point.key,
        "source": point.source,
        "document": point.document,
        "filed_at": point.filed_at.isoformat(),
        "known_at": point.known_at.isoformat(),
        **({} if point.decided_by is None else {"decided_by": point.decided_by}),
    }


def _decided(verdict: Verdict | None) -> dict[str, Any]:
    if verdict is None:
        return {}
    return {"level": verdict.level.value, "method": verdict.method, "differential": verdict.differential}


def _rival(rival: Rival) -> dict[str, Any]:
    decided = {} if rival.verdict is None else {**_decided(rival.verdict), "confidence": rival.verdict.confidence}
    return {"value": rival.point.value, "difference": rival.difference.value, **_stated(rival.point), **decided}


async def value_at(
    database: Database,
    at: AsOf,
    question: tuple[str, str, Period],
    *,
    unit: str | None,
    basis: str | None,
    guard: bool,
    deadline: Deadline,
) -> MetricValue:
    """
    Return the value of a metric of a subject over a period as of *at*.

    Args:
        question: subject, metric and period.
        unit, basis: needed where the period has values in several units or on several bases. Without *basis* the values
            that state none count, if there are any.
        guard: whether what looks like a slip of the pen is uncertain.

    Raises:
        BadInput: the period has values in several units or on several bases, and none is named.
        PostgresUnavailable, BudgetExceeded: it could not be read in time; retryable.
    """
    subject, metric, period = question
    begins, ends = period if isinstance(period, tuple) else (None, period)
    named = {"subject_ids": [subject], "metrics": [metric], "period_ends": [moment_text(ends)]}
    cells = await _points(database, at, "data_points", named, deadline)
    fitting = [
        cell
        for cell in cells
        if cell.period_start == begins and unit in {None, cell.unit} and basis in {None, cell.basis}
    ]
    for name in ("unit", "basis"):
        if name == "basis" and basis is None:
            fitting = [cell for cell in fitting if cell.basis is None] or fitting
        several = {getattr(cell, name) for cell in fitting}
        if len(several) > 1:
            raise BadInput(name, f"is needed: there are values in {', '.join(sorted(map(str, several)))}.")
    if not fitting:
        return MetricValue(None, at.at, None)
    [cell] = fitting
    given = {"sources": sorted({point.source for point in cells[cell]}), **at.limits}
    tallies = tallies_of(outcomes_of(await database.named("source_outcomes", given, deadline=deadline)))
    of = {"subject_id": subject, "points": [point.key for point in cells[cell]], **at.limits}
    said = await database.named("contradictions_decided", of, deadline=deadline)
    made = {"metrics": [metric], "made_until": min(at.known_until, at.recorded_until)}
    rules = rules_of(await database.named("standing_rules", made, deadline=deadline), metric)
    judge = Judge(sources_at(tallies, at.at), priority_of(metric), guard, decisions_of(said), rules)
    standing = standing_of(cells[cell], judge)
    explanation = None if standing is None else explanation_of(standing, cells[cell], judge)
    return MetricValue(cell, at.at, standing, explanation)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """
    A source of data that took part in contradictions, as of a moment.

    Attributes:
        name: of the source.
        type: of which type it is.
        score: how far it is trusted, 0 to 1.
        weight: how far its type is; the score is the weight until there are fifteen outcomes.
        contradictions: with another source; withdrawn ones do not count.
        outcomes: contradictions of which a person or a later filing said which value was right.
        correct: outcomes in which its own was.
    """

    name: str
    type: str
    score: float
    weight: float
    contradictions: int
    outcomes: int
    correct: int


async def sources_known_at(database: Database, at: AsOf, *, deadline: Deadline) -> list[SourceRecord]:
    """
    Return the sources that took part in contradictions by *at*, the highest score first.

    The values of people are none: they are no source that could be right or wrong again.

    Raises:
        PostgresUnavailable, BudgetExceeded: it could not be read in time; retryable.
    """
    found = await database.named("sources_at_odds", at.limits, deadline=deadline)
    counts = {row["source"]: row["contradictions"] for row in found if not row["source"].startswith(f"{PERSON}:")}
    wanted = {"sources": sorted(counts), **at.limits}
    outcomes = outcomes_of(await database.named("source_outcomes", wanted, deadline=deadline))
    source = sources_at(tallies_of(outcomes), at.at)
    records = [
        SourceRecord(
            name=one.name,
            type=one.type,
            score=one.score,
            weight=SOURCE_TYPES[one.type].weight,
            contradictions=counts[one.name],
            outcomes=one.outcomes,
            correct=one.correct,
        )
        for one in map(source, counts)
    ]
    return sorted(records, key=lambda one: (-one.score, one.name))


async def differences_at(
    database: Database, at: AsOf, subject: str, metric: str | None, *, deadline: Deadline
) -> list[tuple[Cell, Pair]]:
    """
    Return the neighbours among the data points of a subject that differ, as of *at*: contradictions, and all others.

    Raises:
        PostgresUnavailable, BudgetExceeded: it could not be read in time; retryable.
    """
    given = {"subject_id": subject, "metric": metric}
    cells = await _points(database, at, "data_points_of_subject", given, deadline)
    ordered = sorted(cells, key=lambda cell: (cell.metric, cell.period_end, cell.text))
    return [(cell, pair) for cell in ordered for pair in pairs_of(cells[cell])]


def difference_row(cell: Cell, pair: Pair) -> Mapping[str, Any]:
    """Return two neighbours that differ as JSON types."""
    return {
        **{name: _plain(value) for name, value in cell._asdict().items()},
        "difference": pair.difference.value,
        "contradiction": pair.difference in CONTRADICTIONS,
        "a": {"value": pair.a.value, **_stated(pair.a)},
        "b": {"value": pair.b.value, **_stated(pair.b)},
    }


async def _points(
    database: Database, at: AsOf, name: str, given: Mapping[str, Any], deadline: Deadline
) -> dict[Cell, Sequence[Point]]:
    """Return the points that a statement finds, by their cells."""
    found = histories_of(await database.named(name, {**given, **at.limits}, deadline=deadline))
    return {cell: points_at(histories, at.known_until) for cell, histories in found.items()}
