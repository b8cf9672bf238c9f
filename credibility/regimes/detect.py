"""The regime that follows from three indicators (credibility-and-contradictions, section 2). Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from imem.kg.kinds.enums import Regime

TOLERANCE: Final = 1e-9
"""Values that differ by no more are equal: noise of floats decides no boundary."""


class Indicators(NamedTuple):
    """
    Indicators of a market; None where one is missing, or too old to tell; what is no finite number is missing too.

    Attributes:
        sp500_return_12m: return of the S&P 500 over the trailing twelve months, not the year to date; a fraction.
        fed_funds: the Federal funds rate, in percent points.
        vix: the VIX, in index points.
    """

    sp500_return_12m: float | None = None
    fed_funds: float | None = None
    vix: float | None = None


class DetectedRegime(NamedTuple):
    """
    A detected regime.

    Attributes:
        regime: the regime.
        stale: an indicator was missing, so that it is the previous one.
    """

    regime: Regime
    stale: bool


def _above(value: float, bound: float) -> bool:
    return value > bound + TOLERANCE


def _below(value: float, bound: float) -> bool:
    return value < bound - TOLERANCE


_RULES: Final[tuple[tuple[Regime, Callable[[float, float, float], bool]], ...]] = (
    (Regime.HIGH_VOLATILITY, lambda _r, _f, v: _above(v, 30.0)),
    (Regime.BULL_HIGH_RATES, lambda r, f, _v: not _below(r, 0.10) and not _below(f, 3.0)),
    (Regime.BULL_LOW_RATES, lambda r, f, v: not _below(r, 0.10) and _below(f, 3.0) and _below(v, 20.0)),
    (Regime.BEAR_HIGH_RATES, lambda r, f, v: _below(r, 0.0) and not _below(f, 3.0) and _above(v, 25.0)),
    (Regime.BEAR_LOW_RATES, lambda r, f, _v: _below(r, 0.0) and _below(f, 3.0)),
)
"""The first whose condition holds is the regime; none: NORMAL."""


def detect(given: Indicators, previous: Regime | None) -> DetectedRegime:
    """
    Return the regime that follows from *given*.

    Args:
        given: the indicators; with one missing the regime is the previous one, stale.
        previous: None where none is known, which counts as NORMAL.
    """
    stated = [one for one in given if one is not None and math.isfinite(one)]
    if len(stated) < len(given):
        return DetectedRegime(previous or Regime.NORMAL, stale=True)
    for regime, holds in _RULES:
        if holds(*stated):
            return DetectedRegime(regime, stale=False)
    return DetectedRegime(Regime.NORMAL, stale=False)
