"""The order of precedents, and what they say together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from imem.credibility.scores.wilson import wilson
from imem.debates.precedents.model import (
    LEAST_FOR_LESSON,
    Precedent,
    PrecedentQuestion,
    PrecedentRate,
    Precedents,
    PrecedentWeights,
)
from imem.kg.asof import RecordAsOf
from imem.kg.kinds.enums import DebateState, ResolutionMethod

DIGITS: Final = 2
"""Decimals of a score: precedents that differ by less are equal, and the newest comes first."""


def is_resolved(debate: RecordAsOf) -> bool:
    """Return whether *debate* was closed, and not by withdrawal or as superseded."""
    return debate.groups.get("state", {}).get("state") == DebateState.CLOSED


def precedent(
    debate: RecordAsOf,
    resolutions: Sequence[RecordAsOf],
    *,
    domain: str | None,
    text: float,
    question: PrecedentQuestion,
    weights: PrecedentWeights,
) -> Precedent:
    """
    Return a resolved debate as a precedent.

    Args:
        resolutions: of the debate; the newest counts.
        domain: of the finding that it disputed.
        text: likeness of its text, 0 to 1.
    """
    core, state = debate.core, debate.groups["state"]
    newest = max(resolutions, key=lambda one: (one.known_at, one.key), default=None)
    end: dict[str, Any] = {} if newest is None else dict(newest.core)
    outcome = {} if newest is None else newest.groups.get("outcome", {})
    agents = {core["challenger_agent"], core["challenged_agent"]}
    same_subject = question.subject_id is not None and core["subject_id"] == question.subject_id
    same_agents = question.challenger is not None and agents == {question.challenger, question.challenged}
    same_domain = domain is not None and domain == question.domain
    score = weights.text * text + weights.subject * same_subject
    score += weights.agents * same_agents + weights.domain * same_domain
    return Precedent(
        debate_id=debate.key,
        subject_id=core["subject_id"],
        topic=core["topic"],
        opened_at=core["timestamp"],
        challenger=core["challenger_agent"],
        challenged=core["challenged_agent"],
        domain=domain,
        level=state.get("resolution_level"),
        method=state.get("resolution_method"),
        winner=end.get("winning_agent"),
        position=end.get("winning_position") or state.get("final_position"),
        differential=end.get("credibility_differential"),
        accuracy=outcome.get("outcome_correctness"),
        by_credibility=state.get("resolution_method") == ResolutionMethod.CREDIBILITY_WEIGHTED,
        same_subject=same_subject,
        same_agents=same_agents,
        same_domain=same_domain,
        score=round(score, DIGITS),
    )


def best(found: Iterable[Precedent], k: int) -> list[Precedent]:
    """Return the *k* best, the newest first among equals, then by id."""
    by_id = sorted(found, key=lambda one: one.debate_id)
    by_age = sorted(by_id, key=lambda one: one.opened_at, reverse=True)
    return sorted(by_age, key=lambda one: one.score, reverse=True)[:k]


def with_rates(answer: Precedents) -> Precedents:
    """Return *answer* with what its items say together: an unknown outcome is in no rate."""
    accuracy = rate([one.accuracy for one in answer.items if one.accuracy is not None])
    chosen = [one for one in answer.items if one.winner is not None and not one.by_credibility]
    won = rate([float(one.winner == one.challenger) for one in chosen])
    lesson = None
    if accuracy.share is not None and accuracy.n >= LEAST_FOR_LESSON:
        lesson = (
            f"The winning position was right in {accuracy.share:.0%} of {accuracy.n} comparable debates "
            f"(95 % interval {accuracy.lower:.0%} to {accuracy.upper:.0%})."
        )
    return answer.model_copy(update={"accuracy": accuracy, "challenger_won": won, "lesson": lesson})


def rate(values: Sequence[float]) -> PrecedentRate:
    """Return the mean of *values*, each from 0 to 1, with Wilson's interval; without any there is no share."""
    if not values:
        return PrecedentRate()
    share, n = sum(values) / len(values), len(values)
    interval = wilson(share, n)
    return PrecedentRate(share=share, n=n, lower=interval.lower, upper=interval.upper)
