"""Why a value counts: who states it, and by which rule or decision each rival gives way. It follows from a standing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from imem.credibility.disputes.cells import Point, differ, spread
from imem.credibility.disputes.levels import CREDIBILITY, DECISIVE, EVIDENCE_BASED, RULES, TELLING, looks_like_slip
from imem.credibility.disputes.values import Judge, Rival, Standing
from imem.kg.kinds.enums import ResolutionLevelData


@dataclass(frozen=True, slots=True)
class RivalReason:
    """
    Why a rival does not count, or why nobody knows which of the two does.

    Attributes:
        score: of the rival's source, 0 to 1.
        differ_by: how far the rival is from the candidate, as a share of the larger one.
        rule: the rule that decides between the two, in words; None where they do not contradict each other.
        decided_by, decided_at: the person who decided, and since when that counts.
    """

    score: float
    differ_by: float
    rule: str | None = None
    decided_by: str | None = None
    decided_at: datetime | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return what there is of it as JSON types."""
        at = None if self.decided_at is None else self.decided_at.isoformat()
        more = {"rule": self.rule, "decided_by": self.decided_by, "decided_at": at}
        return {"score": self.score, "differ_by": self.differ_by} | {
            name: value for name, value in more.items() if value is not None
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """
    Why the candidate of a standing counts, or may count.

    Attributes:
        score: of its source, 0 to 1.
        stated: the documents that state its value, in the order in which they became known: later ones confirm it.
        reasons: of the standing's rivals, in their order.
    """

    score: float
    stated: tuple[Point, ...]
    reasons: tuple[RivalReason, ...]


def explanation_of(standing: Standing, points: Iterable[Point], judge: Judge) -> Explanation:
    """Return why the candidate of *standing* counts among the *points* of its cell."""
    candidate = standing.candidate
    agreeing = (one for one in points if not differ(one.value, candidate.value, one.unit))
    stated = tuple(sorted(agreeing, key=lambda one: one.place))
    reasons = tuple(_reason(candidate, rival, judge) for rival in standing.rivals)
    return Explanation(judge.source_of(candidate).score, stated, reasons)


def _reason(candidate: Point, rival: Rival, judge: Judge) -> RivalReason:
    score, apart = judge.source_of(rival.point).score, spread(candidate.value, rival.point.value)
    if rival.verdict is None:
        return RivalReason(score, apart)
    decision = judge.decision(candidate, rival.point)
    if decision is not None:
        return RivalReason(score, apart, "a person decided", decision.by, decision.at)
    return RivalReason(score, apart, _rule(candidate, rival, judge))


def _rule(candidate: Point, rival: Rival, judge: Judge) -> str | None:
    """Return in words by what a contradiction that no person decided is resolved."""
    if rival.verdict is None:
        return None
    verdict, differential = rival.verdict, f"{rival.verdict.differential:.2f}"
    a, b = judge.claims(*sorted((candidate, rival.point), key=lambda one: one.place))
    if verdict.method == EVIDENCE_BASED:
        return next(words for _, rule, words in RULES if rule(a, b) is not None)
    if verdict.method == CREDIBILITY:
        return f"the scores differ by {differential}, more than {DECISIVE:.2f}"
    if verdict.level is not ResolutionLevelData.FALLBACK:
        return verdict.method.replace("_", " ")
    mistyped = judge.guard and looks_like_slip(a.value, b.value, judge.priority)
    why = "one of the two looks mistyped, so that a person has to decide; " if mistyped else ""
    sign = "at most" if verdict.winner is None else "more than"
    return f"{why}the scores differ by {differential}, {sign} {TELLING:.2f}"
