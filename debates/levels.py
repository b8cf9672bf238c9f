"""
Whether the records of the two sides of a debate may end it at level 2 (sync-and-debates, section 2.3). Pure.

The scores are compared by :func:`imem.credibility.scores.auto_resolve.auto_resolve`, which is applied on both bases. A
debate adds two conditions: its priority, and evidence of both sides.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal, NamedTuple

from imem.credibility.scores.auto_resolve import AutoResolution, Basis, Contender, auto_resolve
from imem.credibility.scores.auto_resolve import Reason as ScoreReason
from imem.kg.kinds.enums import DebatePriority


class Level2Reason(StrEnum):
    """Why records decide a debate, or why they do not; with all but the first it goes on to level 3."""

    DIFFERENTIAL = "differential"
    """The scores differ by more than the threshold: the higher one wins."""
    CRITICAL_PATH = "critical_path"
    """Its priority is critical_path: records never decide it."""
    MISSING_EVIDENCE = "missing_evidence"
    """A side has supplied no evidence."""
    INSUFFICIENT_DECISIONS = "insufficient_decisions"
    """A side has fewer than 15 decisions in similar context, or no score."""
    BELOW_THRESHOLD = "below_threshold"
    """The scores differ by the threshold at most."""
    STALE_SCORES = "stale_scores"
    """The scores are older than a day."""
    OVERRIDE_FLAG = "override_flag"
    """People rightly override the side that would win."""


class Level2Verdict(NamedTuple):
    """
    The verdict of the rule of level 2 on a debate.

    Attributes:
        resolved: whether the records decide it.
        reason: why.
        winner: the side that wins: ``a`` or ``b``; None where they do not decide it.
        scores: the verdicts on both bases and the one in force; None where a side has no record.
    """

    resolved: bool
    reason: Level2Reason
    winner: Literal["a", "b"] | None
    scores: AutoResolution | None


_REASONS: Final = {
    ScoreReason.DIFFERENTIAL: Level2Reason.DIFFERENTIAL,
    ScoreReason.STALE: Level2Reason.STALE_SCORES,
    ScoreReason.INSUFFICIENT_SAMPLE: Level2Reason.INSUFFICIENT_DECISIONS,
    ScoreReason.MISSING_SCORE: Level2Reason.INSUFFICIENT_DECISIONS,
    ScoreReason.INSUFFICIENT_DIFFERENTIAL: Level2Reason.BELOW_THRESHOLD,
    ScoreReason.OVERRIDE_FLAG: Level2Reason.OVERRIDE_FLAG,
}


def level2_verdict(
    a: Contender | None,
    b: Contender | None,
    *,
    priority: DebatePriority | None,
    evidence: bool,
    basis: Basis = Basis.POSTERIOR,
) -> Level2Verdict:
    """
    Return whether the records of sides *a* and *b* decide their debate, and why.

    Args:
        a, b: the sides; None: there is no record of that agent, which counts as too few decisions.
        priority: of the debate; None is none of the listed ones.
        evidence: whether both sides have supplied evidence.
        basis: which verdict is in force; both are returned.
    """
    scores = None if a is None or b is None else auto_resolve(a, b, basis)
    reason = Level2Reason.INSUFFICIENT_DECISIONS if scores is None else _REASONS[scores.effective.reason]
    if not evidence:
        reason = Level2Reason.MISSING_EVIDENCE
    if priority == DebatePriority.CRITICAL_PATH:
        reason = Level2Reason.CRITICAL_PATH
    if scores is None or reason is not Level2Reason.DIFFERENTIAL:
        return Level2Verdict(resolved=False, reason=reason, winner=None, scores=scores)
    return Level2Verdict(resolved=True, reason=reason, winner=scores.effective.winner, scores=scores)
