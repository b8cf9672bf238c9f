"""
Whether a success was skill or luck (postmortem-and-gates, section 3). Pure.

The return of the subject is the sum of three parts: the market's return m, the sector's beyond it c, and the rest s; of
decisions that expect a fall, all of them times -1. The share of a part is its positive amount over the sum of all
positive amounts, so that shares lie between 0 and 1 and sum to 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from imem.kg.kinds.enums import SuccessClass

THESIS_RIGHT: Final = 0.7
"""Above this a thesis is right."""

GENUINE: Final = 0.6
"""Above this, and with a right thesis, a success is genuine."""

PARTIAL: Final = 0.4
"""Above this, and better than the market, a success is partly genuine."""

LEAST_RETURN: Final = 0.02
"""A return below this in size cannot be divided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """
    The parts of a return, and what they say.

    Attributes:
        market, sector, specific: the signed parts.
        market_share, sector_share, specific_share: their shares, 0 to 1; all 0 where no part is positive.
        skill_ratio: the specific share times the thesis score.
        classification: what it was.
    """

    market: float
    sector: float
    specific: float
    market_share: float
    sector_share: float
    specific_share: float
    skill_ratio: float
    classification: SuccessClass


def attribute(stock: float, market: float, sector: float, thesis_score: float, *, falls: bool = False) -> Attribution:
    """
    Return what a success rests on.

    Args:
        stock, market, sector: total returns of the subject, the market and its sector in the same period.
        thesis_score: the weight of the points of the thesis that came true, 0 to 1.
        falls: whether the decision expected a fall.
    """
    sign = -1.0 if falls else 1.0
    parts = (sign * market, sign * (sector - market), sign * (stock - sector))
    positive = [max(part, 0.0) for part in parts]
    total = sum(positive)
    shares = [part / total if total else 0.0 for part in positive]
    skill = shares[2] * thesis_score
    if abs(stock) < LEAST_RETURN:
        found = SuccessClass.NOT_ASSESSABLE
    elif skill > GENUINE and thesis_score > THESIS_RIGHT:
        found = SuccessClass.GENUINE_SUCCESS
    elif skill > PARTIAL and sign * stock > sign * market:
        found = SuccessClass.PARTIAL_SUCCESS
    else:
        found = SuccessClass.LUCKY_SUCCESS
    return Attribution(
        market=parts[0], sector=parts[1], specific=parts[2], market_share=shares[0], sector_share=shares[1],
        specific_share=shares[2], skill_ratio=skill, classification=found,
    )  # fmt: skip
