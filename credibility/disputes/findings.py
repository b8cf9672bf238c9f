"""
The records that follow from a cell: new contradictions, withdrawals, and which value a later filing confirmed.

A contradiction is recorded as of the moment from which both values could be known, and resolved by what was known then:
history that is loaded today shows what would have been known on each of its days.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from imem.credibility.disputes.cells import Pair, Point, differ
from imem.credibility.disputes.histories import Cell, PointHistory, epochs_of, gone_since, points_at, stood_since
from imem.credibility.disputes.levels import Claim, Verdict, settle, unsettled
from imem.credibility.disputes.priorities import priority_of
from imem.credibility.disputes.rules import NO_RULES, StandingRule
from imem.credibility.disputes.sources import SOURCE_TYPES, Source, Tallies, source_in, type_of
from imem.credibility.disputes.values import Judge
from imem.journal.postgres.connection import Row
from imem.kg.asof import END_OF_TIME
from imem.kg.kinds.enums import (
    ContradictionPriority,
    ContradictionSide,
    ContradictionStatus,
    OutcomeProvenance,
    ResolutionLevelData,
)
from imem.kg.kinds.trust import DataContradiction
from imem.kg.load_format.lines import RecordLine, groups_of, record_of

WRITER: Final = "credibility"
"""The subsystem that governs what is written here."""

Resolution = DataContradiction.Resolution
Outcome = DataContradiction.Outcome


@dataclass(frozen=True, slots=True)
class RecordedContradiction:
    """
    A contradiction that was recorded.

    Attributes:
        model: with its newest groups.
        resolution_known_at, outcome_known_at: since when they could be known.
    """

    model: DataContradiction
    resolution_known_at: datetime
    outcome_known_at: datetime | None

    @classmethod
    def from_row(cls, row: Row) -> RecordedContradiction:
        """Return the contradiction of a row of ``contradictions_of_points``."""
        groups = {name: orjson.loads(row[name]) for name in ("resolution", "outcome") if row[name] is not None}
        model = DataContradiction.model_validate({**orjson.loads(row["core"]), **groups})
        judged = row["outcome_known_at"]
        return cls(
            model, row["resolution_known_at"].astimezone(UTC), None if judged is None else judged.astimezone(UTC)
        )

    @property
    def waits_for_person(self) -> bool:
        """Whether a person has been asked and has not decided it yet."""
        resolution = self.model.resolution
        return resolution is not None and resolution.status in {
            ContradictionStatus.QUEUED,
            ContradictionStatus.INVESTIGATING,
        }

    def asks_anew(self, verdict: Verdict) -> bool:
        """Whether *verdict* is a fallback of what was resolved or withdrawn before, so that a person is to be asked."""
        resolution = self.model.resolution
        if verdict.level is not ResolutionLevelData.FALLBACK or resolution is None or self.decided_by_person:
            return False
        before = {ContradictionStatus.RESOLVED, ContradictionStatus.WITHDRAWN}
        return resolution.status in before

    @property
    def decided_by_person(self) -> bool:
        """Whether a person decided it, so that it is not computed again."""
        resolution = self.model.resolution
        if resolution is None or resolution.status is ContradictionStatus.WITHDRAWN:
            return False
        return resolution.reviewed_at_gate3 or resolution.decided_by is not None


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """
    A new contradiction that goes to a person.

    Attributes:
        model: with the resolution that counts if nobody answers.
        since: from when on it could be known.
        verdict: the fallback.
        metric: what is stated.
        pair: the points that state it; None where somebody else reported the contradiction.
        recorded: whether the contradiction itself is recorded.
    """

    model: DataContradiction
    since: datetime
    verdict: Verdict
    metric: str
    pair: Pair | None = None
    recorded: bool = False

    def line(self, status: ContradictionStatus | None = None) -> RecordLine:
        """
        Return it as a line.

        With *status* it waits for a person, at level 3; what it says otherwise is the fallback, which counts meanwhile.
        """
        resolution = self.model.resolution
        if status is not None and resolution is not None:
            resolution = resolution.model_copy(update={"status": status, "resolution_level": ResolutionLevelData.HUMAN})
        if self.recorded and resolution is not None:
            return _group(self.model.id, "resolution", resolution, self.since)
        return record_of(self.model.model_copy(update={"resolution": resolution}), known_at=self.since, writer=WRITER)


def sources_at(tallies: Tallies, at: datetime) -> Callable[[str], Source]:
    """Return what gives the source of a name, as of *at*."""
    return lambda name: source_in(tallies, name, at)


def resolution_of(a: float, b: float, verdict: Verdict, priority: ContradictionPriority) -> Resolution:
    """Return the group that says how a contradiction of *a* and *b* was resolved."""
    values = {ContradictionSide.A: a, ContradictionSide.B: b, None: None}
    return Resolution(
        priority=priority,
        status=verdict.status,
        resolution_level=verdict.level,
        resolution_method=verdict.method,
        final_value=values[verdict.winner],
        confidence=min(verdict.confidence, 1.0),
        credibility_differential=verdict.differential,
        provisional=verdict.status is not ContradictionStatus.RESOLVED,
        reviewed_at_gate3=False,
    )


def lines_of_cell(
    histories: Sequence[PointHistory],
    recorded: Mapping[str, RecordedContradiction],
    tallies: Tallies,
    *,
    guard: bool,
    rules: Sequence[StandingRule] = NO_RULES,
) -> Iterator[RecordLine | OpenQuestion]:
    """
    Yield what is to be recorded of a cell; nothing if all of it is recorded.

    A new contradiction that neither evidence nor scores resolve is a question.

    Args:
        recorded: the contradictions of its points that were recorded, by id.
        tallies: of the sources of its points.
        guard: whether what looks like a slip goes to a person.
        rules: standing rules of its metric.
    """
    cell, epochs = histories[0].cell, epochs_of(histories)
    priority, filed = priority_of(cell.metric), filings_of(points_at(histories, END_OF_TIME))
    pairs = {key: pair for key, pair in epochs[-1].pairs.items() if pair.contradicts}
    for key, pair in pairs.items():
        since, known = stood_since(epochs, key), recorded.get(key)
        verdict = Judge(sources_at(tallies, since), priority, guard, rules=rules).verdict(pair.a, pair.b)
        resolution = resolution_of(pair.a.value, pair.b.value, verdict, priority)
        if verdict.level is ResolutionLevelData.HUMAN:
            resolution = resolution.model_copy(update={"decided_by": pair.b.decided_by})
        if known is None or known.asks_anew(verdict):
            new = _core(cell, pair, since).model_copy(update={"resolution": resolution})
            if verdict.level is ResolutionLevelData.FALLBACK:
                at = since if known is None else max(since, known.resolution_known_at)
                yield OpenQuestion(new, at, verdict, cell.metric, pair, recorded=known is not None)
            else:
                yield record_of(new, known_at=since, writer=WRITER)
        elif known.model.resolution != resolution and not known.waits_for_person and not known.decided_by_person:
            yield _group(key, "resolution", resolution, max(since, known.resolution_known_at))
        yield from _outcome(pair, filed, since, known)
    for key in recorded.keys() - pairs.keys():
        known = recorded[key]
        if known.model.resolution is not None and known.model.resolution.status is not ContradictionStatus.WITHDRAWN:
            gone = known.model.resolution.model_copy(
                update={"status": ContradictionStatus.WITHDRAWN, "final_value": None, "provisional": False}
            )
            yield _group(key, "resolution", gone, max(gone_since(epochs, key), known.resolution_known_at))


def line_of_report(
    model: DataContradiction, known_at: datetime, sources: Callable[[str], Source], *, guard: bool
) -> RecordLine | OpenQuestion:
    """
    Return the resolution of a contradiction that an agent or an import recorded, or the question for a person.

    The dates of its documents are unknown, so only the sources and their scores can resolve it.
    """
    priority = priority_of(model.data_point, model.valuation_impact)
    a, b = Claim(model.value_a, sources(model.source_a)), Claim(model.value_b, sources(model.source_b))
    verdict = settle(a, b, priority, guard=guard) or unsettled(a, b)
    resolution = resolution_of(a.value, b.value, verdict, priority)
    if verdict.level is ResolutionLevelData.FALLBACK:
        return OpenQuestion(
            model.model_copy(update={"resolution": resolution}), known_at, verdict, model.data_point, recorded=True
        )
    return _group(model.id, "resolution", resolution, known_at)


def _core(cell: Cell, pair: Pair, since: datetime) -> DataContradiction:
    a, b = pair.a, pair.b
    return DataContradiction(
        id=pair.id,
        subject_id=cell.subject_id,
        data_point=cell.text[:200],
        source_a=a.source,
        source_b=b.source,
        document_a=a.document,
        document_b=b.document,
        point_a=a.key,
        point_b=b.key,
        value_a=a.value,
        value_b=b.value,
        difference=pair.difference,
        timestamp=since,
    )


def _outcome(
    pair: Pair, filed: Sequence[Point], since: datetime, known: RecordedContradiction | None
) -> Iterator[RecordLine]:
    """Yield which value the first later filing confirmed, unless a person has said it."""
    later = confirmation_of(pair, filed)
    if later is None:
        return
    side, point = later
    outcome = Outcome(outcome_label=side, outcome_provenance=OutcomeProvenance.LATER_FILING)
    before = None if known is None else known.model.outcome
    if before == outcome or (before is not None and before.outcome_provenance is OutcomeProvenance.HUMAN_LABEL):
        return
    stated = (since, point.known_at, *((known.outcome_known_at,) if known and known.outcome_known_at else ()))
    yield _group(pair.id, "outcome", outcome, max(stated))


def filings_of(points: Iterable[Point]) -> list[Point]:
    """Return the points that primary sources state, in their order."""
    primary = {name for name, kind in SOURCE_TYPES.items() if kind.primary}
    return sorted((one for one in points if type_of(one.source) in primary), key=_place)


def _place(point: Point) -> tuple[Any, ...]:
    return point.place


def confirmation_of(pair: Pair, filed: Sequence[Point]) -> tuple[ContradictionSide, Point] | None:
    """Return which of two values the first later one of the *filed* points that states one confirms, and that point."""
    documents = {(one.source, one.document) for one in (pair.a, pair.b)}
    for place in range(bisect_right(filed, pair.b.place, key=_place), len(filed)):
        point = filed[place]
        if (point.source, point.document) in documents:
            continue
        agrees = [not differ(point.value, one.value, one.unit) for one in (pair.a, pair.b)]
        if agrees[0] != agrees[1]:
            return (ContradictionSide.A if agrees[0] else ContradictionSide.B), point
    return None


def _group(key: str, name: str, group: Resolution | Outcome, known_at: datetime) -> RecordLine:
    return groups_of(DataContradiction, key, {name: group}, known_at=known_at, writer=WRITER)
