"""
The verdict on a decision: its stance compared with the outcome of the finding that it cites first. Pure.

The finding gives the question, the stance the answer that counts as a success. *Long* succeeds if the metric went up,
*short* if it went down, *avoid* if it did not go up, *hold* if it did not go down. A *direction* metric went up if its
outcome is above zero, a *binary* one if its event happened. A *value* metric says how much, not whether it rose, so it
gives no verdict. Neither does a decision without a stance, or with *none*, nor a finding that abstained.

Citations and stances count only if they were known before the finding's ``target_at``: a later one, or a later
correction, could be made with hindsight. The time ``at`` that a citation's author gives it does not matter.

Verdicts are facts of the journal, known from when both the score and the citation were. Each value is valid until a
later one replaces it. If a recomputation finds that there should be no verdict (the claim turns out to have abstained),
the value *pending* replaces the recorded one.
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
"""Stance → movements that count as a success: 1 up, 0 unchanged, -1 down; other stances get no verdict."""


class FindingCitation(NamedTuple):
    """
    The content of one statement of a link ``CITES``.

    Attributes:
        finding_id: the cited finding.
        at: when it was cited.
        rank: 1 is the finding on which the decision mainly rests.
    """

    finding_id: str
    at: datetime
    rank: int | None


class DecisionVerdict(NamedTuple):
    """A value of a decision's group ``outcome``, valid from a moment on."""

    known_at: datetime
    outcome: str


def verdicts(
    citations: Mapping[str, Sequence[DatedStatement[FindingCitation]]],
    scores: Mapping[str, Sequence[tuple[ValidityInterval, int | None]]],
    targets: Mapping[str, datetime],
    stances: Sequence[DatedStatement[str | None]],
) -> Timeline[str]:
    """
    Return the verdict on a decision at each moment of the known clock.

    Args:
        citations: identity of a link → its statements.
        scores: finding id → movements with their validity intervals; see :func:`movement`.
        targets: finding id → its ``target_at``.
        stances: statements of the decision's stance, in any order.
    """
    counted = {key: _in_time(statements, targets) for key, statements in citations.items()}
    links = {
        key: fold_statements(statements, AsOfClock.KNOWN, latest) for key, statements in counted.items() if statements
    }
    since = {key: min(one.known_at for one in statements) for key, statements in counted.items() if statements}
    # Of a batch of decisions, each has its own findings: looking at those of all would be quadratic.
    cited = {one.value.finding_id for statements in counted.values() for one in statements}
    marks = {
        finding: Timeline(
            change
            for span, y in sorted(scores[finding], key=lambda one: one[0].start)
            for change in ((span.start, y), *(((span.end, None),) if span.end is not None else ()))
        )
        for finding in cited & scores.keys()
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
    statements: Sequence[DatedStatement[FindingCitation]], targets: Mapping[str, datetime]
) -> list[DatedStatement[FindingCitation]]:
    return [one for one in statements if (at := targets.get(one.value.finding_id)) is None or one.known_at < at]


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
