"""
The value of a cell that counts, how sure that is, and the values against it.

The latest document of each source counts for it. Between sources the levels decide; the value that a source replaced is
a rival too, since the source was at odds with itself. A value that a person states is a point of its own, which stands
against everything that could be known when it was stated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import NamedTuple

from imem.credibility.disputes.cells import CONTRADICTIONS, Point, difference_of
from imem.credibility.disputes.levels import (
    HUMAN_CONFIDENCE,
    OWN_VALUE,
    STANDING_RULE,
    Claim,
    Verdict,
    settle,
    unsettled,
)
from imem.credibility.disputes.rules import NO_RULES, StandingRule, covers
from imem.credibility.disputes.sources import PERSON, Source
from imem.journal.postgres.connection import Row
from imem.kg.kinds.enums import (
    ContradictionPriority,
    ContradictionSide,
    ContradictionStatus,
    DataDifference,
    ResolutionLevelData,
)


class Rival(NamedTuple):
    """
    Another value of the cell.

    Attributes:
        point: that states it.
        difference: how it differs from the value that counts.
        verdict: how the contradiction of the two is resolved; None where it is none.
    """

    point: Point
    difference: DataDifference
    verdict: Verdict | None

    @property
    def contradicts(self) -> bool:
        """Whether it contradicts the value that counts."""
        return self.difference in CONTRADICTIONS


@dataclass(frozen=True, slots=True)
class Standing:
    """
    The value that counts in a cell.

    Attributes:
        point: whose value counts; None while that is uncertain.
        confidence: of the least certain verdict on it and a rival; without any the highest score of those who state it.
        status: what that verdict makes of the value; RESOLVED without any.
        deciding: that verdict; None where nothing contradicts the value.
        rivals: other values, the latest statement of each, the most recent first.
        candidate: the point that the rivals are compared with: it counts, unless that is uncertain.
    """

    point: Point | None
    confidence: float
    status: ContradictionStatus
    deciding: Verdict | None
    rivals: tuple[Rival, ...]
    candidate: Point


Said = frozenset[tuple[str, float]]
"""Two values, each with its source."""


class Decision(NamedTuple):
    """
    A person's decision about two values.

    Attributes:
        value: the one that counts; None where neither does.
        verdict: with the level, method and confidence; its winner is left open.
        by, at: who decided it, and since when that counts.
    """

    value: float | None
    verdict: Verdict
    by: str
    at: datetime


class Judge(NamedTuple):
    """
    The rules by which contradictions of a cell are resolved.

    Attributes:
        source: returns a source with its score.
        priority: of the cell's metric.
        guard: whether what looks like a slip goes to a person.
        decided: what people decided, by the two values with their sources.
        rules: the standing rules of the cell's metric.
    """

    source: Callable[[str], Source]
    priority: ContradictionPriority
    guard: bool
    decided: Mapping[Said, Decision] = MappingProxyType({})
    rules: Sequence[StandingRule] = NO_RULES

    def source_of(self, point: Point) -> Source:
        """Return the source of a point; a person's own value has the confidence of a person's answer as its score."""
        if point.decided_by is not None:
            return Source(point.source, PERSON, HUMAN_CONFIDENCE)
        return self.source(point.source)

    def verdict(self, a: Point, b: Point) -> Verdict:
        """Return how the contradiction of two points is resolved; *b* became known later."""
        said = self.decision(a, b)
        if said is not None:
            sides = {a.value: ContradictionSide.A, b.value: ContradictionSide.B}
            return said.verdict._replace(winner=sides.get(said.value) if said.value is not None else None)
        one, other = self.claims(a, b)
        differential = abs(one.source.score - other.source.score)
        if b.decided_by is not None:
            # A person who states another value knew both points: the stated value counts.
            return _by_person(ResolutionLevelData.HUMAN, OWN_VALUE, ContradictionSide.B, differential)
        difference = difference_of(a, b)
        rule = next((rule for rule in self.rules if covers(rule, a, b, difference)), None)
        if rule is not None:
            side = ContradictionSide.A if a.source == rule.preferred else ContradictionSide.B
            return _by_person(ResolutionLevelData.EVIDENCE, STANDING_RULE, side, differential)
        return settle(one, other, self.priority, guard=self.guard) or unsettled(one, other)

    def decision(self, a: Point, b: Point) -> Decision | None:
        """Return what a person decided about the values of two points; None if nobody did."""
        return self.decided.get(frozenset(((a.source, a.value), (b.source, b.value))))

    def claims(self, a: Point, b: Point) -> tuple[Claim, Claim]:
        """Return what two points state, with the scores of their sources."""
        one, other = (Claim(point.value, self.source_of(point), point.filed_at) for point in (a, b))
        return one, other


def _by_person(level: ResolutionLevelData, method: str, side: ContradictionSide, differential: float) -> Verdict:
    return Verdict(level, method, side, HUMAN_CONFIDENCE, differential, ContradictionStatus.RESOLVED)


def decisions_of(rows: Iterable[Row]) -> dict[Said, Decision]:
    """Return what people decided, from rows of ``contradictions_decided``; of two about the same values the last."""
    found = {}
    for row in rows:
        status, level = ContradictionStatus(row["status"]), ResolutionLevelData(row["resolution_level"])
        verdict = Verdict(
            level, row["resolution_method"], None, row["confidence"], row["credibility_differential"], status
        )
        said = frozenset(((row["source_a"], row["value_a"]), (row["source_b"], row["value_b"])))
        found[said] = Decision(row["final_value"], verdict, row["decided_by"], row["decided_at"].astimezone(UTC))
    return found


def standing_of(points: Iterable[Point], judge: Judge) -> Standing | None:
    """Return what counts among the points of a cell; None without any."""
    ordered = sorted(points, key=lambda one: (one.filed_at, one.place))
    if not ordered:
        return None
    latest = sorted({point.source: point for point in ordered}.values(), key=lambda one: one.place)
    # What a person states stands against all that was known by then: only later documents stand against it.
    own = max((one for one in ordered if one.decided_by is not None), key=lambda one: one.place, default=None)
    live = [one for one in latest if own is None or one.place >= own.place]
    champion = live[0]
    for challenger in live[1:]:
        champion = _better(champion, challenger, judge)
    replaced = [one for one in ordered if one.source == champion.source and one.value != champion.value][-1:]
    opposed = (*(latest if champion is own else live), *replaced)
    against = [_judged(champion, one, judge) for one in opposed if one.value != champion.value]
    named = {champion.value, *(rival.point.value for rival in against)}
    former = {one.value: one for one in ordered if one.value not in named}
    rivals = [*against, *(Rival(one, difference_of(one, champion), None) for one in former.values())]
    rivals.sort(key=lambda rival: rival.point.place, reverse=True)
    disputed = [rival for rival in against if rival.verdict is not None]
    if not disputed:
        scores = [judge.source_of(one).score for one in live if one.value == champion.value]
        return Standing(champion, max(scores), ContradictionStatus.RESOLVED, None, tuple(rivals), champion)
    deciding = min((rival.verdict for rival in disputed if rival.verdict is not None), key=lambda one: one.confidence)
    if not all(_favours(champion, rival) for rival in disputed):
        return Standing(None, deciding.confidence, ContradictionStatus.UNCERTAIN, deciding, tuple(rivals), champion)
    return Standing(champion, deciding.confidence, deciding.status, deciding, tuple(rivals), champion)


def _favours(champion: Point, rival: Rival) -> bool:
    """Return whether the verdict on two points accepts the value of *champion*."""
    own = ContradictionSide.A if champion.place < rival.point.place else ContradictionSide.B
    return rival.verdict is not None and rival.verdict.winner is own


def _better(a: Point, b: Point, judge: Judge) -> Point:
    """Return which of two latest statements counts; *b* became known later. Of two that are equally good it is *b*."""
    if difference_of(a, b) not in CONTRADICTIONS:
        return a if judge.source_of(a).score > judge.source_of(b).score else b
    return a if judge.verdict(a, b).winner is ContradictionSide.A else b


def _judged(champion: Point, other: Point, judge: Judge) -> Rival:
    a, b = sorted((champion, other), key=lambda one: one.place)
    difference = difference_of(a, b)
    return Rival(other, difference, judge.verdict(a, b) if difference in CONTRADICTIONS else None)
