"""Whether stated probabilities come true as often as stated (credibility-and-contradictions, section 4). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

ENOUGH_TO_RECALIBRATE: Final = 50
"""Observations from which the factor is applied."""

BINS: Final = 10
"""Bins of equal width that claims are shown in."""


@dataclass(frozen=True, slots=True)
class CalibrationBin:
    """Claims whose probability lies in one bin: how many, the sum of their probabilities, and how many came true."""

    bin: int
    claims: int
    stated: float
    happened: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """
    Calibration of stated probabilities.

    Attributes:
        observations: claims with one ``target_at`` count once.
        claims: claims that stated a probability.
        stated, realised: mean probability, and share that came true; None without claims.
        factor: *realised* by *stated*; None where nothing was stated above 0.
        applied: whether there are observations enough to apply it.
        bins: the claims by probability, without empty bins.
    """

    observations: int
    claims: int
    stated: float | None
    realised: float | None
    factor: float | None
    applied: bool
    bins: tuple[CalibrationBin, ...]

    def apply(self, probability: float) -> float:
        """Return *probability* times the factor, at most 1; unchanged where the factor is not applied."""
        return probability if not self.applied or self.factor is None else min(probability * self.factor, 1.0)


def calibration(bins: Sequence[CalibrationBin], observations: int) -> Calibration:
    """Return the calibration of the claims in *bins*, from so many observations."""
    claims = sum(one.claims for one in bins)
    if not claims:
        return Calibration(observations, 0, None, None, None, applied=False, bins=())
    stated, realised = (sum(sums) / claims for sums in ((b.stated for b in bins), (b.happened for b in bins)))
    factor = realised / stated if stated > 0.0 else None
    applied = factor is not None and observations >= ENOUGH_TO_RECALIBRATE
    return Calibration(
        observations, claims, stated, realised, factor, applied, tuple(sorted(bins, key=lambda one: one.bin))
    )
