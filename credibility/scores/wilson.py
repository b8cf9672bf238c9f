"""Wilson score interval of a proportion (credibility-and-contradictions, section 3). Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

Z: Final = 1.96


@dataclass(frozen=True, slots=True)
class WilsonInterval:
    """Bounds of a proportion, fractions 0 to 1."""

    lower: float
    upper: float

    @property
    def half_width(self) -> float:
        """Half the width; the CI of section 3."""
        return (self.upper - self.lower) / 2


def wilson(share: float, n: float) -> WilsonInterval:
    """Return the 95 % interval of *share* out of *n* observations; without any, from 0 to 1."""
    if n <= 0.0:
        return WilsonInterval(0.0, 1.0)
    square = Z * Z
    # Both fractions of the formula multiplied by n, so that no n is too small.
    centre = (share * n + square / 2.0) / (n + square)
    margin = Z * math.sqrt(share * (1.0 - share) * n + square / 4.0) / (n + square)
    return WilsonInterval(max(centre - margin, 0.0), min(centre + margin, 1.0))
