"""The value of a metric as lines for a prompt or a terminal: what counts, why, and what contradicts it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from imem.journal.texts.prompt_text import name
from imem.kg.kinds.enums import ContradictionStatus, DataDifference
from imem.recall.rendering.formatting import moment, number

if TYPE_CHECKING:
    from imem.credibility.disputes.cells import Point
    from imem.credibility.disputes.explanations import RivalReason
    from imem.credibility.disputes.reading import MetricValue
    from imem.credibility.disputes.values import Rival

CONFIRMING: Final = 3
"""Most documents that are named as confirming a value; of others the number is told."""


def value_lines(answer: MetricValue) -> Iterator[str]:
    """Yield what counts, who states it, and each rival with the rule that decides."""
    standing, explanation = answer.standing, answer.explanation
    if answer.cell is None or standing is None or explanation is None:
        yield f"No data point was known as of {moment(answer.as_of)}."
        return
    sure = f"{standing.confidence:.0%} sure, as of {moment(answer.as_of)}: {name(answer.cell.text)}"
    if standing.point is None:
        yield f"No value counts: it is uncertain, {sure}"
    else:
        how = "counts" if standing.status is ContradictionStatus.RESOLVED else "counts provisionally"
        yield f"{number(standing.point.value)} {name(answer.cell.unit)} {how}, {sure}"
    lead = "stated by" if standing.point is not None else f"{number(standing.candidate.value)} stated by"
    yield f"- {lead} {_source(standing.candidate, explanation.score)}{_confirmed(explanation.stated)}"
    for rival, reason in zip(standing.rivals, explanation.reasons, strict=True):
        if rival.difference is not DataDifference.AGREEMENT:
            yield _rival(rival, reason)


def difference_lines(answer: Sequence[Any]) -> Iterator[str]:
    """Yield the neighbours that differ, as ``Memory.differences`` gives them; the value that was known first first."""
    for row in answer:
        a, b = (f"{number(row[side]['value'])} by {_stated(row[side])}" for side in "ab")
        period = row["period_end"][:10] if row["period_start"] is None else _period(row)
        yield f"- {name(row['metric'])} {period} ({name(row['unit'])}) {row['difference']}: {a}, then {b}"


def _period(row: Any) -> str:
    return f"{row['period_start'][:10]} to {row['period_end'][:10]}"


def _source(point: Point, score: float) -> str:
    filed = f"filed {point.filed_at:%Y-%m-%d}, known {point.known_at:%Y-%m-%d}"
    return f"{name(point.source)} (score {score:.2f}) in {name(point.document)}, {filed}"


def _stated(side: Any) -> str:
    return f"{name(side['source'])} in {name(side['document'])}, known {side['known_at'][:10]}"


def _confirmed(stated: Sequence[Point]) -> str:
    """Return the later documents that state what the first one did."""
    first, *later = stated
    if not later:
        return ""
    named = ", ".join(f"{name(one.source)} in {name(one.document)}" for one in later[:CONFIRMING])
    more = f" and {len(later) - CONFIRMING:,} more" if len(later) > CONFIRMING else ""
    return f"; first in {name(first.document)}, known {first.known_at:%Y-%m-%d}, confirmed by {named}{more}"


def _rival(rival: Rival, reason: RivalReason) -> str:
    apart = f"{rival.difference.value}, {reason.differ_by:.1%} apart"
    return (
        f"- against {number(rival.point.value)} by {_source(rival.point, reason.score)}: {apart}; {_why(rival, reason)}"
    )


def _why(rival: Rival, reason: RivalReason) -> str:
    verdict = rival.verdict
    if verdict is None:
        return "no contradiction" if not rival.contradicts else "replaced since"
    sure = f"{verdict.confidence:.0%} sure"
    if reason.decided_by is not None and reason.decided_at is not None:
        return f"{name(reason.decided_by)} decided on {moment(reason.decided_at)} ({sure})"
    return f"level {verdict.level.value.partition('_')[0]}: {reason.rule} ({sure})"
