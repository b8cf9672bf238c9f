"""Scores of probabilities, and calibration: worked examples."""

from __future__ import annotations

from statistics import fmean

import pytest

from imem.credibility.scores.calibration import Calibration, CalibrationBin, calibration
from imem.credibility.settlement import brier, log_score
from imem.credibility.skill import BrierComparison, skill


@pytest.mark.spec("CR-21")
def test_brier_skill_and_log() -> None:
    said = [(0.9, 1), (0.7, 1), (0.6, 0), (0.2, 0)]
    own, other = (sum(brier(p, y) for p, y in pairs) for pairs in (said, [(0.5, y) for _, y in said]))

    found = skill(BrierComparison(own, other, own**2, own * other, other**2))

    assert own / 4 == pytest.approx(0.1250)
    assert found is not None
    assert found.value == pytest.approx(0.5000)
    assert fmean(log_score(p, y) for p, y in said) == pytest.approx(0.4004, abs=5e-5)


@pytest.mark.spec("CR-21")
@pytest.mark.parametrize(("observations", "applied"), [(49, False), (50, True)])
def test_calibration_is_applied_from_fifty_observations(observations: int, *, applied: bool) -> None:
    found = calibration([CalibrationBin(9, 60, 54.0, 42)], observations)

    assert (found.stated, found.realised) == pytest.approx((0.90, 0.70))
    assert found.factor == pytest.approx(0.7778, abs=5e-5)
    assert found.applied is applied
    assert found.apply(0.9) == pytest.approx(0.7 if applied else 0.9)


def test_nothing_stated_and_a_factor_above_one() -> None:
    assert calibration([], 0) == Calibration(0, 0, None, None, None, applied=False, bins=())
    assert calibration([CalibrationBin(0, 60, 0.0, 3)], 60).factor is None
    assert calibration([CalibrationBin(5, 60, 30.0, 60)], 60).apply(0.8) == 1.0
