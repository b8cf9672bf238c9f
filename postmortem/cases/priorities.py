"""
How urgent a case is: by the deviation, or by its impact (postmortem-and-gates, section 2). Pure.

The impact is 100 (0.25 f_deviation + 0.35 f_loss + 0.30 f_portfolio + 0.10 f_sector), with
f_deviation = 1 / (1 + exp(-0.02 (deviation in percent - 50))), f_loss = log10(loss / 1000) / 3 between 0 and 1,
f_portfolio = share of the portfolio in percent / 5 up to 1, and f_sector = failures in the sector / 5 up to 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import exp, log10
from typing import Final


class PriorityPolicy(StrEnum):
    """The order of the queue of cases."""

    DEVIATION = "deviation"
    WEIGHTED = "weighted"

    @property
    def column(self) -> str:
        """The field of a case that orders the queue; the largest comes first."""
        return "impact" if self is PriorityPolicy.WEIGHTED else "deviation"


SYSTEMIC: Final = 0.60
"""A systemic factor above this is flagged for immediate review."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Impact:
    """
    The facts from which an impact follows.

    Attributes:
        deviation: as a fraction: 3.5 is 350 percent.
        loss_usd: what was lost; 0 without a loss, or where the size of the position is unknown.
        portfolio_share: of the position, as a fraction; 0 where it is unknown.
        sector_failures: other cases of the same sector in 90 days.
    """

    deviation: float
    loss_usd: float = 0.0
    portfolio_share: float = 0.0
    sector_failures: int = 0

    @property
    def systemic(self) -> float:
        """Return the factor of the sector, 0 to 1."""
        return min(self.sector_failures / 5.0, 1.0)

    @property
    def score(self) -> float:
        """Return the impact, 0 to 100."""
        f_deviation = 1.0 / (1.0 + exp(-0.02 * (min(self.deviation * 100.0, 1e6) - 50.0)))
        f_loss = min(log10(max(self.loss_usd, 1_000.0) / 1_000.0) / 3.0, 1.0)
        f_portfolio = min(self.portfolio_share * 100.0 / 5.0, 1.0)
        return 100.0 * (0.25 * f_deviation + 0.35 * f_loss + 0.30 * f_portfolio + 0.10 * self.systemic)
