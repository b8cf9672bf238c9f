"""
The verdict on a decision: its stance compared with the outcome of the claim that it cites first. Pure.

The finding gives the question, the stance the answer that counts as a success. *Long* succeeds if the metric went up,
*short* if it went down, *avoid* if it did not go up, *hold* if it did not go down. A *direction* metric went up if its
outcome is above zero, a *binary* one if its event happened. A *value* metric says how much, not whether it rose, so it
gives no verdict. Neither does a decision without a stance, or with *none*, nor a finding that abstained.

The first citation is the one with the lowest rank. A citation without a rank comes after those with one; among equal
ranks, the order is: known first, the earliest ``at``, then the order in which the links were given. Findings without a
claim are skipped, since no outcome settles them.

Citations and stances count only if they were known before the finding's ``target_at``: a later one, or a later
correction, could be made with hindsight. For the same reason no citation known after the ``target_at`` of the first
claim takes its place, whatever its rank; nor does a claim whose own ``target_at`` is over, if the first one is given a
higher rank. The time ``at`` that a citation's author gives it does not matter to that.

Verdicts are facts of the journal, known from when both the score and the citation were. Each value is valid until a
later one replaces it. If a recomputation finds that there should be no verdict (the claim turns out to have abstained),
the value *pending* replaces the recorded one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from imem.credibility.history import (
    DatedStatement,
    Timeline,
    ValidityInterval,
    effective_statement,
    fold_statements,
    latest,
)
from imem.credibility.settlement import TOLERANCE
from imem.kg.asof import AsOfClock
from imem.kg.kinds.metrics import Metric, metric_of

SUCCESS, FAILURE, PENDING = "success", "failure", "pending"

CLAIM_RIGHT: Final[Mapping[str, frozenset[int]]] = {
    "long": frozenset({1}),
    "short": frozenset({-1}),
    "avoid": frozenset({-1, 0}),
    "hold": frozenset({0, 1}),
}
"""Stance → movements that count as a success: 1 up, 0 unchanged, -1 down; other stances get no verdict."""


class FindingCitation(NamedTuple):
    """
    The content of one statement of a link ``CITES``.

    Attributes:
        finding_id: the cited finding.
        at: when it was cited.
        rank: lowest for the finding on which the decision mainly rests; None if it was not stated.
    """

    finding_id: str
    at: datetime
    rank: int | None


class CitedClaim(NamedTuple):
    """The claim of a cited finding: since when it is known, when it is due, and its metric."""

    known_at: datetime
    target_at: datetime
    metric: str


class DecisionVerdict(NamedTuple):
    """A value of a decision's group ``outcome``, valid from a moment on."""

    known_at: datetime
    outcome: str


class NoVerdict(StrEnum):
    """Why a decision has no verdict."""

    NO_STANCE = "states no stance"
    NO_CITATION = "cites no finding"
    NO_CLAIM = "cites no finding with a claim"
    CITED_LATE = "cites the finding only after its target date"
    STATED_LATE = "states its stance only after the target date"
    VALUE_METRIC = "the claim cited first is a number, not a direction"
    UNKNOWN_METRIC = "the metric of the claim cited first is not registered"
    ABSTAINED = "the claim cited first took no side"
    WAITS = "its outcome is not settled yet"


def verdicts(
    citations: Mapping[str, Sequence[DatedStatement[FindingCitation]]],
    scores: Mapping[str, Sequence[tuple[ValidityInterval, int | None]]],
    claims: Mapping[str, CitedClaim],
    stances: Sequence[DatedStatement[str | None]],
) -> Timeline[str]:
    """
    Return the verdict on a decision at each moment of the known clock.

    Args:
        citations: identity of a link → its statements.
        scores: finding id → movements with their validity intervals; see :func:`movement`.
        claims: finding id → its claim, settled or not; a finding without a claim is left out.
        stances: statements of the decision's stance, in any order.
    """
    firsts = first_claims(citations, claims)
    # Of a batch of decisions, each has its own findings: looking at those of all would be quadratic.
    marks = {
        finding: Timeline(
            change
            for span, y in sorted(scores[finding], key=lambda one: one[0].start)
            for change in ((span.start, y), *(((span.end, None),) if span.end is not None else ()))
        )
        for finding in {one for one in firsts.values if one is not None} & scores.keys()
    }

    def verdict(moment: datetime) -> str | None:
        first = firsts.at(moment)
        moved = marks[first].at(moment) if first is not None and first in marks else None
        if first is None or moved is None:
            return None
        target_at = claims[first].target_at
        said = [one for one in stances if one.known_at <= moment and one.known_at < target_at]
        right = CLAIM_RIGHT.get(effective_statement(said).value or "") if said else None
        return None if right is None else SUCCESS if moved in right else FAILURE

    moments = {at for steps in (firsts, *marks.values()) for at in steps.times}
    moments |= {one.known_at for one in stances}
    return Timeline((moment, verdict(moment)) for moment in sorted(moments))


def first_claims(
    citations: Mapping[str, Sequence[DatedStatement[FindingCitation]]], claims: Mapping[str, CitedClaim]
) -> Timeline[str]:
    """Return the finding whose claim a decision cites first, at each moment of the known clock."""
    counted = {key: in_time for key, statements in citations.items() if (in_time := _in_time(statements, claims))}
    links = {key: fold_statements(statements, AsOfClock.KNOWN, latest) for key, statements in counted.items()}
    given = {key: min((one.known_at, one.order_key) for one in statements) for key, statements in counted.items()}

    def place(key: str, citation: FindingCitation) -> tuple[bool, int, datetime, datetime, str, str]:
        known_at, order_key = given[key]
        since = max(known_at, claims[citation.finding_id].known_at)
        return citation.rank is None, citation.rank or 0, since, citation.at, order_key, key

    changes: list[tuple[datetime, str | None]] = []
    moments = {at for steps in links.values() for at in steps.times}
    moments |= {claims[one.value.finding_id].known_at for statements in counted.values() for one in statements}
    first: str | None = None
    for moment in sorted(moments):
        if first is not None and claims[first].target_at <= moment:
            break
        there = [
            (place(key, citation), citation.finding_id)
            for key, steps in links.items()
            if (citation := steps.at(moment)) is not None
            and claims[citation.finding_id].known_at <= moment < claims[citation.finding_id].target_at
        ]
        first = min(there)[1] if there else None
        changes.append((moment, first))
    return Timeline(changes)


def no_verdict(
    stances: Sequence[DatedStatement[str | None]],
    citations: Mapping[str, Sequence[DatedStatement[FindingCitation]]],
    claims: Mapping[str, CitedClaim],
    abstained: Collection[str],
) -> tuple[NoVerdict, datetime | None]:
    """
    Return why a decision has no verdict, with the first claim's ``target_at`` if its outcome is awaited.

    Args:
        stances, citations, claims: as for :func:`verdicts`, without statements later than the moment asked for.
        abstained: settled findings that took no side.
    """
    firsts = first_claims(citations, claims).values
    first = firsts[-1] if firsts else None
    in_time = [one for one in stances if first is None or one.known_at < claims[first].target_at]
    stated, counted = (effective_statement(said).value if said else None for said in (stances, in_time))
    if stated not in CLAIM_RIGHT and counted not in CLAIM_RIGHT:
        return NoVerdict.NO_STANCE, None
    cited = {one.value.finding_id for statements in citations.values() for one in statements}
    if not cited:
        return NoVerdict.NO_CITATION, None
    if cited.isdisjoint(claims):
        return NoVerdict.NO_CLAIM, None
    if first is None:
        return NoVerdict.CITED_LATE, None
    claim = claims[first]
    metric = metric_of(claim.metric)
    if metric is None or metric.kind == "value":
        return NoVerdict.UNKNOWN_METRIC if metric is None else NoVerdict.VALUE_METRIC, None
    if counted not in CLAIM_RIGHT:
        return NoVerdict.STATED_LATE, None
    return (NoVerdict.ABSTAINED, None) if first in abstained else (NoVerdict.WAITS, claim.target_at)


def movement(metric: Metric | None, actual: float, *, abstained: bool) -> int | None:
    """Return whether the metric went up (1), down (-1) or neither (0); None for a value metric or an abstention."""
    if metric is None or abstained:
        return None
    match metric.kind:
        case "binary":
            return 1 if round(actual) == 1 else -1
        case "direction":
            return 0 if abs(actual) <= TOLERANCE else 1 if actual > 0 else -1
        case "value":
            return None


def _in_time(
    statements: Sequence[DatedStatement[FindingCitation]], claims: Mapping[str, CitedClaim]
) -> list[DatedStatement[FindingCitation]]:
    found = ((one, claims.get(one.value.finding_id)) for one in statements)
    return [one for one, claim in found if claim is not None and one.known_at < claim.target_at]


def missing(wanted: Timeline[str], recorded: Sequence[DatedStatement[str]]) -> list[DecisionVerdict]:
    """
    Return the verdicts to record so that *wanted* is valid at every moment, given the *recorded* ones.

    It is empty if those suffice, so the step is idempotent. If the same value was recorded for the same moment and
    replaced since, the journal would treat a repeat as identical to the old one; so it is dated a microsecond later.
    """
    said = {(one.known_at, one.value) for one in recorded}
    remaining = deque(sorted((one.known_at, one.order_key, one.value) for one in recorded))
    found: list[DecisionVerdict] = []
    current = PENDING
    for moment in sorted({*wanted.times, *(one.known_at for one in recorded)}):
        target = wanted.at(moment) or PENDING
        known_at = moment
        while True:
            while remaining and remaining[0][0] <= known_at:
                current = remaining.popleft()[2]
            if current == target or (known_at, target) not in said:
                break
            known_at += timedelta(microseconds=1)
        if current != target:
            found.append(DecisionVerdict(known_at, target))
            current = target
    return found
