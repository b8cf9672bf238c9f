"""
The verdict on a decision: that of the finding which it cites first. Pure.

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
from typing import NamedTuple

from credibility.history import Span, Statement, Steps, latest, unfold
from kg.asof import Clock

SUCCESS, FAILURE, PENDING = "success", "failure", "pending"


class Citation(NamedTuple):
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


class Verdict(NamedTuple):
    """A value of the group ``outcome`` of a decision, from a moment on."""

    known_at: datetime
    outcome: str


def verdicts(
    citations: Mapping[str, Sequence[Statement[Citation]]],
    scores: Mapping[str, Sequence[tuple[Span, int | None]]],
    targets: Mapping[str, datetime],
) -> Steps[str]:
    """
    Return how a decision stands at each moment on the known clock.

    Args:
        citations: identity of a link → its statements.
        scores: finding id → when which y stands.
        targets: finding id → the moment of which it speaks.
    """
    counted = {key: _in_time(statements, targets) for key, statements in citations.items()}
    links = {key: unfold(statements, Clock.KNOWN, latest) for key, statements in counted.items() if statements}
    since = {key: min(one.known_at for one in statements) for key, statements in counted.items() if statements}
    marks = {
        finding: Steps(
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
        y = marks[first[-1]].at(moment) if first is not None and first[-1] in marks else None
        return None if y is None else SUCCESS if y else FAILURE

    moments = {at for steps in (*links.values(), *marks.values()) for at in steps.times}
    return Steps((moment, verdict(moment)) for moment in sorted(moments))


def _in_time(statements: Sequence[Statement[Citation]], targets: Mapping[str, datetime]) -> list[Statement[Citation]]:
    return [one for one in statements if (at := targets.get(one.value.finding_id)) is None or one.known_at < at]


def missing(wanted: Steps[str], stated: Sequence[Statement[str]]) -> list[Verdict]:
    """
    Return what has to be stated so that at every moment the value *wanted* stands, given what was *stated* before.

    Nothing when it stands already: a repeat is harmless. Where the same value was stated for the same moment before and
    then overtaken, the journal would take a repeat for the old statement; it is dated a microsecond later.
    """
    said = {(one.known_at, one.value) for one in stated}
    remaining = deque(sorted((one.known_at, one.order_key, one.value) for one in stated))
    found: list[Verdict] = []
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
            found.append(Verdict(known_at, target))
            current = target
    return found
