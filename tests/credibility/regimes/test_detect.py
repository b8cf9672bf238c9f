"""The six rules, at and beside every boundary, and what a missing indicator does."""

from __future__ import annotations

from datetime import UTC, datetime
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imem.credibility.regimes.detect import DetectedRegime, Indicators, detect
from imem.credibility.regimes.providers import IndicatorRow, indicators_at
from imem.kg.kinds.enums import Regime

pytestmark = pytest.mark.spec("CR-7")

NOISE = 1e-10
"""Less than the tolerance."""

CASES = [
    # r, f, v → the regime: CR-7's own, the inside of every rule, and its boundaries.
    ((-0.05, 4.0, 22.0), Regime.NORMAL),
    ((0.05, 4.0, 30.0), Regime.NORMAL),
    ((0.05, 4.0, 30.0 + NOISE), Regime.NORMAL),
    ((0.05, 4.0, 30.001), Regime.HIGH_VOLATILITY),
    ((0.20, 5.0, 31.0), Regime.HIGH_VOLATILITY),
    ((0.10, 3.0, 30.0), Regime.BULL_HIGH_RATES),
    ((0.10 - NOISE, 3.0 - NOISE, 15.0), Regime.BULL_HIGH_RATES),
    ((0.10, 2.999, 19.999), Regime.BULL_LOW_RATES),
    ((0.10, 2.0, 20.0), Regime.NORMAL),
    ((0.10, 2.0, 20.0 - NOISE), Regime.NORMAL),
    ((0.099, 2.0, 15.0), Regime.NORMAL),
    ((-0.001, 3.0, 25.001), Regime.BEAR_HIGH_RATES),
    ((-0.001, 3.0, 25.0), Regime.NORMAL),
    ((-0.001, 3.0, 25.0 + NOISE), Regime.NORMAL),
    ((-0.001, 2.999, 15.0), Regime.BEAR_LOW_RATES),
    ((-NOISE, 2.0, 15.0), Regime.NORMAL),
    ((0.0, 2.0, 15.0), Regime.NORMAL),
]


@pytest.mark.parametrize(("values", "regime"), CASES)
def test_the_first_rule_that_matches_decides(values: tuple[float, float, float], regime: Regime) -> None:
    assert detect(Indicators(*values), Regime.BEAR_LOW_RATES) == DetectedRegime(regime, stale=False)


@given(st.floats(-1, 3), st.floats(-5, 20), st.floats(0, 100), st.sampled_from(Regime))
def test_every_triple_has_the_regime_of_the_table(r: float, f: float, v: float, previous: Regime) -> None:
    """Beside the boundaries, the table as it is written."""
    if min(abs(r), abs(r - 0.1), abs(f - 3), abs(v - 20), abs(v - 25), abs(v - 30)) < 1e-6:
        return
    if v > 30:
        wanted = Regime.HIGH_VOLATILITY
    elif r >= 0.10 and f >= 3:
        wanted = Regime.BULL_HIGH_RATES
    elif r >= 0.10 and v < 20:
        wanted = Regime.BULL_LOW_RATES
    elif r < 0 and f >= 3 and v > 25:
        wanted = Regime.BEAR_HIGH_RATES
    elif r < 0 and f < 3:
        wanted = Regime.BEAR_LOW_RATES
    else:
        wanted = Regime.NORMAL
    assert detect(Indicators(r, f, v), previous) == DetectedRegime(wanted, stale=False)


@pytest.mark.spec("CR-8")
@pytest.mark.parametrize("missing", Indicators._fields)
def test_a_missing_indicator_keeps_the_regime_and_says_so(missing: str) -> None:
    given = Indicators(0.2, 1.0, 40.0)._replace(**{missing: None})
    assert detect(given, Regime.BEAR_LOW_RATES) == DetectedRegime(Regime.BEAR_LOW_RATES, stale=True)
    assert detect(given, None) == DetectedRegime(Regime.NORMAL, stale=True)


@pytest.mark.spec("CR-8")
@pytest.mark.parametrize("wrong", [nan, inf, -inf])
@pytest.mark.parametrize("name", Indicators._fields)
def test_what_is_no_number_is_missing(name: str, wrong: float) -> None:
    given = Indicators(0.2, 5.0, 12.0)._replace(**{name: wrong})
    row = IndicatorRow(datetime(2024, 6, 1, tzinfo=UTC), given)

    assert detect(given, Regime.BEAR_LOW_RATES) == DetectedRegime(Regime.BEAR_LOW_RATES, stale=True)
    assert getattr(indicators_at([row], row.known_at), name) is None
