"""
A task for people: with a pattern, agents forecast what they forecast without it.

This alone does not contaminate a test: agents that discover a real effect by themselves forecast alike, too
(pattern-validation, section 15.10). So a person looks within a week whether the pattern reached them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from imem.jobs.lifecycle import Effects
from imem.patterns.evidence.blind import Pair
from imem.review.kinds import TaskAction, TaskKind

ALIKE: Final = 0.95
"""Share of pairs whose two forecasts are equal, from which a person is asked."""

LEAST_PAIRS: Final = 10

SAME: Final = 1e-9


class AlikePairs(BaseModel):
    """
    The view of the reviewer.

    Attributes:
        pattern_id, says: of the candidate.
        pairs, equal: completed pairs, and those whose two forecasts are equal.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    pattern_id: str
    says: str
    pairs: int
    equal: int


def alike(pattern_id: str, says: str, pairs: Sequence[Pair]) -> AlikePairs | None:
    """Return what a person is asked about the pairs of a blind test; None if they differ enough."""
    equal = sum(abs(pair.with_pattern - pair.without_pattern) < SAME for pair in pairs)
    if len(pairs) < LEAST_PAIRS or equal < ALIKE * len(pairs):
        return None
    return AlikePairs(pattern_id=pattern_id, says=says, pairs=len(pairs), equal=equal)


async def _noted(*_: Any) -> Effects:
    """Change nothing: the answer is kept with its task, and whoever saw a leak withdraws the pattern."""
    return Effects()


SIMILARITY: Final[TaskKind[Any, AlikePairs]] = TaskKind(
    name="similarity",
    package=AlikePairs,
    actions=TaskKind.of(
        TaskAction(name="explain", does="Keep what you found with the task; withdraw the pattern if it leaked.",
                   rationale=True),
    ),
    headline=lambda seen: f"{seen.equal} of {seen.pairs} forecasts are the same with the candidate {seen.pattern_id}.",
    default=lambda _: "The blind test stands.",
    apply=_noted,
    due=timedelta(days=7),
    queued=False,
    minutes=15.0,
)  # fmt: skip
