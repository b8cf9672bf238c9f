"""
The verdict on a decision: its stance beside what came of the finding that it cites first. Pure.

The finding says of which question the decision speaks; the stance says which answer bears it out. *Long* is right when
it went up, *short* when it went down, *avoid* when it did not go up, *hold* when it did not go down. It goes up where
the outcome of a *direction* metric is above zero, and where the event of a *binary* one happened. A *value* metric says
how much and not whether it rose, so that it bears no decision out. Without a stance, or with *none*, there is no
verdict; neither is there where the finding abstained.

A stance counts that was known before the moment of which the finding speaks, as the citation does: a correction that
comes later changes nothing.

A citation counts that was known before the moment of which the finding speaks. One that is added later, when it shows
who was right, says nothing about what the decision rested on; neither does the time ``at`` that its author gives it.

Verdicts are facts of the journal, known from when both the score and the citation were; each value stands until a later
one replaces it. Where a later look finds that there should be none (the claim turns out to have abstained), the value
*pending* takes the place of what was said.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
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
from imem.kg.kinds.metrics import Metric

SUCCESS, FAILURE, PENDING = "success", "failure", "pending"

CLAIM_RIGHT: Final[Mapping[str, frozenset[int]]] = {
    "long": frozenset({1}),
    "short": frozenset({-1}),
    "avoid": frozenset({-1, 0}),
    "hold": frozenset({0, 1}),
}
"""Stance → the movements that bear it out: 1 up, 0 as it was, -1 down; a stance that is not here expects nothing."""


class FindingCitation(NamedTuple):
    """
    What one statement of a link says.

    Attributes:
        finding_id: what is cited.
        at: when it was cited.
        rank: 1 is what the decision rests on first.
    """

    finding_id: str
    at: datetime
    rank: int | None


class DecisionVerdict(NamedTuple):
    """A value of the group ``outcome`` of a decision, from a moment on."""

    known_at: datetime
    outcome: str


def verdicts(
    citations: Mapping[str, Sequence[DatedStatement[FindingCitation]]],
    scores: Mapping[str, Sequence[tuple[ValidityInterval, int | None]]],
    targets: Mapping[str, datetime],
    stances: Sequence[DatedStatement[str | None]],
) -> Timeline[str]:
    """
    Return how a decision stands at each moment on the known clock.

    Args:
        citations: identity of a link → its statements.
        scores: finding id → when which movement stands; see :func:`movement`.
        targets: finding id → the moment of which it speaks.
        stances: what was stated of the decision's own, in any order.
    """
    counted = {key: _in_time(statements, targets) for key, statements in citations.items()}
    links = {
        key: fold_statements(statements, AsOfClock.KNOWN, latest) for key, statements in counted.items() if statements
    }
    since = {key: min(one.known_at for one in statements) for key, statements in counted.items() if statements}
    marks = {
        finding: Timeline(
            change
            for span, y in sorted(spans, key=lambda one: one[0].start)
            for change in ((span.start, y), *(((span.end, None),) if span.end is not None else ()))
        )
        for finding, spans in scores.items()
    }

    def verdict(moment: datetime) -> str | None:
        first = min(
            (
                (since[key], citation.at, key, citation.finding_id)
                for key, steps in links.items()
                if (citation := steps.at(moment)) is not None and citation.rank == 1
            ),
            default=None,
        )
        moved = marks[first[-1]].at(moment) if first is not None and first[-1] in marks else None
        if first is None or moved is None:
            return None
        target_at = targets.get(first[-1])
        said = [one for one in stances if one.known_at <= moment and (target_at is None or one.known_at < target_at)]
        right = CLAIM_RIGHT.get(effective_statement(said).value or "") if said else None
        return None if right is None else SUCCESS if moved in right else FAILURE

    moments = {at for steps in (*links.values(), *marks.values()) for at in steps.times}
    moments |= {one.known_at for one in stances}
    return Timeline((moment, verdict(moment)) for moment in sorted(moments))


def movement(metric: Metric | None, actual: float, *, abstained: bool) -> int | None:
    """Return whether what *metric* measures went up (1), down (-1) or neither (0); None where it does not say."""
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
    statements: Sequence[DatedStatement[FindingCitation]], targets: Mapping[str, datetime]
) -> list[DatedStatement[FindingCitation]]:
    return [one for one in statements if (at := targets.get(one.value.finding_id)) is None or one.known_at < at]


def missing(wanted: Timeline[str], stated: Sequence[DatedStatement[str]]) -> list[DecisionVerdict]:
    """
    Return what has to be stated so that at every moment the value *wanted* stands, given what was *stated* before.

    Nothing when it stands already: a repeat is harmless. Where the same value was stated for the same moment before and
    then overtaken, the journal would take a repeat for the old statement; it is dated a microsecond later.
    """
    said = {(one.known_at, one.value) for one in stated}
    remaining = deque(sorted((one.known_at, one.order_key, one.value) for one in stated))
    found: list[DecisionVerdict] = []
    current = PENDING
    for moment in sorted({*wanted.times, *(one.known_at for one in stated)}):
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
