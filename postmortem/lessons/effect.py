"""
Whether a lesson worked: the accuracy of decisions before and after it, against those that it does not speak of. Pure.

The uplift is (after - before) in scope, less (after - before) of the same agents out of scope: what changed for other
reasons changed there, too. Its 95 % interval is that of a permutation test: within the scope, and outside it, the
decisions less the mean of their cell are dealt anew to before and after, which says how far a difference lies from zero
where there is none. What is left of N decisions after two means were taken off spreads too little; the differences are
widened by the root of (N - 1)/(N - 2), so that their variance is that of a difference of two means.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from math import sqrt
from statistics import fmean
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

LEAST: Final = 10
"""Decisions of a cell, below which nothing is said."""

CHECKPOINT: Final = 90
"""The checkpoint whose accuracy counts, in days after the decision."""

DEALS: Final = 4_999
"""How often decisions are dealt anew."""

DEALT_AT_ONCE: Final = 100
"""Deals that are held in memory at a time."""

SEED: Final = 20_260_105

Cell = tuple[bool, bool]
"""Whether decisions are in scope, and whether they were made after the lesson was applied."""

CELLS: Final[Mapping[Cell, str]] = {
    (True, False): "before_in_scope", (True, True): "after_in_scope",
    (False, False): "before_outside", (False, True): "after_outside",
}  # fmt: skip


class EffectVerdict(StrEnum):
    """The verdict of the interval."""

    INSUFFICIENT = "insufficient"
    """A cell has fewer than ten decisions."""
    EFFECTIVE = "effective"
    """The interval lies above zero."""
    HARMFUL = "harmful"
    """The interval lies below zero."""
    UNCLEAR = "unclear"
    """The interval contains zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredDecision:
    """
    A decision of an agent that has the lesson.

    Attributes:
        decision_id, decided_at: of the decision.
        accuracy: at the checkpoint, a fraction 0-1.
        in_scope: whether it is one of those that the lesson speaks of.
    """

    decision_id: str
    decided_at: datetime
    accuracy: float
    in_scope: bool


class CellMean(BaseModel):
    """Decisions of one cell: how many, and their mean accuracy; None without any."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    decisions: int
    accuracy: float | None = None


class LessonEffect(BaseModel):
    """
    The effect of a lesson.

    Attributes:
        applied_at: when it was applied; None if it was not.
        before_in_scope, after_in_scope, before_outside, after_outside: the four cells.
        uplift: in accuracy; None where a cell is too small.
        low, high: its 95 % interval.
        verdict: what the interval says.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    applied_at: datetime | None = None
    before_in_scope: CellMean
    after_in_scope: CellMean
    before_outside: CellMean
    after_outside: CellMean
    uplift: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: EffectVerdict


def effect_of(
    decisions: Iterable[MeasuredDecision], applied_at: datetime | None, *, made_it: Collection[str] = ()
) -> LessonEffect:
    """
    Return the effect of a lesson that was applied at *applied_at*.

    Args:
        made_it: the decisions behind the lesson, which are in neither period.
    """
    cells: dict[Cell, list[float]] = {cell: [] for cell in CELLS}
    for one in decisions:
        if one.decision_id not in made_it:
            cells[one.in_scope, applied_at is not None and one.decided_at > applied_at].append(one.accuracy)
    shown: dict[str, Any] = {
        name: CellMean(decisions=len(cells[cell]), accuracy=fmean(cells[cell]) if cells[cell] else None)
        for cell, name in CELLS.items()
    }
    if any(len(values) < LEAST for values in cells.values()):
        return LessonEffect(applied_at=applied_at, **shown, verdict=EffectVerdict.INSUFFICIENT)
    uplift = _change(cells, in_scope=True) - _change(cells, in_scope=False)
    low, high = _interval(cells, uplift)
    verdict = EffectVerdict.EFFECTIVE if low > 0 else EffectVerdict.HARMFUL if high < 0 else EffectVerdict.UNCLEAR
    return LessonEffect(applied_at=applied_at, **shown, uplift=uplift, low=low, high=high, verdict=verdict)


def _change(cells: Mapping[Cell, list[float]], *, in_scope: bool) -> float:
    return fmean(cells[in_scope, True]) - fmean(cells[in_scope, False])


def _interval(cells: Mapping[Cell, list[float]], uplift: float) -> tuple[float, float]:
    import numpy as np  # noqa: PLC0415 - who asks for no effect needs none of it
    from scipy.stats import permutation_test  # noqa: PLC0415 - as above

    def dealt(*, in_scope: bool) -> Any:
        before, after = (np.array(cells[in_scope, late]) - fmean(cells[in_scope, late]) for late in (False, True))
        many = len(before) + len(after)
        return sqrt((many - 1) / (many - 2)) * permutation_test(
            (after, before), lambda a, b, axis: np.mean(a, axis=axis) - np.mean(b, axis=axis), vectorized=True,
            n_resamples=DEALS, batch=DEALT_AT_ONCE, random_state=np.random.default_rng((SEED, in_scope)),
        ).null_distribution  # fmt: skip

    least, most = np.quantile(dealt(in_scope=True) - dealt(in_scope=False), (0.025, 0.975))
    return float(uplift - most), float(uplift - least)
